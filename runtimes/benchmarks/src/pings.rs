//! Whole operations: check out, `ping`, check in.
//!
//! The pings in a second depend on the server and the kernel as much as on the client, and on the [`Arrangement`]. The
//! client's own work for each ping, kernel included, has a bar: it is compared with the work of the runtime's bare
//! sockets for the same bytes. The official driver's figures are printed, and have no bar.

use crate::Harness;
use crate::arrangement::Arrangement;
use crate::bare_sockets::BareSockets;
use crate::contender::SIZE;
use crate::cpu::worked;
use crate::figures::Rounds;
use crate::official::Official;
use crate::pinger::{Cmap, Load, ROUND};
use crate::report::{Report, Table};
use crate::tasks::clock;

/// How many tasks ping.
const TASKS: [usize; 3] = [1, 8, 64];

/// How often every contender pings for a round. Rounds are many and short, so that a disturbance of several rounds hits
/// all contenders.
const ROUNDS: usize = 45;

/// The client's work for a ping is at most this many times that of bare sockets.
const WORK: f64 = 1.22;

/// The target.
const GOAL: f64 = 1.12;

/// Thousands of pings, round by round.
#[derive(Default)]
struct Throughput {
    /// In a second.
    by_time: Rounds,
    /// In a second of the client's work.
    by_work: Rounds,
}

/// Compares cmap with the official driver, which runs on as many threads of tokio, and with bare sockets.
pub fn compare<H: Harness>(runtime: &str, arrangement: Arrangement, report: &mut Report) {
    let name = format!("{runtime}, {arrangement}");
    let Some((server, _kept)) = arrangement.start() else {
        println!("\n{name}: skipped, since there is one CPU alone, or no way to choose one");
        return;
    };
    let ours = Cmap::<H>::connect(&server);
    let official = Official::connect(&server, arrangement.threads());
    let bare = BareSockets::<H>::connect(&server);
    println!("\n{name}: pings, {SIZE} connections, {ROUNDS} rounds of {ROUND:?} in turn, median (quartiles)");

    let [mut by_time, mut by_work] =
        [(); 2].map(|()| Table::new(&["tasks", "cmap", "official driver", "ratio", "bare sockets", "ratio"]));
    for tasks in TASKS {
        let mut throughputs = <[Throughput; 3]>::default();
        for round in 0..ROUNDS {
            // Each takes the first, the second and the third place equally often.
            for contender in [0, 1, 2].map(|place| (place + round) % 3) {
                throughputs[contender].round(|| match contender {
                    0 => ours.ping_for_a_round(tasks),
                    1 => official.ping_for_a_round(tasks),
                    _ => bare.ping_for_a_round(tasks),
                });
            }
        }
        let times = throughputs.each_ref().map(|throughput| &throughput.by_time);
        let works = throughputs.each_ref().map(|throughput| &throughput.by_work);
        by_time.row(columns(tasks, times));
        by_work.row(columns(tasks, works));
        // More tasks than there are sockets wait for one, which bare sockets have no queue for.
        if arrangement.has_bar() && tasks <= SIZE {
            let [own, _, bare] = works;
            // Pings by work: a contender that works more for each gets fewer.
            let ratio = bare.ratio_to(own);
            let what =
                format!("{name}, tasks: {tasks}: a ping's work is at most {WORK} of bare sockets' (goal {GOAL})");
            report.bar(what, ratio.show(2), ratio.median() <= WORK);
        }
    }
    by_time.print("thousand pings a second");
    by_work.print("thousand pings in a second of the client's work");
}

fn columns(tasks: usize, [own, theirs, bare]: [&Rounds; 3]) -> [String; 6] {
    let [own_ratio, bare_ratio] = [own, bare].map(|figures| figures.ratio_to(theirs).show(2));
    [tasks.to_string(), own.show(1), theirs.show(1), own_ratio, bare.show(1), bare_ratio]
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
