//! The suite that every adapter has to pass, on tokio's runtime with several threads; once more with one, in a process of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod harness;

use std::env;
use std::process::Command;

cmap_conformance::conformance!(crate::harness::Threads);

#[test]
#[ignore = "full: the cases pass with many threads, and in virtual time with one"]
fn the_suite_passes_with_one_thread() {
    let program = env::current_exe().unwrap();

    let status = Command::new(program).env(harness::THREADS, "1").status().unwrap();

    assert!(status.success(), "{status}");
}
