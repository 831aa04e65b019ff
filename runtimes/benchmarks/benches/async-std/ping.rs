//! A `ping` by cmap on async-std beside the official driver on tokio, its only runtime, with one thread each: on the
//! server's CPU, and on another.
//!
//! `.ci/bench async-std-ping`.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking")]

mod harness;

use std::process::ExitCode;

use cmap_benchmarks::arrangement::Arrangement;
use cmap_benchmarks::pings::compare;

use self::harness::{Global, with_one_thread};

fn main() -> ExitCode {
    with_one_thread(|_| {
        compare::<Global>("async-std", Arrangement::OneCpu);
        compare::<Global>("async-std", Arrangement::OneCpuUnixSocket);
        compare::<Global>("async-std", Arrangement::CpuEach);
    })
}
