//! The hub on real sockets, between our own client as the driver and the test server as MongoDB.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "hub/agents.rs"]
mod agents;
#[path = "hub/alerts.rs"]
mod alerts;
#[path = "hub/bad_clients.rs"]
mod bad_clients;
#[path = "hub/certificates.rs"]
mod certificates;
#[path = "hub/compression.rs"]
mod compression;
#[cfg(unix)]
#[path = "hub/control.rs"]
mod control;
#[path = "hub/departures.rs"]
mod departures;
#[path = "hub/ending.rs"]
mod ending;
#[cfg(unix)]
#[path = "hub/examples.rs"]
mod examples;
#[path = "hub/failovers.rs"]
mod failovers;
mod hidden;
#[path = "hub/house.rs"]
mod house;
#[path = "hub/introductions.rs"]
mod introductions;
#[path = "hub/killed.rs"]
mod killed;
#[path = "hub/limits.rs"]
mod limits;
#[path = "hub/listeners.rs"]
mod listeners;
#[cfg(unix)]
#[path = "hub/logs.rs"]
mod logs;
#[path = "hub/operations.rs"]
mod operations;
#[path = "hub/program.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod program;
#[cfg(unix)]
#[path = "hub/proxies.rs"]
mod proxies;
#[path = "hub/reference.rs"]
mod reference;
#[path = "hub/servers.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod servers;
#[path = "hub/sharing.rs"]
mod sharing;
#[path = "hub/standalone.rs"]
mod standalone;
#[path = "hub/status.rs"]
mod status;
#[path = "hub/unknown.rs"]
mod unknown;
#[cfg(unix)]
#[path = "hub/upgrades.rs"]
mod upgrades;
#[path = "hub/users.rs"]
mod users;
