//! How long everything took, as the ledger saw it: held against the pool's histograms.

use cmap_core::pool::Durations;
use cmap_core::statistics::Histogram;

use super::laws::{Broken, check};

/// How often and how long, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Took {
    times: u64,
    sum: u64,
    longest: u64,
}

/// What was seen of one pool.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    wait: Took,
    establishment: Took,
    in_use: Took,
    idle: Took,
}

impl Took {
    fn add(&mut self, nanos: u64) {
        *self = Self { times: self.times + 1, sum: self.sum + nanos, longest: self.longest.max(nanos) };
    }

    fn is(self, histogram: &Histogram) -> Result<(), Broken> {
        let nanos = |duration: core::time::Duration| duration.as_nanos() as u64;
        let found = Self { times: histogram.count(), sum: nanos(histogram.sum()), longest: nanos(histogram.longest()) };
        check("durations are those that were seen", found == self, (found, "seen", self))
    }
}

impl Seen {
    /// A check-out that began at `since` is delivered at `now`.
    pub(crate) fn delivered(&mut self, since: u64, now: u64) {
        self.wait.add(now - since);
    }

    /// A connection that was available since `since` is taken.
    pub(crate) fn taken(&mut self, since: u64, now: u64) {
        if since < now {
            self.idle.add(now - since);
        }
    }

    pub(crate) fn checked_in(&mut self, since: u64, now: u64) {
        self.in_use.add(now - since);
    }

    pub(crate) fn established(&mut self, nanos: u64) {
        self.establishment.add(nanos);
    }

    /// Establishments are known only by their events.
    pub(crate) fn compare(&self, durations: &Durations, observed: bool) -> Result<(), Broken> {
        self.wait.is(&durations.wait)?;
        self.in_use.is(&durations.in_use)?;
        self.idle.is(&durations.idle)?;
        if observed { self.establishment.is(&durations.establishment) } else { Ok(()) }
    }
}
