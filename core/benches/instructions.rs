//! The cost of the pool, in instructions (callgrind): figures that repeat to the last digit on any machine.
//!
//! `cargo bench --manifest-path core/benches/Cargo.toml --bench instructions` needs valgrind and gungraun-runner; `.ci/bench`
//! installs both.
//! Each benchmark does its work [`OPERATIONS`] times, so divide by that. It fails where a call takes longer because many wait.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a benchmark fails by panicking")]

use std::hint::black_box;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{Action, Cause, CheckOutId, CheckOutRequest, Clear, Condition, Delivery, Handle, Output, Pool};
use cmap_core::random::Random;
use cmap_core::time::Instant;
use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};

/// How often each benchmark repeats its operation.
const OPERATIONS: usize = 50;

/// Instructions that a call may cost, however many wait: as many as a pair that waits may cost on an adapter.
const BUDGET: u64 = 1900;

/// A pool of one connection, which is checked out, and its waiters.
struct Queue {
    pool: Pool<u64>,
    now: Instant,
    check_out: CheckOutId,
    connection: Handle,
    /// Waiters to cancel, by chance.
    some: Vec<CheckOutId>,
}

#[derive(Clone, Copy)]
enum Timeout {
    None,
    WaitQueue,
}

fn new_pool(timeout: Timeout) -> Pool<u64> {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(1);
    options.max_idle_time = Some(Duration::from_secs(60));
    if let Timeout::WaitQueue = timeout {
        options.wait_queue_timeout = Some(Duration::from_secs(3600));
    }
    let mut pool = Pool::new(ServerAddress::tcp("localhost", 27017), options, Instant::ORIGIN).unwrap();
    pool.observe(false);
    pool.ready(Instant::ORIGIN);
    pool
}

fn drain(pool: &mut Pool<u64>, now: Instant) -> Option<Delivery<u64>> {
    let mut delivery = None;
    while let Some(output) = pool.poll_output() {
        match output {
            Output::Action(Action::Deliver { check_out, connection, socket }) => {
                delivery = Some(Delivery { check_out, connection, socket });
            }
            Output::Action(Action::Connect { connection }) => pool.handle_established(now, connection, 7).unwrap(),
            Output::Action(_) | Output::Event(_) => {}
        }
    }
    delivery
}

/// A pool whose one connection is available.
fn warm() -> Pool<u64> {
    let mut pool = new_pool(Timeout::WaitQueue);
    let _ = pool.check_out(Instant::ORIGIN, CheckOutRequest::default());
    let Delivery { check_out, connection, socket } = drain(&mut pool, Instant::ORIGIN).unwrap();
    let _ = pool.check_in(Instant::ORIGIN, check_out, connection, socket, Condition::Usable).unwrap();
    drain(&mut pool, Instant::ORIGIN);
    pool
}

/// The same of a pool that records how long everything takes.
fn warm_and_recorded() -> Pool<u64> {
    let mut pool = warm();
    pool.record_durations(true);
    pool
}

fn queue(waiters: usize, timeout: Timeout) -> Queue {
    let mut pool = new_pool(timeout);
    let _ = pool.check_out(Instant::ORIGIN, CheckOutRequest::default());
    let Delivery { check_out, connection, .. } = drain(&mut pool, Instant::ORIGIN).unwrap();
    let mut ids = Vec::new();
    let mut now = Instant::ORIGIN;
    // More than wanted, so that there is room for the waiters that a benchmark adds.
    for number in 0..waiters + OPERATIONS {
        now = Instant::from_nanos(1000 * number as u64);
        ids.push(pool.check_out(now, CheckOutRequest::default()).0);
    }
    let mut random = Random::new(1);
    let mut take = || ids.swap_remove(usize::try_from(random.up_to(ids.len() as u64 - 1)).unwrap());
    for _ in 0..OPERATIONS {
        let _ = pool.cancel_check_out(now, take());
    }
    drain(&mut pool, now);
    let some = (0..OPERATIONS).map(|_| take()).collect();
    Queue { pool, now, check_out, connection, some }
}

