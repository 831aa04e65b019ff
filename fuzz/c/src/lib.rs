//! The fuzz target that calls the C library: a module whose `run` takes the fuzzer's bytes.
//!
//! Its scripts are those of cmap-c's own tests, with bytes in the place of random numbers. `tests/corpus.rs` replays what the fuzzer has
//! kept; the program of the fuzzer itself is in `fuzz/targets`.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    dead_code,
    reason = "a finding is a panic; cmap-c's tests need more of a pool"
)]

#[path = "../../../runtimes/c/tests/abi/pool.rs"]
mod pool;
#[path = "../../../runtimes/c/tests/abi/scripts/mod.rs"]
mod scripts;

/// Random calls through the functions of the header, next to the calls of the machine that they stand for.
pub mod abi {
    use crate::scripts::{Choices, Script};

    /// Runs one script: options in 20 bytes, then calls of 12 bytes each.
    ///
    /// # Panics
    /// An output, an answer or the state behind the header differs from the machine's: that is a finding.
    pub fn run(data: &[u8]) {
        Script::new(Choices::of_bytes(data)).run();
    }
}
