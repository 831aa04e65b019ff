//! `runOnRequirements`: which servers a test is for, and which of ours it gets.

use core::fmt;

use serde::Deserialize;
use serde_json::Value;

use crate::suites::requirement::{Servers, Topology, Version, either};

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
    /// `authMechanism`: how clients can log in.
    pub auth_mechanism: Option<String>,
    /// `serverless`: whether it may be a serverless instance.
    #[serde(default)]
    pub serverless: Serverless,
    /// `serverParameters`: what getParameter must say.
    pub server_parameters: Option<Value>,
    /// `csfle`: whether the client encrypts fields.
    pub csfle: Option<Value>,
}

/// Whether a test is for serverless instances; ours is not one.
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
    /// How it is deployed. A replica set has three members, a sharded cluster two mongos.
    pub topology: Topology,
    /// Whether clients log in.
    pub auth: bool,
}

/// What getParameter would say.
const PARAMETERS: [(&str, bool); 3] =
    [("acceptApiVersion2", true), ("enableTestCommands", true), ("requireApiVersion", false)];

/// How clients can log in.
const MECHANISMS: [&str; 3] = ["SCRAM-SHA-1", "SCRAM-SHA-256", "MONGODB-OIDC"];

/// The deployments, in the order in which they are tried.
const DEPLOYMENTS: [Deployment; 8] = {
    use Topology::{LoadBalanced, ReplicaSet, Sharded, Single};
    [
        Deployment { topology: Single, auth: false },
        Deployment { topology: Single, auth: true },
        Deployment { topology: ReplicaSet, auth: false },
        Deployment { topology: ReplicaSet, auth: true },
        Deployment { topology: Sharded, auth: false },
        Deployment { topology: Sharded, auth: true },
        Deployment { topology: LoadBalanced, auth: false },
        Deployment { topology: LoadBalanced, auth: true },
    ]
};

impl Deployment {
    /// The deployments that meet a requirement of the file and one of the test; a list without any is met by all. With
    /// authentication only where the test asks for it: keys are derived anew for each test.
    ///
    /// # Errors
    /// No deployment meets them; what they ask for.
    pub fn all_for(of_file: &[Requirement], of_test: &[Requirement]) -> Result<Vec<Self>, String> {
        let meets = |deployment: &Self, requirements: &[Requirement]| {
            requirements.is_empty() || requirements.iter().any(|requirement| deployment.meets(requirement))
        };
        let all = DEPLOYMENTS.iter().copied();
        let mut met: Vec<_> = all.filter(|own| meets(own, of_file) && meets(own, of_test)).collect();
        met.dedup_by_key(|deployment| deployment.topology);
        if met.is_empty() {
            let lists = [of_file, of_test].into_iter().filter(|list| !list.is_empty());
            let wanted: Vec<_> = lists.map(either).collect();
            return Err(format!(
                "is for {}; there is a server of version {}, alone, in a replica set, as mongos or behind a load balancer",
                wanted.join(", and "),
                Version::EMBEDDED
            ));
        }
        Ok(met)
    }

    fn meets(self, requirement: &Requirement) -> bool {
        requirement.servers().include(Version::EMBEDDED, self.topology)
            && requirement.auth.is_none_or(|auth| auth == self.auth)
            && requirement.auth_mechanism.as_deref().is_none_or(|name| MECHANISMS.contains(&name))
            && requirement.serverless != Serverless::Require
            && requirement.server_parameters.as_ref().is_none_or(has_parameters)
            && requirement.csfle.is_none()
    }
}

/// Whether getParameter would say all this.
fn has_parameters(wanted: &Value) -> bool {
    let has = |(name, value): (&String, &Value)| PARAMETERS.iter().any(|(own, is)| own == name && value == is);
    wanted.as_object().is_some_and(|wanted| wanted.iter().all(has))
}

impl Requirement {
    fn servers(&self) -> Servers<'_> {
        Servers { min: self.min_server_version, max: self.max_server_version, topologies: &self.topologies }
    }
}

impl fmt::Display for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "topology {}{}", self.topology, if self.auth { ", with authentication" } else { "" })
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let auth = self.auth.map(|auth| if auth { "with authentication" } else { "without authentication" }.to_owned());
        let mechanism = self.auth_mechanism.as_ref().map(|name| format!("with the mechanism {name}"));
        let serverless = (self.serverless == Serverless::Require).then(|| "serverless".to_owned());
        let parameters = self.server_parameters.as_ref().map(|parameters| format!("with the parameters {parameters}"));
        let csfle = self.csfle.as_ref().map(|_| "with field encryption".to_owned());
        let others = [auth, mechanism, serverless, parameters, csfle].into_iter().flatten();
        f.write_str(&self.servers().describe(others))
    }
}
