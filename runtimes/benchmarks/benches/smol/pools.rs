//! cmap's pool beside deadpool and asyncband, on smol. bb8 is tokio's alone.
//!
//! `.ci/bench smol-pools`.

#![allow(missing_docs, reason = "a benchmark")]

mod harness;
mod timed_pools;

use std::process::ExitCode;

use cmap_benchmarks::Threads;
use cmap_benchmarks::pools::compare;
use cmap_benchmarks::server::{Kind, Server};

use self::harness::Global;
use self::timed_pools::timed_pools;

fn main() -> ExitCode {
    cmap_benchmarks::program(|report| {
        compare::<Global>(
            "smol, one thread",
            Threads::One,
            &Server::start(Kind::Standalone),
            report,
            timed_pools::<Global>,
        );
    })
}
