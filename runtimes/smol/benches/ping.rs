//! A `ping` by cmap beside a bare socket, on smol, with the server on the same CPU: what a ping costs. The official driver
//! runs on tokio alone; `cargo bench -p cmap-tokio --bench ping` has it.
//!
//! `cargo bench -p cmap-smol --bench ping`.

#![allow(missing_docs, reason = "a benchmark")]

mod harness;

use std::process::ExitCode;

use cmap_benchmarks::Threads;
use cmap_benchmarks::cpu::OneCpu;
use cmap_benchmarks::pings::compare;
use cmap_benchmarks::server::Server;

use self::harness::Global;

fn main() -> ExitCode {
    cmap_benchmarks::program(|report| {
        let _one_cpu = OneCpu::keep();
        compare::<Global>("smol, one CPU", Threads::One, &Server::start(), report, None);
    })
}
