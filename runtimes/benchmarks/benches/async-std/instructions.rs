//! The cost of a check-out and check-in to a user, in instructions (callgrind): clock, lock, step and unlock, twice. A
//! wait queue timeout, the idle time and generations are checked; events could be subscribed to, but have no listener.
//!
//! `.ci/bench async-std-instructions` needs valgrind and gungraun-runner; `.ci/bench` installs both.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a benchmark fails by panicking")]

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use cmap_async_std::Client;
use cmap_conformance::LocalServer;
use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};

/// How often the benchmark repeats its operation.
const OPERATIONS: usize = 50;

/// Instructions that a check-out/check-in pair may cost.
const BUDGET_PER_PAIR: u64 = 750;

/// A client with one connection, which is available.
struct Warm {
    client: Client,
    _server: LocalServer,
}

fn warm() -> Warm {
    let server = LocalServer::start();
    let client = async_std::task::block_on(async {
        let client = Client::connect(&server.uri("maxIdleTimeMS=600000&waitQueueTimeoutMS=30000")).await.unwrap();
        drop(client.check_out().await.unwrap());
        client
    });
    pair(&client);
    Warm { client, _server: server }
}

fn pair(client: &Client) {
    let mut nobody = Context::from_waker(Waker::noop());
    match pin!(client.check_out()).poll(&mut nobody) {
        Poll::Ready(connection) => drop(black_box(connection.unwrap())),
        Poll::Pending => panic!("the connection is available"),
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

library_benchmark_group!(
    name = budget,
    config = LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().hard_limits([(EventKind::Ir, BUDGET_PER_PAIR * OPERATIONS as u64)])),
    benchmarks = [uncontended_pair]
);
main!(library_benchmark_groups = [budget]);
