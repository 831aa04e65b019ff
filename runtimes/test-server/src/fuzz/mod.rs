//! The entries for fuzzers that need a server. Each takes any bytes, and checks the properties that must always hold.
//!
//! They are compiled always, so that fuzz targets, property tests and reproductions run the same code.

pub mod auth;
pub mod connection;
pub mod server;
