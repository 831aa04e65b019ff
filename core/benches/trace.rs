//! What recording costs an input, in instructions (callgrind): the pair of `server.rs` through a topology whose calls can be
//! recorded: without a recorder, with a dense one, and with a sparse one.
//!
//! A program of its own, because a second caller of the pool's methods would change the compiler's inlining there. The report has
//! all beside the plain topology's pair; divide each by [`OPERATIONS`], and the difference by two inputs a pair. The last one is the
//! copy of a state with many waiters, with which a segment begins. It fails where a pair with a dense recorder, or without one, costs more
//! than it may beside the plain one.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking")]

use std::hint::black_box;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::monitor::Finding;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{self, Action, CheckOutRequest, Condition, Delivery};
use cmap_core::server::{ServerDescription, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{Criteria, Output, Topology, TopologyOptions};
use cmap_core::trace::{Detail, Recorded, RecorderOptions};
use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};

/// How often each benchmark repeats its operation: often enough for the check of the state every 64 calls to count.
const OPERATIONS: usize = 640;

/// Instructions that the pair of the plain topology costs, in this program: it has no limit of its own. Renew it when that changes.
const PLAIN: u64 = 243;

/// What recording may cost an input.
const BUDGET: u64 = 60;

/// What a pair may cost where a recorder could be and is none: tests at each end.
const BUDGET_OFF: u64 = 12;

/// A topology of a server that was checked, and whose pool's one connection is available.
fn warm() -> Topology<u64> {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(1);
    options.max_idle_time = Some(Duration::from_secs(60));
    options.wait_queue_timeout = Some(Duration::from_secs(3600));
    let seeds = vec![ServerAddress::tcp("localhost", 27017)];
    let mut topology = Topology::new(TopologyOptions::of_seeds(seeds), options).unwrap();
    topology.observe(false);
    topology.open(Instant::ORIGIN);
    let (id, server) = topology.servers().next().unwrap();
    let found = ServerDescription::new(server.description().address.clone(), ServerType::Standalone);
    topology.handle_check(Instant::ORIGIN, id, Finding::Description(Box::new(found))).unwrap();
    let _ = topology.check_out(Instant::ORIGIN, Criteria::WRITABLE, CheckOutRequest::default());
    while let Some(output) = topology.poll_output() {
        let Output::Pool { output: pool::Output::Action(action), .. } = output else { continue };
        if let Action::Connect { connection } = action {
            topology.handle_established(Instant::ORIGIN, connection, 7).unwrap();
        } else if let Action::Deliver { check_out, connection, socket } = action {
            let _ = topology.check_in(Instant::ORIGIN, check_out, connection, socket, Condition::Usable).unwrap();
        }
    }
    topology
}

fn recorded() -> Recorded<u64> {
    Recorded::from(warm())
}

fn recording(detail: Detail) -> Recorded<u64> {
    let mut topology = recorded();
    let mut options = RecorderOptions::default();
    options.detail = detail;
    topology.start_recording(options);
    topology
}

fn limit(beside: u64) -> LibraryBenchmarkConfig {
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::default().hard_limits([(EventKind::Ir, (PLAIN + beside) * OPERATIONS as u64)]));
    config
}

macro_rules! pairs {
    ($topology:expr) => {{
        let mut topology = $topology;
        let mut now = Instant::ORIGIN;
        for _ in 0..OPERATIONS {
            now = now + Duration::from_nanos(1000);
            let (_, delivery) = black_box(topology.check_out(now, Criteria::WRITABLE, CheckOutRequest::default()));
            assert!(topology.poll_output().is_none());
            let Delivery { check_out, connection, socket } = delivery.unwrap();
            let checked_in = topology.check_in(now, check_out, connection, socket, Condition::Usable);
            let _ = black_box(checked_in).unwrap();
            assert!(topology.poll_output().is_none());
        }
        topology
    }};
}

#[library_benchmark]
#[bench::warm(warm())]
fn plain(topology: Topology<u64>) -> Topology<u64> {
    pairs!(topology)
}

#[library_benchmark(config = limit(BUDGET_OFF))]
#[bench::warm(recorded())]
fn off(topology: Recorded<u64>) -> Recorded<u64> {
    pairs!(topology)
}

#[library_benchmark(config = limit(BUDGET_OFF + 2 * BUDGET))]
#[bench::warm(recording(Detail::Dense))]
fn dense(topology: Recorded<u64>) -> Recorded<u64> {
    pairs!(topology)
}

#[library_benchmark]
#[bench::warm(recording(Detail::Sparse))]
fn sparse(topology: Recorded<u64>) -> Recorded<u64> {
    pairs!(topology)
}

/// Check-outs that wait.
const WAITERS: usize = 10_000;

fn crowded() -> Recorded<u64> {
    let mut topology = recorded();
    for _ in 0..WAITERS {
        let _ = topology.check_out(Instant::ORIGIN, Criteria::WRITABLE, CheckOutRequest::default());
    }
    topology
}

// What a call is held up by when a segment begins. Divide by the number of waiters, not by `OPERATIONS`.
#[library_benchmark]
#[bench::crowded(crowded())]
fn snapshot(mut topology: Recorded<u64>) -> Recorded<u64> {
    topology.start_recording(RecorderOptions::default());
    topology
}

library_benchmark_group!(name = recording_costs, benchmarks = [plain, off, dense, sparse, snapshot]);
main!(library_benchmark_groups = [recording_costs]);
