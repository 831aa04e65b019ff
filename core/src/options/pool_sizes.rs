//! The limits of a pool that can be changed while it runs.

use serde::{Deserialize, Serialize};

use super::pool::{PoolOptions, PoolOptionsError};

/// New limits for a pool that runs; `None` leaves a limit as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PoolSizes {
    /// maxPoolSize: most connections at a time; 0 = unlimited (CMAP-1).
    pub max_pool_size: Option<u32>,
    /// minPoolSize: connections that maintenance keeps up (CMAP-2).
    pub min_pool_size: Option<u32>,
    /// maxConnecting: most connections that are being established at a time, at least 1 (CMAP-4).
    pub max_connecting: Option<u32>,
}

impl PoolSizes {
    /// The same with this maxPoolSize.
    #[must_use]
    pub fn max_pool_size(self, size: u32) -> Self {
        Self { max_pool_size: Some(size), ..self }
    }

    /// The same with this minPoolSize.
    #[must_use]
    pub fn min_pool_size(self, size: u32) -> Self {
        Self { min_pool_size: Some(size), ..self }
    }

    /// The same with this maxConnecting.
    #[must_use]
    pub fn max_connecting(self, connections: u32) -> Self {
        Self { max_connecting: Some(connections), ..self }
    }

    /// `options` with these limits in the place of theirs.
    ///
    /// # Errors
    /// A limit has a value that it cannot have beside the others.
    pub(crate) fn applied_to(self, options: &PoolOptions) -> Result<PoolOptions, PoolOptionsError> {
        let resized = PoolOptions {
            max_pool_size: self.max_pool_size.or(options.max_pool_size),
            min_pool_size: self.min_pool_size.or(options.min_pool_size),
            max_connecting: self.max_connecting.or(options.max_connecting),
            ..options.clone()
        };
        resized.validate()?;
        Ok(resized)
    }
}
