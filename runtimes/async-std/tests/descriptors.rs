//! A process without descriptors: a test by itself, since it takes them from the whole process.

#![cfg(unix)]

use std::future::Future;

use cmap_async_std::AsyncStd;
use cmap_runtime::conformance::{Harness, descriptors};

struct Global;

impl Harness for Global {
    type Runtime = AsyncStd;

    const ENDS: bool = false;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        async_std::task::block_on(future)
    }
}

#[test]
fn a_process_without_descriptors_is_told_so_and_recovers() {
    descriptors::a_process_without_descriptors_is_told_so_and_recovers::<Global>();
}
