//! The performance of cmap's pool under load, beside other pools, on every runtime: the loads are the same, only the
//! [`Harness`] of an adapter decides where they run.
//!
//! Times on a shared machine move by half from one minute to the next, so every load is run by all contenders in
//! turn, round after round, and a bar is a ratio of two figures of the same round, or a count. The
//! program fails if a bar is missed. What [many threads](Threads::Many) reach is printed, and has no bar.
//!
//! | file | content |
//! |---|---|
//! | [`pools`] | the comparison of pools: the order of the runs, the tables, the bars |
//! | [`contender`], [`peers`] | a measured pool: cmap; deadpool and asyncband |
//! | [`loads`] | the loads, a file each |
//! | [`pings`] | the comparison of a check-out, a `ping` and a check-in, beside the official driver and bare sockets |
//! | [`operations`] | the comparison of operations by `Client::run` with the official driver's |
//! | [`arrangement`] | where client and server run: on one CPU, on a CPU each, or anywhere |
//! | [`caller`], [`official`], [`bare_sockets`] | a client that carries out operations: cmap; the official driver; sockets with nothing around them |
//! | [`allocations`] | the allocations of a pair and a ping, in a program of its own |
//! | [`cpu`] | where a process runs, and how long it worked |
//! | [`server`] | a fast server in a process of its own |
//! | [`tasks`] | spawning, joining and yielding on any runtime |
//! | [`figures`], [`report`] | medians and quantiles; tables, bars, and the exit status |

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a benchmark fails by panicking"
)]

pub mod allocations;
pub mod arrangement;
pub mod bare_sockets;
pub mod caller;
pub mod contender;
pub mod cpu;
pub mod figures;
pub mod loads;
pub mod official;
pub mod operations;
pub mod peers;
pub mod pings;
pub mod pools;
pub mod report;
pub mod server;
pub mod tasks;

use std::process::ExitCode;

pub use cmap_conformance::Harness;

use self::report::Report;

/// The number of threads of a harness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// One thread runs all tasks: its work for an operation is the same from run to run.
    One,
    /// Several threads: their throughput also depends on the rest of the machine.
    Many,
}

/// A benchmark program: its exit status says whether all bars were met.
///
/// The same program, started anew, is the [`Server`](server::Server).
pub fn program(measure: impl FnOnce(&mut Report)) -> ExitCode {
    if server::is_asked_for() {
        server::serve();
        return ExitCode::SUCCESS;
    }
    let mut report = Report::default();
    measure(&mut report);
    report.close()
}
