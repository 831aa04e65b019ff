//! How the suite runs on tokio: in a runtime with several threads, and in one with one thread.

#![allow(dead_code, reason = "not every test runs in both")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::Future;

use cmap_conformance::Harness;
use cmap_tokio::Tokio;
use tokio::runtime::Builder;

pub(crate) struct ManyThreads;

pub(crate) struct OneThread;

impl Harness for ManyThreads {
    type Runtime = Tokio;

    const ENDS: bool = true;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
    }
}

impl Harness for OneThread {
    type Runtime = Tokio;

    const ENDS: bool = true;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }
}
