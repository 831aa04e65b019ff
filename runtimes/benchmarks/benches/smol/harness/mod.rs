//! smol's runtime for benchmarks.

use std::future::Future;

use cmap_benchmarks::Harness;
use cmap_smol::Smol;

/// The executor that all tasks share.
pub(crate) struct Global;

impl Harness for Global {
    type Runtime = Smol;

    const ENDS: bool = false;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        smol::block_on(future)
    }
}
