//! How long a server takes to answer a hello: the weighted average (SEL-1), and the recent minimum (MON-11).

use alloc::collections::VecDeque;
use core::time::Duration;

/// The number of samples that the minimum is taken over.
const RECENT: usize = 10;

/// The round-trip times of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundTripTimes {
    average: Option<Duration>,
    recent: VecDeque<Duration>,
    /// Whether the next measurement takes the place of all earlier ones.
    is_outdated: bool,
}

impl RoundTripTimes {
    /// Adds a measurement. The first is the average; from then on each new one counts for a fifth (SEL-1).
    pub fn add(&mut self, sample: Duration) {
        if self.is_outdated {
            self.reset();
        }
        self.average = Some(match self.average {
            None => sample,
            Some(average) => (average - average / 5).saturating_add(sample / 5),
        });
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(sample);
    }

    /// The weighted average; `None` before the first.
    pub fn average(&self) -> Option<Duration> {
        self.average
    }

    /// The lowest of the last ten; zero until there are two, because a single one may be chance.
    pub fn min(&self) -> Duration {
        match self.recent.len() {
            0 | 1 => Duration::ZERO,
            _ => self.recent.iter().min().copied().unwrap_or_default(),
        }
    }

    /// The server became unknown: the next measurement begins anew (SDAM-22). Where a server streams, that comes after its next
    /// description, which has the earlier ones: a far server without any would be chosen like a near one.
    pub fn begin_anew(&mut self) {
        self.is_outdated = true;
    }

    /// A check failed: earlier measurements mean nothing any more.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn of(samples: impl IntoIterator<Item = u32>) -> RoundTripTimes {
        let mut times = RoundTripTimes::default();
        samples.into_iter().for_each(|sample| times.add(sample * MS));
        times
    }

    #[test]
    fn a_new_sample_counts_for_a_fifth() {
        assert_eq!(of([]).average(), None);
        assert_eq!(of([10]).average(), Some(10 * MS));
        assert_eq!(of([10, 20]).average(), Some(12 * MS));
    }

    #[test]
    fn the_least_is_that_of_the_last_ten_and_unknown_before_two() {
        assert_eq!(of([5]).min(), Duration::ZERO);
        assert_eq!(of([5, 7]).min(), 5 * MS);
        assert_eq!(of((1..=11).rev()).min(), MS);
        assert_eq!(of(1..=11).min(), 2 * MS);
    }

    #[test]
    fn extreme_samples_do_not_overflow() {
        let mut times = RoundTripTimes::default();
        times.add(Duration::MAX);
        times.add(Duration::MAX);

        assert!(times.average() <= Some(Duration::MAX));
    }
}
