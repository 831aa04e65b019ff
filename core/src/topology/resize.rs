//! New limits for the pools of a topology that runs.

use super::Topology;
use crate::options::{PoolOptionsError, PoolSizes};
use crate::time::Instant;

impl<C> Topology<C> {
    /// Gives all pools new limits, as [`Pool::resize`](crate::pool::Pool::resize) does: those of the servers that are
    /// there, and of those that join later.
    ///
    /// # Errors
    /// A limit has a value that it cannot have beside the others. Then nothing has changed.
    pub fn resize(&mut self, now: Instant, sizes: PoolSizes) -> Result<(), PoolOptionsError> {
        self.advance(now);
        self.pool_options = sizes.applied_to(&self.pool_options)?;
        for slot in 0..self.servers.slots() {
            if let Some(id) = self.servers.id_at(slot) {
                // All pools have the options that were just checked.
                self.call_pool(id, |pool| pool.resize(now, sizes)).unwrap_or(Ok(()))?;
            }
        }
        Ok(())
    }
}
