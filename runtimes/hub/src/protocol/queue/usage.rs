//! The time that somebody has used at the servers, as it counts for turns.
//!
//! How long a command takes is known only at its end. Until then it counts by the time that it has run, or by what the user's commands take
//! as a rule, if that is more.
//!
//! Use counts within a stretch of time in which somebody waits. When the last one that waits has its turn, everybody has what they want, and
//! when somebody waits again, all begin anew: who has used much while nobody else wanted it owes nothing.

use cmap_core::time::Instant;

/// What a command counts at least and at most, in nanoseconds, before it has run for so long.
const GUESS: (u64, u64) = (1_000_000, 1_000_000_000);

/// By how much one command moves what is taken for usual.
const INERTIA: u64 = 8;

/// A stretch of time in which somebody waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) number: u64,
    pub(super) began: Instant,
}

/// What one user, or one group, has used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// The stretch of which it is.
    stretch: u64,
    /// Nanoseconds of commands that have ended, over the weight.
    spent: u64,
    /// How many run.
    running: u32,
    /// When each of them began, in nanoseconds, added up.
    begun: u128,
    /// Nanoseconds that a command takes as a rule.
    usual: u64,
}

impl Usage {
    /// A command begins.
    pub(super) fn begin(&mut self, now: Instant, stretch: Stretch) {
        self.renew(stretch);
        self.running += 1;
        self.begun += u128::from(now.as_nanos());
    }

    /// A command ends that began at `since`.
    pub(super) fn end(&mut self, now: Instant, since: Instant, weight: u32, stretch: Stretch) {
        self.renew(stretch);
        let counted_from = since.max(stretch.began);
        self.running = self.running.saturating_sub(1);
        self.begun = self.begun.saturating_sub(counted_from.as_nanos().into());
        let (took, counted) = (now.saturating_since(since), now.saturating_since(counted_from));
        self.spent = self.spent.saturating_add(nanos(counted) / u64::from(weight.max(1)));
        let took = nanos(took).clamp(GUESS.0, GUESS.1);
        self.usual = self.usual - self.usual / INERTIA + took / INERTIA;
    }

    /// What counts by now: nanoseconds over the weight.
    pub(super) fn counted(mut self, now: Instant, weight: u32, stretch: Stretch) -> u64 {
        self.renew(stretch);
        self.spent.saturating_add(self.of_running(now) / u64::from(weight.max(1)))
    }

    /// Raises what counts to at least `least`: who has not waited has missed nothing.
    pub(super) fn raise(&mut self, now: Instant, least: u64, weight: u32, stretch: Stretch) {
        let counted = self.counted(now, weight, stretch);
        self.renew(stretch);
        self.spent = self.spent.saturating_add(least.saturating_sub(counted));
    }

    /// Whether it is as if nothing had been used.
    pub(super) fn is_forgotten(&self, stretch: Stretch) -> bool {
        self.running == 0 && self.stretch != stretch.number
    }

    fn of_running(&self, now: Instant) -> u64 {
        let running = u64::from(self.running);
        let so_far = (u128::from(now.as_nanos()) * u128::from(running)).saturating_sub(self.begun);
        u64::try_from(so_far).unwrap_or(u64::MAX).max(running * self.usual.max(GUESS.0))
    }

    fn renew(&mut self, stretch: Stretch) {
        if self.stretch != stretch.number {
            self.stretch = stretch.number;
            self.spent = 0;
            self.begun = u128::from(stretch.began.as_nanos()) * u128::from(self.running);
        }
    }
}

fn nanos(time: core::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    const FIRST: Stretch = Stretch { number: 0, began: Instant::ORIGIN };

    fn at(millis: u64) -> Instant {
        Instant::ORIGIN + Duration::from_millis(millis)
    }

    #[test]
    fn what_runs_counts_by_its_age_and_what_has_ended_by_what_it_took_over_the_weight() {
        let mut usage = Usage::default();
        usage.begin(at(0), FIRST);
        usage.begin(at(10), FIRST);

        assert_eq!(usage.counted(at(30), 1, FIRST), 50_000_000);
        usage.end(at(30), at(0), 2, FIRST);
        assert_eq!(usage.counted(at(30), 2, FIRST), 15_000_000 + 10_000_000);
    }

    #[test]
    fn what_has_just_begun_counts_as_much_as_is_usual() {
        let mut usage = Usage::default();
        for _ in 0..100 {
            usage.begin(at(0), FIRST);
            usage.end(at(400), at(0), 1, FIRST);
        }
        let before = usage.counted(at(400), 1, FIRST);

        usage.begin(at(400), FIRST);

        let guess = usage.counted(at(400), 1, FIRST) - before;
        assert!((390_000_000..=400_000_000).contains(&guess), "{guess}");
    }

    #[test]
    fn what_was_used_before_somebody_waited_is_forgotten_and_what_still_runs_counts_from_then_on() {
        let mut usage = Usage::default();
        usage.begin(at(0), FIRST);
        usage.begin(at(0), FIRST);
        usage.end(at(900), at(0), 1, FIRST);

        let second = Stretch { number: 1, began: at(1_000) };

        assert_eq!(usage.counted(at(1_500), 1, second), 500_000_000);
        usage.end(at(1_500), at(0), 1, second);
        assert_eq!(usage.counted(at(1_600), 1, second), 500_000_000);
        assert!(usage.is_forgotten(FIRST));
    }
}
