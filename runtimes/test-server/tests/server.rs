//! The test server, driven in memory and in virtual time by this project's own client.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test fails by panicking")]

#[path = "server/auth.rs"]
mod auth;
#[path = "server/change_streams.rs"]
mod change_streams;
#[path = "server/common_arguments.rs"]
mod common_arguments;
#[path = "server/fail_points.rs"]
mod fail_points;
#[path = "server/hello.rs"]
mod hello;
#[path = "server/hostile.rs"]
mod hostile;
#[path = "server/ingress.rs"]
mod ingress;
#[path = "server/limits.rs"]
mod limits;
#[path = "server/messages.rs"]
mod messages;
#[path = "server/network.rs"]
mod network;
#[path = "server/replica_set.rs"]
mod replica_set;
#[path = "server/sleep.rs"]
mod sleep;
#[path = "server/tailable.rs"]
mod tailable;
#[path = "server/transactions.rs"]
mod transactions;
#[path = "server/users.rs"]
mod users;
#[path = "server/version.rs"]
mod version;
