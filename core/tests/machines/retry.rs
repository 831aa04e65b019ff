//! What follows the failures of one operation: when it is tried again, on which servers not, and which error it reports.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::Fault;
use cmap_core::retry::{
    Decision, ErrorLabel, FailedServer, Failure, FailureKind, GiveUp, Next, Numbering, OnceReason, Retry, RetryLimit,
    RetryOption, RetryPolicy, Retryability, Which,
};
use cmap_core::time::Instant;
use cmap_core::topology::TopologyType;

const NOW: Instant = Instant::ORIGIN;
const AT_ONCE: Next = Next::RetryAt(NOW);
const RUNS_ONCE: Retryability =
    Retryability::OverloadOnly { option: RetryOption::Both, reason: OnceReason::OtherCommand };

fn policy() -> RetryPolicy {
    RetryPolicy::default()
}

fn while_time_lasts() -> RetryPolicy {
    let mut policy = policy();
    policy.limit = RetryLimit::WhileTimeLasts;
    policy
}

fn retry(policy: RetryPolicy, retryability: Retryability) -> Retry {
    Retry::new(policy, retryability, None, 1)
}

fn network() -> Failure {
    Failure::new(FailureKind::Network)
}

fn server(code: i32, labels: &[ErrorLabel]) -> Failure {
    Failure::new(FailureKind::Server { code: Some(code) }).with_labels(labels.iter().copied().collect())
}

fn overload() -> Failure {
    server(462, &[ErrorLabel::SystemOverloadedError, ErrorLabel::RetryableError])
}

fn fail(retry: &mut Retry, failure: &Failure) -> Decision {
    fail_in(retry, failure, TopologyType::ReplicaSetWithPrimary)
}

fn fail_in(retry: &mut Retry, failure: &Failure, topology: TopologyType) -> Decision {
    let address = ServerAddress::tcp("a", 1);
    let server = FailedServer { address: &address, is_mongos: false, max_wire_version: 25 };
    retry.handle_failure(NOW, failure, Some(server), topology)
}

/// The pause before the next attempt.
#[track_caller]
fn pause(decision: Decision) -> Duration {
    match decision.next {
        Next::RetryAt(at) => at.saturating_since(NOW),
        Next::GiveUp(reason) => panic!("given up: {reason}"),
    }
}

#[test]
fn without_a_time_limit_an_operation_is_tried_twice_rty_1() {
    for retryability in [Retryability::Read, Retryability::Write] {
        let mut retry = retry(policy(), retryability);

        assert_eq!(fail(&mut retry, &network()).next, AT_ONCE);
        assert_eq!(fail(&mut retry, &network()).next, Next::GiveUp(GiveUp::Exhausted));
    }
}

#[test]
fn with_a_time_limit_an_operation_is_tried_while_it_lasts_rty_1() {
    let deadline = NOW + Duration::from_secs(1);
    let mut retry = Retry::new(while_time_lasts(), Retryability::Read, Some(deadline), 1);

    for _ in 0..50 {
        assert!(matches!(fail(&mut retry, &network()).next, Next::RetryAt(_)));
    }
    let late = retry.handle_failure(deadline, &network(), None, TopologyType::Single);
    assert_eq!(late.next, Next::GiveUp(GiveUp::NoTimeLeft));
}

#[test]
fn an_operation_that_keeps_failing_rests_between_its_retries_x_65() {
    let mut retry = retry(while_time_lasts(), Retryability::Read);
    let pauses: Vec<Duration> = (0..100).map(|_| pause(fail(&mut retry, &server(134, &[])))).collect();

    assert_eq!(pauses[..2], [Duration::ZERO; 2]);
    assert!(pauses[2] < Duration::from_millis(2), "{pauses:?}");
    assert!(pauses[50..].iter().all(|pause| *pause < Duration::from_millis(100)), "{pauses:?}");
    assert!(pauses.iter().sum::<Duration>() > Duration::from_secs(3), "a hundred retries in half a second are a storm");
}

#[test]
fn an_overloaded_server_is_asked_twice_more_after_pauses_bp_8() {
    for retryability in [Retryability::Read, Retryability::Write, RUNS_ONCE] {
        let mut retry = retry(while_time_lasts(), retryability);

        assert!(pause(fail(&mut retry, &overload())) < Duration::from_millis(200));
        assert!(pause(fail(&mut retry, &overload())) < Duration::from_millis(400));
        assert_eq!(fail(&mut retry, &overload()).next, Next::GiveUp(GiveUp::Exhausted));
    }
}

