//! The servers that a test is for: versions and topologies, as the CMAP and the unified format both name them.

use core::fmt;

use serde::Deserialize;

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
    /// The same, the shards being replica sets.
    #[serde(rename = "sharded-replicaset")]
    ShardedReplicaSet,
    /// Routers behind a load balancer.
    #[serde(rename = "load-balanced")]
    LoadBalanced,
}

/// Servers of certain versions and topologies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Servers<'r> {
    /// The oldest version.
    pub(crate) min: Option<Version>,
    /// The newest version.
    pub(crate) max: Option<Version>,
    /// The topologies; none means all.
    pub(crate) topologies: &'r [Topology],
}

impl Version {
    /// The version of the embedded server, as its buildInfo says: that of [`ServerVersion::V8_0`](cmap_test_server::ServerVersion).
    pub const EMBEDDED: Self = Self([8, 0, 0]);
}

impl Servers<'_> {
    /// Whether a server of this version and topology is one of them.
    pub(crate) fn include(&self, version: Version, topology: Topology) -> bool {
        self.min.is_none_or(|min| version >= min)
            && self.max.is_none_or(|max| version <= max)
            && (self.topologies.is_empty() || self.topologies.contains(&topology))
    }

    /// These servers in words, with the further requirements.
    pub(crate) fn describe(&self, others: impl IntoIterator<Item = String>) -> String {
        let versions = match (self.min, self.max) {
            (Some(min), Some(max)) => Some(format!("versions {min} to {max}")),
            (Some(min), None) => Some(format!("version {min} or above")),
            (None, Some(max)) => Some(format!("version {max} or below")),
            (None, None) => None,
        };
        let topologies = (!self.topologies.is_empty()).then(|| format!("topology {}", either(self.topologies)));
        let parts: Vec<String> = versions.into_iter().chain(topologies).chain(others).collect();
        if parts.is_empty() { "any server".into() } else { parts.join(", ") }
    }
}

/// Alternatives in words.
pub(crate) fn either<T: ToString>(alternatives: &[T]) -> String {
    alternatives.iter().map(T::to_string).collect::<Vec<_>>().join(" or ")
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
            Self::ShardedReplicaSet => "sharded-replicaset",
            Self::LoadBalanced => "load-balanced",
        })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_are_numbers() {
        for text in ["", "4.x", "4.4.0.1", "-1"] {
            assert!(serde_json::from_value::<super::Version>(text.into()).is_err(), "{text}");
        }
    }
}
