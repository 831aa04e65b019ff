//! Operations by `Client::run`: a `ping`, a find of one document and an update of one, beside the official driver's.
//!
//! Both clients are in this process, and carry out the same operations in turn, round by round. The server is a process of
//! its own, and says it is a replica set: each command has a session, the cluster's time and what else drivers add, and
//! each reply is read as applications read it. What an operation costs is the user and system time of this process, in which
//! the server has no part. On a shared machine it moves less than the rate, which is printed next to it and has no bar.

use crate::Harness;
use crate::arrangement::Arrangement;
use crate::caller::{Cmap, Load, Operation, ROUND};
use crate::contender::SIZE;
use crate::figures::Effort;
use crate::official::Official;
use crate::report::{Report, Table};
use crate::server::Kind;

/// What they do, by the names in the table.
const OPERATIONS: [(&str, Operation); 3] =
    [("ping", Operation::Ping), ("find of one", Operation::FindOne), ("update of one", Operation::UpdateOne)];

/// How many tasks do it.
const TASKS: [usize; 3] = [1, 16, 64];

/// How often each client has a round.
const ROUNDS: usize = 40;

/// The part of the official driver's work that ours may be with one task.
const ALONE: f64 = 0.75;

/// The part that it may be with more.
const TOGETHER: f64 = 0.7;

/// Compares cmap with the official driver, which runs on as many threads of tokio.
pub fn compare<H: Harness>(runtime: &str, arrangement: Arrangement, report: &mut Report) {
    let name = format!("{runtime}, {arrangement}");
    let Some((server, _kept)) = arrangement.start(Kind::Primary) else {
        println!("\n{name}: skipped, since there is one CPU alone, or no way to choose one");
        return;
    };
    let ours = Cmap::<H>::connect(&server);
    let official = Official::connect(&server, arrangement.threads());

    let head = ["operation", "tasks", "µs of work: cmap", "official driver", "ratio"];
    let mut table = Table::new(&[&head[..], &["thousand a second: cmap", "official driver", "ratio"]].concat());
    for (operation_name, operation) in OPERATIONS {
        for tasks in TASKS {
            let [own, theirs] = in_turn([&ours, &official], operation, tasks);
            let (work, rate) = (own.work.ratio_to(&theirs.work), own.rate.ratio_to(&theirs.rate));
            let costs = [own.work.show(1), theirs.work.show(1), work.show(2)];
            let rates = [own.rate.show(1), theirs.rate.show(1), rate.show(2)];
            table.row([operation_name.into(), tasks.to_string()].into_iter().chain(costs).chain(rates));

            let bar = if tasks == 1 { ALONE } else { TOGETHER };
            let what = format!("{name}, tasks: {tasks}: {operation_name}: at most {bar} of the official driver's work");
            report.bar(what, work.show(2), work.median() <= bar);
        }
    }
    table.print(&format!(
        "{name}: operations, {SIZE} connections, {ROUNDS} rounds of {ROUND:?} in turn, median (quartiles)"
    ));
}

/// Both clients' rounds. Each has the first place equally often.
fn in_turn(clients: [&dyn Load; 2], operation: Operation, tasks: usize) -> [Effort; 2] {
    let mut efforts = <[Effort; 2]>::default();
    for client in clients {
        // The first round is not counted: connections are made, and code and data come into the caches.
        client.call_for_a_round(operation, tasks);
    }
    for round in 0..ROUNDS {
        for client in [0, 1].map(|place| (place + round) % 2) {
            efforts[client].round(|| clients[client].call_for_a_round(operation, tasks));
        }
    }
    efforts
}
