//! The format of the suites of connection strings as types: everything that a file may contain, and nothing else.
//!
//! A case expects nothing of a field that it leaves out, or writes as null; only a `credential` of null expects that
//! there is none. Unknown keys and values of a wrong type are refused, as in the CMAP format: a field that is not read
//! is not tested.

use alloc::collections::BTreeMap;
use core::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::suites::place::Place;
use crate::suites::problem::{Problem, read};

/// A file of cases.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct UriFile {
    /// `tests`.
    pub tests: Vec<UriCase>,
}

/// A connection string, and the expected result of parsing it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct UriCase {
    /// `description`: the name of the case.
    pub description: String,
    /// `uri`: the connection string.
    pub uri: String,
    /// `valid`: whether it parses at all. If not, nothing else is compared.
    pub valid: bool,
    /// `warning`: whether there is any warning.
    pub warning: Option<bool>,
    /// `hosts`: all of them, in their order.
    pub hosts: Option<Vec<Host>>,
    /// `auth`: the parts before and after the hosts.
    pub auth: Option<Auth>,
    /// `credential`: the expected credential. Within, `None` expects that there is none.
    #[serde(default, deserialize_with = "even_if_null")]
    pub credential: Option<Option<Credential>>,
    /// `options`: some of those that must be set, under names in any case; `None` for one that must not be.
    pub options: Option<BTreeMap<String, Option<ExpectedOption>>>,
    /// `readConcern`: all of it.
    #[serde(rename = "readConcern")]
    pub read_concern: Option<ReadConcern>,
    /// `writeConcern`: all of it.
    #[serde(rename = "writeConcern")]
    pub write_concern: Option<WriteConcern>,
}

/// One of `hosts`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct Host {
    /// `type`: how it is written.
    #[serde(rename = "type")]
    pub host_type: HostType,
    /// `host`: its name, its address without brackets, or the path of its socket.
    pub host: String,
    /// `port`; `None` for the default one, and for a socket.
    pub port: Option<u16>,
}

/// How a host is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostType {
    /// By its name.
    Hostname,
    /// By its IPv4 address.
    Ipv4,
    /// By its IPv6 address.
    IpLiteral,
    /// By the path of a Unix socket.
    Unix,
}

/// `auth`: the parts of a string that concern authentication. `None` expects that a part is missing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct Auth {
    /// `username`.
    pub username: Option<String>,
    /// `password`.
    pub password: Option<String>,
    /// `db`: the database behind the slash.
    pub db: Option<String>,
}

/// `credential`: the result of those parts and the options. `None` expects that something is missing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct Credential {
    /// `username`.
    pub username: Option<String>,
    /// `password`.
    pub password: Option<String>,
    /// `source`: the database that keeps the user.
    pub source: Option<String>,
    /// `mechanism`.
    pub mechanism: Option<String>,
    /// `mechanism_properties`.
    pub mechanism_properties: Option<BTreeMap<String, String>>,
}

/// `readConcern`: the options of a read concern; `None` expects that one is not set.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct ReadConcern {
    /// `level`.
    pub level: Option<ExpectedOption>,
}

/// `writeConcern`: the options of a write concern; `None` expects that one is not set.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct WriteConcern {
    /// `w`.
    pub w: Option<ExpectedOption>,
    /// `wtimeoutMS`.
    #[serde(rename = "wtimeoutMS")]
    pub timeout: Option<ExpectedOption>,
    /// `journal`.
    pub journal: Option<ExpectedOption>,
}

/// One of `options`: a value of an option of a connection string.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct ExpectedOption(Value);

impl UriFile {
    /// Reads a file.
    pub fn from_json(file: Value) -> Result<Self, Problem> {
        read(&Place::top(), file)
    }

    /// Whether these are tests of credentials: others do not name any.
    pub fn is_about_credentials(&self) -> bool {
        self.tests.iter().any(|case| case.credential.is_some())
    }

