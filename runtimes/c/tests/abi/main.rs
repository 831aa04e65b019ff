//! The functions of the header, called from Rust, in virtual time: each mistake, outputs, the official files, recordings,
//! and random scripts.

#![allow(
    clippy::cast_possible_truncation,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    missing_docs,
    reason = "a test fails by panicking, and looks at the outputs that it is about"
)]

mod misuse;
mod official;
mod outputs;
mod pool;
mod recording;
mod scripts;
