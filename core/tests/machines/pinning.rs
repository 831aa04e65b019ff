//! Connections that cursors and transactions keep behind a load balancer, and the time-out that reports them (LB-12 to
//! LB-16).

use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{
    Action, ApiMisuse, CheckOutError, CheckOutRequest, CheckedIn, Condition, ConnectionClosedReason, Event, Handle,
    Output, Pool, PoolState, Purpose, ServiceId, WarmUpErrorKind,
};
use cmap_core::time::Instant;

const NOW: Instant = Instant::ORIGIN;

fn pool(load_balanced: bool) -> Pool<()> {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(3);
    options.max_connecting = Some(3);
    options.wait_queue_timeout = Some(Duration::from_millis(50));
    options.load_balanced = load_balanced;
    let mut pool = Pool::new(ServerAddress::tcp("lb.example", 27017), options, NOW).unwrap();
    pool.ready(NOW);
    pool
}

fn check_out(pool: &mut Pool<()>, purpose: Purpose) -> Handle {
    let (_, delivery) = pool.check_out(NOW, CheckOutRequest::default());
    let mut delivered = delivery.map(|delivery| delivery.connection);
    while let Some(output) = pool.poll_output() {
        match output {
            Output::Action(Action::Connect { connection }) => {
                if pool.options().load_balanced {
                    pool.handle_hello(NOW, connection, ServiceId([1; 12])).unwrap();
                }
                pool.handle_established(NOW, connection, ()).unwrap();
            }
            Output::Action(Action::Deliver { connection, .. }) => delivered = Some(connection),
            Output::Action(_) | Output::Event(_) => {}
        }
    }
    let connection = delivered.unwrap();
    pool.set_purpose(pool.use_of(connection).unwrap().check_out, connection, purpose).unwrap();
    connection
}

fn counts(pool: &Pool<()>) -> (u32, u32, u32) {
    pool.check_invariants().unwrap();
    let in_use_by = pool.in_use_by();
    (in_use_by.cursors, in_use_by.transactions, in_use_by.others)
}

/// The error of a check-out that times out.
fn time_out(pool: &mut Pool<()>) -> Arc<CheckOutError> {
    let _ = pool.check_out(NOW, CheckOutRequest::default());
    pool.handle_timeout(NOW + Duration::from_millis(50));
    let outputs = std::iter::from_fn(|| pool.poll_output());
    let error = |output| if let Output::Action(Action::Fail { error, .. }) = output { Some(error) } else { None };
    outputs.filter_map(error).last().unwrap()
}

#[test]
fn connections_are_counted_by_what_they_are_for_lb_16() {
    let mut pool = pool(true);

    let cursor = check_out(&mut pool, Purpose::Cursor);
    check_out(&mut pool, Purpose::Transaction);
    check_out(&mut pool, Purpose::Other);
    assert_eq!(counts(&pool), (1, 1, 1));

    assert_eq!(
        pool.check_in(NOW, pool.use_of(cursor).unwrap().check_out, cursor, (), Condition::Usable),
        Ok(CheckedIn::Done)
    );
    assert_eq!(counts(&pool), (0, 1, 1));
}

#[test]
fn a_connection_is_kept_from_the_reply_on_that_opened_the_cursor_lb_13() {
    let mut pool = pool(true);
    let connection = check_out(&mut pool, Purpose::Other);
    while pool.poll_output().is_some() {}

    pool.set_purpose(pool.use_of(connection).unwrap().check_out, connection, Purpose::Cursor).unwrap();
    assert_eq!(counts(&pool), (1, 0, 0));
    pool.set_purpose(pool.use_of(connection).unwrap().check_out, connection, Purpose::Other).unwrap();
    assert_eq!(counts(&pool), (0, 0, 1));

    pool.set_purpose(pool.use_of(connection).unwrap().check_out, connection, Purpose::Transaction).unwrap();
    assert_eq!(
        pool.check_in(NOW, pool.use_of(connection).unwrap().check_out, connection, (), Condition::Usable),
        Ok(CheckedIn::Done)
    );
    assert_eq!(counts(&pool), (0, 0, 0));
    let events: Vec<_> = std::iter::from_fn(|| pool.poll_output())
        .filter_map(|output| if let Output::Event(event) = output { Some(Event::name(&event)) } else { None })
        .collect();
    assert_eq!(events, ["ConnectionCheckedIn"], "LB-12: pinning makes no event");
}

#[test]
fn a_purpose_is_forgotten_with_its_check_out() {
    let mut pool = pool(true);
    let connection = check_out(&mut pool, Purpose::Cursor);
    assert_eq!(
        pool.check_in(NOW, pool.use_of(connection).unwrap().check_out, connection, (), Condition::Usable),
        Ok(CheckedIn::Done)
    );

    check_out(&mut pool, Purpose::Other);

    assert_eq!(counts(&pool), (0, 0, 1));
}

