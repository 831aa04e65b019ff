//! The options of a topology, besides those of its pools and its monitors.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::seed_list::PolledSeedList;
use crate::address::ServerAddress;
use crate::monitor::ServerType;
use crate::options::{ClientOptions, PoolLimits, PoolOptions, PoolOptionsError, PoolSizes};

/// Options of a topology.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TopologyOptions {
    /// The servers that it begins with, in this order; a repeated one counts once. A load balancer and a direct connection
    /// have one.
    pub seeds: Vec<ServerAddress>,
    /// The seed list in DNS that the seeds came from: it is polled as long as the topology may be a sharded cluster
    /// (DNS-12). Default none.
    pub polled_seed_list: Option<PolledSeedList>,
    /// `directConnection`: talk to the one seed, whatever it is (SDAM-18). Default false.
    pub direct_connection: bool,
    /// `loadBalanced`: the one seed is a load balancer (LB-1). Default false.
    pub load_balanced: bool,
    /// `replicaSet`: the set that the servers must belong to. Default any.
    pub replica_set: Option<String>,
    /// `serverSelectionTimeoutMS`: how long a check-out waits for a suitable server. Default 30 s (URI-12).
    pub server_selection_timeout: Duration,
    /// `localThresholdMS`: how much slower than the fastest suitable server another may answer (SEL-6). Default 15 ms.
    pub local_threshold: Duration,
    /// `heartbeatFrequencyMS`: how often servers are checked, which bounds how stale a secondary may look (SEL-26). Default
    /// 10 s.
    pub heartbeat_frequency: Duration,
    /// Whether a check-out whose server fails it before it is served selects a server anew, while its time lasts. Default
    /// true. Without it the check-out fails with the server's error, as the specification has it.
    pub reselect: bool,
    /// Whether pools keep up more connections than minPoolSize, because another server's pool has more. Default none.
    pub min_pool_size_policy: MinPoolSizePolicy,
    /// Most connections that all pools have together: pending, available and in use. 0 = no limit but that of each
    /// pool. Default 0.
    pub max_connections: u32,
    /// Limits of the pools by the roles of their servers. Default those of the pools' options.
    pub sizes_by_role: SizesByRole,
}

impl TopologyOptions {
    /// Takes the topology's options from a client's.
    pub fn of_client(options: &ClientOptions) -> Self {
        let default = Self::of_seeds(options.hosts.clone());
        Self {
            direct_connection: options.direct_connection.unwrap_or_default(),
            load_balanced: options.is_load_balanced(),
            replica_set: options.replica_set.clone(),
            server_selection_timeout: options.server_selection_timeout.unwrap_or(default.server_selection_timeout),
            local_threshold: options.local_threshold.unwrap_or(default.local_threshold),
            heartbeat_frequency: options.heartbeat_frequency.unwrap_or(default.heartbeat_frequency),
            ..default
        }
    }

    /// The defaults, for these seeds.
    pub fn of_seeds(seeds: Vec<ServerAddress>) -> Self {
        Self {
            seeds,
            polled_seed_list: None,
            direct_connection: false,
            load_balanced: false,
            replica_set: None,
            server_selection_timeout: Duration::from_secs(30),
            local_threshold: Duration::from_millis(15),
            heartbeat_frequency: Duration::from_secs(10),
            reselect: true,
            min_pool_size_policy: MinPoolSizePolicy::Disabled,
            max_connections: 0,
            sizes_by_role: SizesByRole::default(),
        }
    }
}

/// How many connections the pools keep up besides minPoolSize. Never more than maxPoolSize.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum MinPoolSizePolicy {
    /// None: each pool keeps up its own minPoolSize, and no more.
    #[default]
    Disabled,
    /// As many as the primary's pool has. Without a primary, as many as the last one had. On a sharded cluster, which has
    /// none to be seen, none.
    MatchPrimaryNode,
    /// As many as the busiest pool has in use, or needs for those that wait.
    MatchBusiestNode,
    /// In a replica set as many as the primary's pool has; in front of several mongos as many as the busiest pool has in use, or needs for
    /// those that wait.
    Automatic,
}

/// Limits of pools by what their servers are; those that are left out are the options'. A server that is unknown for the
/// moment keeps the limits of its last role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SizesByRole {
    /// Of the primary of a replica set.
    pub primary: PoolSizes,
    /// Of its secondaries.
    pub secondary: PoolSizes,
    /// Of routers.
    pub mongos: PoolSizes,
    /// Of standalone servers, load balancers, and of members of a set that a direct connection reaches and that are
    /// neither primary nor secondary.
    pub other: PoolSizes,
}

impl SizesByRole {
    /// Sets the limits of the primary.
    #[must_use]
    pub fn primary(self, sizes: PoolSizes) -> Self {
        Self { primary: sizes, ..self }
    }

    /// Sets the limits of secondaries.
    #[must_use]
    pub fn secondary(self, sizes: PoolSizes) -> Self {
        Self { secondary: sizes, ..self }
    }

    /// Sets the limits of routers.
    #[must_use]
    pub fn mongos(self, sizes: PoolSizes) -> Self {
        Self { mongos: sizes, ..self }
    }

    /// Sets the limits of all other servers.
    #[must_use]
    pub fn other(self, sizes: PoolSizes) -> Self {
        Self { other: sizes, ..self }
    }

    /// Whether `options` can have the limits of every role.
    pub(super) fn check(&self, options: &PoolOptions) -> Result<(), PoolOptionsError> {
        let Self { primary, secondary, mongos, other } = self;
        [primary, secondary, mongos, other]
            .into_iter()
            .try_for_each(|&sizes| PoolLimits::from(sizes).applied_to(options).map(drop))
    }

    /// The limits of the role of a server of this type, if it has one.
    pub(super) fn of(&self, server_type: ServerType) -> Option<PoolSizes> {
        match server_type {
            ServerType::Unknown => None,
            ServerType::RsPrimary => Some(self.primary),
            ServerType::RsSecondary => Some(self.secondary),
            ServerType::Mongos => Some(self.mongos),
            ServerType::Standalone
            | ServerType::RsArbiter
            | ServerType::RsOther
            | ServerType::RsGhost
            | ServerType::LoadBalancer => Some(self.other),
        }
    }
}

#[cfg(all(test, feature = "wire"))]
mod tests {
    use super::*;
    use crate::connection::{ClientMetadata, ConnectionOptions};

    #[test]
    fn a_hello_and_the_topology_agree_on_a_load_balancer_lb_5() {
        let (mut options, _) = ClientOptions::parse("mongodb://a").unwrap();
        options.pool.load_balanced = true;

        assert!(TopologyOptions::of_client(&options).load_balanced);
        assert!(ConnectionOptions::of_client(&options, ClientMetadata::new("Linux")).load_balanced);
    }
}
