//! How the suite runs on tokio: in a runtime with several threads, and in one with one thread.

#![allow(dead_code, reason = "each test program has its own choice of these")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
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

/// As many threads as [`THREADS`] says: the suite is compiled once for both.
pub(crate) struct Threads;

/// Names the environment variable that asks for one thread, if it is 1.
pub(crate) const THREADS: &str = "CMAP_TOKIO_THREADS";

impl Harness for Threads {
    type Runtime = Tokio;

    const ENDS: bool = true;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        if env::var(THREADS).is_ok_and(|threads| threads == "1") {
            OneThread::block_on(future)
        } else {
            ManyThreads::block_on(future)
        }
    }
}
