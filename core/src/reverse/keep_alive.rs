//! Pings, and the end of a silent peer: each side speaks at least once in an interval, and gives up a peer that was silent
//! for three.

use core::time::Duration;

use crate::time::Instant;

/// How many intervals a peer may be silent.
const PATIENCE: u32 = 3;

/// The longest interval of a PARK message: its milliseconds have 32 bits.
const LONGEST: Duration = Duration::from_millis(u32::MAX as u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeepAlive {
    interval: Duration,
    heard: Instant,
    spoken: Instant,
}

impl KeepAlive {
    /// At least a second, or idle sockets would do nothing else; at most what a PARK can say.
    pub(super) fn new(interval: Duration, now: Instant) -> Self {
        let interval = interval.clamp(Duration::from_secs(1), LONGEST);
        Self { interval, heard: now, spoken: now }
    }

    pub(super) fn hear(&mut self, now: Instant) {
        self.heard = now;
    }

    pub(super) fn speak(&mut self, now: Instant) {
        self.spoken = now;
    }

    /// When this side has to say something.
    pub(super) fn pings_at(&self) -> Instant {
        self.spoken + self.interval
    }

    /// When the other side has been silent for too long.
    pub(super) fn gives_up_at(&self) -> Instant {
        self.heard + self.patience()
    }

    /// The longest silence.
    pub(super) fn patience(&self) -> Duration {
        self.interval.saturating_mul(PATIENCE)
    }
}
