//! The event queue of a simulation: what will happen, and when.
//!
//! Events at the same moment come in an order that chance decides, since no order is guaranteed in the real world: that
//! is where the races are.

use alloc::collections::BTreeMap;

use crate::random::Random;
use crate::time::Instant;

/// Future events, in the order of their time.
#[derive(Clone, Debug)]
pub struct Schedule<T> {
    entries: BTreeMap<(Instant, u64, u64), T>,
    inserted: u64,
}

impl<T> Schedule<T> {
    /// An empty schedule.
    pub fn new() -> Self {
        Self { entries: BTreeMap::new(), inserted: 0 }
    }

    /// Adds an event at `at`.
    pub fn insert(&mut self, random: &mut Random, at: Instant, happening: T) {
        self.inserted += 1;
        self.entries.insert((at, random.next_u64(), self.inserted), happening);
    }

    /// The time of the next event.
    pub fn next_at(&self) -> Option<Instant> {
        self.entries.first_key_value().map(|(&(at, ..), _)| at)
    }

    /// The next event, at `now` or before.
    pub fn pop_due(&mut self, now: Instant) -> Option<T> {
        if self.next_at()? <= now { self.entries.pop_first().map(|(_, happening)| happening) } else { None }
    }

    /// The number of future events.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no future events.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn order(seed: u64) -> Vec<u32> {
        let mut random = Random::new(seed);
        let mut schedule = Schedule::new();
        for number in 1..=8 {
            schedule.insert(&mut random, Instant::from_millis(5), number);
        }
        schedule.insert(&mut random, Instant::from_millis(1), 0);
        core::iter::from_fn(|| schedule.pop_due(Instant::from_millis(5))).collect()
    }

    #[test]
    fn the_earlier_comes_first_and_chance_decides_between_equals() {
        assert!((0..10).all(|seed| order(seed)[0] == 0));
        assert_eq!(order(3), order(3));
        assert!((0..10).any(|seed| order(seed) != order(3)));
    }

    #[test]
    fn what_is_to_come_waits_for_its_time() {
        let mut schedule = Schedule::new();
        schedule.insert(&mut Random::new(0), Instant::from_millis(5), ());

        assert_eq!(schedule.pop_due(Instant::from_millis(4)), None);
        assert_eq!(schedule.pop_due(Instant::from_millis(5)), Some(()));
    }
}
