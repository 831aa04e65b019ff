//! `runOn`: which servers a test is for.

use core::fmt;

use serde::Deserialize;

use crate::suites::requirement::{Servers, Topology, Version, either};

/// One kind of server that a test is for. Everything given must hold.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct RunOn {
    /// The oldest version.
    pub min_server_version: Option<Version>,
    /// The newest version.
    pub max_server_version: Option<Version>,
    /// The deployments; none means all.
    #[serde(default)]
    pub topology: Vec<Topology>,
}

/// The server that an engine's tests talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// The server's version.
    pub version: Version,
    /// How it is deployed.
    pub topology: Topology,
}

impl Deployment {
    /// The virtual server of engines in virtual time. Its version is above the minimum of every official pool test.
    pub const VIRTUAL: Self = Self { version: Version([8, 0, 0]), topology: Topology::Single };

    /// The embedded server.
    pub const EMBEDDED: Self = Self { version: Version::EMBEDDED, topology: Topology::Single };

    /// Why a test that asks for `run_on` is not for this server, if it is not.
    pub fn misfit(&self, run_on: &[RunOn]) -> Option<String> {
        let fits = |requirement: &RunOn| requirement.servers().include(self.version, self.topology);
        if run_on.is_empty() || run_on.iter().any(fits) {
            return None;
        }
        let wanted = either(run_on);
        Some(format!("is for {wanted}; the server has version {}, topology {}", self.version, self.topology))
    }
}

impl RunOn {
    fn servers(&self) -> Servers<'_> {
        Servers { min: self.min_server_version, max: self.max_server_version, topologies: &self.topology }
    }
}

impl fmt::Display for RunOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.servers().describe([]))
    }
}

#[cfg(test)]
mod tests {
    use super::{Deployment, RunOn};

    fn misfit(run_on: serde_json::Value) -> Option<String> {
        let run_on: Vec<RunOn> = serde_json::from_value(run_on).unwrap();
        Deployment::VIRTUAL.misfit(&run_on)
    }

    #[test]
    fn one_requirement_that_fits_is_enough() {
        assert_eq!(misfit(serde_json::json!([])), None);
        assert_eq!(misfit(serde_json::json!([{ "minServerVersion": "4.4.0" }])), None);
        assert_eq!(misfit(serde_json::json!([{ "topology": ["sharded"] }, { "maxServerVersion": "8.0" }])), None);
    }

    #[test]
    fn a_misfit_says_what_was_wanted() {
        let reason = misfit(serde_json::json!([{ "maxServerVersion": "7.3", "topology": ["single", "sharded"] }]));
        assert_eq!(
            reason.as_deref(),
            Some(
                "is for version 7.3.0 or below, topology single or sharded; the server has version 8.0.0, \
                 topology single"
            )
        );
    }
}
