//! The allocations of a pair and of a `ping`, on async-std: cmap beside deadpool, asyncband and the official driver.
//!
//! `.ci/bench async-std-allocations`.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking")]

mod harness;

use std::process::ExitCode;

use cmap_benchmarks::allocations::{Allocations, compare};

use self::harness::{Global, with_one_thread};

fn main() -> ExitCode {
    with_one_thread(|report| compare::<Global>("async-std", report, count, Vec::new))
}

fn count(work: &mut dyn FnMut()) -> Allocations {
    let all = allocation_counter::measure(work);
    Allocations { count: all.count_total as f64, bytes: all.bytes_total as f64 }
}
