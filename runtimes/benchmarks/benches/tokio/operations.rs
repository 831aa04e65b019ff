//! A `ping`, a find of one and an update of one by `Client::run` beside the official driver's, on tokio: on one thread, which
//! has a CPU of its own, and on two, wherever the kernel puts them.
//!
//! `.ci/bench tokio-operations`.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking")]

mod harness;

use std::process::ExitCode;

use cmap_benchmarks::arrangement::Arrangement;
use cmap_benchmarks::operations::compare;

use self::harness::{OneThread, TwoThreads};

fn main() -> ExitCode {
    cmap_benchmarks::program(|report| {
        compare::<OneThread>("tokio", Arrangement::CpuEach, report);
        compare::<TwoThreads>("tokio", Arrangement::Anywhere, report);
    })
}
