//! What it costs a check-out and check-in that holders, histograms and possible leaks are watched, in instructions (callgrind): the pair
//! of `instructions.rs` beside the same pair of a client that watches, whose caller gives a label that was made before.
//!
//! A program of its own, because a second caller of the client's methods would change the compiler's inlining there. Divide by
//! [`OPERATIONS`]. `.ci/bench smol-watch` needs valgrind and gungraun-runner; `.ci/bench` installs both.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a benchmark fails by panicking")]

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cmap_conformance::LocalServer;
use cmap_smol::ClientOptions;
use cmap_smol::{Client, Label};
use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};

/// How often the benchmark repeats its operation.
const OPERATIONS: usize = 50;

/// Instructions that a check-out/check-in pair may cost without.
const PLAIN: u64 = 750;

/// Instructions that it may cost with holders, labels, histograms and the watch for possible leaks together.
const WATCHED: u64 = 2 * PLAIN;

const HOUR: Duration = Duration::from_secs(3600);

/// What a client watches.
#[derive(Clone, Copy)]
enum Watch {
    Nothing,
    Holders,
    PossibleLeaks,
}

/// A client with one connection, which is available, and the label of its check-outs.
struct Warm {
    client: Client,
    label: Label,
    _server: LocalServer,
}

fn warm(watch: Watch) -> Warm {
    let server = LocalServer::start();
    let (options, _) = ClientOptions::parse(&server.uri("maxIdleTimeMS=600000&waitQueueTimeoutMS=30000")).unwrap();
    let builder = Client::builder(options);
    let builder = match watch {
        Watch::Nothing => builder,
        Watch::Holders => builder.watch_holders(true),
        Watch::PossibleLeaks => builder.leak_detection_threshold(HOUR),
    };
    let client = smol::block_on(async {
        let client = builder.build().await.unwrap();
        drop(client.check_out().await.unwrap());
        client
    });
    let label = client.label("checkout page");
    // The list of the slowest uses is full of longer ones, and the label has had one.
    for _ in 0..20 {
        let _used = smol::block_on(client.check_out().labelled(label)).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    let warm = Warm { client, label, _server: server };
    pairs(&warm, 1);
    warm
}

fn pairs(Warm { client, label, .. }: &Warm, number: usize) {
    for _ in 0..number {
        let mut nobody = Context::from_waker(Waker::noop());
        match pin!(client.check_out().labelled(*label)).poll(&mut nobody) {
            Poll::Ready(connection) => drop(black_box(connection.unwrap())),
            Poll::Pending => panic!("the connection is available"),
        }
    }
}

fn limit(budget: u64) -> LibraryBenchmarkConfig {
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::default().hard_limits([(EventKind::Ir, budget * OPERATIONS as u64)]));
    config
}

#[library_benchmark(config = limit(PLAIN))]
#[bench::holders(warm(Watch::Nothing))]
#[bench::possible_leaks(warm(Watch::Nothing))]
fn plain(warm: Warm) -> Warm {
    pairs(&warm, OPERATIONS);
    warm
}

#[library_benchmark(config = limit(WATCHED))]
#[bench::holders(warm(Watch::Holders))]
#[bench::possible_leaks(warm(Watch::PossibleLeaks))]
fn watched(warm: Warm) -> Warm {
    pairs(&warm, OPERATIONS);
    warm
}

library_benchmark_group!(name = pair, compare_by_id = true, benchmarks = [plain, watched]);
main!(library_benchmark_groups = [pair]);
