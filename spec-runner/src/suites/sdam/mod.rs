//! The official tests of server discovery and monitoring, and those of round-trip times.
//!
//! A file of the first kind is a script of phases: the servers' answers to their monitors, the errors that applications
//! meet, and the expected state of the servers, their pools and the topology. It is played on a topology of the core and its
//! monitors: answers go to a monitor as bytes, errors happen to real connections of the pool. A file of the second
//! kind is one step of the weighted average. Neither needs an engine or a seed: both are deterministic.

mod actual;
mod format;
mod session;

use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cmap_core::monitor::RoundTripTimes;

pub use self::format::{ApplicationError, ErrorType, Phase, RttFile, SdamFile, When};
use crate::suites::outcome::Outcome;

/// Runs a file of phases.
pub fn run(file: &SdamFile) -> Outcome {
    let reasons = catch_unwind(AssertUnwindSafe(|| session::play(file)));
    let reasons = reasons.unwrap_or_else(|_| vec!["the topology panicked".into()]);
    Outcome::of(reasons)
}

/// Runs a file of round-trip times.
pub fn run_rtt(file: &RttFile) -> Outcome {
    let millis = |millis: f64| Duration::try_from_secs_f64(millis / 1e3);
    let average = || {
        let mut times = RoundTripTimes::default();
        if let Some(average) = file.avg_rtt_ms.millis() {
            times.add(millis(average)?);
        }
        times.add(millis(file.new_rtt_ms)?);
        Ok::<_, core::time::TryFromFloatSecsError>(times.average().unwrap_or_default().as_secs_f64() * 1e3)
    };
    match average() {
        // Nanoseconds are whole.
        Ok(actual) if (actual - file.new_avg_rtt).abs() < 1e-5 => Outcome::Passed,
        Ok(actual) => Outcome::of(vec![format!("expected the average {} ms, got {actual} ms", file.new_avg_rtt)]),
        Err(error) => Outcome::of(vec![format!("a time cannot be one: {error}")]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Outcome, RttFile, SdamFile, run, run_rtt};

    /// The outcome of a test whose server turns out to be a standalone one, and whose operation then meets `error`.
    fn play(uri: &str, error: &Value, outcome: &Value) -> Outcome {
        let hello = json!({ "ok": 1, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 21 });
        let phases = json!([
            { "responses": [["a:27017", hello]], "outcome": {} },
            { "applicationErrors": error, "outcome": outcome },
        ]);
        run(&SdamFile::from_json(json!({ "description": "d", "uri": uri, "phases": phases })).unwrap())
    }

    fn error(generation: u64) -> Value {
        json!([{
            "address": "a:27017", "generation": generation, "maxWireVersion": 21, "type": "network",
            "when": "afterHandshakeCompletes",
        }])
    }

    fn server(server_type: &str, generation: u64) -> Value {
        json!({ "servers": { "a:27017": { "type": server_type, "pool": { "generation": generation } } } })
    }

    #[test]
    fn what_is_known_is_compared_after_each_phase() {
        assert_eq!(play("mongodb://a", &error(0), &server("Unknown", 1)), Outcome::Passed);
        let Outcome::Failed { reasons, .. } = play("mongodb://a", &error(0), &server("Standalone", 1)) else {
            panic!("the server is unknown")
        };
        assert_eq!(reasons, ["phase 2: servers.a:27017.type: expected \"Standalone\", got \"Unknown\""]);
        let wrong_pool = play("mongodb://a", &error(0), &server("Unknown", 0));
        assert!(matches!(wrong_pool, Outcome::Failed { .. }), "{wrong_pool:?}");
    }

    #[test]
    fn events_are_compared_and_counted() {
        let opening = json!({ "events": [{ "topology_opening_event": { "topologyId": "42" } }] });
        let test = json!({ "description": "d", "uri": "mongodb://a", "phases": [{ "outcome": opening }] });

        let Outcome::Failed { reasons, .. } = run(&SdamFile::from_json(test).unwrap()) else {
            panic!("there are more")
        };

        assert!(reasons[0].starts_with("phase 1: expected no more events, got "), "{reasons:?}");
    }

    #[test]
    fn an_error_needs_a_connection_of_its_generation() {
        let Outcome::Failed { reasons, .. } = play("mongodb://a", &error(7), &json!({})) else {
            panic!("there is none")
        };

        assert_eq!(reasons, ["phase 2: no connection of generation 7 is left"]);
    }

    #[test]
    fn an_average_is_compared() {
        let of = |average: Value, new: f64| {
            let file = json!({ "avg_rtt_ms": average, "new_rtt_ms": 10, "new_avg_rtt": new });
            run_rtt(&RttFile::from_json(file).unwrap())
        };

        assert_eq!(of(json!("NULL"), 10.0), Outcome::Passed);
        assert_eq!(of(json!(20), 18.0), Outcome::Passed);
        assert!(matches!(of(json!(20), 18.1), Outcome::Failed { .. }));
        assert!(matches!(of(json!(-1), 1.0), Outcome::Failed { .. }));
    }
}
