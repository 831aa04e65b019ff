//! `runOn`: which servers a test is for.

use core::fmt;

use serde::Deserialize;

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

/// A server's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Version(pub [u32; 3]);

/// How servers are deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// One server.
    Single,
    /// A replica set.
    ReplicaSet,
    /// Routers before shards.
    Sharded,
    /// Routers behind a load balancer.
    #[serde(rename = "load-balanced")]
    LoadBalanced,
}

/// What an engine's tests talk to.
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

    /// The embedded server, as its buildInfo says.
    pub const EMBEDDED: Self = Self { version: Version([7, 0, 0]), topology: Topology::Single };

    /// Why a test that asks for `run_on` is not for this server, if it is not.
    pub fn misfit(&self, run_on: &[RunOn]) -> Option<String> {
        if run_on.is_empty() || run_on.iter().any(|requirement| self.fits(requirement)) {
            return None;
        }
        let wanted: Vec<String> = run_on.iter().map(RunOn::to_string).collect();
        Some(format!(
            "is for {}; the server has version {}, topology {}",
            wanted.join(" or "),
            self.version,
            self.topology
        ))
    }

    fn fits(&self, requirement: &RunOn) -> bool {
        requirement.min_server_version.is_none_or(|min| self.version >= min)
            && requirement.max_server_version.is_none_or(|max| self.version <= max)
            && (requirement.topology.is_empty() || requirement.topology.contains(&self.topology))
    }
}

impl TryFrom<String> for Version {
    type Error = String;

    /// Numbers left out at the end are 0.
    fn try_from(text: String) -> Result<Self, String> {
        let mut version = [0; 3];
        let mut parts = text.split('.');
        for (index, number) in version.iter_mut().enumerate() {
            match parts.next().map(str::parse) {
                Some(Ok(part)) => *number = part,
                None if index > 0 => {}
                Some(Err(_)) | None => return Err(not_a_version(&text)),
            }
        }
        if parts.next().is_some() { Err(not_a_version(&text)) } else { Ok(Self(version)) }
    }
}

fn not_a_version(text: &str) -> String {
    format!("\"{text}\" is not a server's version, such as \"4.4.0\"")
}

impl fmt::Display for RunOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match (self.min_server_version, self.max_server_version) {
            (Some(min), Some(max)) => parts.push(format!("versions {min} to {max}")),
            (Some(min), None) => parts.push(format!("version {min} or above")),
            (None, Some(max)) => parts.push(format!("version {max} or below")),
            (None, None) => {}
        }
        if !self.topology.is_empty() {
            let names: Vec<String> = self.topology.iter().map(Topology::to_string).collect();
            parts.push(format!("topology {}", names.join(" or ")));
        }
        if parts.is_empty() { f.write_str("any server") } else { f.write_str(&parts.join(", ")) }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl fmt::Display for Topology {
    /// As files spell it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Single => "single",
            Self::ReplicaSet => "replicaset",
            Self::Sharded => "sharded",
            Self::LoadBalanced => "load-balanced",
        })
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

    #[test]
    fn versions_are_numbers() {
        for text in ["", "4.x", "4.4.0.1", "-1"] {
            assert!(serde_json::from_value::<super::Version>(text.into()).is_err(), "{text}");
        }
    }
}