#[test]
fn pauses_are_drawn_by_chance_up_to_their_limit_bp_3() {
    let pauses: Vec<_> =
        (0..200).map(|seed| pause(fail(&mut Retry::new(policy(), RUNS_ONCE, None, seed), &overload()))).collect();

    assert!(pauses.iter().max().unwrap() > &Duration::from_millis(180));
    assert!(pauses.iter().min().unwrap() < &Duration::from_millis(20));
}

#[test]
fn a_server_may_say_how_long_the_pauses_are_bp_3() {
    let asks = overload().with_base_backoff(Some(Duration::from_secs(3)));
    let pauses: Vec<_> =
        (0..200).map(|seed| pause(fail(&mut Retry::new(policy(), RUNS_ONCE, None, seed), &asks))).collect();

    assert!(pauses.iter().max().unwrap() > &Duration::from_secs(5));
    let huge = overload().with_base_backoff(Some(Duration::MAX));
    assert!(pause(fail(&mut retry(policy(), RUNS_ONCE), &huge)) <= Duration::from_secs(10));
    assert_eq!(overload().with_base_backoff(Some(Duration::ZERO)), overload());
}

#[test]
fn an_overload_binds_later_retries_which_do_not_wait_bp_9() {
    let mut retry = retry(while_time_lasts(), Retryability::Read);

    pause(fail(&mut retry, &overload()));
    assert_eq!(fail(&mut retry, &network()).next, AT_ONCE);
    assert_eq!(fail(&mut retry, &network()).next, Next::GiveUp(GiveUp::Exhausted));
}

#[test]
fn overload_alone_makes_nothing_retryable_bp_9() {
    let unsafe_to_repeat = server(462, &[ErrorLabel::SystemOverloadedError]);

    let decision = fail(&mut retry(policy(), Retryability::Write), &unsafe_to_repeat);

    assert_eq!(decision.next, Next::GiveUp(GiveUp::NotRetryable));
}

#[test]
fn a_pause_that_would_pass_the_deadline_is_not_begun_bp_5() {
    let mut retry = Retry::new(while_time_lasts(), RUNS_ONCE, Some(NOW + Duration::from_nanos(1)), 1);

    assert_eq!(fail(&mut retry, &overload()).next, Next::GiveUp(GiveUp::NoTimeLeft));
    assert_eq!(retry.retries(), 0);
}

#[test]
fn the_options_switch_retries_off_bp_2() {
    let mut no_reads = policy();
    no_reads.retry_reads = false;
    let no_adaptive = RetryPolicy::of_client(
        &cmap_core::options::ClientOptions::parse("mongodb://h/?maxAdaptiveRetries=0").unwrap().0,
    );

    assert_eq!(fail(&mut retry(no_reads, Retryability::Read), &network()).next, Next::GiveUp(GiveUp::SwitchedOff));
    assert_eq!(fail(&mut retry(no_reads, RUNS_ONCE), &overload()).next, Next::GiveUp(GiveUp::SwitchedOff));
    assert_eq!(fail(&mut retry(no_reads, Retryability::Write), &network()).next, AT_ONCE);
    assert_eq!(fail(&mut retry(no_adaptive, RUNS_ONCE), &overload()).next, Next::GiveUp(GiveUp::Exhausted));
}

#[test]
fn what_may_not_be_repeated_says_why_rty_2() {
    let decision = fail(&mut retry(policy(), RUNS_ONCE), &network());

    assert_eq!(decision.next, Next::GiveUp(GiveUp::RunsOnce(OnceReason::OtherCommand)));
    let refused = fail(&mut retry(policy(), RUNS_ONCE), &server(11000, &[]));
    assert_eq!(refused.next, Next::GiveUp(GiveUp::NotRetryable), "it would not be repeated in any case");
}

#[test]
fn a_write_has_a_number_where_servers_know_numbers_rty_7() {
    let mut retry = retry(policy(), Retryability::Write);

    assert_eq!(retry.begin(true), Numbering::Numbered);
    fail(&mut retry, &network());
    assert_eq!(retry.begin(true), Numbering::Numbered);
}

#[test]
fn a_write_to_a_standalone_runs_once_rty_4() {
    let mut retry = retry(policy(), Retryability::Write);

    assert_eq!(retry.begin(false), Numbering::None);
    let decision = fail(&mut retry, &network());

    assert_eq!(decision.next, Next::GiveUp(GiveUp::RunsOnce(OnceReason::NotSupported)));
}

#[test]
fn a_write_is_not_repeated_on_a_server_that_would_not_recognise_it_rty_8() {
    let mut retry = retry(policy(), Retryability::Write);
    retry.begin(true);
    fail(&mut retry, &network());

    assert_eq!(retry.begin(false), Numbering::Refused);
}

