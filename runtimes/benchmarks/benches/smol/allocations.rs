//! The allocations of a pair and of a `ping`, on smol: cmap beside deadpool, asyncband and the official driver.
//!
//! `.ci/bench smol-allocations`.

#![allow(missing_docs, reason = "a benchmark")]

mod harness;
mod timed_pools;

use std::process::ExitCode;

use cmap_benchmarks::allocations::{Allocations, compare};

use self::harness::Global;
use self::timed_pools::timed_pools;

fn main() -> ExitCode {
    cmap_benchmarks::program(|report| compare::<Global>("smol", report, count, timed_pools::<Global>))
}

fn count(work: &mut dyn FnMut()) -> Allocations {
    let all = allocation_counter::measure(work);
    Allocations { count: all.count_total as f64, bytes: all.bytes_total as f64 }
}
