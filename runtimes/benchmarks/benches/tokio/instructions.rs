//! The cost of a check-out and check-in to a user, in instructions (callgrind): clock, lock, step and unlock, twice,
//! and once more for a waiter. A wait queue timeout, the idle time and generations are checked; events could be
//! subscribed to, but have no listener.
//!
//! `.ci/bench tokio-instructions` needs valgrind and gungraun-runner; `.ci/bench` installs both.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a benchmark fails by panicking")]

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use cmap_conformance::LocalServer;
use cmap_tokio::{Client, Connection};
use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};
use tokio::runtime::Runtime;

/// How often the benchmark repeats its operation.
const OPERATIONS: usize = 50;

/// Instructions that a check-out/check-in pair may cost.
const BUDGET_PER_PAIR: u64 = 750;

/// Instructions that a waiting check-out may cost, with the check-in that it waits for.
const BUDGET_PER_HAND_OFF: u64 = 1900;

/// A client with one connection, which is available.
struct Warm {
    client: Client,
    runtime: Runtime,
    _server: LocalServer,
}

/// The same, and the connection is in use.
struct Exhausted {
    connection: Connection,
    warm: Warm,
}

fn warm() -> Warm {
    let server = LocalServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(async {
        let client =
            Client::connect(&server.uri("maxPoolSize=1&maxIdleTimeMS=600000&waitQueueTimeoutMS=30000")).await.unwrap();
        drop(client.check_out().await.unwrap());
        client
    });
    pair(&client);
    Warm { client, runtime, _server: server }
}

fn pair(client: &Client) {
    let mut nobody = Context::from_waker(Waker::noop());
    match pin!(client.check_out()).poll(&mut nobody) {
        Poll::Ready(connection) => drop(black_box(connection.unwrap())),
        Poll::Pending => panic!("the connection is available"),
    }
}

fn exhausted() -> Exhausted {
    let warm = warm();
    let connection = warm.runtime.block_on(warm.client.check_out()).unwrap();
    let connection = hand_off(&warm.client, connection);
    Exhausted { connection, warm }
}

fn hand_off(client: &Client, connection: Connection) -> Connection {
    let mut nobody = Context::from_waker(Waker::noop());
    let mut waiter = pin!(client.check_out());
    assert!(waiter.as_mut().poll(&mut nobody).is_pending(), "the connection is in use");
    drop(connection);
    match waiter.poll(&mut nobody) {
        Poll::Ready(connection) => connection.unwrap(),
        Poll::Pending => panic!("the connection was given back"),
    }
}

#[library_benchmark]
#[bench::warm(warm())]
fn uncontended_pair(warm: Warm) -> Warm {
    for _ in 0..OPERATIONS {
        pair(&warm.client);
    }
    warm
}

#[library_benchmark]
#[bench::exhausted(exhausted())]
fn contended_pair(exhausted: Exhausted) -> Exhausted {
    let Exhausted { mut connection, warm } = exhausted;
    for _ in 0..OPERATIONS {
        connection = hand_off(&warm.client, connection);
    }
    Exhausted { connection, warm }
}

library_benchmark_group!(
    name = available,
    config = LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().hard_limits([(EventKind::Ir, BUDGET_PER_PAIR * OPERATIONS as u64)])),
    benchmarks = [uncontended_pair]
);
library_benchmark_group!(
    name = waited_for,
    config = LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().hard_limits([(EventKind::Ir, BUDGET_PER_HAND_OFF * OPERATIONS as u64)])),
    benchmarks = [contended_pair]
);
main!(library_benchmark_groups = [available, waited_for]);
