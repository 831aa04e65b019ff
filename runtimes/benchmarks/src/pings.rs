//! Whole operations: check out, `ping`, check in.
//!
//! The pings in a second depend on the server and the kernel as much as on the client, and on the [`Arrangement`]. The
//! client's own work for each ping, kernel included, is printed next to the work of the runtime's bare sockets for the
//! same bytes, and next to the official driver's. The bars on a client's work are those of [`operations`](crate::operations).

use crate::Harness;
use crate::arrangement::Arrangement;
use crate::bare_sockets::BareSockets;
use crate::caller::{Cmap, Load, Operation, ROUND};
use crate::contender::SIZE;
use crate::figures::{Effort, Rounds};
use crate::official::Official;
use crate::report::Table;
use crate::server::Kind;

/// How many tasks ping.
const TASKS: [usize; 3] = [1, 8, 64];

/// How often every contender pings for a round. Rounds are many and short, so that a disturbance of several rounds hits
/// all contenders.
const ROUNDS: usize = 45;

/// Compares cmap with the official driver, which runs on as many threads of tokio, and with bare sockets.
pub fn compare<H: Harness>(runtime: &str, arrangement: Arrangement) {
    let name = format!("{runtime}, {arrangement}");
    let Some((server, _kept)) = arrangement.start(Kind::Standalone) else {
        println!("\n{name}: skipped, since there is one CPU alone, or no way to choose one");
        return;
    };
    let ours = Cmap::<H>::connect(&server);
    let official = Official::connect(&server, arrangement.threads());
    let bare = BareSockets::<H>::connect(&server);
    println!("\n{name}: pings, {SIZE} connections, {ROUNDS} rounds of {ROUND:?} in turn, median (quartiles)");

    let [mut work, mut rate] =
        [(); 2].map(|()| Table::new(&["tasks", "cmap", "official driver", "ratio", "bare sockets", "ratio"]));
    for tasks in TASKS {
        let mut efforts = <[Effort; 3]>::default();
        for round in 0..ROUNDS {
            // Each takes the first, the second and the third place equally often.
            for contender in [0, 1, 2].map(|place| (place + round) % 3) {
                efforts[contender].round(|| match contender {
                    0 => ours.call_for_a_round(Operation::PingByCheckOut, tasks),
                    1 => official.call_for_a_round(Operation::PingByCheckOut, tasks),
                    _ => bare.ping_for_a_round(tasks),
                });
            }
        }
        work.row(columns(tasks, efforts.each_ref().map(|effort| &effort.work)));
        rate.row(columns(tasks, efforts.each_ref().map(|effort| &effort.rate)));
    }
    rate.print("thousand pings a second");
    work.print("microseconds of the client's work for a ping");
}

fn columns(tasks: usize, [own, theirs, bare]: [&Rounds; 3]) -> [String; 6] {
    let [own_ratio, bare_ratio] = [own, bare].map(|figures| figures.ratio_to(theirs).show(2));
    [tasks.to_string(), own.show(1), theirs.show(1), own_ratio, bare.show(1), bare_ratio]
}
