//! How to set up a deployment.

use std::time::Duration;

use crate::{MemberConfig, MemberId, ServerConfig, SetConfig};

/// A deployment: what it is, and how its servers are set up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeploymentConfig {
    /// What all servers have in common: users, compressors, limits, the time of day. Their addresses and seeds differ.
    pub server: ServerConfig,
    pub(super) kind: Kind,
    /// How long a set is without a primary that was killed, before it elects another; and how long a primary goes on that no
    /// longer sees a majority. 500 ms.
    pub election_timeout: Duration,
    /// How long a set is without a primary that stepped down, if another member can take over. 50 ms.
    pub handover: Duration,
    /// How much later than the primary the secondaries of a set carry out what was written. None.
    pub lag: Duration,
}

/// What a deployment is.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// One server, as it is configured.
    Single,
    ReplicaSet(SetConfig),
    /// The mongos of a sharded cluster.
    Sharded(Vec<(MemberId, String)>),
}

impl DeploymentConfig {
    /// One server.
    pub fn single(server: ServerConfig) -> Self {
        Self::new(server, Kind::Single)
    }

    /// A replica set. The first member that is electable, and has the greatest priority, is its primary. `server` has what the
    /// members have in common.
    pub fn replica_set(server: ServerConfig, set: SetConfig) -> Self {
        Self::new(server, Kind::ReplicaSet(set))
    }

    /// A mongos at each of these hosts. They share their documents.
    pub fn sharded(server: ServerConfig, hosts: impl IntoIterator<Item = String>) -> Self {
        Self::new(server, Kind::Sharded((0..).map(MemberId).zip(hosts).collect()))
    }

    fn new(server: ServerConfig, kind: Kind) -> Self {
        let (election_timeout, handover) = (Duration::from_millis(500), Duration::from_millis(50));
        Self { server, kind, election_timeout, handover, lag: Duration::ZERO }
    }

    /// The members and their hosts.
    pub fn members(&self) -> Vec<(MemberId, String)> {
        match &self.kind {
            Kind::Single => vec![(MemberId(0), self.server.address.clone())],
            Kind::ReplicaSet(set) => set.members.iter().map(MemberConfig::place).collect(),
            Kind::Sharded(members) => members.clone(),
        }
    }

    /// The configuration of a member's server, when it is started for the `starts`th time.
    pub(super) fn server_at(&self, id: MemberId, host: &str, starts: u64, uptime: Duration) -> ServerConfig {
        let mut config = self.server.clone();
        let Kind::Single = self.kind else {
            config.address = host.to_owned();
            config.replica_set = None;
            config.mongos = matches!(self.kind, Kind::Sharded(_));
            // Every start is another process, with ids of its own; and connections of different members have different numbers.
            let number = u64::try_from(id.0).unwrap_or_default();
            config.seed = config.seed.wrapping_add(1 + number + 1000 * starts);
            config.first_connection_id += 1_000_000 * number;
            config.time_of_day += uptime;
            return config;
        };
        config
    }
}