    /// Whether these are tests of read or write concerns.
    pub fn is_about_concerns(&self) -> bool {
        self.tests.iter().any(|case| case.read_concern.is_some() || case.write_concern.is_some())
    }
}

impl ExpectedOption {
    /// The value as JSON.
    pub fn value(&self) -> &Value {
        &self.0
    }
}

impl TryFrom<Value> for ExpectedOption {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let is_texts = |value: &Value| value.as_object().is_some_and(|entries| entries.values().all(Value::is_string));
        let is_list = |value: &Value| {
            let items = value.as_array().map(Vec::as_slice);
            items.is_some_and(|items| items.iter().all(Value::is_string) || items.iter().all(is_texts))
        };
        if value.is_boolean() || value.is_i64() || value.is_string() || is_texts(&value) || is_list(&value) {
            Ok(Self(value))
        } else {
            Err(format!("{value} is no value of an option: a boolean, integer, string, list or object of strings"))
        }
    }
}

impl HostType {
    /// As files spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hostname => "hostname",
            Self::Ipv4 => "ipv4",
            Self::IpLiteral => "ip_literal",
            Self::Unix => "unix",
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.host_type.name(), self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, " port {port}"))
    }
}

/// Distinguishes null from a missing key.
fn even_if_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::UriFile;

    /// The problem of a file whose only case has these entries added to it, or put in place of its own.
    fn problem(changes: &Value) -> String {
        let mut case = json!({ "description": "d", "uri": "mongodb://a", "valid": true });
        case.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let read = UriFile::from_json(json!({ "tests": [case] }));
        read.map_or_else(|problem| problem.to_string(), |file| format!("none: {file:?}"))
    }

    #[test]
    fn mistakes_are_refused_with_their_place() {
        let host = |port: Value| json!({ "hosts": [{ "type": "unix", "host": "a", "port": port }] });
        for (changes, expected) in [
            (json!({ "warnings": true }), "tests[0].warnings: unknown field `warnings`"),
            (json!({ "uri": 5 }), "tests[0].uri: invalid type: integer `5`, expected a string"),
            (json!({ "valid": null }), "tests[0].valid: invalid type: null, expected a boolean"),
            (json!({ "hosts": {} }), "tests[0].hosts: invalid type: map"),
            (json!({ "hosts": [{ "type": "ipv5", "host": "a" }] }), "tests[0].hosts[0].type: unknown value `ipv5`"),
            (
                host(json!(70_000)),
                "tests[0].hosts[0].port: invalid value: integer `70000`, expected an integer from 0 to",
            ),
            (json!({ "auth": { "user": "u" } }), "tests[0].auth.user: unknown field `user`"),
            (json!({ "credential": { "db": "d" } }), "tests[0].credential.db: unknown field `db`"),
            (json!({ "credential": [] }), "tests[0].credential: invalid "),
            (json!({ "options": { "w": 1.5 } }), "tests[0].options.w: 1.5 is no value of an option"),
            (json!({ "options": { "w": [1] } }), "tests[0].options.w: [1] is no value of an option"),
            (json!({ "options": true }), "tests[0].options: invalid type: boolean `true`"),
        ] {
            let problem = problem(&changes);
            assert!(problem.starts_with(expected), "\n expected: {expected}\n   actual: {problem}");
        }
        let extra = UriFile::from_json(json!({ "tests": [], "style": "unit" }));
        assert!(extra.unwrap_err().to_string().starts_with("style: unknown field `style`"));
    }

    #[test]
    fn a_credential_of_null_is_not_a_missing_one() {
        let case = json!({ "description": "d", "uri": "", "valid": true });
        let mut with_null = case.clone();
        with_null["credential"] = Value::Null;
        let file = UriFile::from_json(json!({ "tests": [case, with_null] })).unwrap();
        assert_eq!((&file.tests[0].credential, &file.tests[1].credential), (&None, &Some(None)));
        assert!(file.is_about_credentials());
    }
}
