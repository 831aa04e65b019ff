//! The official tests of server selection: which servers suit an operation, which of them are in the latency window, and how
//! often each is chosen.
//!
//! A file gives the description of a topology, as a client would have it. Files of `server_selection` and of `max-staleness`
//! say what is wanted, and which servers must be selected; those of `in_window` let a thousand operations choose, and compare how
//! often each server is chosen. No I/O takes part, so there is no engine; the choices come from one fixed seed.

mod format;
mod topology;

use alloc::collections::BTreeMap;
use core::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::{MaxStaleness, ReadMode, ReadPreference};
use cmap_core::random::Random;
use cmap_core::topology::TopologyDescription;
use cmap_core::topology::selection::{LatencyWindow, ServerSelector};

use self::format::{Expected, Operation};
pub use self::format::{SelectionFile, WindowFile};
use super::outcome::Outcome;

/// localThresholdMS, as the files have it.
const LOCAL_THRESHOLD: Duration = Duration::from_millis(15);

/// heartbeatFrequencyMS where a file names none.
const HEARTBEAT_FREQUENCY: Duration = Duration::from_secs(10);

/// The seed of the choices.
const SEED: u64 = 0;

/// Runs a file that says what is wanted.
pub fn run(file: &SelectionFile) -> Outcome {
    let (topology, avoided) = match given(file) {
        Ok(given) => given,
        Err(error) => return Outcome::of(vec![error]),
    };
    let reasons = match (select(file, &topology, &avoided), &file.expected) {
        (Err(_), Expected::Error) => Vec::new(),
        (Err(error), Expected::Servers { .. }) => vec![format!("expected servers, got the error: {error}")],
        (Ok(_), Expected::Error) => vec!["expected an error, got servers".into()],
        (Ok((suitable, window)), Expected::Servers { suitable_servers, in_latency_window }) => {
            [("suitable_servers", suitable_servers, suitable), ("in_latency_window", in_latency_window, window)]
                .into_iter()
                .filter_map(|(name, expected, actual)| difference(name, expected, &actual))
                .collect()
        }
    };
    Outcome::of(reasons)
}

/// The topology, and the servers to avoid; an error is the file's, and never an expected one.
fn given(file: &SelectionFile) -> Result<(TopologyDescription, Vec<ServerAddress>), String> {
    let avoided = file.deprioritized_servers.iter().map(|server| topology::address(&server.address));
    Ok((topology::description(&file.topology_description)?, avoided.collect::<Result<_, _>>()?))
}

/// The addresses of the suitable servers, and of those in the latency window.
fn select(
    file: &SelectionFile,
    topology: &TopologyDescription,
    avoided: &[ServerAddress],
) -> Result<(Vec<String>, Vec<String>), String> {
    let selector = match file.operation {
        Operation::Write => ServerSelector::Writable,
        Operation::Read => preference(file)?.into(),
    };
    let heartbeat_frequency = file.heartbeat_frequency.map_or(HEARTBEAT_FREQUENCY, Duration::from_millis);
    let suitable = topology.suitable_servers(&selector, avoided, heartbeat_frequency);
    let suitable = suitable.map_err(|error| error.to_string())?;
    let window = LatencyWindow::new(topology, &suitable, LOCAL_THRESHOLD);
    Ok((addresses(topology, &suitable), addresses(topology, window.servers())))
}

fn preference(file: &SelectionFile) -> Result<ReadPreference, String> {
    let wanted = &file.read_preference;
    let preference = ReadPreference::new(wanted.mode.map_or(ReadMode::Primary, Into::into));
    let preference = preference.with_tag_sets(wanted.tag_sets.clone());
    let preference = preference.and_then(|preference| match wanted.max_staleness_seconds {
        None => Ok(preference),
        Some(seconds) => preference.with_max_staleness(MaxStaleness::AtMost(Duration::from_secs(seconds.into()))),
    });
    preference.map_err(|error| error.to_string())
}

fn addresses(topology: &TopologyDescription, positions: &[usize]) -> Vec<String> {
    positions.iter().map(|position| topology.servers[*position].address.to_string()).collect()
}

/// Servers are compared by their addresses, in any order.
fn difference(name: &str, expected: &[format::Server], actual: &[String]) -> Option<String> {
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let expected = sorted(expected.iter().map(|server| server.address.clone()).collect());
    let actual = sorted(actual.to_vec());
    (expected != actual).then(|| format!("{name}: expected {expected:?}, got {actual:?}"))
}

/// Runs a file that lets many operations choose.
pub fn run_window(file: &WindowFile) -> Outcome {
    let frequencies = match frequencies(file) {
        Ok(frequencies) => frequencies,
        Err(error) => return Outcome::of(vec![error]),
    };
    let mut reasons = Vec::new();
    for (address, expected) in &file.outcome.expected_frequencies {
        let actual = frequencies.get(address).copied().unwrap_or_default();
        // Never and always have no tolerance.
        let tolerance = if [0.0, 1.0].contains(expected) { 0.0 } else { file.outcome.tolerance };
        if (actual - expected).abs() > tolerance {
            reasons.push(format!("{address}: expected to be chosen in {expected} of all cases, got {actual}"));
        }
    }
    let unexpected = frequencies.keys().filter(|address| !file.outcome.expected_frequencies.contains_key(*address));
    reasons.extend(unexpected.map(|address| format!("{address}: chosen, though it is not among the expected ones")));
    Outcome::of(reasons)
}

