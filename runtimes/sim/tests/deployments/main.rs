//! Clients of whole deployments in virtual time: failovers, transactions, storms, DNS, each under many seeds.
//!
//! One program, since each program is compiled with all of the client.
//!
//! `CMAP_SIM_SEED=7` runs each test under seed 7 alone, and `CMAP_SIM_SEEDS` says how many seeds the campaigns have.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    missing_docs,
    reason = "a test is told by its name and fails by panicking"
)]

mod application;
mod bulk_write;
mod cancellations;
mod changing_description;
mod connection_storm;
mod cursors;
mod cut;
mod failover;
mod incidents;
mod member_faults;
mod mixed_load;
mod operations;
mod proxy;
mod replica_set;
mod rotation;
mod server_filter;
mod srv;
mod time_limits;
mod transactions;
mod watchers;
mod whole_stack;
