//! Time as an input: nanoseconds since an origin that the caller owns.
//!
//! The core never reads a clock. Arithmetic saturates, so no caller's `now` or timeout can make it panic, and time is
//! serialisable, so a recorded trace carries its own clock.

use core::ops::Add;
use core::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time: nanoseconds since an origin chosen by the caller (the start of the program, say).
///
/// 64 bits last for 584 years. Only differences have a meaning; every instant given to one machine must come from the
/// same origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Instant(u64);

impl Instant {
    /// The caller's origin.
    pub const ORIGIN: Self = Self(0);

    /// The end of time; nothing is due then.
    pub(crate) const END: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time that passed since `earlier`; zero if `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Nanoseconds since `earlier`; 0 if `earlier` is later.
    #[inline]
    pub(crate) const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This instant moved `nanos` nanoseconds into the future.
    #[inline]
    pub(crate) const fn after(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at the end of time.
    #[inline]
    fn add(self, duration: Duration) -> Self {
        self.after(nanos(duration))
    }
}

/// A duration as nanoseconds, saturated to 64 bits.
#[inline]
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_the_end_of_time() {
        let late = Instant::from_nanos(u64::MAX - 1);

        assert_eq!(late + Duration::from_secs(1), Instant::from_nanos(u64::MAX));
        assert_eq!(late + Duration::MAX, Instant::from_nanos(u64::MAX));
    }

    #[test]
    fn time_that_runs_backwards_counts_as_none() {
        let earlier = Instant::from_millis(5);
        let later = Instant::from_millis(8);

        assert_eq!(later.saturating_since(earlier), Duration::from_millis(3));
        assert_eq!(earlier.saturating_since(later), Duration::ZERO);
    }
}
