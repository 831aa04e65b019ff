//! The fuzz targets that need more than `cmap-core`: each is a module whose `run` takes the fuzzer's bytes.
//!
//! `tests/corpus.rs` replays what the fuzzer has kept; the programs of the fuzzer itself are in `fuzz/targets`.

pub mod auth;
pub mod connection;
pub mod embedded_server;
pub mod hostile_server;
pub mod topology;
