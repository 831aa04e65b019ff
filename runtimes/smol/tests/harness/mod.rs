//! How the suite runs on this runtime.

use std::future::Future;

use cmap_conformance::Harness;
use cmap_smol::Smol;

pub(crate) struct Global;

impl Harness for Global {
    type Runtime = Smol;

    const ENDS: bool = false;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        smol::block_on(future)
    }
}
