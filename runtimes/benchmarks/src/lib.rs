//! What cmap's pool does under load, beside other pools, on every runtime: the loads are the same, only the
//! [`Harness`] of an adapter says where they run.
//!
//! Times on a shared machine move by half from one minute to the next, so every load is run by all contenders in
//! turn, round after round, and a bar is a ratio of two figures of the same round, or a count. The
//! program fails if a bar is missed. What [many threads](Threads::Many) reach is printed, and has no bar.
//!
//! | file | what it holds |
//! |---|---|
//! | [`pools`] | the comparison of pools: what is run in which order, the tables, the bars |
//! | [`contender`], [`peers`] | a pool that is measured: cmap; deadpool and asyncband |
//! | [`loads`] | the loads, a file each |
//! | [`pings`] | the comparison of whole operations, beside the official driver and bare sockets |
//! | [`arrangement`] | where client and server run: on one CPU, on a CPU each, or anywhere |
//! | [`pinger`], [`official`], [`bare_sockets`] | a client that pings: cmap; the official driver; sockets with nothing around them |
//! | [`allocations`] | what a pair and a ping allocate, in a program of its own |
//! | [`cpu`] | which CPUs a process runs on, and for how long it worked |
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
pub mod contender;
pub mod cpu;
pub mod figures;
pub mod loads;
pub mod official;
pub mod peers;
pub mod pinger;
pub mod pings;
pub mod pools;
pub mod report;
pub mod server;
pub mod tasks;

use std::process::ExitCode;

pub use cmap_runtime::conformance::Harness;

use self::report::Report;

/// How many threads a harness has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// One runs all tasks: what it works for an operation is the same from run to run.
    One,
    /// Several: what they reach depends on what else the machine does, too.
    Many,
}

/// A benchmark program: says by its exit status whether all bars were met.
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
