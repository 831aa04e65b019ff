//! cmap's pool beside deadpool, asyncband and bb8, on tokio with one thread and with two.
//!
//! `cargo bench -p cmap-tokio --bench pools`.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a benchmark fails by panicking")]

mod bb8_pool;
mod harness;

use std::process::ExitCode;

use cmap_benchmarks::loads::LIMIT;
use cmap_benchmarks::peers::deadpool_within;
use cmap_benchmarks::pools::{Line, USUAL, Wait, compare};
use cmap_benchmarks::server::Server;
use cmap_benchmarks::{Harness, Threads};

use self::bb8_pool::Bb8;
use self::harness::{OneThread, TwoThreads};

fn main() -> ExitCode {
    cmap_benchmarks::program(|report| {
        let server = Server::start();
        compare::<OneThread>("tokio, one thread", Threads::One, &server, report, more::<OneThread>);
        compare::<TwoThreads>("tokio, two threads", Threads::Many, &server, report, more::<TwoThreads>);
    })
}

fn more<H: Harness>() -> Vec<Line> {
    let deadpool = |limit| deadpool_within(limit, deadpool::Runtime::Tokio1);
    vec![
        Line::new::<H>("deadpool", Wait::Limited, deadpool(USUAL)).hurried::<H>(deadpool(LIMIT)),
        Line::new::<H>("bb8", Wait::Limited, Bb8::within(USUAL)).hurried::<H>(Bb8::within(LIMIT)),
    ]
}
