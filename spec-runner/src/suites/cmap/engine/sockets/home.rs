//! The runtimes: what a test's pool and its tasks live in.

use std::future::Future;
use std::io;

use cmap_async_std::AsyncStd;
use cmap_runtime::Listen;
use cmap_smol::Smol;
use cmap_tokio::Tokio;

/// A running runtime.
pub(in crate::suites::cmap::engine) trait Home: Send + Sync + 'static {
    /// The adapter's.
    type Runtime: Listen;

    /// The name of the engine whose pools take their connections from agents.
    const BY_AGENTS: &'static str;

    /// Runs `future` in it, on the calling thread.
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T;
}

/// tokio, with a thread for each processor.
#[derive(Debug)]
pub(in crate::suites::cmap::engine) struct OnTokio(tokio::runtime::Runtime);

/// async-std's global executor.
#[derive(Clone, Copy, Debug)]
pub(in crate::suites::cmap::engine) struct OnAsyncStd;

/// smol's global executor.
#[derive(Clone, Copy, Debug)]
pub(in crate::suites::cmap::engine) struct OnSmol;

impl OnTokio {
    pub(in crate::suites::cmap::engine) fn start() -> io::Result<Self> {
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map(Self)
    }
}

impl Home for OnTokio {
    type Runtime = Tokio;

    const BY_AGENTS: &'static str = "tokio-reverse";

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.block_on(future)
    }
}

impl Home for OnAsyncStd {
    type Runtime = AsyncStd;

    const BY_AGENTS: &'static str = "async-std-reverse";

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        // Its executor has threads of its own, so any thread may wait for a future.
        smol::block_on(future)
    }
}

impl Home for OnSmol {
    type Runtime = Smol;

    const BY_AGENTS: &'static str = "smol-reverse";

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        smol::block_on(future)
    }
}
