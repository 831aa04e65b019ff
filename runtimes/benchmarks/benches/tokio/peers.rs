//! The cost of a check-out and check-in in other pools, in instructions (callgrind), and in ours beside them: with a
//! connection available, and with a wait for one. `instructions.rs` has ours alone and its budget, because code that is
//! built with other callers is not always inlined the same.
//!
//! `.ci/bench tokio-peers`; divide by [`OPERATIONS`].

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a benchmark fails by panicking")]

mod bb8_pool;

use std::time::Duration;

use cmap_benchmarks::contender::{Contender, SIZE};
use cmap_benchmarks::loads::{hand_off, pair, take_all};
use cmap_benchmarks::peers;
use cmap_benchmarks::pools::USUAL;
use cmap_conformance::LocalServer;
use cmap_tokio::Client;
use gungraun::prelude::*;
use tokio::runtime::{Builder, Runtime};

use self::bb8_pool::Bb8;

/// How often each benchmark repeats its operation.
const OPERATIONS: usize = 50;

/// A pool whose connections are available, and its runtime.
struct Warm<P> {
    pool: P,
    runtime: Runtime,
    _server: LocalServer,
}

fn warm<P: Contender>(open: impl AsyncFnOnce(&LocalServer) -> P) -> Warm<P> {
    let server = LocalServer::start();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let pool = runtime.block_on(async {
        let pool = open(&server).await;
        drop(pool.check_out().await.unwrap());
        pool
    });
    let warm = Warm { pool, runtime, _server: server };
    pairs(warm, 1)
}

/// Pairs that find a connection.
fn pairs<P: Contender>(warm: Warm<P>, count: usize) -> Warm<P> {
    {
        let _context = warm.runtime.enter();
        for _ in 0..count {
            pair(&warm.pool);
        }
    }
    warm
}

/// All connections of the pool but one are kept; returns that one.
struct Exhausted<P: Contender> {
    held: Vec<P::Guard>,
    guard: P::Guard,
    warm: Warm<P>,
}

fn exhausted<P: Contender>(warm: Warm<P>) -> Exhausted<P> {
    let mut held = warm.runtime.block_on(take_all(&warm.pool));
    let guard = held.pop().unwrap();
    hand_offs(Exhausted { held, guard, warm }, 1)
}

/// Pairs that wait for each other.
fn hand_offs<P: Contender>(exhausted: Exhausted<P>, count: usize) -> Exhausted<P> {
    let Exhausted { held, mut guard, warm } = exhausted;
    {
        let _context = warm.runtime.enter();
        for _ in 0..count {
            guard = hand_off(&warm.pool, guard);
        }
    }
    Exhausted { held, guard, warm }
}

fn cmap(limit: Duration) -> Warm<Client> {
    let query = format!("maxPoolSize={SIZE}&maxIdleTimeMS=600000&waitQueueTimeoutMS={}", limit.as_millis());
    warm(async |server| Client::connect(&server.uri(&query)).await.unwrap())
}

fn asyncband() -> Warm<peers::Asyncband> {
    warm(async |_| peers::asyncband())
}

fn deadpool() -> Warm<peers::Deadpool> {
    warm(async |_| peers::deadpool())
}

fn deadpool_within(limit: Duration) -> Warm<peers::Deadpool> {
    warm(async |_| peers::deadpool_within(limit, deadpool::Runtime::Tokio1))
}

fn bb8_within(limit: Duration) -> Warm<Bb8> {
    warm(async |_| Bb8::within(limit))
}

#[library_benchmark]
#[bench::cmap(cmap(Duration::ZERO))]
#[bench::cmap_30_s(cmap(USUAL))]
#[bench::asyncband(asyncband())]
#[bench::deadpool(deadpool())]
#[bench::deadpool_30_s(deadpool_within(USUAL))]
#[bench::bb8_30_s(bb8_within(USUAL))]
fn available<P: Contender>(warm: Warm<P>) -> Warm<P> {
    pairs(warm, OPERATIONS)
}

#[library_benchmark]
#[bench::cmap(exhausted(cmap(Duration::ZERO)))]
#[bench::cmap_30_s(exhausted(cmap(USUAL)))]
#[bench::asyncband(exhausted(asyncband()))]
#[bench::deadpool(exhausted(deadpool()))]
#[bench::deadpool_30_s(exhausted(deadpool_within(USUAL)))]
#[bench::bb8_30_s(exhausted(bb8_within(USUAL)))]
fn waited_for<P: Contender>(exhausted: Exhausted<P>) -> Exhausted<P> {
    hand_offs(exhausted, OPERATIONS)
}

library_benchmark_group!(name = pools, benchmarks = [available, waited_for]);
main!(library_benchmark_groups = [pools]);