#[test]
fn a_selection_that_fails_is_reported_only_at_first_rty_9() {
    let selection = Failure::new(FailureKind::Selection);
    let mut first = retry(policy(), Retryability::Read);
    let mut second = first.clone();
    fail(&mut second, &network());

    assert_eq!(fail(&mut first, &selection).report, Which::This);
    assert_eq!(fail(&mut second, &selection).report, Which::Earlier);
}

#[test]
fn a_read_reports_the_latest_error_of_a_server_or_of_the_network_rty_10() {
    let mut retry = retry(while_time_lasts(), Retryability::Read);

    let reports = [network(), server(91, &[]), Failure::new(FailureKind::PoolCleared), server(5, &[])]
        .map(|failure| fail(&mut retry, &failure).report);

    assert_eq!(reports, [Which::This, Which::This, Which::Earlier, Which::This]);
}

#[test]
fn a_write_reports_the_latest_error_after_which_something_may_be_written_rty_11() {
    let retryable = [ErrorLabel::RetryableWriteError];
    let wrote_nothing = [ErrorLabel::RetryableWriteError, ErrorLabel::NoWritesPerformed];
    let mut retry = retry(while_time_lasts(), Retryability::Write);

    let reports = [
        Failure::new(FailureKind::PoolCleared),
        server(91, &wrote_nothing),
        server(91, &retryable),
        Failure::new(FailureKind::Establish(Fault::Network)),
        server(10107, &wrote_nothing),
        network(),
    ]
    .map(|failure| fail(&mut retry, &failure).report);

    use Which::{Earlier, This};
    assert_eq!(reports, [This, Earlier, This, Earlier, Earlier, This]);
}

#[test]
fn whatever_is_not_known_to_read_reports_its_errors_as_a_write_does_bp_11() {
    let once = |option, reason| Retryability::OverloadOnly { option, reason };
    let refused = Failure::new(FailureKind::Establish(Fault::Network));

    for (retryability, reported) in [
        (once(RetryOption::Writes, OnceReason::SeveralDocuments), Which::Earlier),
        (RUNS_ONCE, Which::Earlier),
        (once(RetryOption::Reads, OnceReason::GetMore), Which::This),
    ] {
        let mut retry = retry(policy(), retryability);
        fail(&mut retry, &overload());

        assert_eq!(fail(&mut retry, &refused).report, reported, "{retryability:?}");
    }
}

#[test]
fn the_client_labels_a_write_that_may_be_repeated_rty_5() {
    let mut off = policy();
    off.retry_writes = false;
    let is_labelled = |policy, retryability, failure: &Failure| {
        retry(policy, retryability).labels(failure, None).has(ErrorLabel::RetryableWriteError)
    };

    assert!(is_labelled(policy(), Retryability::Write, &network()));
    assert!(!is_labelled(policy(), Retryability::Write, &server(91, &[])), "its server would have labelled it (RTY-6)");
    assert!(!is_labelled(policy(), Retryability::Read, &network()));
    assert!(!is_labelled(off, Retryability::Write, &network()));
}

#[test]
fn a_sharded_cluster_avoids_a_mongos_that_failed_x_46() {
    let mut sharded = retry(policy(), Retryability::Read);
    let mut set = sharded.clone();

    fail_in(&mut sharded, &network(), TopologyType::Sharded);
    fail(&mut set, &network());

    assert_eq!(sharded.deprioritized(), [ServerAddress::tcp("a", 1)]);
    assert_eq!(set.deprioritized(), []);
}

#[test]
fn a_replica_set_avoids_an_overloaded_member_only_where_the_options_say_so_x_46() {
    let mut retargets = policy();
    retargets.overload_retargeting = true;

    for (policy, failure, avoids) in
        [(policy(), overload(), false), (retargets, overload(), true), (retargets, network(), false)]
    {
        let mut retry = retry(policy, Retryability::Read);
        fail(&mut retry, &failure);

        assert_eq!(!retry.deprioritized().is_empty(), avoids, "{failure:?}");
    }
}

#[test]
fn a_retry_that_is_stored_goes_on_as_it_was() {
    let mut retry = retry(policy(), RUNS_ONCE);
    fail(&mut retry, &overload());

    let stored = serde_json::to_string(&retry).unwrap();
    let mut restored: Retry = serde_json::from_str(&stored).unwrap();

    assert_eq!(fail(&mut restored, &overload()), fail(&mut retry, &overload()));
}
