//! The suite that every adapter has to pass, on tokio's runtime with one thread.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::Future;

use cmap_runtime::conformance::Harness;
use cmap_tokio::Tokio;

struct OneThread;

impl Harness for OneThread {
    type Runtime = Tokio;

    const ENDS: bool = true;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }
}

cmap_runtime::conformance!(super::OneThread);
