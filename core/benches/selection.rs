//! The cost of selecting one of 50 servers, in instructions (callgrind).
//!
//! `cargo bench --manifest-path core/benches/Cargo.toml --bench selection` needs valgrind and gungraun-runner; `.ci/bench`
//! installs both.
//! Each benchmark does its work [`OPERATIONS`] times, so divide by that.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::monitor::{ServerDescription, ServerType};
use cmap_core::random::Random;
use cmap_core::topology::selection::{LatencyWindow, ServerSelector};
use cmap_core::topology::{TopologyDescription, TopologyType};
use gungraun::prelude::*;

/// How often each benchmark repeats its operation.
const OPERATIONS: usize = 50;

fn routers() -> TopologyDescription {
    let router = |port| {
        let mut router = ServerDescription::new(Arc::new(ServerAddress::tcp("router", port)), ServerType::Mongos);
        router.round_trip_time = Some(Duration::from_millis(u64::from(port % 10)));
        Arc::new(router)
    };
    TopologyDescription::of_servers(TopologyType::Sharded, (1..=50).map(router).collect())
}

fn window(routers: &TopologyDescription) -> LatencyWindow {
    let suitable = routers.suitable_servers(&ServerSelector::Writable, &[], Duration::from_secs(10)).unwrap();
    LatencyWindow::new(routers, &suitable, Duration::from_millis(15))
}

// What an operation costs.
#[library_benchmark]
#[bench::fifty(window(&routers()))]
fn choose(window: LatencyWindow) -> LatencyWindow {
    let (mut random, operations) = (Random::new(1), [3; 50]);
    for _ in 0..OPERATIONS {
        black_box(window.choose(&mut random, |server| operations[server]));
    }
    window
}

// What a new description costs each selector.
#[library_benchmark]
#[bench::fifty(routers())]
fn find_window(routers: TopologyDescription) -> TopologyDescription {
    for _ in 0..OPERATIONS {
        black_box(window(&routers));
    }
    routers
}

library_benchmark_group!(name = selection, benchmarks = [choose, find_window]);
main!(library_benchmark_groups = [selection]);
