//! The format of the tests of seed lists as types: what a file may say, and nothing else.

use alloc::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use crate::suites::place::Place;
use crate::suites::problem::{Problem, read};

/// A connection string, and what it leads to.
#[derive(Clone, Debug, PartialEq)]
pub struct SeedListFile {
    /// `uri`: the connection string.
    pub uri: String,
    /// What it leads to.
    pub expected: Expected,
}

/// What a connection string leads to.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// `error`.
    Error,
    /// Hosts and options.
    Options(Box<Known>),
}

/// Hosts, and options of which some are named.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The hosts.
    pub seeds: Seeds,
    /// `options`.
    pub options: ExpectedOptions,
    /// `parsed_options`.
    pub parsed_options: ParsedOptions,
}

/// The hosts that follow from DNS; at least one of both is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// `seeds`: all of them.
    pub seeds: Option<BTreeSet<String>>,
    /// `numSeeds`: how many there are.
    pub num_seeds: Option<usize>,
}

/// Options of the client, under the names of this format; none = not compared.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "an object")]
pub struct ExpectedOptions {
    /// `ssl`: whether connections use TLS.
    pub ssl: Option<bool>,
    /// `replicaSet`.
    pub replica_set: Option<String>,
    /// `authSource`.
    pub auth_source: Option<String>,
    /// `loadBalanced`.
    pub load_balanced: Option<bool>,
    /// `directConnection`.
    pub direct_connection: Option<bool>,
    /// `srvMaxHosts`.
    pub srv_max_hosts: Option<u32>,
    /// `srvServiceName`.
    pub srv_service_name: Option<String>,
}

/// Parts of the connection string that are no options; none = not compared. The database has three names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct ParsedOptions {
    /// `user`.
    pub user: Option<String>,
    /// `password`.
    pub password: Option<String>,
    /// `db`.
    db: Option<String>,
    /// `auth_database`.
    auth_database: Option<String>,
    /// `defaultDatabase`.
    #[serde(rename = "defaultDatabase")]
    default_database: Option<String>,
}

/// A [`SeedListFile`] as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Written {
    uri: String,
    seeds: Option<BTreeSet<String>>,
    #[serde(rename = "numSeeds")]
    num_seeds: Option<usize>,
    #[serde(default)]
    error: bool,
    #[serde(default)]
    options: ExpectedOptions,
    #[serde(default)]
    parsed_options: ParsedOptions,
    #[serde(rename = "hosts")]
    _hosts: Option<Vec<String>>,
    #[serde(rename = "numHosts")]
    _num_hosts: Option<usize>,
    #[serde(rename = "ping")]
    _ping: Option<bool>,
    #[serde(rename = "comment")]
    _comment: Option<String>,
}

impl SeedListFile {
    /// Reads a file.
    pub fn from_json(file: Value) -> Result<Self, Problem> {
        let Written { uri, seeds, num_seeds, error, options, parsed_options, .. } = read(&Place::top(), file)?;
        let expected = if error {
            Expected::Error
        } else if seeds.is_none() && num_seeds.is_none() {
            return Err(Problem::of_file("expected \"seeds\", \"numSeeds\" or \"error\": true"));
        } else {
            Expected::Options(Box::new(Known { seeds: Seeds { seeds, num_seeds }, options, parsed_options }))
        };
        Ok(Self { uri, expected })
    }
}

impl ExpectedOptions {
    /// All of them by their names.
    pub(super) fn named(&self) -> [(&'static str, Option<Value>); 7] {
        let text = |text: &Option<String>| text.clone().map(Value::from);
        [
            ("ssl", self.ssl.map(Value::from)),
            ("replicaSet", text(&self.replica_set)),
            ("authSource", text(&self.auth_source)),
            ("loadBalanced", self.load_balanced.map(Value::from)),
            ("directConnection", self.direct_connection.map(Value::from)),
            ("srvMaxHosts", self.srv_max_hosts.map(Value::from)),
            ("srvServiceName", text(&self.srv_service_name)),
        ]
    }
}

impl ParsedOptions {
    /// The database, by whichever name.
    pub(super) fn database(&self) -> Option<&str> {
        self.db.as_deref().or(self.auth_database.as_deref()).or(self.default_database.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::SeedListFile;

    #[test]
    fn mistakes_are_refused_with_their_place() {
        for (file, expected) in [
            (json!({ "uri": "", "seed": [] }), "seed: unknown field"),
            (json!({ "uri": "", "seeds": [5] }), "seeds[0]: invalid type"),
            (json!({ "uri": "", "seeds": [], "options": { "tls": true } }), "options.tls: unknown field"),
            (json!({ "uri": "" }), "expected \"seeds\", \"numSeeds\" or"),
            (json!({ "seeds": [] }), "missing field `uri`"),
        ] {
            let problem = SeedListFile::from_json(file).unwrap_err().to_string();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
