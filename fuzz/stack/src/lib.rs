//! The fuzz targets that need more than `cmap-core`: each is a module whose `run` takes the fuzzer's bytes.
//!
//! `tests/corpus.rs` replays what the fuzzer has kept; the programs of the fuzzer itself are in `fuzz/targets`.

pub mod connection;
pub mod embedded_server;
pub mod hostile_server;
pub mod hub_rules;
// It plays scripts by parts of `spec-runner simulate` that nothing else needs.
pub use spec_runner::tools::simulate::fuzz as topology;
