//! Those cases of the suite that measure how tasks are served beside others: a program by itself.

use std::future::Future;

use cmap_runtime::conformance::Harness;
use cmap_smol::Smol;

struct Global;

impl Harness for Global {
    type Runtime = Smol;

    const ENDS: bool = false;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        smol::block_on(future)
    }
}

cmap_runtime::conformance!(alone super::Global);
