//! cmap's pool beside deadpool and asyncband, on async-std. bb8 is tokio's alone, and deadpool's time-outs would need a
//! second crate that depends on async-std, which `deny.toml` rules out.
//!
//! `cargo bench -p cmap-async-std --bench pools`.

#![allow(missing_docs, reason = "a benchmark")]

mod harness;

use std::process::ExitCode;

use cmap_benchmarks::Threads;
use cmap_benchmarks::pools::compare;
use cmap_benchmarks::server::Server;

use self::harness::Global;

fn main() -> ExitCode {
    cmap_benchmarks::program(|report| {
        compare::<Global>("async-std", Threads::Many, &Server::start(), report, Vec::new);
    })
}
