//! async-std's runtime for benchmarks.

use std::future::Future;

use cmap_async_std::AsyncStd;
use cmap_benchmarks::Harness;

/// The executor that everybody shares.
pub(crate) struct Global;

impl Harness for Global {
    type Runtime = AsyncStd;

    const ENDS: bool = false;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        async_std::task::block_on(future)
    }
}
