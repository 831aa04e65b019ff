//! The suite that every adapter has to pass, on tokio's runtime with several threads.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::Future;

use cmap_runtime::conformance::Harness;
use cmap_tokio::Tokio;

struct ManyThreads;

impl Harness for ManyThreads {
    type Runtime = Tokio;

    const ENDS: bool = true;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
    }
}

cmap_runtime::conformance!(super::ManyThreads);
