//! A `ping` by cmap on smol beside the official driver on tokio, its only runtime, with one thread each: on the
//! server's CPU, and on another.
//!
//! `.ci/bench smol-ping`.

#![allow(missing_docs, reason = "a benchmark")]

mod harness;

use std::process::ExitCode;

use cmap_benchmarks::arrangement::Arrangement;
use cmap_benchmarks::pings::compare;

use self::harness::Global;

fn main() -> ExitCode {
    cmap_benchmarks::program(|_| {
        compare::<Global>("smol", Arrangement::OneCpu);
        compare::<Global>("smol", Arrangement::OneCpuUnixSocket);
        compare::<Global>("smol", Arrangement::CpuEach);
    })
}
