//! A process without descriptors: a test by itself, since it takes them from the whole process.

#![cfg(unix)]

use std::future::Future;

use cmap_runtime::conformance::{Harness, descriptors};
use cmap_smol::Smol;

struct Global;

impl Harness for Global {
    type Runtime = Smol;

    const ENDS: bool = false;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        smol::block_on(future)
    }
}

#[test]
fn a_process_without_descriptors_is_told_so_and_recovers() {
    descriptors::a_process_without_descriptors_is_told_so_and_recovers::<Global>();
}
