//! What a feature of the pool costs when it is on, in instructions (callgrind): the pair of `instructions.rs` with it, beside the
//! same pair without.
//!
//! A program of its own, because a second caller of the pool's methods would change the compiler's inlining there. The report has
//! the figure with the feature beside that of the plain pair; divide both by [`OPERATIONS`]. It fails where a limit is exceeded.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking")]

use std::hint::black_box;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::{Affinity, PoolOptions, PoolSizes, Profile, QueueDepth, Reuse};
use cmap_core::pool::{Action, AffinityKey, CheckOutRequest, Condition, Delivery, Output, Pool};
use cmap_core::time::Instant;
use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};

/// How often each benchmark repeats its operation.
const OPERATIONS: usize = 50;

/// Instructions that a pair with a feature may cost: twice what one without may cost on an adapter, of which this is a part.
const BUDGET: u64 = 2 * 750;

/// Connections that are available.
const CONNECTIONS: u32 = 8;

/// Keys that are bound to connections. Each holds one, where they do.
const KEYS: u64 = 8;

const HOUR: Duration = Duration::from_secs(3600);

/// A pool, and what its callers ask for.
struct Warm {
    pool: Pool<u64>,
    request: CheckOutRequest,
}

/// A pool whose connections are all available.
fn warm(switch_on: impl FnOnce(&mut PoolOptions), request: CheckOutRequest) -> Warm {
    let mut options = PoolOptions::default();
    options.max_idle_time = Some(Duration::from_secs(60));
    options.wait_queue_timeout = Some(HOUR);
    options.max_connecting = Some(CONNECTIONS);
    switch_on(&mut options);
    let now = Instant::ORIGIN;
    let mut pool = Pool::new(ServerAddress::tcp("localhost", 27017), options, now).unwrap();
    pool.observe(false);
    pool.ready(now);
    for _ in 0..CONNECTIONS {
        let _ = pool.check_out(now, request);
    }
    let mut in_use = Vec::new();
    while let Some(output) = pool.poll_output() {
        match output {
            Output::Action(Action::Connect { connection }) => pool.handle_established(now, connection, 7).unwrap(),
            Output::Action(Action::Deliver { check_out, connection, socket }) => {
                in_use.push((check_out, connection, socket));
            }
            Output::Action(_) | Output::Event(_) => {}
        }
    }
    assert_eq!(u32::try_from(in_use.len()), Ok(CONNECTIONS));
    for (check_out, connection, socket) in in_use {
        let _ = pool.check_in(now, check_out, connection, socket, Condition::Usable).unwrap();
    }
    let mut warm = Warm { pool, request };
    // Lists have their size.
    run(&mut warm);
    warm
}

fn with(switch_on: impl FnOnce(&mut PoolOptions)) -> Warm {
    warm(switch_on, CheckOutRequest::default())
}

/// A pool that something has been done to, which is over.
fn after(change: impl FnOnce(&mut Pool<u64>)) -> Warm {
    let mut warm = with(|_| {});
    change(&mut warm.pool);
    while warm.pool.poll_output().is_some() {}
    run(&mut warm);
    warm
}

/// A pool that knows some keys, and the check-outs of one of them.
fn with_affinity(affinity: Affinity) -> Warm {
    let mut warm = with(|options| options.affinity = Some(affinity));
    for key in (0..KEYS).map(AffinityKey) {
        warm.request = CheckOutRequest::default().affinity(key);
        run(&mut warm);
    }
    warm
}

fn run(Warm { pool, request }: &mut Warm) {
    let mut now = Instant::ORIGIN;
    for _ in 0..OPERATIONS {
        now = now + Duration::from_nanos(1000);
        let (_, delivery) = black_box(pool.check_out(now, *request));
        let queued = pool.poll_output();
        assert!(queued.is_none());
        let Delivery { check_out, connection, socket } = delivery.unwrap();
        let _ = black_box(pool.check_in(now, check_out, connection, socket, Condition::Usable)).unwrap();
        while pool.poll_output().is_some() {}
    }
}

// The same pool for each, so that each feature stands beside it.
#[library_benchmark]
#[bench::affinity(with(|_| {}))]
#[bench::affinity_hold(with(|_| {}))]
#[bench::affinity_lend(with(|_| {}))]
#[bench::affinity_require(with(|_| {}))]
#[bench::max_uses(with(|_| {}))]
#[bench::max_lifetime(with(|_| {}))]
#[bench::refresh(with(|_| {}))]
#[bench::reuse_fifo(with(|_| {}))]
#[bench::creation_rate(with(|_| {}))]
#[bench::queue_depth(with(|_| {}))]
#[bench::older_edition(with(|_| {}))]
#[bench::resized(with(|_| {}))]
#[bench::warmed_up(with(|_| {}))]
fn plain(mut warm: Warm) -> Warm {
    run(&mut warm);
    warm
}

#[library_benchmark(config = {
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::default().hard_limits([(EventKind::Ir, BUDGET * OPERATIONS as u64)]));
    config
})]
#[bench::affinity(with_affinity(Affinity::Prefer))]
#[bench::affinity_hold(with_affinity(Affinity::Hold { time: HOUR, lend: false }))]
#[bench::affinity_lend(with_affinity(Affinity::Hold { time: HOUR, lend: true }))]
#[bench::affinity_require(with_affinity(Affinity::Require))]
#[bench::max_uses(with(|options| options.max_uses = Some(1_000_000)))]
#[bench::max_lifetime(with(|options| options.max_lifetime = Some(HOUR)))]
#[bench::refresh(with(|options| options.refresh_requirement = Some(HOUR)))]
#[bench::reuse_fifo(with(|options| options.reuse = Some(Reuse::Fifo)))]
#[bench::creation_rate(with(|options| options.max_new_connections_per_second = Some(1000)))]
#[bench::queue_depth(with(|options| options.max_wait_queue_depth = Some(QueueDepth::Waiters(100))))]
#[bench::older_edition(with(|options| options.profile = Profile::Cmap1_1))]
#[bench::resized(after(|pool| pool.resize(Instant::ORIGIN, PoolSizes::default().max_pool_size(50)).unwrap()))]
#[bench::warmed_up(after(|pool| assert_ne!(pool.warm_up(Instant::ORIGIN, Some(CONNECTIONS)).get(), 0)))]
fn with_feature(mut warm: Warm) -> Warm {
    run(&mut warm);
    warm
}

library_benchmark_group!(name = pair, compare_by_id = true, benchmarks = [plain, with_feature]);
main!(library_benchmark_groups = [pair]);
