//! The suite in virtual time, on `cmap-sim`: the adapters' code, cancellation at every await, TLS and all, under many
//! seeds.
//!
//! `CMAP_SIM_SEED=7` runs each case under seed 7 alone.

#![allow(missing_docs, reason = "a test is told by its name and fails by panicking")]

use cmap_sim::campaign;

cmap_conformance::conformance!(virtual cmap_conformance::virtual_time::Virtual);

#[cfg(feature = "reverse")]
cmap_conformance::conformance_of_listeners!(virtual cmap_conformance::virtual_time::Virtual);

/// `CMAP_SIM_SEEDS` says under how many seeds.
#[test]
fn servers_that_lie_cost_errors_and_nothing_else() {
    campaign(60, cmap_conformance::hostile::run_seed);
}
