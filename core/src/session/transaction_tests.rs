//! Each state of a transaction, each of its commands, and what lifts its pin.

use bson::rawdoc;

use super::*;
use crate::options::WriteConcern;

fn started() -> Transaction {
    let mut transaction = Transaction::default();
    transaction.start(TransactionOptions::default()).unwrap();
    transaction
}

fn in_progress() -> Transaction {
    let mut transaction = started();
    assert!(transaction.begin_command(None).is_first());
    transaction
}

fn failure(kind: FailureKind) -> Failure {
    Failure::new(kind)
}

fn fields_of(transaction: &mut Transaction, command: TransactionCommand) -> RawDocumentBuf {
    let mut fields = RawDocumentBuf::new();
    let is_first = command == TransactionCommand::Operation && transaction.begin_command(None).is_first();
    transaction.append_fields(&mut fields, command, is_first, None);
    fields
}

fn mongos() -> ServerAddress {
    ServerAddress::tcp("mongos.example", 27017)
}

#[test]
fn the_first_command_starts_the_transaction_with_its_read_concern_txn_2() {
    let mut transaction = Transaction::default();
    let options = TransactionOptions { read_concern_level: Some("snapshot".into()), ..TransactionOptions::default() };
    transaction.start(options).unwrap();

    let first = fields_of(&mut transaction, TransactionCommand::Operation);
    let second = fields_of(&mut transaction, TransactionCommand::Operation);

    let concern = rawdoc! { "level": "snapshot" };
    assert_eq!(first, rawdoc! { "startTransaction": true, "readConcern": concern, "autocommit": false });
    assert_eq!(second, rawdoc! { "autocommit": false });
}

#[test]
fn a_causally_consistent_session_s_time_goes_along_with_the_first_command_txn_2() {
    let (transaction, mut fields) = (started(), RawDocumentBuf::new());
    let seen = Timestamp { time: 7, increment: 1 };

    transaction.append_fields(&mut fields, TransactionCommand::Operation, true, Some(seen));

    assert_eq!(fields.get_document("readConcern").unwrap(), &*rawdoc! { "afterClusterTime": seen });
}

#[test]
fn a_first_command_that_is_taken_back_leaves_nothing_behind_txn_8() {
    let mut transaction = started();
    let refused = transaction.begin_command(Some(&mongos()));

    transaction.take_back(refused);

    assert_eq!((transaction.state(), transaction.pinned_to()), (TransactionState::Starting, None));
    assert!(transaction.begin_command(None).is_first());
}

#[test]
fn only_the_latest_command_is_taken_back_txn_8() {
    let mut transaction = started();
    let first = transaction.begin_command(Some(&mongos()));
    let second = transaction.begin_command(Some(&mongos()));

    transaction.take_back(first);
    transaction.take_back(second);

    assert_eq!((transaction.state(), transaction.pinned_to()), (TransactionState::InProgress, Some(&mongos())));
}

#[test]
fn a_command_of_an_earlier_transaction_takes_nothing_back() {
    let mut transaction = started();
    let earlier = transaction.begin_command(None);
    assert_eq!(transaction.abort(), Ok(Ending::Send));
    transaction.start(TransactionOptions::default()).unwrap();
    let _ = transaction.begin_command(None);

    transaction.take_back(earlier);

    assert_eq!(transaction.state(), TransactionState::InProgress);
}

#[test]
fn an_end_before_the_first_command_sends_nothing_however_often_txn_8() {
    let (mut committed, mut aborted) = (started(), started());

    assert_eq!((committed.commit(), committed.commit()), (Ok(Ending::Nothing), Ok(Ending::Nothing)));
    assert_eq!(aborted.abort(), Ok(Ending::Nothing));
}

