//! Histograms of durations: how long things took, in bounded memory, without floating point.
//!
//! A bucket is a quarter of a power of two wide, so that what is read from it is too long by a quarter at most. Two histograms
//! of different servers can be merged, and an earlier one of the same server taken away from a later one: what is left is what
//! happened in between.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::nanos;

/// How often something took how long. About a kilobyte, however much is recorded.
///
/// It displays as one line: `1200 times, mean 1.3ms, half within 1.1ms, 99 % within 4.2ms, at most 5ms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Filled", into = "Filled")]
pub struct Histogram {
    counts: [u64; BUCKETS],
    /// In nanoseconds.
    sum: u64,
    longest: u64,
}

/// A histogram as it is written: the buckets that are not empty, by their places.
#[derive(Serialize, Deserialize)]
struct Filled {
    counts: Vec<(usize, u64)>,
    sum: u64,
    longest: u64,
}

/// Bits of nanoseconds that are not told apart: the smallest buckets are 1,024 ns wide.
const UNIT: u32 = 10;

/// Bits that tell apart the buckets of one power of two.
const STEPS: u32 = 2;

/// The last bucket has what takes 2^40 ns, which are 18 minutes, or longer.
const BUCKETS: usize = 117;

impl Histogram {
    /// One in which nothing is recorded.
    pub const EMPTY: Self = Self { counts: [0; BUCKETS], sum: 0, longest: 0 };

    /// Records one duration. Allocates nothing.
    pub fn record(&mut self, duration: Duration) {
        self.record_nanos(nanos(duration));
    }

    #[inline(always)]
    pub(crate) fn record_nanos(&mut self, nanos: u64) {
        let [.., last] = &mut self.counts;
        let place = place(nanos);
        // What has no bucket of its own is rare: a branch costs less than a minimum.
        if place >= BUCKETS {
            *last = last.wrapping_add(1);
        } else if let Some(count) = self.counts.get_mut(place) {
            *count = count.wrapping_add(1);
        }
        self.sum = self.sum.saturating_add(nanos);
        if nanos > self.longest {
            self.longest = nanos;
        }
    }

    /// How many durations are recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// All of them together.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// The longest. Of [what happened in between](Self::since) it is known as well as a [quantile](Self::quantile) is.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest)
    }

    /// The buckets that are not empty, each by its upper end and the number of durations in it, the shortest first.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(place, count)| (Duration::from_nanos(end(place).min(self.longest)), *count))
    }

    /// The mean; `None` if there is none.
    pub fn mean(&self) -> Option<Duration> {
        self.sum.checked_div(self.count()).map(Duration::from_nanos)
    }

    /// A duration that so many of 1,000 did not exceed: 500 for the median, 990 for 99 percent. It is never too short, and too
    /// long by a quarter or 1,024 ns at most, below 18 minutes. `None` if nothing is recorded.
    pub fn quantile(&self, of_thousand: u16) -> Option<Duration> {
        let count = self.count();
        let rank = u128::from(count) * u128::from(of_thousand.min(1000));
        let rank = u64::try_from(rank.div_ceil(1000)).unwrap_or(count).max(1);
        let mut seen = 0_u64;
        for (place, count) in self.counts.iter().enumerate() {
            seen = seen.saturating_add(*count);
            if seen >= rank {
                return Some(Duration::from_nanos(end(place).min(self.longest)));
            }
        }
        None
    }

    /// Both together.
    #[must_use]
    pub fn merge(mut self, other: &Self) -> Self {
        self.add(other);
        self
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (count, other) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*other);
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.longest = self.longest.max(other.longest);
    }

    /// What was recorded after `earlier`, a copy of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut between = self.clone();
        for (count, earlier) in between.counts.iter_mut().zip(&earlier.counts) {
            *count = count.saturating_sub(*earlier);
        }
        between.sum = self.sum.saturating_sub(earlier.sum);
        let last = between.counts.iter().rposition(|&count| count > 0);
        between.longest = last.map_or(0, |place| end(place).min(self.longest));
        between
    }
}

/// The bucket of a duration. The last has all from there on.
#[inline(always)]
fn place(nanos: u64) -> usize {
    // Buckets below 2^(STEPS + 1) units are one unit wide; of each further power of two the first bits count. The difference to 63 is
    // written as the processor has it.
    let shift = ((nanos | (1 << (UNIT + STEPS))).leading_zeros() ^ 63) - STEPS;
    #[expect(clippy::cast_possible_truncation, reason = "it is less than eight")]
    let steps = (nanos >> shift) as usize;
    ((shift as usize) << STEPS) + steps - ((UNIT as usize) << STEPS)
}

