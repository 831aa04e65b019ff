//! The decisions about any operation's failures are those of a naive reading of the rules.

use std::time::Duration;

use cmap_core::connection::Fault;
use cmap_core::retry::{
    ErrorLabel, Failure, FailureKind, Next, OnceReason, Retry, RetryLimit, RetryOption, RetryPolicy, Retryability,
    Which,
};
use cmap_core::time::Instant;
use cmap_core::topology::TopologyType;
use proptest::prelude::*;

/// One operation as the rules tell of it, step by step and without a machine.
#[derive(Debug)]
struct Told {
    retryability: Retryability,
    policy: RetryPolicy,
    deadline: Option<Instant>,
    failures: Vec<(Instant, Failure)>,
}

impl Told {
    /// Whether the attempt after failure number `index` is made, and the most that it waits.
    fn attempt_after(&self, index: usize) -> Option<Duration> {
        let (now, failure) = &self.failures[index];
        let overload = |failure: &Failure| failure.labels.has(ErrorLabel::SystemOverloadedError);
        let both = overload(failure) && failure.labels.has(ErrorLabel::RetryableError);
        let (reads, writes) = (self.policy.retry_reads, self.policy.retry_writes);
        let (is_on, is_retryable) = match self.retryability {
            Retryability::Read => (reads, both || failure.is_retryable_read()),
            Retryability::Write => (writes, both || failure.is_retryable_write(true, false)),
            Retryability::OverloadOnly { option: RetryOption::Reads, .. } => (reads, both),
            Retryability::OverloadOnly { option: RetryOption::Writes, .. } => (writes, both),
            Retryability::OverloadOnly { option: RetryOption::Both, .. } => (reads && writes, both),
        };
        let number = u32::try_from(index).unwrap() + 1;
        let most = if self.failures[..=index].iter().any(|(_, failure)| overload(failure)) {
            self.policy.max_adaptive_retries
        } else if self.policy.limit == RetryLimit::Once {
            1
        } else {
            u32::MAX
        };
        let is_in_time = self.deadline.is_none_or(|deadline| *now < deadline);
        let longest = if overload(failure) {
            Duration::from_millis((100 * 2_u64.pow(number.min(20))).min(10_000))
        } else if number > 2 && !self.failures[..=index].iter().any(|(_, failure)| overload(failure)) {
            //
            Duration::from_millis(2_u64.pow(number - 2).min(100))
        } else {
            Duration::ZERO
        };
        (is_on && is_retryable && number <= most && is_in_time).then_some(longest)
    }

    /// The failure that is reported after failure number `last`.
    fn reported(&self, last: usize) -> usize {
        let counts = |failure: &Failure| match self.retryability {
            Retryability::Read | Retryability::OverloadOnly { option: RetryOption::Reads, .. } => {
                !matches!(failure.kind, FailureKind::Selection | FailureKind::Client | FailureKind::PoolCleared)
            }
            Retryability::Write | Retryability::OverloadOnly { .. } => {
                failure.is_of_sent_command() && !failure.labels.has(ErrorLabel::NoWritesPerformed)
            }
        };
        (0..=last).rev().find(|index| counts(&self.failures[*index].1)).unwrap_or(0)
    }
}

fn failures() -> impl Strategy<Value = Vec<(Instant, Failure)>> {
    let code =
        prop_oneof![Just(None), proptest::sample::select(vec![91, 134, 10107, 10058, 11000, 462]).prop_map(Some)];
    let kind = prop_oneof![
        Just(FailureKind::Selection),
        Just(FailureKind::PoolCleared),
        Just(FailureKind::Client),
        Just(FailureKind::Network),
        Just(FailureKind::Establish(Fault::Timeout)),
        Just(FailureKind::Establish(Fault::Other)),
        code.clone().prop_map(|code| FailureKind::Establish(Fault::Server { code })),
        code.clone().prop_map(|code| FailureKind::Server { code }),
        code.prop_map(|code| FailureKind::WriteConcern { code }),
    ];
    let label = proptest::sample::select(vec![
        ErrorLabel::SystemOverloadedError,
        ErrorLabel::RetryableError,
        ErrorLabel::RetryableWriteError,
        ErrorLabel::NoWritesPerformed,
    ]);
    let failure = (kind, proptest::collection::vec(label, 0..4), 0..300_u64).prop_map(|(kind, labels, millis)| {
        (Instant::from_millis(millis), Failure::new(kind).with_labels(labels.into_iter().collect()))
    });
    proptest::collection::vec(failure, 1..6)
}

fn told() -> impl Strategy<Value = Told> {
    let reason = OnceReason::OtherCommand;
    let retryability = prop_oneof![
        Just(Retryability::Read),
        Just(Retryability::Write),
        proptest::sample::select(vec![RetryOption::Reads, RetryOption::Writes, RetryOption::Both])
            .prop_map(move |option| Retryability::OverloadOnly { option, reason }),
    ];
    let policy = (any::<bool>(), any::<bool>(), 0..4_u32, any::<bool>()).prop_map(|(reads, writes, most, once)| {
        let mut policy = RetryPolicy::default();
        (policy.retry_reads, policy.retry_writes, policy.max_adaptive_retries) = (reads, writes, most);
        policy.limit = if once { RetryLimit::Once } else { RetryLimit::WhileTimeLasts };
        policy
    });
    let deadline = proptest::option::of((0..600_u64).prop_map(Instant::from_millis));
    (retryability, policy, deadline, failures()).prop_map(|(retryability, policy, deadline, mut failures)| {
        failures.sort_by_key(|(at, _)| *at);
        Told { retryability, policy, deadline, failures }
    })
}

proptest! {
    #[test]
    fn decisions_are_those_of_the_rules(told in told(), seed in any::<u64>()) {
        let mut retry = Retry::new(told.policy, told.retryability, told.deadline, seed);
        let mut reported = 0;
        for (index, (now, failure)) in told.failures.iter().enumerate() {
            let decision = retry.handle_failure(*now, failure, None, TopologyType::ReplicaSetWithPrimary);

            if decision.report == Which::This {
                reported = index;
            }
            prop_assert_eq!(reported, told.reported(index), "the error to report");
            match (decision.next, told.attempt_after(index)) {
                (Next::GiveUp(_), None) => return Ok(()),
                (Next::RetryAt(at), Some(longest)) => {
                    prop_assert!(at.saturating_since(*now) <= longest && at >= *now);
                    prop_assert!(told.deadline.is_none_or(|deadline| at < deadline), "BP-5");
                }
                // BP-5: the pause that was drawn passes the deadline.
                (Next::GiveUp(_), Some(longest)) => {
                    prop_assert!(told.deadline.is_some_and(|deadline| *now + longest >= deadline));
                    return Ok(());
                }
                (Next::RetryAt(_), None) => prop_assert!(false, "tried again against the rules"),
            }
        }
    }
}
