//! The cost of a server around its pool, in instructions (callgrind); `instructions.rs` has the pool alone.
//!
//! A program of its own, because a second caller of the pool's methods would change the compiler's inlining there.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a benchmark fails by panicking")]

use std::hint::black_box;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::monitor::Finding;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{self, Action, CheckOutRequest, Condition, Delivery, Pool};
use cmap_core::server::{Output, Server, ServerDescription, ServerOptions, ServerType};
use cmap_core::time::Instant;
use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};

/// How often the benchmark repeats its operation.
const OPERATIONS: usize = 50;

/// Instructions that a check-out/check-in pair may cost.
const BUDGET_PER_PAIR: u64 = 465;

/// Drains the outputs, establishes connections, and returns the delivery.
fn drain(server: &mut Server<u64>, now: Instant) -> Option<Delivery<u64>> {
    let mut delivery = None;
    while let Some(output) = server.poll_output() {
        if let Output::Pool(pool::Output::Action(action)) = output {
            match action {
                Action::Deliver { check_out, connection, socket } => {
                    delivery = Some(Delivery { check_out, connection, socket });
                }
                Action::Connect { connection } => server.handle_established(now, connection, 7).unwrap(),
                Action::Check { .. } | Action::Fail { .. } | Action::Close { .. } | Action::Interrupt { .. } => {
                    unreachable!()
                }
            }
        }
    }
    delivery
}

fn pair_at(server: &mut Server<u64>, now: Instant) {
    let (_, delivery) = black_box(server.check_out(now, CheckOutRequest::default()));
    let queued = drain(server, now);
    let Delivery { connection, socket, .. } = delivery.or(queued).unwrap();
    let _ = black_box(server.check_in(now, connection, socket, Condition::Usable)).unwrap();
    drain(server, now);
}

/// A server that was checked, and whose pool's one connection is available.
fn warm() -> Server<u64> {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(1);
    options.max_idle_time = Some(Duration::from_secs(60));
    options.wait_queue_timeout = Some(Duration::from_secs(3600));
    let pool = Pool::new(ServerAddress::tcp("localhost", 27017), options, Instant::ORIGIN).unwrap();
    let mut server = Server::new(pool, ServerOptions::default());
    server.observe(false);
    server.open(Instant::ORIGIN);
    let address = server.description().address.clone();
    let found = ServerDescription::new(address, ServerType::Standalone);
    server.handle_check(Instant::ORIGIN, Finding::Description(Box::new(found))).unwrap();
    pair_at(&mut server, Instant::ORIGIN);
    server
}

#[library_benchmark]
#[bench::warm(warm())]
fn pair(mut server: Server<u64>) -> Server<u64> {
    let mut now = Instant::ORIGIN;
    for _ in 0..OPERATIONS {
        now = now + Duration::from_nanos(1000);
        pair_at(&mut server, now);
    }
    server
}

library_benchmark_group!(
    name = budget,
    config = LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().hard_limits([(EventKind::Ir, BUDGET_PER_PAIR * OPERATIONS as u64)])),
    benchmarks = [pair]
);
main!(library_benchmark_groups = [budget]);
