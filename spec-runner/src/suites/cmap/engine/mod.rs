//! Engines, which carry out the operations of a test: each drives one kind of pool.
//!
//! The same tests run on every engine, so that a result for one holds for all. An engine does not know the expectations
//! about the whole run; it does what the test says and notes what happens.

mod balance;
mod core;
mod event;
mod sim;
mod sockets;
mod users;

use ::core::time::Duration;
use std::io;
use std::sync::Arc;

use cmap_core::pool::CheckOutError;
use serde_json::Value;
use thiserror::Error;

pub use self::core::CoreEngine;
use self::sim::SimEngine;
pub use self::sockets::ServersError;
use self::sockets::{Approach, OnAsyncStd, OnSmol, OnTokio, Servers, SocketEngine};
use crate::suites::cmap::format::{Case, Deployment};

/// Carries out tests on one kind of pool.
pub trait Engine: Send + Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// The source of the order of events.
    fn chance(&self) -> Chance;

    /// The server that its tests talk to.
    fn deployment(&self) -> Deployment;

    /// Why it cannot carry out `case`, if it cannot. The case is then skipped, never half run.
    fn unsupported(&self, case: &Case) -> Option<String>;

    /// Carries out `case`. An engine whose chance is seeded draws all of it from `seed`: the same seed gives the same run.
    fn run(&self, case: &Case, seed: u64) -> Run;
}

/// The source of the order of simultaneous events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chance {
    /// From a seed, in virtual time.
    Seeded,
    /// The machine: time, threads and sockets are real. A run is mostly waiting, and many can go on at once.
    Real,
}

/// The record of a test's run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// All events, in order, as JSON objects with the format's names for types and fields.
    pub events: Vec<Value>,
    /// The error that ended the main thread.
    pub error: Option<ActualError>,
    /// Faults that must never happen: a broken invariant, a wait that never ended, figures that were not as asserted.
    pub violations: Vec<String>,
    /// By how much the longest of its waits exceeded the test's: the machine stalled for that time.
    pub standstill: Duration,
    /// How often it had failed before while the machine stalled.
    pub retaken: u32,
}

/// The error that a check-out ended with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActualError {
    /// As files spell it.
    pub type_name: String,
    /// The specification's message.
    pub message: String,
    /// The address of the pool.
    pub address: String,
}

/// The names of all engines.
pub const NAMES: [&str; 6] = ["core", "sim", "tokio", "async-std", "smol", BY_AGENTS];

/// The engine whose pools take their connections from agents. It repeats what `smol` does by another way, so it has to be named.
pub const BY_AGENTS: &str = "smol-reverse";

/// How long `waitForEvent` waits if the test does not say.
const EVENT_TIMEOUT: Duration = Duration::from_secs(10);

/// An engine did not start.
#[derive(Debug, Error)]
pub enum EngineError {
    /// There are no servers for its tests.
    #[error(transparent)]
    Servers(#[from] ServersError),
    /// Its runtime did not start.
    #[error("the runtime of an engine did not start: {0}")]
    Runtime(#[from] io::Error),
}

/// The engines with these names. Those on sockets talk to the server behind `uri`, or else to embedded ones.
///
/// # Errors
/// An engine did not start.
pub fn start(is_meant: impl Fn(&str) -> bool, uri: Option<&str>) -> Result<Vec<Box<dyn Engine>>, EngineError> {
    let servers = Arc::new(match uri {
        Some(uri) => Servers::named(uri)?,
        None => Servers::embedded()?,
    });
    let mut engines: Vec<Box<dyn Engine>> = Vec::new();
    for name in NAMES.into_iter().filter(|name| is_meant(name)) {
        engines.push(match name {
            "tokio" => Box::new(SocketEngine::new(OnTokio::start()?, Arc::clone(&servers), Approach::Direct)),
            "async-std" => Box::new(SocketEngine::new(OnAsyncStd, Arc::clone(&servers), Approach::Direct)),
            "smol" => Box::new(SocketEngine::new(OnSmol, Arc::clone(&servers), Approach::Direct)),
            BY_AGENTS => Box::new(SocketEngine::new(OnSmol, Arc::clone(&servers), Approach::ByAgents)),
            "sim" => Box::new(SimEngine),
            _ => Box::new(CoreEngine),
        });
    }
    Ok(engines)
}

impl From<&CheckOutError> for ActualError {
    fn from(error: &CheckOutError) -> Self {
        Self { type_name: error.type_name().into(), message: error.message(), address: error.address.to_string() }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_engine_is_started_by_its_name() {
        let engines = super::start(|_| true, None).unwrap();

        let names: Vec<_> = engines.iter().map(|engine| engine.name()).collect();
        assert_eq!(names, super::NAMES);
    }
}