/// The last nanosecond of a bucket.
fn end(place: usize) -> u64 {
    if place >= BUCKETS - 1 {
        return u64::MAX;
    }
    let shift = (place >> STEPS).saturating_sub(1);
    let steps = (place - (shift << STEPS)) as u64;
    (((steps + 1) << shift) << UNIT) - 1
}

impl Default for Histogram {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl From<Histogram> for Filled {
    fn from(histogram: Histogram) -> Self {
        let counts = histogram.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect();
        Self { counts, sum: histogram.sum, longest: histogram.longest }
    }
}

impl From<Filled> for Histogram {
    fn from(filled: Filled) -> Self {
        let mut histogram = Self { sum: filled.sum, longest: filled.longest, ..Self::EMPTY };
        for (place, count) in filled.counts {
            if let Some(own) = histogram.counts.get_mut(place) {
                *own = own.saturating_add(count);
            }
        }
        histogram
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(mean), Some(half), Some(most)) = (self.mean(), self.quantile(500), self.quantile(990)) else {
            return f.write_str("never");
        };
        let (count, longest) = (self.count(), self.longest());
        write!(
            f,
            "{count} times, mean {mean:.3?}, half within {half:.3?}, 99 % within {most:.3?}, at most {longest:.3?}"
        )
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn of(durations: &[u64]) -> Histogram {
        let mut histogram = Histogram::EMPTY;
        durations.iter().for_each(|&nanos| histogram.record_nanos(nanos));
        histogram
    }

    /// Durations of every magnitude.
    fn durations() -> impl Strategy<Value = Vec<u64>> {
        let one = (0_u32..64, any::<u64>()).prop_map(|(shift, bits)| bits >> shift);
        proptest::collection::vec(one, 1..60)
    }

    proptest! {
        #[test]
        fn a_quantile_is_never_too_short_and_hardly_too_long(mut durations in durations(), of_thousand in 0_u16..=1000) {
            let histogram = of(&durations);
            durations.sort_unstable();
            let rank = (durations.len() * usize::from(of_thousand)).div_ceil(1000).max(1);
            let exact = durations[rank - 1];

            let found = nanos(histogram.quantile(of_thousand).unwrap());

            prop_assert!(found >= exact, "{found} < {exact}");
            prop_assert!(found - exact <= 1024.max(exact / 4) || exact >= 1 << 40, "{found} > {exact}");
            prop_assert_eq!(nanos(histogram.longest()), durations[durations.len() - 1]);
        }

        #[test]
        fn merging_is_recording_both_and_since_takes_one_away(one in durations(), other in durations()) {
            let (first, second) = (of(&one), of(&other));
            let both = of(&[one.clone(), other.clone()].concat());

            prop_assert_eq!(&first.clone().merge(&second), &both);
            prop_assert_eq!(&second.clone().merge(&first), &both);
            let between = both.since(&first);
            prop_assert_eq!(between.counts, second.counts);
            prop_assert!(between.longest >= second.longest && between.longest <= both.longest);
            prop_assert_eq!(both.count(), (one.len() + other.len()) as u64);
        }

        #[test]
        fn every_duration_lies_in_its_bucket(nanos in any::<u64>(), shift in 0_u32..64) {
            let (nanos, place) = (nanos >> shift, place(nanos >> shift).min(BUCKETS - 1));

            prop_assert!(nanos <= end(place));
            prop_assert!(place == 0 || nanos > end(place - 1));
        }

        #[test]
        fn a_histogram_can_be_written_and_read(durations in durations()) {
            let histogram = of(&durations);

            let text = serde_json::to_string(&histogram).unwrap();

            prop_assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), histogram);
        }
    }

    #[test]
    fn an_empty_histogram_has_no_quantiles() {
        assert_eq!((Histogram::EMPTY.quantile(500), Histogram::EMPTY.mean()), (None, None));
        assert_eq!(Histogram::EMPTY.to_string(), "never");
    }

    #[test]
    fn a_sum_ends_with_the_largest_duration() {
        assert_eq!(of(&[u64::MAX, 5]).sum(), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn a_histogram_takes_a_kilobyte() {
        assert!(size_of::<Histogram>() <= 1024);
    }
}
