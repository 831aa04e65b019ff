//! How the suite runs on this runtime.

use std::future::Future;

use cmap_async_std::AsyncStd;
use cmap_conformance::Harness;

pub(crate) struct Global;

impl Harness for Global {
    type Runtime = AsyncStd;

    const ENDS: bool = false;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        async_std::task::block_on(future)
    }
}