#[test]
fn calls_that_make_no_sense_are_refused_and_change_nothing_txn_1() {
    let mut committed = in_progress();
    assert_eq!(committed.commit(), Ok(Ending::Send));
    let mut aborted = in_progress();
    assert_eq!(aborted.abort(), Ok(Ending::Send));

    for (mut transaction, commit, abort) in [
        (Transaction::default(), Some(TransactionError::NotStarted), Some(TransactionError::NotStarted)),
        (committed, None, Some(TransactionError::AbortAfterCommit)),
        (aborted, Some(TransactionError::CommitAfterAbort), Some(TransactionError::AbortAfterAbort)),
    ] {
        let before = transaction.state();
        assert_eq!(transaction.commit().err(), commit, "{before:?}");
        assert_eq!(transaction.abort().err(), abort, "{before:?}");
        assert_eq!(transaction.state(), before);
    }
    assert_eq!(in_progress().start(TransactionOptions::default()), Err(TransactionError::InProgress));
}

#[test]
fn an_unacknowledged_write_concern_is_refused() {
    let concern = WriteConcern { w: Some(W::Members(0)), ..WriteConcern::default() };

    assert_eq!(Transaction::default().start(concern.into()), Err(TransactionError::Unacknowledged));
}

#[test]
fn an_operation_after_the_end_is_outside_of_the_transaction_txn_1() {
    let mut transaction = in_progress();
    transaction.leave();
    assert_eq!(transaction.state(), TransactionState::InProgress);

    assert_eq!(transaction.commit(), Ok(Ending::Send));
    transaction.leave();

    assert_eq!(transaction.commit(), Err(TransactionError::NotStarted));
}

#[test]
fn a_repeated_commit_waits_for_a_majority_txn_7() {
    let timeout = Some(Duration::from_millis(500));
    let mut plain = in_progress();
    let mut own = Transaction::default();
    own.start(WriteConcern { w: Some(W::Members(1)), journal: None, timeout }.into()).unwrap();
    let _ = own.begin_command(None);
    for transaction in [&mut plain, &mut own] {
        assert_eq!(transaction.commit(), Ok(Ending::Send));
    }
    assert_eq!(plain.write_concern(TransactionCommand::Commit, false), None);
    let first = rawdoc! { "w": 1, "wtimeout": 500_i64 };
    assert_eq!(own.write_concern(TransactionCommand::Commit, false), Some(first));

    for transaction in [&mut plain, &mut own] {
        transaction.handle_failure(TransactionCommand::Commit, &failure(FailureKind::Network), Labels::default());
    }

    let majority = |timeout: i64| Some(rawdoc! { "w": "majority", "wtimeout": timeout });
    assert_eq!(plain.write_concern(TransactionCommand::Commit, false), majority(10_000));
    assert_eq!(own.write_concern(TransactionCommand::Commit, false), majority(500));
    assert_eq!(own.write_concern(TransactionCommand::Commit, true), Some(rawdoc! { "w": "majority" }));
}

#[test]
fn a_commit_that_an_overloaded_server_refused_keeps_its_write_concern_txn_7() {
    let mut transaction = in_progress();
    assert_eq!(transaction.commit(), Ok(Ending::Send));
    let overload = failure(FailureKind::Server { code: Some(462) })
        .with_labels(Labels::from_iter([ErrorLabel::SystemOverloadedError]));

    transaction.handle_failure(TransactionCommand::Commit, &overload, overload.labels);

    assert_eq!(transaction.write_concern(TransactionCommand::Commit, false), None);
}

#[test]
fn errors_of_the_network_make_an_operation_transient_and_a_commit_unknown_txn_4_txn_5() {
    let kinds = [
        FailureKind::Network,
        FailureKind::Selection,
        FailureKind::NotSentInTime,
        FailureKind::PoolCleared,
        FailureKind::Establish(Fault::Network),
    ];
    for kind in kinds {
        let failure = failure(kind);
        let operation = TransactionCommand::Operation.labels(&failure, Labels::default());
        let commit = TransactionCommand::Commit.labels(&failure, Labels::default());
        assert_eq!(operation, Labels::from_iter([ErrorLabel::TransientTransactionError]), "{kind:?}");
        assert_eq!(commit, Labels::from_iter([ErrorLabel::UnknownTransactionCommitResult]), "{kind:?}");
    }
    let client = TransactionCommand::Operation.labels(&failure(FailureKind::Client), Labels::default());
    assert_eq!(client, Labels::default());
}

