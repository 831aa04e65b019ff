//! The option that says by which edition of the specification a pool behaves.

use alloc::string::{String, ToString};

use serde::{Deserialize, Serialize};

use super::PoolOptionsError;
use super::pool::PoolOptions;

/// An edition of CMAP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// The current one.
    #[default]
    Current,
    /// The last one without the state "paused": a pool is ready from its creation on, a clear only makes its connections
    /// stale, and waiters go on waiting. maxConnecting is unlimited unless it is set.
    Cmap1_1,
}

impl Profile {
    /// maxConnecting where it is not set.
    pub(crate) fn default_max_connecting(self) -> u32 {
        match self {
            Self::Current => PoolOptions::DEFAULT_MAX_CONNECTING,
            Self::Cmap1_1 => u32::MAX,
        }
    }

    /// Whether a clear pauses the pool (CMAP-37).
    #[inline]
    pub(crate) fn pauses(self) -> bool {
        matches!(self, Self::Current)
    }

    /// # Errors
    /// Another option needs what this edition does not have.
    pub(super) fn validate(self, options: &PoolOptions) -> Result<Self, PoolOptionsError> {
        let refused =
            |option, value: String, rule: &str| Err(PoolOptionsError { option, value, rule: rule.to_string() });
        match (self, options.max_new_connections_per_second) {
            (Self::Current, _) => Ok(self),
            (Self::Cmap1_1, _) if options.load_balanced => {
                refused("loadBalanced", "true".to_string(), "profile is Cmap1_1, which knows no load balancers")
            }
            (Self::Cmap1_1, Some(rate)) if options.max_connecting.is_none() => {
                let rule =
                    "profile is Cmap1_1, where as many may be created at once as long as maxConnecting is not set";
                refused("maxNewConnectionsPerSecond", rate.to_string(), rule)
            }
            (Self::Cmap1_1, _) => Ok(self),
        }
    }
}