/// The part of all operations that each server serves, by address.
fn frequencies(file: &WindowFile) -> Result<BTreeMap<String, f64>, String> {
    let topology = topology::description(&file.topology_description)?;
    let nearest = ServerSelector::from(ReadPreference::new(ReadMode::Nearest));
    let suitable = topology.suitable_servers(&nearest, &[], HEARTBEAT_FREQUENCY).map_err(|error| error.to_string())?;
    let window = LatencyWindow::new(&topology, &suitable, LOCAL_THRESHOLD);
    let counts: Vec<u64> = topology
        .servers
        .iter()
        .map(|server| file.operation_count(&server.address.to_string()))
        .collect::<Result<_, _>>()?;
    let mut random = Random::new(SEED);
    let mut chosen = BTreeMap::new();
    for _ in 0..file.iterations {
        let server = window.choose(&mut random, |server| counts[server]).ok_or("no server was chosen")?;
        *chosen.entry(topology.servers[server].address.to_string()).or_insert(0_u32) += 1;
    }
    Ok(chosen.into_iter().map(|(address, count)| (address, f64::from(count) / f64::from(file.iterations))).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Outcome, SelectionFile, WindowFile, run, run_window};

    fn servers() -> Value {
        json!([
            { "address": "a:27017", "avg_rtt_ms": 5, "type": "RSSecondary", "tags": { "dc": "ny" } },
            { "address": "b:27017", "avg_rtt_ms": 100, "type": "RSPrimary", "tags": {} },
        ])
    }

    fn play(preference: &Value, expected: &Value) -> Outcome {
        let mut file = json!({
            "topology_description": { "type": "ReplicaSetWithPrimary", "servers": servers() },
            "operation": "read",
            "read_preference": preference,
        });
        file.as_object_mut().unwrap().extend(expected.as_object().unwrap().clone());
        run(&SelectionFile::from_json(file).unwrap())
    }

    #[test]
    fn the_suitable_servers_and_those_in_the_window_are_compared() {
        let (both, near) = (servers(), json!([servers()[0]]));
        let nearest = json!({ "mode": "Nearest" });

        let expected = json!({ "suitable_servers": both, "in_latency_window": near });
        assert_eq!(play(&nearest, &expected), Outcome::Passed);
        let wrong = json!({ "suitable_servers": near, "in_latency_window": near });
        let reason = r#"suitable_servers: expected ["a:27017"], got ["a:27017", "b:27017"]"#;
        assert_eq!(play(&nearest, &wrong), Outcome::of(vec![reason.into()]));
    }

    #[test]
    fn an_error_is_expected_or_not() {
        let (too_small, error) = (json!({ "mode": "Nearest", "maxStalenessSeconds": 1 }), json!({ "error": true }));
        let none = json!({ "suitable_servers": [], "in_latency_window": [] });

        assert_eq!(play(&too_small, &error), Outcome::Passed);
        assert_eq!(
            play(&json!({ "mode": "Nearest" }), &error),
            Outcome::of(vec!["expected an error, got servers".into()])
        );
        assert!(matches!(play(&too_small, &none), Outcome::Failed { .. }));
        // A mistake of the file is no error of the selection.
        let unknown = json!([{ "address": "a:27017", "type": "RSPrime" }]);
        let mistaken =
            json!({ "topology_description": { "type": "ReplicaSetNoPrimary", "servers": unknown }, "error": true });
        assert!(matches!(play(&too_small, &mistaken), Outcome::Failed { .. }));
    }

    #[test]
    fn frequencies_are_compared_within_their_tolerance() {
        let play = |first: f64, second: f64| {
            let count = |address: &str| json!({ "address": address, "operation_count": 0 });
            let near = |address: &str| json!({ "address": address, "avg_rtt_ms": 5, "type": "Mongos" });
            let file = json!({
                "description": "d",
                "topology_description": { "type": "Sharded", "servers": [near("a:27017"), near("b:27017")] },
                "mocked_topology_state": [count("a:27017"), count("b:27017")],
                "iterations": 1000,
                "outcome": { "tolerance": 0.1, "expected_frequencies": { "a:27017": first, "b:27017": second } },
            });
            run_window(&WindowFile::from_json(file).unwrap())
        };

        assert_eq!(play(0.5, 0.5), Outcome::Passed);
        assert!(matches!(play(0.9, 0.5), Outcome::Failed { .. }));
        assert!(matches!(play(0.5, 0.0), Outcome::Failed { .. }));
    }
}
