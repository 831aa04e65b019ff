//! The sizes of a pool, which can be changed while it runs and may depend on a server's role.

use serde::{Deserialize, Serialize};

/// New sizes for a pool that runs; `None` leaves a limit as it is.
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
    /// Sets maxPoolSize.
    #[must_use]
    pub fn max_pool_size(self, size: u32) -> Self {
        Self { max_pool_size: Some(size), ..self }
    }

    /// Sets minPoolSize.
    #[must_use]
    pub fn min_pool_size(self, size: u32) -> Self {
        Self { min_pool_size: Some(size), ..self }
    }

    /// Sets maxConnecting.
    #[must_use]
    pub fn max_connecting(self, connections: u32) -> Self {
        Self { max_connecting: Some(connections), ..self }
    }
}
