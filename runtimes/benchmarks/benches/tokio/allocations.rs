//! The allocations of a pair and of a `ping`, on tokio: cmap beside deadpool, asyncband, bb8 and the official driver.
//!
//! `.ci/bench tokio-allocations`.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking")]

mod bb8_pool;
mod harness;
mod timed_pools;

use std::process::ExitCode;

use cmap_benchmarks::allocations::{Allocations, compare};

use self::harness::OneThread;
use self::timed_pools::timed_pools;

fn main() -> ExitCode {
    cmap_benchmarks::program(|report| compare::<OneThread>("tokio", report, count, timed_pools::<OneThread>))
}

fn count(work: &mut dyn FnMut()) -> Allocations {
    let all = allocation_counter::measure(work);
    Allocations { count: all.count_total as f64, bytes: all.bytes_total as f64 }
}
