//! The two formats as types: what a file may say, and nothing else.

use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};

use crate::suites::place::Place;
use crate::suites::problem::{Problem, read};

/// A file of phases.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct SdamFile {
    /// `description`: the name of the test.
    pub description: String,
    /// `uri`: the client's connection string.
    pub uri: String,
    /// `phases`, one after the other.
    pub phases: Vec<Phase>,
}

/// What happens, and what must be known afterwards.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "an object")]
pub struct Phase {
    /// `description`.
    pub description: Option<String>,
    /// `responses`: addresses of servers that answer the monitor, and their replies; an empty reply is a network error.
    #[serde(default)]
    pub responses: Vec<(String, Map<String, Value>)>,
    /// `applicationErrors`: what operations meet.
    #[serde(default)]
    pub application_errors: Vec<ApplicationError>,
    /// `outcome`: some of what is known, and the events.
    pub outcome: Map<String, Value>,
}

/// An error that an application meets.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "an object")]
pub struct ApplicationError {
    /// `address` of the server.
    pub address: String,
    /// `generation` of the connection; the pool's own, if left out.
    pub generation: Option<u64>,
    /// `maxWireVersion` of the connection. No rule here depends on it.
    pub max_wire_version: i32,
    /// `when` in the life of the connection.
    pub when: When,
    /// `type`.
    #[serde(rename = "type")]
    pub error_type: ErrorType,
    /// `response`, of a command.
    pub response: Option<Map<String, Value>>,
}

/// When in the life of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// While it is established.
    BeforeHandshakeCompletes,
    /// While it is in use.
    AfterHandshakeCompletes,
}

/// What an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ErrorType {
    /// A reply that says so.
    Command,
    /// The connection broke.
    Network,
    /// No answer in time.
    Timeout,
}

/// A file of round-trip times: one step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct RttFile {
    /// `avg_rtt_ms`: the average before, or "NULL".
    pub avg_rtt_ms: Average,
    /// `new_rtt_ms`: a new sample.
    pub new_rtt_ms: f64,
    /// `new_avg_rtt`: the average with it.
    pub new_avg_rtt: f64,
}

/// An average, if there is one yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Average(Option<f64>);

impl SdamFile {
    /// Reads a file.
    pub fn from_json(file: Value) -> Result<Self, Problem> {
        read(&Place::top(), file)
    }
}

impl RttFile {
    /// Reads a file.
    pub fn from_json(file: Value) -> Result<Self, Problem> {
        read(&Place::top(), file)
    }
}

impl Average {
    /// In milliseconds.
    pub fn millis(self) -> Option<f64> {
        self.0
    }
}

impl<'de> Deserialize<'de> for Average {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match value.as_f64() {
            Some(millis) => Ok(Self(Some(millis))),
            None if value == "NULL" => Ok(Self(None)),
            None => Err(de::Error::custom(format!("expected a number or \"NULL\", not {value}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{RttFile, SdamFile};

    #[test]
    fn mistakes_are_refused_with_their_place() {
        let phase = |error| json!({ "description": "d", "uri": "mongodb://a", "phases": [error] });
        let problem = |file| SdamFile::from_json(file).unwrap_err().to_string();

        assert!(problem(phase(json!({}))).starts_with("phases[0]: missing field `outcome`"));
        let misspelt = problem(phase(json!({ "outcome": {}, "response": [] })));
        assert!(misspelt.starts_with("phases[0].response: unknown field"), "{misspelt}");
        let average = RttFile::from_json(json!({ "avg_rtt_ms": "none", "new_rtt_ms": 1, "new_avg_rtt": 1 }));
        assert!(average.unwrap_err().to_string().contains("expected a number or \"NULL\""));
    }
}
