//! Clients that mean harm, against the hub as a program: what they can take from others.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "attacks/memory.rs"]
mod memory;
#[path = "hub/program.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod program;
#[path = "hub/servers.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod servers;
#[path = "attacks/strangers.rs"]
mod strangers;
