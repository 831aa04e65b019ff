//! Deployments of several servers, driven in memory and in virtual time.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test fails by panicking")]

#[path = "deployment/change_streams.rs"]
mod change_streams;
#[path = "deployment/chaos.rs"]
mod chaos;
#[path = "deployment/elections.rs"]
mod elections;
#[path = "deployment/hello.rs"]
mod hello;
#[path = "deployment/network.rs"]
mod network;
#[path = "deployment/reconfiguration.rs"]
mod reconfiguration;
#[path = "deployment/replication.rs"]
mod replication;
#[path = "deployment/restarts.rs"]
mod restarts;
#[path = "deployment/sharded.rs"]
mod sharded;
#[path = "deployment/step_down.rs"]
mod step_down;
#[path = "deployment/transactions.rs"]
mod transactions;
#[path = "deployment/users.rs"]
mod users;
#[path = "deployment/write_concern.rs"]
mod write_concern;
