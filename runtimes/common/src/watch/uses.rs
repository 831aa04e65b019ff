//! How long connections were used, by label: the watch for possible leaks, and its report.
//!
//! The table has a line for each label that is known and one for all others, and the list of the slowest uses an end, so that
//! both have a limit whatever users do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::pool::ConnectionId;
use cmap_core::server::ServerId;
use cmap_core::time::Instant;
use serde::Serialize;

use super::holder::Who;
use super::labels::{LINES, LabelId};
use super::{Holder, Place, Tag};

/// A use that has lasted for longer than its limit without a sign of life from the server. Told once of each use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PossibleLeak {
    /// The limit.
    pub limit: Duration,
    /// Who holds the connection.
    pub holder: Holder,
}

/// What uses of connections took, where [`Builder::leak_detection_threshold`](crate::Builder::leak_detection_threshold) is set. It displays
/// as a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UseReport {
    /// Uses that are over, by label: those first that took longest together.
    pub labels: Vec<LabelUses>,
    /// The slowest uses that are over, the slowest first.
    pub slowest: Vec<PastUse>,
    /// Uses that are not over: of a closed client, its leaks.
    pub in_use: Vec<Holder>,
    /// How often a check-out had a label that there was no room for.
    pub folded_labels: u64,
}

/// The uses of one label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LabelUses {
    /// The label; `None` of those without.
    pub label: Option<Arc<str>>,
    /// How many.
    pub count: u64,
    /// The mean.
    pub mean: Duration,
    /// The standard deviation: the root of the variance.
    pub deviation: Duration,
    /// The longest.
    pub longest: Duration,
}

/// A use that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PastUse {
    /// The server.
    pub address: Arc<ServerAddress>,
    /// The connection's number.
    pub connection_id: ConnectionId,
    /// How long it took.
    pub took: Duration,
    /// The check-out's label.
    pub label: Option<Arc<str>>,
    /// Where in the source it was checked out.
    pub place: Option<Place>,
    /// The last command.
    pub command: Option<Arc<str>>,
}

/// The notes of uses.
pub(crate) struct Uses {
    pub(crate) limit: Duration,
    /// When to look for slow ones; `None` while nobody uses a connection.
    pub(crate) next_look: Option<Instant>,
    /// By the number of the label; those of other labels at the end.
    tallies: Box<[Tally; LINES]>,
    slowest: Vec<NotedUse>,
    /// From how many nanoseconds on a use belongs to them.
    slow_from: u64,
    /// Whether the log has the report.
    pub(crate) was_told: bool,
}

/// The uses of one label, in nanoseconds. A line of the cache holds one, and no part of another.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Tally {
    count: u64,
    sum: u64,
    /// The sum of the squares, a 128-bit number in two halves. It has room for as long as the sum has.
    squares: [u64; 2],
    longest: u64,
    /// A shorter use is neither the longest nor one of the slowest of all. Others have been slower since, perhaps.
    long_from: u64,
}

/// A use that is over, as it is noted.
#[derive(Clone, Copy)]
pub(crate) struct NotedUse {
    pub(crate) server: ServerId,
    pub(crate) connection: ConnectionId,
    pub(crate) took: Duration,
    pub(crate) tag: Tag,
    pub(crate) command: LabelId,
}

/// Most uses in the list of the slowest.
const SLOWEST: usize = 10;

impl Uses {
    /// What it takes besides itself.
    #[cfg(test)]
    pub(super) const BYTES: usize = LINES * size_of::<Tally>() + (SLOWEST + 1) * size_of::<NotedUse>();

    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            next_look: None,
            tallies: Box::new([Tally::default(); LINES]),
            slowest: Vec::with_capacity(SLOWEST + 1),
            slow_from: 0,
            was_told: false,
        }
    }

    /// A use begins at `now`: says when to look for slow ones.
    #[inline]
    pub(crate) fn look_from(&mut self, now: Instant) -> Instant {
        *self.next_look.get_or_insert_with(|| now + self.limit)
    }

    /// Counts a use that is over, by its nanoseconds. Returns whether it is [long](Self::note_long). Allocates nothing.
    #[inline(always)]
    pub(crate) fn count(&mut self, label: LabelId, took: u64) -> bool {
        let Some(tally) = self.tallies.get_mut(label.place()) else { return false };
        tally.add(took);
        took >= tally.long_from
    }

    /// Looks at a counted use that may be the longest of its label. Returns whether it is one of the slowest of all.
    pub(crate) fn note_long(&mut self, label: LabelId, took: u64) -> bool {
        if let Some(tally) = self.tallies.get_mut(label.place()) {
            tally.longest = tally.longest.max(took);
            tally.long_from = tally.longest.saturating_add(1).min(self.slow_from);
        }
        took >= self.slow_from
    }

    /// Adds one to the list of the slowest. Allocates nothing.
    pub(crate) fn note_slow(&mut self, over: NotedUse) {
        let place = self.slowest.partition_point(|other| other.took >= over.took);
        self.slowest.insert(place, over);
        self.slowest.truncate(SLOWEST);
        if let Some(last) = self.slowest.get(SLOWEST - 1) {
            self.slow_from = nanos(last.took).saturating_add(1);
        }
    }

    /// Those of each label, the longest time together first.
    pub(super) fn by_label(&self, text: impl Fn(LabelId) -> Option<Arc<str>>) -> Vec<LabelUses> {
        let mut used: Vec<_> = self.tallies.iter().enumerate().filter(|(_, tally)| tally.count > 0).collect();
        used.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.sum));
        used.into_iter().map(|(place, tally)| tally.told(text(LabelId::at(place)))).collect()
    }

    pub(super) fn slowest(&self) -> &[NotedUse] {
        &self.slowest
    }
}

