//! The formats of server selection as types: what a file may say, and nothing else.

use alloc::collections::BTreeMap;

use cmap_core::options::ReadMode;
use serde::Deserialize;
use serde_json::Value;

use crate::suites::place::Place;
use crate::suites::problem::{Problem, read};

/// A file that says what is wanted of which topology.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectionFile {
    /// `topology_description`.
    pub topology_description: Topology,
    /// `operation`; a read, if left out.
    pub operation: Operation,
    /// `read_preference`. It has no meaning for a write.
    pub read_preference: Preference,
    /// `deprioritized_servers`: those on which the operation has failed.
    pub deprioritized_servers: Vec<Server>,
    /// `heartbeatFrequencyMS`; 10,000, if left out.
    pub heartbeat_frequency: Option<u64>,
    /// What must follow.
    pub expected: Expected,
}

/// The expected result of a selection.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// `error`: what is wanted is refused.
    Error,
    /// Some servers, or none.
    Servers {
        /// `suitable_servers`.
        suitable_servers: Vec<Server>,
        /// `in_latency_window`.
        in_latency_window: Vec<Server>,
    },
}

/// A file that lets many operations choose.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct WindowFile {
    /// `description`: the name of the test.
    pub description: String,
    /// `topology_description`.
    pub topology_description: Topology,
    /// `mocked_topology_state`: how busy each server is.
    pub mocked_topology_state: Vec<Load>,
    /// `iterations`: how many operations choose.
    pub iterations: u32,
    /// `outcome`.
    pub outcome: Frequencies,
}

/// How busy a server is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct Load {
    /// `address`.
    pub address: String,
    /// `operation_count`: the operations that it serves already.
    pub operation_count: u64,
}

/// How often each server must be chosen.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct Frequencies {
    /// `tolerance`: how far a frequency may be off.
    pub tolerance: f64,
    /// `expected_frequencies` by address.
    pub expected_frequencies: BTreeMap<String, f64>,
}

/// What a client knows of a topology.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct Topology {
    /// `type`, by the specification's name.
    #[serde(rename = "type")]
    pub topology_type: String,
    /// `servers`.
    pub servers: Vec<Server>,
}

/// What a client knows of a server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct Server {
    /// `address`.
    pub address: String,
    /// `type`, by the specification's name.
    #[serde(rename = "type")]
    pub server_type: String,
    /// `avg_rtt_ms`; none of a server that is not known.
    pub avg_rtt_ms: Option<u64>,
    /// `tags`.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// `maxWireVersion`.
    #[serde(rename = "maxWireVersion")]
    pub max_wire_version: Option<i32>,
    /// `lastUpdateTime`: when its reply was read, in milliseconds.
    #[serde(rename = "lastUpdateTime")]
    pub last_update_time: Option<u64>,
    /// `lastWrite`.
    #[serde(rename = "lastWrite")]
    pub last_write: Option<LastWrite>,
}

/// A server's last write.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct LastWrite {
    /// `lastWriteDate`, in milliseconds.
    #[serde(rename = "lastWriteDate")]
    pub last_write_date: NumberLong,
}

/// An integer as Extended JSON writes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct NumberLong {
    /// `$numberLong`: its digits.
    #[serde(rename = "$numberLong")]
    pub digits: String,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// It reads, with the read preference.
    #[default]
    Read,
    /// It writes.
    Write,
}

/// A read preference.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct Preference {
    /// `mode`; primary, if left out.
    pub mode: Option<Mode>,
    /// `tag_sets`.
    #[serde(default)]
    pub tag_sets: Vec<BTreeMap<String, String>>,
    /// `maxStalenessSeconds`.
    #[serde(rename = "maxStalenessSeconds")]
    pub max_staleness_seconds: Option<u32>,
}

/// The mode of a read preference, as these files spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Mode {
    /// The primary.
    Primary,
    /// The primary, else a secondary.
    PrimaryPreferred,
    /// A secondary.
    Secondary,
    /// A secondary, else the primary.
    SecondaryPreferred,
    /// Both.
    Nearest,
}

impl From<Mode> for ReadMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Primary => Self::Primary,
            Mode::PrimaryPreferred => Self::PrimaryPreferred,
            Mode::Secondary => Self::Secondary,
            Mode::SecondaryPreferred => Self::SecondaryPreferred,
            Mode::Nearest => Self::Nearest,
        }
    }
}

/// A [`SelectionFile`] as it is written, with an error beside the lists.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Written {
    topology_description: Topology,
    #[serde(default)]
    operation: Operation,
    read_preference: Preference,
    #[serde(default)]
    deprioritized_servers: Vec<Server>,
    #[serde(rename = "heartbeatFrequencyMS")]
    heartbeat_frequency: Option<u64>,
    #[serde(default)]
    error: bool,
    suitable_servers: Option<Vec<Server>>,
    in_latency_window: Option<Vec<Server>>,
}

impl SelectionFile {
    /// Reads a file.
    pub fn from_json(file: Value) -> Result<Self, Problem> {
        let written: Written = read(&Place::top(), file)?;
        let expected = match (written.error, written.suitable_servers, written.in_latency_window) {
            (true, None, None) => Expected::Error,
            (false, Some(suitable_servers), Some(in_latency_window)) => {
                Expected::Servers { suitable_servers, in_latency_window }
            }
            _ => {
                let text = "expected either \"error\": true, or \"suitable_servers\" and \"in_latency_window\"";
                return Err(Problem::of_file(text));
            }
        };
        Ok(Self {
            topology_description: written.topology_description,
            operation: written.operation,
            read_preference: written.read_preference,
            deprioritized_servers: written.deprioritized_servers,
            heartbeat_frequency: written.heartbeat_frequency,
            expected,
        })
    }
}

impl WindowFile {
    /// Reads a file.
    pub fn from_json(file: Value) -> Result<Self, Problem> {
        read(&Place::top(), file)
    }

    /// How many operations the server at `address` serves already.
    pub(super) fn operation_count(&self, address: &str) -> Result<u64, String> {
        let load = self.mocked_topology_state.iter().find(|load| load.address == address);
        load.map(|load| load.operation_count).ok_or_else(|| format!("mocked_topology_state does not name {address}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::SelectionFile;

    fn problem(changes: &Value) -> String {
        let mut file = json!({
            "topology_description": { "type": "Single", "servers": [] },
            "read_preference": {}, "suitable_servers": [], "in_latency_window": [],
        });
        file.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        SelectionFile::from_json(file).map_or_else(|problem| problem.to_string(), |_| String::new())
    }

    #[test]
    fn mistakes_are_refused_with_their_place() {
        assert_eq!(problem(&json!({})), "");
        for (changes, expected) in [
            (json!({ "operations": "read" }), "operations: unknown field"),
            (json!({ "operation": "scan" }), "operation: unknown value `scan`"),
            (json!({ "read_preference": { "mode": "nearest" } }), "read_preference.mode: unknown value `nearest`"),
            (json!({ "suitable_servers": [{ "address": "a" }] }), "suitable_servers[0]: missing field `type`"),
            (json!({ "error": true }), "expected either \"error\": true, or"),
            (json!({ "in_latency_window": null }), "expected either \"error\": true, or"),
        ] {
            assert!(problem(&changes).starts_with(expected), "{}", problem(&changes));
        }
    }
}
