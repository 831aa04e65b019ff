//! Whole operations: check out, `ping`, check in.
//!
//! How many there are in a second depends on the server and the kernel as much as on the client, and on the
//! [`Arrangement`], which knows where the clock has a bar. What the client works for each, kernel included, is its own, and
//! much the same from run to run: on one CPU bars are set on that, too.

use cmap_runtime::Runtime;

use crate::Harness;
use crate::arrangement::Arrangement;
use crate::bare_socket::BareSocket;
use crate::contender::SIZE;
use crate::cpu::worked;
use crate::figures::{ROUNDS, Rounds};
use crate::official::Official;
use crate::pinger::{Cmap, Load, ROUND};
use crate::report::{Report, Table};
use crate::tasks::clock;

/// How many tasks ping.
const TASKS: [usize; 3] = [1, 8, 64];

/// How many times the official driver's throughput ours has to be.
const FASTER: f64 = 1.3;

/// How many thousand pings there were, round by round.
#[derive(Default)]
struct Throughput {
    /// In a second.
    by_time: Rounds,
    /// In a second of the client's work.
    by_work: Rounds,
}

/// Compares cmap with the official driver, which runs on as many threads of tokio, and with a bare socket.
pub fn compare<H: Harness>(runtime: &str, arrangement: Arrangement, report: &mut Report) {
    let name = format!("{runtime}, {arrangement}");
    let Some((server, _kept)) = arrangement.start() else {
        println!("\n{name}: skipped, since there is one CPU alone, or no way to choose one");
        return;
    };
    let ours = Cmap::<H>::connect(&server);
    let official = Official::connect(&server, arrangement.threads());
    let mut bare = BareSocket::connect(&server);
    println!("\n{name}: pings, {SIZE} connections, {ROUNDS} rounds of {ROUND:?} in turn, median (least–most)");

    let [mut by_time, mut by_work] =
        [(); 2].map(|()| Table::new(&["tasks", "cmap", "official driver", "ratio", "bare socket"]));
    for tasks in TASKS {
        let [mut own, mut theirs, mut floor] = <[Throughput; 3]>::default();
        for _ in 0..ROUNDS {
            own.round(|| ours.ping_for_a_round(tasks));
            theirs.round(|| official.ping_for_a_round(tasks));
            if tasks == 1 {
                floor.round(|| bare.ping_for_a_round());
            }
        }
        let row = |table: &mut Table, [own, theirs, floor]: [&Rounds; 3]| {
            let ratio = own.ratio_to(theirs);
            table.row([tasks.to_string(), own.show(1), theirs.show(1), ratio.show(2), floor.show(1)]);
            ratio
        };
        let times = row(&mut by_time, [&own.by_time, &theirs.by_time, &floor.by_time]);
        let works = row(&mut by_work, [&own.by_work, &theirs.by_work, &floor.by_work]);
        let mut bar = |by: &str, ratio: &Rounds| {
            let what = format!("{name}: tasks: {tasks}, {by}: {FASTER} times the official driver's pings");
            report.bar(what, ratio.show(2), ratio.median() >= FASTER);
        };
        if arrangement.is_judged_by_time(tasks) {
            bar("by the clock", &times);
        }
        if arrangement.is_judged_by_work(H::Runtime::NAME) {
            bar("for the same work", &works);
        }
    }
    by_time.print("thousand pings a second");
    by_work.print("thousand pings in a second of the client's work");
}

impl Throughput {
    /// Adds a round of the pings that `run` counts.
    fn round(&mut self, run: impl FnOnce() -> u32) {
        let (start, worked_before) = (clock(), worked());
        let thousands = f64::from(run()) / 1e3;
        let work = worked() - worked_before;
        self.by_time.push(thousands / start.elapsed().as_secs_f64());
        self.by_work.push(thousands / work.as_secs_f64());
    }
}
