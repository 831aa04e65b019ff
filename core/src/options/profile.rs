//! The option that says by which edition of the specification a pool behaves.

use serde::{Deserialize, Serialize};

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
            // CMAP-4.
            Self::Current => 2,
            Self::Cmap1_1 => u32::MAX,
        }
    }

    /// Whether a clear pauses the pool (CMAP-37).
    #[inline]
    pub(crate) fn pauses(self) -> bool {
        matches!(self, Self::Current)
    }
}