#[test]
fn only_connections_in_use_have_a_purpose() {
    let mut pool = pool(true);
    let connection = check_out(&mut pool, Purpose::Other);
    let user = pool.use_of(connection).unwrap().check_out;
    assert_eq!(pool.check_in(NOW, user, connection, (), Condition::Usable), Ok(CheckedIn::Done));

    assert_eq!(pool.set_purpose(user, connection, Purpose::Cursor), Err(ApiMisuse::NotInUse));
    assert_eq!(counts(&pool), (0, 0, 0));
}

#[test]
fn a_time_out_behind_a_load_balancer_names_the_keepers_lb_16() {
    let mut pool = pool(true);
    for purpose in [Purpose::Cursor, Purpose::Cursor, Purpose::Transaction] {
        check_out(&mut pool, purpose);
    }

    let error = time_out(&mut pool);

    assert_eq!(
        error.message(),
        "Timeout waiting for connection from the connection pool. maxPoolSize: 3, connections in use by cursors: 2, \
         connections in use by transactions: 1, connections in use by other operations: 0"
    );
}

#[test]
fn elsewhere_the_message_is_as_ever_x_4() {
    let mut pool = pool(false);
    for _ in 0..3 {
        check_out(&mut pool, Purpose::Cursor);
    }

    assert_eq!(time_out(&mut pool).message(), "Timed out while checking out a connection from connection pool");
}

#[test]
fn giving_up_kept_connections_forgets_their_purpose_fork_2() {
    let mut pool = pool(true);
    check_out(&mut pool, Purpose::Cursor);

    pool.reset_after_fork(NOW);

    assert_eq!(counts(&pool), (0, 0, 0));
}

#[test]
fn a_fork_ends_the_connections_that_a_closed_pool_has_left_fork_2() {
    let mut pool = pool(false);
    let in_use = check_out(&mut pool, Purpose::Other);
    let _ = pool.check_out(NOW, CheckOutRequest::default());
    let user = pool.use_of(in_use).unwrap().check_out;
    pool.close(NOW);
    while pool.poll_output().is_some() {}

    pool.reset_after_fork(NOW);

    assert_eq!((pool.counts().total(), pool.check_invariants()), (0, Ok(())));
    let reasons = std::iter::from_fn(|| pool.poll_output()).filter_map(|output| match output {
        Output::Event(Event::ConnectionClosed { reason, .. }) => Some(reason),
        Output::Event(_) | Output::Action(_) => None,
    });
    assert_eq!(reasons.collect::<Vec<_>>(), [ConnectionClosedReason::PoolClosed; 2]);
    let refused = pool.check_in(NOW, user, in_use, (), Condition::Usable).unwrap_err();
    assert_eq!(refused.misuse, ApiMisuse::NotInUse);
}

#[test]
fn a_check_out_that_waits_when_the_process_is_forked_fails_though_the_pool_stays_ready_fork_2() {
    let mut pool = pool(true);
    let (waiting, _) = pool.check_out(NOW, CheckOutRequest::default());
    while pool.poll_output().is_some() {}

    pool.reset_after_fork(NOW);

    let outputs = std::iter::from_fn(|| pool.poll_output());
    let failed =
        |output| if let Output::Action(Action::Fail { check_out, .. }) = output { Some(check_out) } else { None };
    assert_eq!(outputs.filter_map(failed).collect::<Vec<_>>(), [waiting]);
    assert_eq!(pool.state(), PoolState::Ready);
    assert_eq!(pool.counts().total(), 0);
}

#[test]
fn a_warm_up_ends_when_the_process_is_forked_though_the_pool_stays_ready_fork_2() {
    let mut pool = pool(true);
    pool.warm_up(NOW, Some(2));
    while pool.poll_output().is_some() {}

    pool.reset_after_fork(NOW);

    let outputs = std::iter::from_fn(|| pool.poll_output());
    let ended = |output| if let Output::Action(Action::WarmedUp { result, .. }) = output { result.err() } else { None };
    let errors: Vec<_> = outputs.filter_map(ended).collect();
    assert!(
        matches!(errors[..], [ref error] if matches!(error.kind, WarmUpErrorKind::PoolCleared { .. })),
        "{errors:?}"
    );
    assert_eq!(pool.poll_timeout(), None);
}

#[test]
fn only_the_present_user_of_a_connection_says_what_it_is_for() {
    let mut pool = pool(true);
    let connection = check_out(&mut pool, Purpose::Cursor);
    let former = pool.use_of(connection).unwrap().check_out;
    assert_eq!(pool.check_in(NOW, former, connection, (), Condition::Usable), Ok(CheckedIn::Done));
    check_out(&mut pool, Purpose::Transaction);

    assert_eq!(pool.set_purpose(former, connection, Purpose::Other), Err(ApiMisuse::OtherUse));

    assert_eq!(counts(&pool), (0, 1, 0));
}
