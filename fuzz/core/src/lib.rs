//! The fuzz targets that need `cmap-core` alone: each is a module whose `run` takes the fuzzer's bytes.
//!
//! `tests/corpus.rs` replays what the fuzzer has kept; the programs of the fuzzer itself are in `fuzz/targets`.

#![allow(clippy::panic, reason = "a finding of the fuzzer is a panic")]

pub mod auth;
pub mod connection_string;
#[allow(dead_code, reason = "the property test needs more of it")]
#[path = "../../../core/tests/model/mod.rs"]
mod model;
pub mod monitor;
pub mod reference;
pub mod reverse;
pub mod trace;
pub mod wire;
