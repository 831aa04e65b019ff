//! cmap's pool beside deadpool and asyncband, on async-std with one thread. bb8 is tokio's alone, and deadpool's time-outs
//! would need a second crate that depends on async-std, which `deny.toml` rules out.
//!
//! `.ci/bench async-std-pools`.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking")]

mod harness;

use std::process::ExitCode;

use cmap_benchmarks::Threads;
use cmap_benchmarks::pools::compare;
use cmap_benchmarks::server::{Kind, Server};

use self::harness::{Global, with_one_thread};

fn main() -> ExitCode {
    with_one_thread(|report| {
        compare::<Global>("async-std, one thread", Threads::One, &Server::start(Kind::Standalone), report, Vec::new);
    })
}
