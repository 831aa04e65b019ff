//! All limits of a pool that can be changed while it runs.

use serde::{Deserialize, Serialize};

use super::pool::{PoolOptions, PoolOptionsError};
use super::pool_sizes::PoolSizes;
use super::waiting::QueueDepth;

/// New limits for a pool that runs; `None` leaves a limit as it is.
///
/// [`PoolSizes`] alone are limits, too: `client.resize(PoolSizes::default().max_pool_size(200))`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PoolLimits {
    /// The sizes.
    pub sizes: PoolSizes,
    /// maxWaitQueueDepth: most check-outs that wait at a time; `Some(None)` = unlimited.
    pub max_wait_queue_depth: Option<Option<QueueDepth>>,
    /// maxNewConnectionsPerSecond: most connections created in a second, in the long run; `Some(None)` = unlimited.
    pub max_new_connections_per_second: Option<Option<u32>>,
}

impl PoolLimits {
    /// The same with these sizes.
    #[must_use]
    pub fn sizes(self, sizes: PoolSizes) -> Self {
        Self { sizes, ..self }
    }

    /// The same with this maxWaitQueueDepth; `None` = unlimited. Check-outs that wait already go on waiting.
    #[must_use]
    pub fn max_wait_queue_depth(self, depth: impl Into<Option<QueueDepth>>) -> Self {
        Self { max_wait_queue_depth: Some(depth.into()), ..self }
    }

    /// The same with this maxNewConnectionsPerSecond; `None` = unlimited.
    #[must_use]
    pub fn max_new_connections_per_second(self, connections: impl Into<Option<u32>>) -> Self {
        Self { max_new_connections_per_second: Some(connections.into()), ..self }
    }

    /// `options` with these limits in the place of theirs.
    ///
    /// # Errors
    /// A limit has a value that it cannot have beside the others.
    pub(crate) fn applied_to(self, options: &PoolOptions) -> Result<PoolOptions, PoolOptionsError> {
        let Self { sizes, max_wait_queue_depth, max_new_connections_per_second } = self;
        let limited = PoolOptions {
            max_pool_size: sizes.max_pool_size.or(options.max_pool_size),
            min_pool_size: sizes.min_pool_size.or(options.min_pool_size),
            max_connecting: sizes.max_connecting.or(options.max_connecting),
            max_wait_queue_depth: max_wait_queue_depth.unwrap_or(options.max_wait_queue_depth),
            max_new_connections_per_second: max_new_connections_per_second
                .unwrap_or(options.max_new_connections_per_second),
            ..options.clone()
        };
        limited.validate()?;
        Ok(limited)
    }
}

impl From<PoolSizes> for PoolLimits {
    fn from(sizes: PoolSizes) -> Self {
        Self { sizes, ..Self::default() }
    }
}
