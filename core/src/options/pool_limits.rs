//! All limits of a pool that can be changed while it runs.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::PoolOptionsError;
use super::pool::PoolOptions;
use super::pool_sizes::PoolSizes;
use super::waiting::QueueDepth;

/// A new limit where there may be none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewLimit<T> {
    /// The limit stays as it is.
    #[default]
    AsItIs,
    /// There is no limit any more.
    Unlimited,
    /// This one.
    At(T),
}

/// New limits for a pool that runs; those that are left out stay as they are.
///
/// [`PoolSizes`] alone are limits, too: `client.resize(PoolSizes::default().max_pool_size(200))`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PoolLimits {
    /// The sizes.
    pub sizes: PoolSizes,
    /// maxWaitQueueDepth: most check-outs that wait at a time.
    pub max_wait_queue_depth: NewLimit<QueueDepth>,
    /// maxNewConnectionsPerSecond: most connections created in a second, in the long run.
    pub max_new_connections_per_second: NewLimit<u32>,
    /// The idleness after which a connection is checked before it is given out; see
    /// [`PoolOptions::check_after_idle`](super::PoolOptions::check_after_idle).
    pub check_after_idle: Option<Duration>,
}

impl PoolLimits {
    /// Sets the sizes.
    #[must_use]
    pub fn sizes(self, sizes: PoolSizes) -> Self {
        Self { sizes, ..self }
    }

    /// Sets maxWaitQueueDepth; `None` = unlimited. Check-outs that wait already go on waiting.
    #[must_use]
    pub fn max_wait_queue_depth(self, depth: impl Into<Option<QueueDepth>>) -> Self {
        Self { max_wait_queue_depth: depth.into().into(), ..self }
    }

    /// Sets maxNewConnectionsPerSecond; `None` = unlimited.
    #[must_use]
    pub fn max_new_connections_per_second(self, connections: impl Into<Option<u32>>) -> Self {
        Self { max_new_connections_per_second: connections.into().into(), ..self }
    }

    /// Sets the idleness after which a connection is checked before it is given out. Zero: always; [`Duration::MAX`]: never.
    #[must_use]
    pub fn check_after_idle(self, idle: Duration) -> Self {
        Self { check_after_idle: Some(idle), ..self }
    }

    /// `options` with these limits in the place of theirs.
    ///
    /// # Errors
    /// A limit has a value that it cannot have together with the others.
    pub(crate) fn applied_to(self, options: &PoolOptions) -> Result<PoolOptions, PoolOptionsError> {
        let Self { sizes, max_wait_queue_depth, max_new_connections_per_second, check_after_idle } = self;
        let limited = PoolOptions {
            max_pool_size: sizes.max_pool_size.or(options.max_pool_size),
            min_pool_size: sizes.min_pool_size.or(options.min_pool_size),
            max_connecting: sizes.max_connecting.or(options.max_connecting),
            max_wait_queue_depth: max_wait_queue_depth.or(options.max_wait_queue_depth),
            max_new_connections_per_second: max_new_connections_per_second.or(options.max_new_connections_per_second),
            check_after_idle: check_after_idle.or(options.check_after_idle),
            ..options.clone()
        };
        limited.validate()?;
        Ok(limited)
    }
}

impl<T> NewLimit<T> {
    /// The limit where it was `old`; `None` = unlimited.
    fn or(self, old: Option<T>) -> Option<T> {
        match self {
            Self::AsItIs => old,
            Self::Unlimited => None,
            Self::At(limit) => Some(limit),
        }
    }
}

/// `None` is [`NewLimit::Unlimited`].
impl<T> From<Option<T>> for NewLimit<T> {
    fn from(limit: Option<T>) -> Self {
        limit.map_or(Self::Unlimited, Self::At)
    }
}

impl From<PoolSizes> for PoolLimits {
    fn from(sizes: PoolSizes) -> Self {
        Self { sizes, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_not_the_same_as_the_old_one_in_json_either() {
        let unlimited = PoolLimits::default().max_wait_queue_depth(None).max_new_connections_per_second(7);

        for limits in [PoolLimits::default(), unlimited] {
            let text = serde_json::to_string(&limits).unwrap();

            assert_eq!(serde_json::from_str::<PoolLimits>(&text).unwrap(), limits, "{text}");
        }
    }
}
