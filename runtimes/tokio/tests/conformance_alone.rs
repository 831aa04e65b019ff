//! Those cases of the suite that measure how tasks are served beside others, with one thread and with several: a program by
//! itself.

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

struct OneThread;

impl Harness for OneThread {
    type Runtime = Tokio;

    const ENDS: bool = true;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }
}

mod many_threads {
    cmap_runtime::conformance!(alone crate::ManyThreads);
}

mod one_thread {
    cmap_runtime::conformance!(alone crate::OneThread);
}
