//! The machine that is simulated: a topology, recorded or not, or in a test one with a bug.

use cmap_core::pool::Counts;
use cmap_core::time::Instant;
use cmap_core::topology::{Answer, Input, Output, Topology};
use cmap_core::trace::Recorded;

/// The calls of a topology that a simulation makes.
pub(super) trait Machine {
    fn apply(&mut self, now: Instant, input: Input) -> Answer;
    fn poll_output(&mut self) -> Option<Output<()>>;
    fn next_timeout(&self) -> Option<Instant>;
    /// The connections and waiters of all pools.
    fn counts(&self) -> Counts;
    /// Whether it contradicts itself.
    fn contradiction(&self) -> Option<String>;
}

impl Machine for Topology<()> {
    fn apply(&mut self, now: Instant, input: Input) -> Answer {
        self.apply(now, input)
    }

    fn poll_output(&mut self) -> Option<Output<()>> {
        self.poll_output()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.poll_timeout().map(|timeout| timeout.at)
    }

    fn counts(&self) -> Counts {
        self.stats().counts
    }

    fn contradiction(&self) -> Option<String> {
        self.pools().find_map(|(_, pool)| pool.check_invariants().err()).map(|broken| broken.to_string())
    }
}

impl Machine for Recorded<()> {
    fn apply(&mut self, now: Instant, input: Input) -> Answer {
        self.apply(now, input)
    }

    fn poll_output(&mut self) -> Option<Output<()>> {
        self.poll_output()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.poll_timeout().map(|timeout| timeout.at)
    }

    fn counts(&self) -> Counts {
        self.stats().counts
    }

    fn contradiction(&self) -> Option<String> {
        Machine::contradiction(&**self)
    }
}
