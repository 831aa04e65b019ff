//! The text of a failed check-out: the specification's words, the particulars, and the remedy.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::options::{PoolOptions, QueueDepth};
use cmap_core::pool::{
    Action, Cause, CheckOutError, CheckOutErrorKind, CheckOutRequest, Clear, Output, Pool, Reaction, WaitLimit,
};
use cmap_core::time::Instant;

const NOW: Instant = Instant::ORIGIN;

fn pool() -> Pool<()> {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(1);
    options.wait_queue_timeout = Some(Duration::from_millis(50));
    Pool::new(ServerAddress::tcp("db.example", 27017), options, NOW).unwrap()
}

/// A ready pool whose only connection is in use.
fn exhausted() -> Pool<()> {
    let mut pool = pool();
    pool.ready(NOW);
    let _ = pool.check_out(NOW, CheckOutRequest::default());
    drain(&mut pool);
    pool
}

/// Drains the outputs, establishes connections, and returns the last failure.
fn drain(pool: &mut Pool<()>) -> Option<Arc<CheckOutError>> {
    let mut failure = None;
    while let Some(output) = pool.poll_output() {
        match output {
            Output::Action(Action::Connect { connection }) => pool.handle_established(NOW, connection, ()).unwrap(),
            Output::Action(Action::Fail { error, .. }) => failure = Some(error),
            Output::Action(_) | Output::Event(_) => {}
        }
    }
    failure
}

#[test]
fn a_closed_pool_says_so_cmap_29() {
    let mut pool = pool();
    pool.close(NOW);
    let _ = pool.check_out(NOW, CheckOutRequest::default());

    let error = drain(&mut pool).unwrap();

    assert_eq!(error.message(), "Attempted to check out a connection from closed connection pool");
    assert!(!error.is_retryable());
}

#[test]
fn a_cleared_pool_passes_its_cause_on_cmap_55() {
    let mut pool = exhausted();
    let _ = pool.check_out(NOW, CheckOutRequest::default());
    pool.clear(NOW, Clear::pool(Cause::new("the server hung up"))).unwrap();

    let error = drain(&mut pool).unwrap();

    assert_eq!(
        error.message(),
        "Connection pool for db.example:27017 was cleared because another operation failed with: the server hung up"
    );
    assert!(error.to_string().contains("the server hung up") && error.source().is_none(), "{error}");
    assert!(error.is_retryable());
}

#[test]
fn a_pool_that_was_never_ready_says_so() {
    let mut pool = pool();
    let _ = pool.check_out(NOW, CheckOutRequest::default());

    assert!(drain(&mut pool).unwrap().message().ends_with("the server has not been checked successfully yet"));
}

#[test]
fn a_timeout_tells_where_how_long_and_how_the_pool_stood_cmap_30() {
    let mut pool = exhausted();
    let _ = pool.check_out(NOW, CheckOutRequest::default());
    pool.handle_timeout(Instant::from_millis(50));

    let error = drain(&mut pool).unwrap();

    assert_eq!(error.kind, CheckOutErrorKind::Timeout(WaitLimit::WaitQueueTimeout));
    assert_eq!(error.message(), "Timed out while checking out a connection from connection pool");
    assert_eq!(
        error.to_string(),
        "Timed out while checking out a connection from connection pool (db.example:27017, after 50ms; 1 in use, 0 \
         available, 0 pending, 1 waiting, maxPoolSize 1); maxPoolSize bound: the longest use has lasted for 50ms; look for connections that \
         are kept too long, or raise maxPoolSize or waitQueueTimeoutMS"
    );
}

#[test]
fn a_full_wait_queue_names_its_option_and_carries_the_labels_x_80() {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(1);
    options.max_wait_queue_depth = Some(QueueDepth::Waiters(1));
    let mut pool: Pool<()> = Pool::new(ServerAddress::tcp("db.example", 27017), options, NOW).unwrap();
    pool.ready(NOW);
    let _ = pool.check_out(NOW, CheckOutRequest::default());
    let _ = pool.check_out(NOW, CheckOutRequest::default());

    let error = drain(&mut pool).unwrap();

    assert_eq!(
        error.to_string(),
        "Too many check-outs wait for a connection already: maxWaitQueueDepth allows 1 (db.example:27017, after 0ns; 0 in \
         use, 0 available, 1 pending, 1 waiting, maxPoolSize 1); try again after a pause, or raise maxPoolSize or \
         maxWaitQueueDepth"
    );
    assert!(error.has_label("SystemOverloadedError") && error.has_label("RetryableError") && error.is_retryable());
}

