//! Limits that change while the pool runs.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::{PoolLimits, PoolOptions, PoolSizes, Profile, QueueDepth};
use cmap_core::pool::{
    Action, Cancellation, Cause, CheckOutRequest, Clear, Condition, ConnectionClosedReason, Handle, Output, Pool,
};
use cmap_core::time::Instant;

const NOW: Instant = Instant::ORIGIN;

fn pool(max: u32) -> Pool<()> {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(max);
    options.max_connecting = Some(10);
    let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, NOW).unwrap();
    pool.observe(false);
    pool.ready(NOW);
    pool
}

/// What the pool asks for: connections to establish and to close, and deliveries.
fn actions(pool: &mut Pool<()>) -> (Vec<Handle>, Vec<(u64, ConnectionClosedReason)>, Vec<Handle>) {
    let (mut connects, mut closes, mut deliveries) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(output) = pool.poll_output() {
        match output {
            Output::Action(Action::Connect { connection }) => connects.push(connection),
            Output::Action(Action::Close { connection, reason, .. }) => {
                closes.push((connection.id().get(), reason));
            }
            Output::Action(Action::Deliver { connection, .. }) => deliveries.push(connection),
            Output::Action(
                Action::Check { .. }
                | Action::Refresh { .. }
                | Action::Fail { .. }
                | Action::Interrupt { .. }
                | Action::WarmedUp { .. },
            )
            | Output::Event(_) => {}
        }
    }
    (connects, closes, deliveries)
}

/// Lets `number` check-outs take a connection each.
fn in_use(pool: &mut Pool<()>, number: usize) -> Vec<Handle> {
    for _ in 0..number {
        let _ = pool.check_out(NOW, CheckOutRequest::default());
    }
    for connection in actions(pool).0 {
        pool.handle_established(NOW, connection, ()).unwrap();
    }
    actions(pool).2
}

fn check_in(pool: &mut Pool<()>, connection: Handle) {
    let _ = pool.check_in(NOW, pool.use_of(connection).unwrap().check_out, connection, (), Condition::Usable).unwrap();
}

#[test]
fn a_pool_that_grows_serves_its_waiters_at_once() {
    let mut pool = pool(1);
    in_use(&mut pool, 3);
    assert_eq!(pool.counts().waiting, 2);

    pool.resize(NOW, PoolSizes::default().max_pool_size(3)).unwrap();

    assert_eq!(actions(&mut pool).0.len(), 2);
}

#[test]
fn more_permits_serve_waiters_at_once() {
    let mut pool = pool(10);
    pool.resize(NOW, PoolSizes::default().max_connecting(1)).unwrap();
    for _ in 0..3 {
        let _ = pool.check_out(NOW, CheckOutRequest::default());
    }
    assert_eq!(actions(&mut pool).0.len(), 1);

    pool.resize(NOW, PoolSizes::default().max_connecting(3)).unwrap();

    assert_eq!(actions(&mut pool).0.len(), 2);
}

#[test]
fn a_pool_that_shrinks_closes_its_least_recent_available_connections() {
    let mut pool = pool(4);
    for connection in in_use(&mut pool, 4) {
        check_in(&mut pool, connection);
    }

    pool.resize(NOW, PoolSizes::default().max_pool_size(2)).unwrap();

    let surplus = ConnectionClosedReason::Surplus;
    assert_eq!(actions(&mut pool).1, [(1, surplus), (2, surplus)]);
    assert_eq!(pool.check_invariants(), Ok(()));
}

#[test]
fn a_queue_depth_that_is_a_multiple_follows_the_size_x_80() {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(1);
    options.max_wait_queue_depth = Some(QueueDepth::TimesMaxPoolSize(2));
    let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, NOW).unwrap();
    pool.ready(NOW);
    in_use(&mut pool, 1);
    let waiting = |pool: &mut Pool<()>| {
        for _ in 0..10 {
            let _ = pool.check_out(NOW, CheckOutRequest::default());
        }
        pool.counts().waiting
    };
    assert_eq!(waiting(&mut pool), 2);

    pool.resize(NOW, PoolSizes::default().max_pool_size(4)).unwrap();

    // Connections are being established for those who waited, who wait on until then.
    assert_eq!(waiting(&mut pool), 8);
}

#[test]
fn a_queue_that_is_deeper_than_its_new_limit_refuses_only_newcomers_x_80() {
    let mut pool = pool(1);
    in_use(&mut pool, 3);

    pool.resize(NOW, PoolLimits::default().max_wait_queue_depth(QueueDepth::Waiters(1))).unwrap();
    let (refused, _) = pool.check_out(NOW, CheckOutRequest::default());

    assert_eq!(pool.counts().waiting, 2);
    assert_eq!(pool.cancel_check_out(NOW, refused), Cancellation::Finished);
}

