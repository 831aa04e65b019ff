//! New limits for the pools of a topology that runs.

use alloc::vec::Vec;

use super::Topology;
#[cfg(feature = "trace")]
use crate::options::PoolOptions;
use crate::options::{PoolLimits, PoolOptionsError};
use crate::server::ServerId;
use crate::time::Instant;

impl<C> Topology<C> {
    /// The options of each server's pool, as they are now.
    #[cfg(feature = "trace")]
    pub(crate) fn pool_options(&self) -> &PoolOptions {
        &self.pool_options
    }

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
        for id in members {
            let limits = self.limits_by_role(id, limits);
            let _ = self.resize_pool(id, limits);
            self.resize_siblings(id, limits);
        }
        Ok(())
    }

    /// Where several pools share their server's limits, none is lent by the old ones: what the new ones leave is shared afterwards.
    pub(super) fn resize_pool(&mut self, id: ServerId, limits: PoolLimits) -> Option<Result<(), PoolOptionsError>> {
        let now = self.now;
        if !self.shares_limits() {
            return self.call_pool(id, |pool| pool.resize(now, limits));
        }
        let resized = self.servers.get_mut(id).map(|server| {
            server.pool.lend_nothing();
            server.pool.resize(now, limits)
        });
        self.collect(id);
        resized
    }
}
