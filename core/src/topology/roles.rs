//! Limits that follow the roles of the servers: a primary's pool may be larger than those of secondaries, and a
//! failover changes both.

use serde::{Deserialize, Serialize};

use super::Topology;
use crate::monitor::ServerType;
use crate::options::{PoolLimits, PoolOptions, PoolOptionsError, PoolSizes};
use crate::server::ServerId;

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

    fn of(&self, server_type: ServerType) -> Option<PoolSizes> {
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

impl<C> Topology<C> {
    /// Gives a server's pool the limits of its role.
    pub(super) fn resize_by_role(&mut self, id: ServerId) {
        if let Some(limits) = self.limits_of_role(id) {
            let _ = self.resize_pool(id, limits);
            self.resize_siblings(id, limits);
        }
    }

    /// What `limits`, which have become the options', mean for a server's pool. One whose server is unknown has the sizes of its last
    /// role, and keeps them.
    pub(super) fn limits_by_role(&self, id: ServerId, limits: PoolLimits) -> PoolLimits {
        if self.options.sizes_by_role == SizesByRole::default() {
            return limits;
        }
        self.limits_of_role(id).unwrap_or_else(|| limits.sizes(PoolSizes::default()))
    }

    /// All limits of a server's pool, if there are any by roles, and its role is known.
    fn limits_of_role(&self, id: ServerId) -> Option<PoolLimits> {
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
}
