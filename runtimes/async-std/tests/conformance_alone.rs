//! Those cases of the suite that measure how tasks are served beside others: a program by itself.

use std::future::Future;

use cmap_async_std::AsyncStd;
use cmap_runtime::conformance::Harness;

struct Global;

impl Harness for Global {
    type Runtime = AsyncStd;

    const ENDS: bool = false;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        async_std::task::block_on(future)
    }
}

cmap_runtime::conformance!(alone super::Global);
