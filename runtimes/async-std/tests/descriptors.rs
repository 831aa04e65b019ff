//! A process without descriptors: a test of its own, because it takes them from the whole process.

#![cfg(unix)]

mod harness;

use cmap_conformance::descriptors;

#[test]
#[ignore = "full: the adapter is 120 lines, and its cases pass in virtual time, on tokio and on smol"]
fn a_process_without_descriptors_is_told_so_and_recovers() {
    descriptors::a_process_without_descriptors_is_told_so_and_recovers::<harness::Global>();
}
