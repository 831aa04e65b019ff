//! A process without descriptors: a test by itself, since it takes them from the whole process.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::Future;

use cmap_runtime::conformance::{Harness, descriptors};
use cmap_tokio::Tokio;

struct ManyThreads;

impl Harness for ManyThreads {
    type Runtime = Tokio;

    const ENDS: bool = true;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
    }
}

#[test]
fn a_process_without_descriptors_is_told_so_and_recovers() {
    descriptors::a_process_without_descriptors_is_told_so_and_recovers::<ManyThreads>();
}
