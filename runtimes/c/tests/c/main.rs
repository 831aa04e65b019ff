//! The library as C sees it: its header, its symbols, and the examples, built by the machine's compiler.

#![allow(clippy::panic, clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

mod built;
mod examples;
mod header;
mod server;
