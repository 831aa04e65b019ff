//! The cost of a topology of one server around its pool, in instructions (callgrind); `instructions.rs` has the pool alone.
//!
//! A program of its own, because a second caller of the pool's methods would change the compiler's inlining there.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a benchmark fails by panicking")]

use std::hint::black_box;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::monitor::Finding;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{self, Action, CheckOutRequest, Condition, Delivery};
use cmap_core::server::{ServerDescription, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{Criteria, Output, Topology, TopologyOptions};
use gungraun::prelude::*;

/// How often the benchmark repeats its operation.
const OPERATIONS: usize = 50;

/// Drains the outputs, establishes connections, and returns the delivery.
fn drain(topology: &mut Topology<u64>, now: Instant) -> Option<Delivery<u64>> {
    let mut delivery = None;
    while let Some(output) = topology.poll_output() {
        if let Output::Pool { output: pool::Output::Action(action), .. } = output {
            match action {
                Action::Deliver { check_out, connection, socket } => {
                    delivery = Some(Delivery { check_out, connection, socket });
                }
                Action::Connect { connection } => topology.handle_established(now, connection, 7).unwrap(),
                Action::Check { .. }
                | Action::Refresh { .. }
                | Action::Fail { .. }
                | Action::Close { .. }
                | Action::Interrupt { .. }
                | Action::WarmedUp { .. } => {
                    unreachable!()
                }
            }
        }
    }
    delivery
}

fn pair_at(topology: &mut Topology<u64>, now: Instant) {
    let (_, delivery) = black_box(topology.check_out(now, Criteria::WRITABLE, CheckOutRequest::default()));
    let queued = drain(topology, now);
    let Delivery { check_out, connection, socket } = delivery.or(queued).unwrap();
    let _ = black_box(topology.check_in(now, check_out, connection, socket, Condition::Usable)).unwrap();
    drain(topology, now);
}

/// A server that was checked, and whose pool's one connection is available.
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
    pair_at(&mut topology, Instant::ORIGIN);
    topology
}

#[library_benchmark]
#[bench::warm(warm())]
fn pair(mut topology: Topology<u64>) -> Topology<u64> {
    let mut now = Instant::ORIGIN;
    for _ in 0..OPERATIONS {
        now = now + Duration::from_nanos(1000);
        pair_at(&mut topology, now);
    }
    topology
}

library_benchmark_group!(name = uncontended, benchmarks = [pair]);
main!(library_benchmark_groups = [uncontended]);
