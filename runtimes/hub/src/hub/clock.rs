//! The hub's time.

use core::time::Duration;

use cmap_core::time::Instant;

/// Tells the time since the hub's start, by tokio's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(tokio::time::Instant);

impl Clock {
    /// The hub starts now.
    pub(super) fn start() -> Self {
        Self(tokio::time::Instant::now())
    }

    /// The hub's time.
    pub(super) fn now(self) -> Instant {
        Instant::from_nanos(u64::try_from(self.uptime().as_nanos()).unwrap_or(u64::MAX))
    }

    /// A moment of the hub's time, by tokio's clock.
    pub(super) fn moment(self, at: Instant) -> tokio::time::Instant {
        self.0 + Duration::from_nanos(at.as_nanos())
    }

    /// How long ago the start was.
    pub(super) fn uptime(self) -> Duration {
        self.0.elapsed()
    }
}
