//! The loop of `with_transaction`: whether to repeat a transaction that failed, or its commit, and when (TXN-9).
//!
//! | failed | label | what follows, while time lasts |
//! |---|---|---|
//! | the callback | TransientTransactionError | the whole transaction again, after a pause |
//! | the commit | TransientTransactionError | the whole transaction again, after a pause |
//! | the commit, not by maxTimeMS | UnknownTransactionCommitResult | the commit again |
//! | either | | the error is raised |
//!
//! Once time is up, a failure that would be repeated is raised as a timeout.

use core::time::Duration;

use crate::random::Random;
use crate::retry::{ErrorLabel, Labels};
use crate::time::{Instant, nanos};

/// How long it is tried without a deadline.
const PATIENCE: Duration = Duration::from_secs(120);

/// The pause before the second attempt is one and a half times this at most, and half as long again before each further one.
const BASE_BACKOFF: Duration = Duration::from_millis(5);

/// The longest pause.
const MAX_BACKOFF: Duration = Duration::from_millis(500);

/// The attempts at one transaction.
#[derive(Clone, Debug)]
pub struct WithTransaction {
    /// `None`: never.
    ends_at: Option<Instant>,
    random: Random,
    /// The attempts that failed.
    failed: u32,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// The whole transaction, at this time.
    RetryTransaction(Instant),
    /// The commit, at once.
    RetryCommit,
    /// The error is raised.
    Raise,
    /// A timeout is raised, with the labels of the error.
    RaiseTimeout,
}

impl WithTransaction {
    /// The first attempt begins. It is tried until `deadline`, or for two minutes. `seed` is the chance of the pauses.
    pub fn new(now: Instant, deadline: Option<Instant>, seed: u64) -> Self {
        Self { ends_at: Some(deadline.unwrap_or(now + PATIENCE)), random: Random::new(seed), failed: 0 }
    }

    /// The first attempt begins, and there is no limit to the others: timeoutMS is 0 (CSOT-2).
    pub fn without_limit(seed: u64) -> Self {
        Self { ends_at: None, random: Random::new(seed), failed: 0 }
    }

    /// The callback has failed. The caller has aborted the transaction.
    pub fn after_callback(&mut self, now: Instant, labels: Labels) -> AfterFailure {
        if labels.has(ErrorLabel::TransientTransactionError) { self.retry(now) } else { AfterFailure::Raise }
    }

    /// The commit has failed. `is_max_time`: the server took longer than it was allowed to.
    pub fn after_commit(&mut self, now: Instant, labels: Labels, is_max_time: bool) -> AfterFailure {
        if labels.has(ErrorLabel::UnknownTransactionCommitResult) && !is_max_time {
            return if self.lasts_at(now) { AfterFailure::RetryCommit } else { AfterFailure::RaiseTimeout };
        }
        self.after_callback(now, labels)
    }

    fn retry(&mut self, now: Instant) -> AfterFailure {
        self.failed = self.failed.saturating_add(1);
        let at = now + self.backoff();
        if self.lasts_at(at) { AfterFailure::RetryTransaction(at) } else { AfterFailure::RaiseTimeout }
    }

    fn lasts_at(&self, at: Instant) -> bool {
        self.ends_at.is_none_or(|end| at < end)
    }

    /// A pause by chance, up to a limit that grows with each attempt.
    fn backoff(&mut self) -> Duration {
        let mut most = BASE_BACKOFF;
        for _ in 0..self.failed {
            most = most * 3 / 2;
            if most >= MAX_BACKOFF {
                most = MAX_BACKOFF;
                break;
            }
        }
        Duration::from_nanos(self.random.up_to(nanos(most).saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ORIGIN;

    fn transient() -> Labels {
        Labels::from_iter([ErrorLabel::TransientTransactionError])
    }

    fn unknown() -> Labels {
        Labels::from_iter([ErrorLabel::UnknownTransactionCommitResult])
    }

    fn pause(after: AfterFailure, now: Instant) -> Duration {
        let AfterFailure::RetryTransaction(at) = after else { panic!("{after:?}") };
        at.saturating_since(now)
    }

    #[test]
    fn pauses_grow_by_half_up_to_half_a_second_txn_9() {
        let longest = |attempt: usize| {
            let seeds = 0..2000_u64;
            let nth = |seed| {
                let mut attempts = WithTransaction::new(NOW, None, seed);
                (0..attempt).fold(Duration::ZERO, |_, _| pause(attempts.after_callback(NOW, transient()), NOW))
            };
            seeds.map(nth).max().unwrap()
        };

        for (attempt, expected) in [(1, 7_500), (2, 11_250), (3, 16_875), (20, 500_000)] {
            let (found, expected) = (longest(attempt), Duration::from_micros(expected));
            assert!(found < expected && found > expected * 99 / 100, "attempt {attempt}: {found:?}");
        }
    }

    #[test]
    fn a_commit_of_unknown_result_is_repeated_at_once_txn_9() {
        let mut attempts = WithTransaction::new(NOW, None, 1);

        assert_eq!(attempts.after_commit(NOW, unknown(), false), AfterFailure::RetryCommit);
        assert_eq!(attempts.after_commit(NOW, unknown(), true), AfterFailure::Raise, "maxTimeMS is the user's limit");
    }

    #[test]
    fn a_failed_commit_repeats_the_whole_transaction_if_it_is_transient_txn_9() {
        let mut attempts = WithTransaction::new(NOW, None, 1);

        assert!(pause(attempts.after_commit(NOW, transient(), false), NOW) < Duration::from_millis(8));
        assert_eq!(attempts.after_commit(NOW, Labels::default(), false), AfterFailure::Raise);
    }

    #[test]
    fn another_error_of_the_callback_is_raised_txn_9() {
        let mut attempts = WithTransaction::new(NOW, None, 1);

        assert_eq!(attempts.after_callback(NOW, Labels::default()), AfterFailure::Raise);
    }

    #[test]
    fn after_two_minutes_or_the_deadline_a_timeout_is_raised_txn_9() {
        let late = NOW + Duration::from_secs(120);
        let mut patient = WithTransaction::new(NOW, None, 1);
        let mut hasty = WithTransaction::new(NOW, Some(NOW + Duration::from_secs(1)), 1);

        assert_eq!(patient.after_callback(late, transient()), AfterFailure::RaiseTimeout);
        assert_eq!(patient.after_commit(late, unknown(), false), AfterFailure::RaiseTimeout);
        assert_eq!(hasty.after_callback(NOW + Duration::from_secs(1), transient()), AfterFailure::RaiseTimeout);
    }

    #[test]
    fn without_a_limit_it_is_tried_for_ever_csot_2() {
        let mut attempts = WithTransaction::without_limit(1);
        let late = NOW + Duration::from_secs(100_000);

        assert!(matches!(attempts.after_callback(late, transient()), AfterFailure::RetryTransaction(_)));
        assert_eq!(attempts.after_commit(late, unknown(), false), AfterFailure::RetryCommit);
    }
}
