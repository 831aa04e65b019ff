//! When to dial an application again that could not be reached, or did not want to be.

use std::time::Duration;

use cmap_core::random::Random;
use cmap_core::time::Instant;

/// The pause after the first failure; each further one in a row doubles it.
const FIRST: Duration = Duration::from_millis(200);

/// The longest time that an application can send a relay away for.
const LONGEST_REFUSAL: Duration = Duration::from_secs(60 * 60);

/// The pauses after failures in a row.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    random: Random,
    longest: Duration,
    failures: u32,
    /// When the last one failed.
    failed_at: Instant,
    until: Instant,
}

impl Backoff {
    pub(crate) fn new(random: Random, longest: Duration) -> Self {
        Self { random, longest, failures: 0, failed_at: Instant::ORIGIN, until: Instant::ORIGIN }
    }

    /// Whether the last attempt has failed.
    pub(crate) fn is_on(&self) -> bool {
        self.failures > 0
    }

    /// When the next attempt may begin.
    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    /// An attempt that began to work at `since` has proven itself. One that worked before the last failure proves nothing.
    pub(crate) fn prove(&mut self, since: Instant) {
        if since > self.failed_at {
            self.failures = 0;
        }
    }

    /// An attempt has failed. Those that fail during a pause, because they were under way, count as one.
    pub(crate) fn fail(&mut self, now: Instant) {
        self.failed_at = now;
        if now < self.until {
            return;
        }
        let pause = FIRST.saturating_mul(1 << self.failures.min(16)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        // Relays that lost an application together shall not come back together.
        self.until = now + pause / 2 + self.random_part(pause / 2);
    }

    /// The application has sent the relay away for a time.
    pub(crate) fn refuse(&mut self, now: Instant, retry_after: Duration) {
        self.fail(now);
        let pause = retry_after.min(LONGEST_REFUSAL);
        self.until = self.until.max(now + pause + self.random_part(pause / 10));
    }

    fn random_part(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.random.up_to(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backoff() -> Backoff {
        Backoff::new(Random::new(1), Duration::from_secs(10))
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_differ_x_126() {
        let mut backoff = backoff();
        let mut now = Instant::from_millis(1_000);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            backoff.fail(now);
            pauses.push(backoff.until().saturating_since(now));
            now = backoff.until();
        }

        for (pause, whole) in pauses.iter().zip([200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000, 10_000]) {
            let whole = Duration::from_millis(whole);
            assert!((whole / 2..=whole).contains(pause), "{pause:?} of {whole:?}");
        }
        assert_ne!(pauses[7], pauses[8]);
    }

    #[test]
    fn attempts_that_fail_together_count_as_one_x_126() {
        let mut backoff = backoff();
        let now = Instant::from_millis(1_000);

        for _ in 0..20 {
            backoff.fail(now);
        }

        assert!(backoff.until().saturating_since(now) <= FIRST);
    }

    #[test]
    fn a_refusal_is_obeyed_for_an_hour_at_most_x_126() {
        let now = Instant::from_millis(1_000);
        for (said, least) in [(30, 30), (0, 0), (1_000_000, 3_600)] {
            let mut backoff = backoff();

            backoff.refuse(now, Duration::from_secs(said));

            let pause = backoff.until().saturating_since(now);
            let least = Duration::from_secs(least);
            assert!(pause >= least && pause <= least + least / 10 + FIRST, "{pause:?} after {said} s");
        }
    }

    #[test]
    fn the_first_pause_is_short_again_after_a_success() {
        let mut backoff = backoff();
        backoff.refuse(Instant::from_millis(1), Duration::from_secs(60));

        let now = backoff.until();
        backoff.prove(now);
        backoff.fail(now);

        assert!(backoff.until().saturating_since(now) <= FIRST);
    }
    #[test]
    fn what_worked_before_the_failure_proves_nothing_x_126() {
        let mut backoff = backoff();
        let before = Instant::from_millis(1_000);
        backoff.fail(before + Duration::from_secs(1));

        backoff.prove(before);

        assert!(backoff.is_on());
    }
}
