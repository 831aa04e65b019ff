//! `runOnRequirements`: which servers a test is for, and which of ours it gets.

use core::fmt;

use serde::Deserialize;
use serde_json::Value;

use crate::format::Version;

/// One kind of server that a test is for. Everything given must hold.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct Requirement {
    /// `minServerVersion`: the oldest version.
    pub min_server_version: Option<Version>,
    /// `maxServerVersion`: the newest version.
    pub max_server_version: Option<Version>,
    /// `topologies`: the deployments; none means all.
    #[serde(default)]
    pub topologies: Vec<Topology>,
    /// `auth`: whether clients log in.
    pub auth: Option<bool>,
    /// `serverless`: whether it may be a serverless instance.
    #[serde(default)]
    pub serverless: Serverless,
    /// `serverParameters`: what getParameter must say.
    pub server_parameters: Option<Value>,
    /// `csfle`: whether the client encrypts fields.
    pub csfle: Option<Value>,
}

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

/// Whether a test is for serverless instances; ours is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Serverless {
    /// For them alone.
    Require,
    /// Not for them.
    Forbid,
    /// For all.
    #[default]
    Allow,
}

/// A server that tests can get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// How it is deployed. A replica set has one member.
    pub topology: Topology,
    /// Whether clients log in.
    pub auth: bool,
}

/// The version of every server that tests can get: that of the embedded server.
const VERSION: Version = Version([7, 0, 0]);

/// The deployments, in the order in which they are tried.
const DEPLOYMENTS: [Deployment; 6] = {
    use Topology::{LoadBalanced, ReplicaSet, Single};
    [
        Deployment { topology: Single, auth: false },
        Deployment { topology: Single, auth: true },
        Deployment { topology: ReplicaSet, auth: false },
        Deployment { topology: ReplicaSet, auth: true },
        Deployment { topology: LoadBalanced, auth: false },
        Deployment { topology: LoadBalanced, auth: true },
    ]
};

impl Deployment {
    /// The first deployment that meets a requirement of the file and one of the test; a list without any is met by all.
    ///
    /// # Errors
    /// None does; what they wanted.
    pub fn choose(of_file: &[Requirement], of_test: &[Requirement]) -> Result<Self, String> {
        let meets = |deployment: &Self, requirements: &[Requirement]| {
            requirements.is_empty() || requirements.iter().any(|requirement| deployment.meets(requirement))
        };
        let all = DEPLOYMENTS.iter();
        let met = all.copied().find(|deployment| meets(deployment, of_file) && meets(deployment, of_test));
        met.ok_or_else(|| {
            let lists = [of_file, of_test].into_iter().filter(|list| !list.is_empty());
            let wanted = lists.map(|list| list.iter().map(Requirement::to_string).collect::<Vec<_>>().join(" or "));
            format!(
                "is for {}; there is a server of version {VERSION}, alone, in a replica set of its own or behind a load \
                 balancer",
                wanted.collect::<Vec<_>>().join(", and ")
            )
        })
    }

    fn meets(self, requirement: &Requirement) -> bool {
        requirement.min_server_version.is_none_or(|min| VERSION >= min)
            && requirement.max_server_version.is_none_or(|max| VERSION <= max)
            && (requirement.topologies.is_empty() || requirement.topologies.contains(&self.topology))
            && requirement.auth.is_none_or(|auth| auth == self.auth)
            && requirement.serverless != Serverless::Require
            && requirement.server_parameters.is_none()
            && requirement.csfle.is_none()
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match (self.min_server_version, self.max_server_version) {
            (Some(min), Some(max)) => parts.push(format!("versions {min} to {max}")),
            (Some(min), None) => parts.push(format!("version {min} or above")),
            (None, Some(max)) => parts.push(format!("version {max} or below")),
            (None, None) => {}
        }
        if !self.topologies.is_empty() {
            let names: Vec<String> = self.topologies.iter().map(Topology::to_string).collect();
            parts.push(format!("topology {}", names.join(" or ")));
        }
        match self.auth {
            Some(true) => parts.push("with authentication".into()),
            Some(false) => parts.push("without authentication".into()),
            None => {}
        }
        if self.serverless == Serverless::Require {
            parts.push("serverless".into());
        }
        if let Some(parameters) = &self.server_parameters {
            parts.push(format!("with the parameters {parameters}"));
        }
        if self.csfle.is_some() {
            parts.push("with field encryption".into());
        }
        if parts.is_empty() { f.write_str("any server") } else { f.write_str(&parts.join(", ")) }
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
