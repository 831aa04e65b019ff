//! What it costs to check out as an identity, in instructions (callgrind): the pair of `server.rs` with an identity that is known,
//! beside the same pair without.
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
use gungraun::{Callgrind, EventKind};

/// How often the benchmark repeats its operation.
const OPERATIONS: usize = 50;

/// Instructions that a pair may cost: twice what one without an identity may cost on an adapter, of which this is a part.
const BUDGET_PER_PAIR: u64 = 2 * 750;

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

/// A topology, and what its callers ask for.
struct Warm {
    topology: Topology<u64>,
    request: CheckOutRequest,
}

fn pair_at(Warm { topology, request }: &mut Warm, now: Instant) {
    let (_, delivery) = black_box(topology.check_out(now, Criteria::WRITABLE, *request));
    let queued = drain(topology, now);
    let Delivery { check_out, connection, socket } = delivery.or(queued).unwrap();
    let _ = black_box(topology.check_in(now, check_out, connection, socket, Condition::Usable)).unwrap();
    drain(topology, now);
}

/// Identities that are known.
const IDENTITIES: usize = 8;

/// A server that was checked.
fn topology() -> Topology<u64> {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(20);
    options.max_connecting = Some(20);
    options.max_idle_time = Some(Duration::from_secs(60));
    options.wait_queue_timeout = Some(Duration::from_secs(3600));
    let seeds = vec![ServerAddress::tcp("localhost", 27017)];
    let mut topology = Topology::new(TopologyOptions::of_seeds(seeds), options).unwrap();
    topology.observe(false);
    topology.open(Instant::ORIGIN);
    let (id, server) = topology.servers().next().unwrap();
    let found = ServerDescription::new(server.description().address.clone(), ServerType::Standalone);
    topology.handle_check(Instant::ORIGIN, id, Finding::Description(Box::new(found))).unwrap();
    topology
}

fn plain() -> Warm {
    let mut warm = Warm { topology: topology(), request: CheckOutRequest::default() };
    pair_at(&mut warm, Instant::ORIGIN);
    warm
}

/// The last of some identities.
fn identity() -> Warm {
    let mut warm = Warm { topology: topology(), request: CheckOutRequest::default() };
    for _ in 0..IDENTITIES {
        let identity = warm.topology.add_identity(Instant::ORIGIN);
        warm.request = CheckOutRequest::default().identity(identity);
        pair_at(&mut warm, Instant::ORIGIN);
    }
    warm
}

#[library_benchmark]
#[bench::plain(plain())]
#[bench::identity(identity())]
fn pair(mut warm: Warm) -> Warm {
    let mut now = Instant::ORIGIN;
    for _ in 0..OPERATIONS {
        now = now + Duration::from_nanos(1000);
        pair_at(&mut warm, now);
    }
    warm
}

library_benchmark_group!(
    name = budget,
    config = LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().hard_limits([(EventKind::Ir, BUDGET_PER_PAIR * OPERATIONS as u64)])),
    benchmarks = [pair]
);
main!(library_benchmark_groups = [budget]);