/// In 64 bits, which last for 584 years.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Tally {
    #[inline(always)]
    fn add(&mut self, took: u64) {
        self.count = self.count.wrapping_add(1);
        let (sum, is_too_large) = self.sum.overflowing_add(took);
        self.sum = sum;
        if is_too_large {
            self.saturate();
        }
        let took = u128::from(took);
        self.set_squares(self.squares().wrapping_add(took * took));
    }

    #[cold]
    #[inline(never)]
    fn saturate(&mut self) {
        self.sum = u64::MAX;
    }

    fn squares(&self) -> u128 {
        let [high, low] = self.squares;
        u128::from(high) << 64 | u128::from(low)
    }

    #[expect(clippy::cast_possible_truncation, reason = "these are the two halves")]
    fn set_squares(&mut self, squares: u128) {
        self.squares = [(squares >> 64) as u64, squares as u64];
    }

    fn told(&self, label: Option<Arc<str>>) -> LabelUses {
        let count = self.count.max(1);
        let (mean, rest) = (self.sum / count, self.sum % count);
        // The mean has no fraction, whose part of the squares is taken away first.
        let squares = self.squares().saturating_sub(2 * u128::from(mean) * u128::from(rest));
        let variance = (squares / u128::from(count)).saturating_sub(u128::from(mean).pow(2));
        LabelUses {
            label,
            count: self.count,
            mean: Duration::from_nanos(mean),
            deviation: Duration::from_nanos(u64::try_from(variance.isqrt()).unwrap_or(u64::MAX)),
            longest: Duration::from_nanos(self.longest),
        }
    }
}

impl fmt::Display for PossibleLeak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "A connection has been used for longer than {:?} without a reply: {}", self.limit, self.holder)
    }
}

impl UseReport {
    /// The uses that are not over, as a part of the report.
    pub(crate) fn leaks(&self) -> impl fmt::Display + '_ {
        Leaks(&self.in_use)
    }
}

struct Leaks<'a>(&'a [Holder]);

impl fmt::Display for Leaks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "still in use: {}", self.0.len())?;
        self.0.iter().try_for_each(|holder| writeln!(f, "  {holder}"))
    }
}

impl fmt::Display for UseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:32} {:>9} {:>12} {:>12} {:>12}", "uses by", "count", "mean", "deviation", "longest")?;
        for LabelUses { label, count, mean, deviation, longest } in &self.labels {
            let label = label.as_deref().unwrap_or("(no label)");
            // Padding is for texts, which durations are not.
            let [mean, deviation, longest] = [mean, deviation, longest].map(|time| format!("{time:.3?}"));
            writeln!(f, "{label:32} {count:>9} {mean:>12} {deviation:>12} {longest:>12}")?;
        }
        writeln!(f, "the slowest:")?;
        self.slowest.iter().try_for_each(|over| writeln!(f, "  {over}"))?;
        self.leaks().fmt(f)?;
        match self.folded_labels {
            0 => Ok(()),
            folded => writeln!(f, "labels beyond the 128 that are known were given {folded} times"),
        }
    }
}

impl fmt::Display for PastUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = Who { label: self.label.as_deref(), place: self.place };
        write!(f, "{:.3?} by {who}, {} connection {}", self.took, self.address, self.connection_id)?;
        match &self.command {
            Some(command) => write!(f, ", last {command}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    /// What is reported of a label with such uses, in nanoseconds.
    fn told(uses: impl IntoIterator<Item = u64>) -> LabelUses {
        let mut noted = Uses::new(Duration::from_secs(1));
        for took in uses {
            if noted.count(LabelId::NONE, took) {
                noted.note_long(LabelId::NONE, took);
            }
        }
        noted.by_label(|_| None).remove(0)
    }

    #[test]
    fn a_label_has_mean_deviation_and_the_longest() {
        let told = told([2, 4, 9, 4, 5, 5, 7, 4].map(|millis| millis * MILLI));

        let nanos = [told.mean, told.deviation, told.longest].map(nanos);
        assert_eq!((told.count, nanos), (8, [5 * MILLI, 2 * MILLI, 9 * MILLI]));
    }

    #[test]
    fn the_deviation_of_long_uses_is_exact() {
        // A second, and ten nanoseconds more of every other.
        let second = 1000 * MILLI;
        let told = told((0..1000).map(|number| second + 10 * (number % 2)));

        assert_eq!([told.mean, told.deviation].map(nanos), [second + 5, 5]);
    }

    #[test]
    fn uses_of_all_lengths_are_counted() {
        let told = told([0, u64::MAX]);

        assert_eq!((told.count, nanos(told.longest)), (2, u64::MAX));
    }

    #[test]
    fn a_use_is_looked_at_if_it_is_the_longest_of_its_label_or_one_of_the_slowest() {
        let mut uses = Uses::new(Duration::from_secs(1));
        uses.slow_from = 100;
        let mut is_noted = |took| uses.count(LabelId::NONE, took).then(|| uses.note_long(LabelId::NONE, took));

        let noted = [50, 40, 50, 60, 100, 99, 100, 200].map(&mut is_noted);

        let longest = Some(false);
        let slow = Some(true);
        assert_eq!(noted, [longest, None, None, longest, slow, None, slow, slow]);
    }
}
