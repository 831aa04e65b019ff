//! cmap's pool beside deadpool, asyncband and bb8, on tokio with one thread and with two.
//!
//! `.ci/bench tokio-pools`.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking")]

mod bb8_pool;
mod harness;
mod timed_pools;

use std::process::ExitCode;

use cmap_benchmarks::Threads;
use cmap_benchmarks::pools::compare;
use cmap_benchmarks::server::{Kind, Server};

use self::harness::{OneThread, TwoThreads};
use self::timed_pools::timed_pools;

fn main() -> ExitCode {
    cmap_benchmarks::program(|report| {
        let server = Server::start(Kind::Standalone);
        compare::<OneThread>("tokio, one thread", Threads::One, &server, report, timed_pools::<OneThread>);
        compare::<TwoThreads>("tokio, two threads", Threads::Many, &server, report, timed_pools::<TwoThreads>);
    })
}
