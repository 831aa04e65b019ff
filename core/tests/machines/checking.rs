//! Events while an idle connection is checked before its delivery: an adapter answers at once, but need not.

use cmap_core::address::ServerAddress;
use cmap_core::options::{PoolOptions, Reuse};
use cmap_core::pool::{
    Action, Cause, CheckOutId, CheckOutRequest, CheckedIn, Clear, Condition, ConnectionClosedReason, Handle, Output,
    Pool, TimeoutReason,
};
use cmap_core::time::Instant;

/// Long enough for a connection to be checked.
const LATER: Instant = Instant::from_millis(5000);

fn actions(pool: &mut Pool<&'static str>) -> Vec<Action<&'static str>> {
    let outputs = std::iter::from_fn(|| pool.poll_output());
    outputs.filter_map(|output| if let Output::Action(action) = output { Some(action) } else { None }).collect()
}

/// A pool whose only connection lay idle and is being checked for a waiter.
fn checking() -> (Pool<&'static str>, Handle, CheckOutId) {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(1);
    let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, Instant::ORIGIN).unwrap();
    pool.ready(Instant::ORIGIN);
    let _ = pool.check_out(Instant::ORIGIN, CheckOutRequest::default());
    let [Action::Connect { connection }] = actions(&mut pool)[..] else { panic!("a connection is created") };
    pool.handle_established(Instant::ORIGIN, connection, "socket").unwrap();
    let checked_in = pool.check_in(
        Instant::ORIGIN,
        pool.use_of(connection).unwrap().check_out,
        connection,
        "socket",
        Condition::Usable,
    );
    assert_eq!(checked_in, Ok(CheckedIn::Done));
    actions(&mut pool);

    let (waiter, _) = pool.check_out(LATER, CheckOutRequest::default());
    assert_eq!(actions(&mut pool), [Action::Check { connection }]);
    (pool, connection, waiter)
}

#[test]
fn the_socket_is_lent_for_the_look() {
    let (mut pool, connection, _) = checking();

    assert_eq!(pool.socket(connection).copied(), Some("socket"));
}

#[test]
fn a_second_waiter_waits_behind_the_first() {
    let (mut pool, connection, first) = checking();
    let _ = pool.check_out(LATER, CheckOutRequest::default());
    assert_eq!(actions(&mut pool), []);

    pool.handle_checked(LATER, connection, true).unwrap();

    assert_eq!(actions(&mut pool), [Action::Deliver { check_out: first, connection, socket: "socket" }]);
    assert_eq!(pool.counts().waiting, 1);
}

#[test]
fn a_waiter_that_gives_up_leaves_the_connection_available() {
    let (mut pool, connection, waiter) = checking();
    let _ = pool.cancel_check_out(LATER, waiter);

    pool.handle_checked(LATER, connection, true).unwrap();

    assert_eq!(actions(&mut pool), []);
    assert_eq!((pool.counts().available, pool.counts().in_use), (1, 0));
}

/// The check of 1 was begun for a waiter that gave up, so it serves the next one; 2 would have to be checked as well.
#[test]
fn a_new_connection_serves_the_waiter_though_an_older_one_comes_first_by_reuse() {
    let mut options = PoolOptions::default();
    options.min_pool_size = Some(3);
    options.max_connecting = Some(3);
    options.reuse = Some(Reuse::Fifo);
    let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, Instant::ORIGIN).unwrap();
    pool.ready(Instant::ORIGIN);
    pool.handle_timeout(Instant::ORIGIN);
    let [
        Action::Connect { connection: first },
        Action::Connect { connection: second },
        Action::Connect { connection: third },
    ] = actions(&mut pool)[..]
    else {
        panic!("the pool is populated")
    };
    for connection in [first, second] {
        pool.handle_established(Instant::ORIGIN, connection, "socket").unwrap();
    }
    let (given_up, _) = pool.check_out(LATER, CheckOutRequest::default());
    assert_eq!(actions(&mut pool), [Action::Check { connection: first }]);
    let _ = pool.cancel_check_out(LATER, given_up);
    let (waiter, _) = pool.check_out(LATER, CheckOutRequest::default());
    assert_eq!(actions(&mut pool), []);

    pool.handle_established(LATER, third, "new").unwrap();

    assert_eq!(actions(&mut pool), [Action::Deliver { check_out: waiter, connection: third, socket: "new" }]);
    assert_eq!(pool.check_invariants(), Ok(()));
}

#[test]
fn a_clear_meanwhile_makes_the_connection_stale() {
    let (mut pool, connection, _) = checking();
    pool.clear(LATER, Clear::pool(Cause::new("gone"))).unwrap();
    actions(&mut pool);

    pool.handle_checked(LATER, connection, true).unwrap();

    let reason = ConnectionClosedReason::Stale;
    assert_eq!(actions(&mut pool), [Action::Close { connection, socket: "socket", reason }]);
}

#[test]
fn a_close_meanwhile_closes_the_connection_when_the_answer_comes() {
    let (mut pool, connection, _) = checking();
    pool.close(LATER);
    actions(&mut pool);

    pool.handle_checked(LATER, connection, true).unwrap();

    let reason = ConnectionClosedReason::PoolClosed;
    assert_eq!(actions(&mut pool), [Action::Close { connection, socket: "socket", reason }]);
    assert_eq!(pool.counts().total(), 0);
}

#[test]
fn a_dead_connection_is_replaced_for_its_waiter() {
    let (mut pool, connection, _) = checking();

    pool.handle_checked(LATER, connection, false).unwrap();

    let reason = ConnectionClosedReason::Error;
    let [close, Action::Connect { .. }] = &actions(&mut pool)[..] else { panic!("another connection is created") };
    assert_eq!(close, &Action::Close { connection, socket: "socket", reason });
    assert_eq!(pool.counts().waiting, 1);
}

#[test]
fn a_generation_rises_though_the_pool_is_paused_already_cmap_38() {
    let (mut pool, ..) = checking();
    pool.clear(LATER, Clear::pool(Cause::new("gone"))).unwrap();
    pool.clear(LATER, Clear::pool(Cause::new("still gone"))).unwrap();

    assert_eq!(pool.generation().get(), 2);
}

#[test]
fn outputs_are_why_the_pool_has_to_be_called_at_once() {
    let (mut pool, ..) = checking();
    pool.clear(LATER, Clear::pool(Cause::new("gone"))).unwrap();

    let timeout = pool.poll_timeout().unwrap();

    assert_eq!((timeout.at, timeout.reason), (LATER, TimeoutReason::Outputs));
}
