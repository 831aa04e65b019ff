//! Tokio's runtimes for benchmarks: they last as long as the program, because clients and connections live in them.

#![allow(dead_code, reason = "not every program uses both")]

use std::future::Future;
use std::sync::LazyLock;

use cmap_benchmarks::Harness;
use cmap_tokio::Tokio;
use tokio::runtime::{Builder, Runtime};

/// One thread, the waiting one.
pub(crate) struct OneThread;

/// Two threads, beside the waiting one.
pub(crate) struct TwoThreads;

impl Harness for OneThread {
    type Runtime = Tokio;

    const ENDS: bool = false;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        static RUNTIME: LazyLock<Runtime> =
            LazyLock::new(|| Builder::new_current_thread().enable_all().build().unwrap());
        RUNTIME.block_on(future)
    }
}

impl Harness for TwoThreads {
    type Runtime = Tokio;

    const ENDS: bool = false;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        static RUNTIME: LazyLock<Runtime> =
            LazyLock::new(|| Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());
        RUNTIME.block_on(future)
    }
}
