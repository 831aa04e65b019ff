//! cmap's pool beside deadpool and asyncband, on smol. bb8 is tokio's alone.
//!
//! `cargo bench -p cmap-smol --bench pools`.

#![allow(missing_docs, reason = "a benchmark")]

mod harness;

use std::process::ExitCode;

use cmap_benchmarks::Threads;
use cmap_benchmarks::loads::LIMIT;
use cmap_benchmarks::peers::deadpool_within;
use cmap_benchmarks::pools::{Line, USUAL, Wait, compare};
use cmap_benchmarks::server::Server;

use self::harness::Global;

fn main() -> ExitCode {
    cmap_benchmarks::program(|report| {
        let server = Server::start();
        compare::<Global>("smol, one thread", Threads::One, &server, report, || {
            let deadpool = |limit| deadpool_within(limit, deadpool::Runtime::Smol2);
            vec![Line::new::<Global>("deadpool", Wait::Limited, deadpool(USUAL)).hurried::<Global>(deadpool(LIMIT))]
        });
    })
}