#[test]
fn the_result_of_a_commit_is_unknown_unless_the_server_has_decided_txn_5() {
    let retryable = Labels::from_iter([ErrorLabel::RetryableWriteError]);
    for (kind, labels, expected) in [
        (FailureKind::Server { code: Some(91) }, retryable, true),
        (FailureKind::Server { code: Some(50) }, Labels::default(), true),
        (FailureKind::Server { code: Some(251) }, Labels::default(), false),
        (FailureKind::WriteConcern { code: Some(64) }, Labels::default(), true),
        (FailureKind::WriteConcern { code: Some(100) }, Labels::default(), false),
        (FailureKind::WriteConcern { code: Some(79) }, Labels::default(), false),
        (FailureKind::Client, Labels::default(), false),
    ] {
        let labels = TransactionCommand::Commit.labels(&failure(kind), labels);
        assert_eq!(labels.has(ErrorLabel::UnknownTransactionCommitResult), expected, "{kind:?}");
    }
}

#[test]
fn a_pin_lasts_until_an_error_says_that_another_mongos_may_go_on_pin_5() {
    let pinned = || {
        let mut transaction = in_progress();
        let _ = transaction.begin_command(Some(&mongos()));
        transaction
    };
    let (transient, unknown) = (
        Labels::from_iter([ErrorLabel::TransientTransactionError]),
        Labels::from_iter([ErrorLabel::UnknownTransactionCommitResult]),
    );
    let error = failure(FailureKind::Server { code: Some(11000) });
    for (command, labels, expected) in [
        (TransactionCommand::Operation, Labels::default(), true),
        (TransactionCommand::Operation, transient, false),
        (TransactionCommand::Commit, Labels::default(), true),
        (TransactionCommand::Commit, transient, false),
        (TransactionCommand::Commit, unknown, false),
        (TransactionCommand::Abort, Labels::default(), false),
    ] {
        let mut transaction = pinned();
        transaction.handle_failure(command, &error, labels);
        assert_eq!(transaction.pinned_to().is_some(), expected, "{command:?} {labels:?}");
    }
}

#[test]
fn a_commit_keeps_the_pin_and_an_abort_and_what_follows_lift_it_pin_5_pin_6() {
    let mut transaction = in_progress();
    let _ = transaction.begin_command(Some(&mongos()));

    assert_eq!(transaction.commit(), Ok(Ending::Send));
    transaction.handle_success(TransactionCommand::Commit);
    assert_eq!(transaction.pinned_to(), Some(&mongos()));

    transaction.leave();
    assert_eq!(transaction.pinned_to(), None);
}

#[test]
fn the_latest_recovery_token_goes_along_with_the_end_pin_7() {
    let mut transaction = in_progress();
    for shard in ["a", "b"] {
        transaction.handle_reply(&rawdoc! { "ok": 1, "recoveryToken": { "recoveryShardId": shard } });
    }
    assert_eq!(transaction.commit(), Ok(Ending::Send));

    let fields = fields_of(&mut transaction, TransactionCommand::Commit);

    assert_eq!(fields, rawdoc! { "autocommit": false, "recoveryToken": { "recoveryShardId": "b" } });
    transaction.start(TransactionOptions::default()).unwrap();
    assert_eq!(transaction.recovery_token, None);
}

#[test]
fn a_recovery_token_that_no_mongos_would_send_is_not_kept_pin_7() {
    let mut transaction = in_progress();
    transaction.handle_reply(&rawdoc! { "recoveryToken": { "shard": "a" } });
    transaction.handle_reply(&rawdoc! { "recoveryToken": { "shard": "x".repeat(MAX_RECOVERY_TOKEN) } });

    let fields = fields_of(&mut transaction, TransactionCommand::Commit);

    assert_eq!(fields.get_document("recoveryToken").unwrap(), &*rawdoc! { "shard": "a" });
}