#[library_benchmark]
#[bench::warm(warm())]
fn pair(pool: Pool<u64>) -> Pool<u64> {
    pairs(pool)
}

#[library_benchmark]
#[bench::warm(warm_and_recorded())]
fn recorded_pair(pool: Pool<u64>) -> Pool<u64> {
    pairs(pool)
}

fn pairs(mut pool: Pool<u64>) -> Pool<u64> {
    let mut now = Instant::ORIGIN;
    for _ in 0..OPERATIONS {
        now = now + Duration::from_nanos(1000);
        let (_, delivery) = black_box(pool.check_out(now, CheckOutRequest::default()));
        while pool.poll_output().is_some() {}
        let Delivery { check_out, connection, socket } = delivery.unwrap();
        let _ = black_box(pool.check_in(now, check_out, connection, socket, Condition::Usable)).unwrap();
        while pool.poll_output().is_some() {}
    }
    pool
}

#[library_benchmark]
#[bench::hundred(queue(100, Timeout::None))]
#[bench::million(queue(1_000_000, Timeout::None))]
#[bench::hundred_with_timeout(queue(100, Timeout::WaitQueue))]
#[bench::million_with_timeout(queue(1_000_000, Timeout::WaitQueue))]
fn check_out_that_waits(mut queue: Queue) -> Queue {
    for _ in 0..OPERATIONS {
        black_box(queue.pool.check_out(queue.now, CheckOutRequest::default()));
        while queue.pool.poll_output().is_some() {}
    }
    queue
}

#[library_benchmark]
#[bench::hundred(queue(100, Timeout::None))]
#[bench::million(queue(1_000_000, Timeout::None))]
#[bench::hundred_with_timeout(queue(100, Timeout::WaitQueue))]
#[bench::million_with_timeout(queue(1_000_000, Timeout::WaitQueue))]
fn check_in_that_serves_a_waiter(mut queue: Queue) -> Queue {
    for _ in 0..OPERATIONS {
        let checked_in =
            queue.pool.check_in(queue.now, queue.check_out, queue.connection, 7, Condition::Usable).unwrap();
        while queue.pool.poll_output().is_some() {}
        Delivery { check_out: queue.check_out, connection: queue.connection, .. } = checked_in.delivery().unwrap();
    }
    queue
}

#[library_benchmark]
#[bench::hundred(queue(100, Timeout::None))]
#[bench::million(queue(1_000_000, Timeout::None))]
#[bench::hundred_with_timeout(queue(100, Timeout::WaitQueue))]
#[bench::million_with_timeout(queue(1_000_000, Timeout::WaitQueue))]
fn cancel(mut queue: Queue) -> Queue {
    for id in queue.some.drain(..) {
        black_box(queue.pool.cancel_check_out(queue.now, id));
    }
    queue
}

// Divide by the number of waiters, not by `OPERATIONS`.
#[library_benchmark]
#[bench::hundred(queue(100, Timeout::None))]
#[bench::million(queue(1_000_000, Timeout::None))]
#[bench::hundred_with_timeout(queue(100, Timeout::WaitQueue))]
#[bench::million_with_timeout(queue(1_000_000, Timeout::WaitQueue))]
fn clear(mut queue: Queue) -> Queue {
    queue.pool.clear(queue.now, Clear::pool(Cause::new("gone"))).unwrap();
    while queue.pool.poll_output().is_some() {}
    queue
}

library_benchmark_group!(name = uncontended, benchmarks = [pair, recorded_pair]);
library_benchmark_group!(
    name = flat,
    config = LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().hard_limits([(EventKind::Ir, BUDGET * OPERATIONS as u64)])),
    benchmarks = [check_out_that_waits, check_in_that_serves_a_waiter, cancel]
);
// Each waiter has an output of its own.
library_benchmark_group!(name = per_waiter, benchmarks = [clear]);
main!(library_benchmark_groups = [uncontended, flat, per_waiter]);
