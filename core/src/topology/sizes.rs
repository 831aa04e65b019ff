//! Limits of the pools of a topology that runs: new ones for all, those that follow the roles of the servers, because a
//! primary's pool may be larger than those of secondaries and a failover changes both, and minimums that follow another server's pool
//! as mongos' pools have them (`ReplicaSetMatching`).
//!
//! A failover sends the primary's whole load to another member, whose pool may be almost empty: until its connections are
//! established, and logged in, everybody waits. Pools that keep as many connections as the busiest one are ready for it.
//!
//! Which connections count as a server's: to follow the primary, all that it has (in use and available), because they are
//! what the next primary will need. To follow the busiest, those that are in use or waited for: what a minimum keeps
//! available must not hold up the minimums of others, or none would ever be lowered again.

use alloc::vec::Vec;

use super::{MinPoolSizePolicy, SizesByRole, Topology, TopologyType};
use crate::monitor::ServerType;
use crate::options::{PoolLimits, PoolOptions, PoolOptionsError, PoolSizes};
use crate::server::ServerId;
use crate::time::Instant;

impl<C> Topology<C> {
    /// Gives all pools new limits, as [`Pool::resize`](crate::pool::Pool::resize) does: those of the servers that are
    /// there, and of those that join later. Limits of roles count more.
    ///
    /// # Errors
    /// A limit has a value that it cannot have together with the others. Then nothing has changed.
    pub fn resize(&mut self, now: Instant, limits: impl Into<PoolLimits>) -> Result<(), PoolOptionsError> {
        let limits = limits.into();
        self.advance(now);
        let options = limits.applied_to(&self.pool_options)?;
        self.options.sizes_by_role.check(&options)?;
        self.pool_options = options;
        let members: Vec<_> = self.servers.members().map(|(id, _)| id).collect();
        // With roles, a pool whose server is unknown has the sizes of its last role, and keeps them.
        let has_roles = self.options.sizes_by_role != SizesByRole::default();
        let otherwise = if has_roles { limits.sizes(PoolSizes::default()) } else { limits };
        for id in members {
            let limits = self.limits_of_role(id).unwrap_or(otherwise);
            self.resize_pools(id, limits);
        }
        Ok(())
    }

    /// Gives all pools at a server new limits. Those of identities keep up no minPoolSize; what all have too many together is closed
    /// when the budget is shared, after each call.
    pub(super) fn resize_pools(&mut self, server: ServerId, limits: PoolLimits) {
        let of_identities = limits.sizes(PoolSizes { min_pool_size: Some(0), ..limits.sizes });
        for id in self.pools_of(server) {
            self.resize_pool(id, if id == server { limits } else { of_identities });
        }
    }

    /// Where several pools share their server's limits, none is lent by the old ones: what the new ones leave is shared afterwards.
    fn resize_pool(&mut self, id: ServerId, limits: PoolLimits) {
        let now = self.now;
        if !self.shares_limits() {
            self.lend_permits(id);
        } else if let Some(pool) = self.servers.pool_mut(id) {
            pool.lend_nothing();
        }
        // They were checked with the options.
        let _ = self.servers.pool_mut(id).map(|pool| pool.resize(now, limits));
        self.collect(id);
    }

    /// All limits of a server's pool, if there are any by roles, and its role is known.
    pub(super) fn limits_of_role(&self, id: ServerId) -> Option<PoolLimits> {
        if self.options.sizes_by_role == SizesByRole::default() {
            return None;
        }
        let server = self.servers.get(id)?;
        let sizes = self.options.sizes_by_role.of(server.description.server_type)?;
        // Those of every role were checked with the options.
        let options = PoolLimits::from(sizes).applied_to(&self.pool_options).ok()?;
        let max_connecting = options.max_connecting.unwrap_or(options.profile.default_max_connecting());
        let sizes = PoolSizes::default()
            .max_pool_size(options.max_pool_size.unwrap_or(PoolOptions::DEFAULT_MAX_POOL_SIZE))
            .min_pool_size(options.min_pool_size.unwrap_or(0))
            .max_connecting(max_connecting);
        Some(PoolLimits {
            sizes,
            max_wait_queue_depth: options.max_wait_queue_depth.into(),
            max_new_connections_per_second: options.max_new_connections_per_second.into(),
            check_after_idle: options.check_after_idle,
        })
    }

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
        let Some((leader, size)) = leader else { return };
        for (id, server) in self.servers.iter_mut().filter(|(_, server)| server.of_identity.is_none()) {
            server.pool.follow(if id == leader { 0 } else { size });
        }
    }

    fn primary_to_follow(&self) -> Option<(ServerId, u32)> {
        let mut present = self.servers.present();
        let (id, primary) = present.find(|(_, server)| server.description.server_type == ServerType::RsPrimary)?;
        let counts = primary.pool.counts();
        Some((id, counts.in_use.saturating_add(counts.available)))
    }

    fn busiest_to_follow(&self) -> Option<(ServerId, u32)> {
        let needs = self.servers.present().map(|(id, server)| {
            let counts = server.pool.counts();
            (id, counts.in_use.saturating_add(counts.waiting))
        });
        needs.max_by_key(|&(_, needed)| needed)
    }
}
