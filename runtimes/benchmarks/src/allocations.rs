//! The allocations of a pair and of a `ping`.
//!
//! The program's allocator counts allocations and takes time for each, which burdens contenders that allocate much. So
//! counting belongs to a program of its own, which provides [`Count`], and times are measured by programs without it.

use std::ops::{AddAssign, Div};

use crate::caller::{Cmap, Load, Operation};
use crate::official::Official;
use crate::pools::{Line, lines};
use crate::report::{Report, Table};
use crate::server::{Kind, Server};
use crate::{Harness, Threads};

/// Runs some work, and returns what this thread allocated for it.
pub type Count = fn(&mut dyn FnMut()) -> Allocations;

/// The number of pings.
const PINGS: u32 = 1_000;

/// The part of the official driver's bytes that ours may allocate.
const BYTES: f64 = 0.1;

/// The number of allocations, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocations {
    pub count: f64,
    pub bytes: f64,
}

/// Compares pairs of cmap with those of other pools, and its pings with the official driver's. The harness has to run
/// its futures on this thread.
pub fn compare<H: Harness>(name: &str, report: &mut Report, count: Count, more: impl FnOnce() -> Vec<Line>) {
    let server = Server::start(Kind::Standalone);
    println!("\n{name}: on average, by one task");

    let mut table = Table::new(&["a pair allocates", "times", "bytes"]);
    for line in lines::<H>(&server, more) {
        let it = line.loads.allocations(count);
        table.row([line.to_string(), it.count.to_string(), it.bytes.to_string()]);
        if line.is_ours() {
            report.bar(format_args!("{name}: {line}: a pair allocates nothing"), it.count, it.count == 0.0);
        }
    }
    table.print("check-out and check-in");

    let [own, theirs] =
        [pings(&Cmap::<H>::connect(&server), count), pings(&Official::connect(&server, Threads::One), count)];
    let mut table = Table::new(&["a ping allocates", "times", "bytes"]);
    for (client, it) in [("cmap", own), ("official driver", theirs)] {
        table.row([client.into(), format!("{:.2}", it.count), format!("{:.0}", it.bytes)]);
    }
    table.print("check-out, ping, and check-in");
    let what = format_args!("{name}: a ping allocates at most {BYTES} of the official driver's bytes");
    report.bar(what, format_args!("{:.4}", own.bytes / theirs.bytes), own.bytes <= BYTES * theirs.bytes);
}

/// The first are not counted: they have connections to make.
fn pings(client: &impl Load, count: Count) -> Allocations {
    client.call_in_turn(Operation::PingByCheckOut, PINGS);
    count(&mut || client.call_in_turn(Operation::PingByCheckOut, PINGS)) / PINGS
}

impl AddAssign for Allocations {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.bytes += other.bytes;
    }
}

/// The average allocations of an operation, over `operations` of them.
impl Div<u32> for Allocations {
    type Output = Self;

    fn div(self, operations: u32) -> Self {
        let operations = f64::from(operations);
        Self { count: self.count / operations, bytes: self.bytes / operations }
    }
}
