//! The suite in virtual time, on `cmap-sim`: the adapters' code, cancellation at every await, TLS and all, under many
//! seeds.
//!
//! `CMAP_SIM_SEED=7` runs each case under seed 7 alone.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test is told by its name and fails by panicking")]

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use cmap_sim::campaign;

cmap_conformance::conformance!(virtual cmap_conformance::virtual_time::Virtual);

#[cfg(feature = "reverse")]
cmap_conformance::conformance_of_listeners!(virtual cmap_conformance::virtual_time::Virtual);

/// `CMAP_SIM_SEEDS` says under how many seeds.
#[test]
fn servers_that_lie_cost_errors_and_nothing_else() {
    campaign(60, cmap_conformance::hostile::run_seed);
}

/// What a fuzzer found worth keeping (`fuzz/fuzz_targets/hostile_server.rs`).
#[test]
fn the_lies_of_the_corpus_cost_errors_and_nothing_else() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/hostile_server");
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let script = fs::read(&path).unwrap();
        let outcome = catch_unwind(|| cmap_conformance::hostile::run_script(&script));
        assert!(outcome.is_ok(), "{}", path.display());
        count += 1;
    }
    assert!(count > 0, "nothing in {}", folder.display());
}