#[test]
fn a_callers_own_deadline_is_told_apart_cmap_33() {
    let mut pool = exhausted();
    let _ = pool.check_out(NOW, CheckOutRequest::until(Instant::from_millis(20)));
    pool.handle_timeout(Instant::from_millis(20));

    let error = drain(&mut pool).unwrap();

    assert_eq!(error.kind, CheckOutErrorKind::Timeout(WaitLimit::Deadline));
    assert_eq!(error.waited, Duration::from_millis(20));
}

#[test]
fn a_failed_establishment_is_told_cmap_31() {
    let mut pool = pool();
    pool.ready(NOW);
    let _ = pool.check_out(NOW, CheckOutRequest::default());
    let connection = std::iter::from_fn(|| pool.poll_output()).find_map(|output| match output {
        Output::Action(Action::Connect { connection }) => Some(connection),
        Output::Action(_) | Output::Event(_) => None,
    });
    let refused = EstablishError::new(Phase::Connect, Fault::Network, "connection refused");
    pool.handle_establish_failed(NOW, connection.unwrap(), refused, Reaction::KeepPool).unwrap();

    let error = drain(&mut pool).unwrap();

    assert_eq!(
        error.to_string(),
        "connecting failed: connection refused (db.example:27017, after 0ns; 0 in use, 0 available, 0 pending, 1 waiting, \
         maxPoolSize 1)"
    );
    assert_eq!((format!("{error:?}"), error.source().is_none()), (error.to_string(), true), "nothing is told twice");
    assert!(error.is_retryable(), "an overloaded server may be tried again (CMAP-50)");
}

#[test]
fn a_driver_finds_the_check_out_of_a_connection_and_the_connection_of_a_failure() {
    let mut pool = pool();
    pool.ready(NOW);
    let (check_out, _) = pool.check_out(NOW, CheckOutRequest::default());
    let connection = pool.find(1).unwrap();
    assert_eq!(pool.origin_of(connection), Some(check_out));

    let refused = EstablishError::new(Phase::Connect, Fault::Network, "connection refused");
    pool.handle_establish_failed(NOW, connection, refused, Reaction::KeepPool).unwrap();

    assert_eq!(drain(&mut pool).unwrap().connection, Some(connection.id()));
    assert_eq!(pool.origin_of(connection), None);
}

#[test]
fn a_timeout_while_connections_are_being_established_does_not_speak_of_leaks() {
    let mut pool = pool();
    pool.ready(NOW);
    let _ = pool.check_out(NOW, CheckOutRequest::until(Instant::from_millis(50)));
    while pool.poll_output().is_some() {}
    pool.handle_timeout(Instant::from_millis(50));

    let text = drain(&mut pool).unwrap().to_string();

    assert!(text.contains("0 in use, 0 available, 1 pending") && !text.contains("kept too long"), "{text}");
    assert!(text.contains("connections were still being established"), "{text}");
}

#[test]
fn a_check_out_whose_time_was_up_says_so() {
    let mut pool = exhausted();
    let _ = pool.check_out(NOW, CheckOutRequest::until(NOW));

    let text = drain(&mut pool).unwrap().to_string();

    assert!(text.contains("its time was up before it began"), "{text}");
}

#[test]
fn a_cause_cannot_forge_a_line_of_a_log_or_steer_a_terminal() {
    let forged = EstablishError::new(Phase::Hello, Fault::Other, "no\n2030-01-01 INFO fine\u{1b}[2J");

    assert_eq!(forged.to_string(), r"the hello failed: no\n2030-01-01 INFO fine\u{1b}[2J");
    assert_eq!(Cause::new("no\nfine").to_string(), r"no\nfine");
    assert_eq!(Cause::of(&io::Error::other("no\nfine")).to_string(), r"no\nfine");
}

#[test]
fn a_cause_has_8_kib_at_most() {
    let long = "x".repeat(100_000);

    assert_eq!(EstablishError::new(Phase::Hello, Fault::Other, long.as_str()).message.len(), 8192);
    assert_eq!(Cause::new(&long).to_string().len(), 8192);
    assert_eq!(Cause::of(&io::Error::other(long)).to_string().len(), 8192);
}
