//! The server's time of day, reckoned from the machine's own time.

use std::time::Duration;

use bson::DateTime;
use cmap_core::time::Instant;

/// The server's time of day.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) started: Instant,
    pub(super) time_of_day: Duration,
}

impl Clock {
    /// The time since 1970.
    pub(super) fn unix(self, now: Instant) -> Duration {
        self.time_of_day.saturating_add(self.uptime(now))
    }

    pub(super) fn uptime(self, now: Instant) -> Duration {
        now.saturating_since(self.started)
    }

    pub(super) fn date(self, now: Instant) -> DateTime {
        date(self.unix(now))
    }
}

/// A time since 1970 as a date.
pub(super) fn date(unix: Duration) -> DateTime {
    DateTime::from_millis(i64::try_from(unix.as_millis()).unwrap_or(i64::MAX))
}
