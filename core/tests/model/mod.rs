//! The naive reference of a pool, and the comparison of a pool with it: step by step, with the laws.
//!
//! The property test of `core/tests/model.rs` draws the steps (`drawn.rs`), and the fuzz target `reference` reads them from
//! bytes (`fuzz/core/src/reference.rs`).
#![allow(clippy::expect_used, reason = "clippy's allow-expect-in-tests does not reach the helpers of a test")]
#![allow(clippy::cast_possible_truncation, reason = "the numbers of one case are small")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a check that does not look at an output need not list it")]

pub(crate) mod case;
pub(crate) mod durations;
pub(crate) mod laws;
pub(crate) mod output;
pub(crate) mod reference;
pub(crate) mod returned_delivery;
pub(crate) mod sut;
pub(crate) mod transition;
