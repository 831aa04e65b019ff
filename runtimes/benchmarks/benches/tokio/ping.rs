//! A `ping` by cmap beside the official driver, on tokio: on one thread that shares a CPU with the server, on one with
//! a CPU of its own, and on two threads, wherever the kernel puts them.
//!
//! `.ci/bench tokio-ping`.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking")]

mod harness;

use std::process::ExitCode;

use cmap_benchmarks::arrangement::Arrangement;
use cmap_benchmarks::pings::compare;

use self::harness::{OneThread, TwoThreads};

fn main() -> ExitCode {
    cmap_benchmarks::program(|_| {
        compare::<OneThread>("tokio", Arrangement::OneCpu);
        compare::<OneThread>("tokio", Arrangement::OneCpuUnixSocket);
        compare::<OneThread>("tokio", Arrangement::CpuEach);
        compare::<TwoThreads>("tokio", Arrangement::Anywhere);
    })
}
