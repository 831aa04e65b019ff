//! What carries out the operations of a test: an engine drives one kind of pool.
//!
//! The same tests run on every engine, so that what is proven of one is proven of all. An engine knows nothing of
//! expectations about the whole run; it does what the test says and notes what happens.

mod core;

use serde_json::Value;

pub use self::core::CoreEngine;
use crate::format::Case;

/// Carries out tests on one kind of pool.
pub trait Engine {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Why it cannot carry out `case`, if it cannot. The case is then skipped, never half run.
    fn unsupported(&self, case: &Case) -> Option<String>;

    /// Carries out `case`. All chance is drawn from `seed`: the same seed gives the same run.
    fn run(&self, case: &Case, seed: u64) -> Run;
}

/// What happened while a test was carried out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// All events, in order, as JSON objects with the format's names for types and fields.
    pub events: Vec<Value>,
    /// The error that ended the main thread.
    pub error: Option<ActualError>,
    /// What must never happen and did: a broken invariant, a wait that never ended, figures that were not as asserted.
    pub violations: Vec<String>,
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

/// The names of all engines, the default first.
pub const NAMES: [&str; 1] = ["core"];

/// The engine called `name`.
pub fn by_name(name: &str) -> Option<Box<dyn Engine>> {
    match name {
        "core" => Some(Box::new(CoreEngine)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_engine_is_found_by_its_name() {
        for name in super::NAMES {
            assert_eq!(super::by_name(name).map(|engine| engine.name()), Some(name));
        }
    }
}
