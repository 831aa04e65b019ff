//! The embedded server, driven in memory and in virtual time by this project's own client.

#![cfg(all(feature = "wire", feature = "auth"))]
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test fails by panicking")]

#[path = "embedded/auth.rs"]
mod auth;
#[path = "embedded/fail_points.rs"]
mod fail_points;
#[path = "embedded/hello.rs"]
mod hello;
#[path = "embedded/hostile.rs"]
mod hostile;
#[path = "embedded/messages.rs"]
mod messages;
#[path = "embedded/network.rs"]
mod network;
#[path = "embedded/replica_set.rs"]
mod replica_set;
#[path = "embedded/users.rs"]
mod users;