#[test]
fn a_new_rate_keeps_what_is_missing_of_the_old_one_in_connections_x_82() {
    let mut pool = pool(10);
    let sizes = PoolSizes::default().max_connecting(1);
    pool.resize(NOW, PoolLimits::from(sizes).max_new_connections_per_second(1)).unwrap();
    in_use(&mut pool, 1);
    let _ = pool.check_out(NOW, CheckOutRequest::default());
    let next = |pool: &mut Pool<()>| pool.poll_timeout().map(|timeout| timeout.at.as_nanos());
    assert_eq!(next(&mut pool), Some(1_000_000_000));

    pool.resize(Instant::from_nanos(500_000_000), PoolLimits::default().max_new_connections_per_second(10)).unwrap();
    assert_eq!(next(&mut pool), Some(550_000_000));

    pool.resize(Instant::from_nanos(500_000_000), PoolLimits::default().max_new_connections_per_second(None)).unwrap();
    assert_eq!(actions(&mut pool).0.len(), 1);
}

#[test]
fn connections_in_use_are_closed_at_their_check_in_while_there_are_too_many() {
    let mut pool = pool(3);
    let held = in_use(&mut pool, 3);

    pool.resize(NOW, PoolSizes::default().max_pool_size(2)).unwrap();
    assert_eq!(pool.counts().in_use, 3);
    check_in(&mut pool, held[1]);
    check_in(&mut pool, held[0]);

    assert_eq!(actions(&mut pool).1, [(2, ConnectionClosedReason::Surplus)]);
    assert_eq!((pool.counts().in_use, pool.counts().available), (1, 1));
    assert_eq!(pool.stats().closed.surplus, 1);
}

#[test]
fn one_that_is_being_established_still_serves_its_waiter() {
    let mut pool = pool(2);
    let held = in_use(&mut pool, 1);
    let _ = pool.check_out(NOW, CheckOutRequest::default());
    let pending = actions(&mut pool).0;

    pool.resize(NOW, PoolSizes::default().max_pool_size(1)).unwrap();
    pool.handle_established(NOW, pending[0], ()).unwrap();

    assert_eq!(actions(&mut pool).2, pending);
    check_in(&mut pool, held[0]);
    assert_eq!(actions(&mut pool).1.len(), 1);
    assert_eq!(pool.counts().total(), 1);
}

/// A pool that goes on after a clear, with so many connections in use, and one pending for a check-out that waits on.
fn outlived(in_use_before: usize, change: impl FnOnce(&mut PoolOptions)) -> (Pool<()>, Handle) {
    let mut options = PoolOptions::default();
    options.profile = Profile::Cmap1_1;
    options.max_connecting = Some(1);
    change(&mut options);
    let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, NOW).unwrap();
    pool.observe(false);
    for _ in 0..in_use_before {
        in_use(&mut pool, 1);
    }
    let _ = pool.check_out(NOW, CheckOutRequest::default());
    let pending = actions(&mut pool).0;
    pool.clear(NOW, Clear::pool(Cause::new("gone"))).unwrap();
    (pool, pending[0])
}

#[test]
fn one_that_is_replaced_for_its_waiter_keeps_to_a_smaller_limit_x_70() {
    let (mut pool, pending) = outlived(2, |options| options.max_pool_size = Some(3));
    pool.resize(NOW, PoolSizes::default().max_pool_size(2)).unwrap();

    pool.handle_established(NOW, pending, ()).unwrap();

    assert_eq!((actions(&mut pool).0.len(), pool.counts().total(), pool.counts().waiting), (0, 2, 1));
    assert_eq!(pool.check_invariants(), Ok(()));
}

#[test]
fn one_that_is_replaced_for_its_waiter_waits_for_its_token_x_82() {
    let (mut pool, pending) = outlived(0, |options| options.max_new_connections_per_second = Some(1));

    pool.handle_established(NOW, pending, ()).unwrap();

    assert_eq!(actions(&mut pool).0.len(), 0);
    let next = pool.poll_timeout().map(|timeout| timeout.at);
    assert_eq!(next, Some(Instant::from_millis(1000)));
    pool.handle_timeout(Instant::from_millis(1000));
    assert_eq!(actions(&mut pool).0.len(), 1);
}

#[test]
fn a_new_time_of_idleness_counts_for_connections_that_are_idle_already() {
    let mut pool = pool(1);
    let connection = in_use(&mut pool, 1)[0];
    check_in(&mut pool, connection);

    pool.resize(NOW, PoolLimits::default().check_after_idle(Duration::ZERO)).unwrap();
    let (_, delivery) = pool.check_out(Instant::from_nanos(1), CheckOutRequest::default());

    assert_eq!(delivery, None);
    assert_eq!(pool.poll_output(), Some(Output::Action(Action::Check { connection })));
}

#[test]
fn limits_that_contradict_each_other_are_refused_and_change_nothing() {
    let mut pool = pool(5);

    let error = pool.resize(NOW, PoolSizes::default().min_pool_size(6)).unwrap_err();

    assert_eq!((error.option, error.value.as_str()), ("minPoolSize", "6"));
    assert_eq!(pool.options().min_pool_size, None);
}
