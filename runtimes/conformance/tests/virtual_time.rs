//! The suite in virtual time, on `cmap-sim`: the adapters' code, cancellation at every await, TLS and all, under many
//! seeds.
//!
//! `CMAP_SIM_SEED=7` runs each case under seed 7 alone.

#![allow(missing_docs, reason = "a test is told by its name")]

use cmap_sim::for_seeds;

cmap_conformance::conformance!(virtual cmap_conformance::virtual_time::Virtual);

/// `CMAP_SIM_SEEDS` says under how many seeds.
#[test]
fn servers_that_lie_cost_errors_and_nothing_else() {
    let count = std::env::var("CMAP_SIM_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(60);

    for_seeds(0..count, cmap_conformance::hostile::run_seed);
}
