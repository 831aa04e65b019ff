//! Minimum sizes that follow another server's pool, as mongos' pools have them (`ReplicaSetMatching`).
//!
//! A failover sends the primary's whole load to another member, whose pool may be almost empty: until its connections are
//! established, and logged in, everybody waits. Pools that keep as many connections as the busiest one are ready for it.
//!
//! Which connections count as a server's: to follow the primary, all that it has (in use and available), because they are
//! what the next primary will need. To follow the busiest, those that are in use or waited for: what a minimum keeps
//! available must not hold up the minimums of others, or none would ever be lowered again.

use serde::{Deserialize, Serialize};

use super::{Topology, TopologyType};
use crate::monitor::ServerType;
use crate::server::ServerId;

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
    /// As [`MatchPrimaryNode`](Self::MatchPrimaryNode) in a replica set, and as
    /// [`MatchBusiestNode`](Self::MatchBusiestNode) in front of several mongos.
    Automatic,
}

/// The server that the others follow, and the connections to have.
struct Leader {
    server: ServerId,
    size: u32,
}

impl<C> Topology<C> {
    /// Raises and lowers the minimums of the pools, after something has happened in one of them.
    pub(super) fn follow_min_pool_sizes(&mut self) {
        let leader = match (self.options.min_pool_size_policy, self.description.topology_type) {
            (MinPoolSizePolicy::Disabled, _) => return,
            (
                MinPoolSizePolicy::Automatic | MinPoolSizePolicy::MatchPrimaryNode,
                TopologyType::ReplicaSetWithPrimary,
            ) => self.primary_to_follow(),
            (MinPoolSizePolicy::Automatic, TopologyType::Sharded) => self.busiest_to_follow(),
            (
                MinPoolSizePolicy::MatchBusiestNode,
                TopologyType::Sharded | TopologyType::ReplicaSetWithPrimary | TopologyType::ReplicaSetNoPrimary,
            ) => self.busiest_to_follow(),
            _ => None,
        };
        let Some(Leader { server: leader, size }) = leader else { return };
        for (id, server) in self.servers.iter_mut().filter(|(_, server)| server.of_identity.is_none()) {
            server.pool.follow(if id == leader { 0 } else { size });
        }
    }

    fn primary_to_follow(&self) -> Option<Leader> {
        let is_primary =
            |description: &crate::monitor::ServerDescription| description.server_type == ServerType::RsPrimary;
        let (server, primary) =
            self.servers.members().find(|(_, server)| !server.has_left() && is_primary(&server.description))?;
        let counts = primary.pool.counts();
        Some(Leader { server, size: counts.in_use.saturating_add(counts.available) })
    }

    fn busiest_to_follow(&self) -> Option<Leader> {
        let members = self.servers.members().filter(|(_, server)| !server.has_left());
        let leaders = members.map(|(server, it)| {
            let counts = it.pool.counts();
            Leader { server, size: counts.in_use.saturating_add(counts.waiting) }
        });
        leaders.max_by_key(|leader| leader.size)
    }
}
