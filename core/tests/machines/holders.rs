//! Who holds the connections, who waits, and which limit kept a check-out waiting until its time was up.

use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::options::PoolOptions;
use cmap_core::pool::{
    Action, Cause, CheckOutError, CheckOutRequest, Clear, Condition, ConnectionState, Delivery, Output, Pool, Reaction,
    WaitBound,
};
use cmap_core::time::Instant;

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// A ready pool whose check-outs wait for 50 ms.
fn pool(set: impl FnOnce(&mut PoolOptions)) -> Pool<()> {
    let mut options = PoolOptions::default();
    options.wait_queue_timeout = Some(Duration::from_millis(50));
    set(&mut options);
    let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, at(0)).unwrap();
    pool.ready(at(0));
    pool
}

fn ask(pool: &mut Pool<()>, now: u64) {
    let _ = pool.check_out(at(now), CheckOutRequest::default());
}

/// Establishes connections at `now`; returns the last delivery and the last failure.
fn drain(pool: &mut Pool<()>, now: u64) -> (Option<Delivery<()>>, Option<Arc<CheckOutError>>) {
    let mut last = (None, None);
    while let Some(output) = pool.poll_output() {
        match output {
            Output::Action(Action::Connect { connection }) => pool.handle_established(at(now), connection, ()).unwrap(),
            Output::Action(Action::Deliver { check_out, connection, socket }) => {
                last.0 = Some(Delivery { check_out, connection, socket });
            }
            Output::Action(Action::Fail { error, .. }) => last.1 = Some(error),
            Output::Action(_) | Output::Event(_) => {}
        }
    }
    last
}

/// Lets outputs be: connections stay pending.
fn ignore(pool: &mut Pool<()>) {
    while pool.poll_output().is_some() {}
}

fn bound_of(pool: &mut Pool<()>, now: u64) -> WaitBound {
    pool.handle_timeout(at(now));
    drain(pool, now).1.unwrap().bound_by.unwrap()
}

#[test]
fn a_use_begins_at_the_delivery_and_not_with_the_wait() {
    let mut pool = pool(|options| options.max_pool_size = Some(1));
    ask(&mut pool, 0);
    let first = drain(&mut pool, 0).0.unwrap();
    ask(&mut pool, 10);

    let waiters: Vec<_> = pool.waiting_check_outs().collect();
    let _ = pool.check_in(at(30), first.check_out, first.connection, (), Condition::Usable).unwrap();
    drain(&mut pool, 30);

    assert_eq!(waiters.iter().map(|waiter| waiter.since).collect::<Vec<_>>(), [at(10)]);
    let holders: Vec<_> = pool.connections_in_use().collect();
    assert_eq!(holders.len(), 1);
    assert_eq!((holders[0].check_out, holders[0].since), (waiters[0].check_out, at(30)));
    assert_eq!(pool.waiting_check_outs().count(), 0);
}

#[test]
fn max_pool_size_bound_and_the_longest_use_is_told() {
    let mut pool = pool(|options| options.max_pool_size = Some(1));
    ask(&mut pool, 0);
    drain(&mut pool, 0);
    ask(&mut pool, 20);

    assert_eq!(bound_of(&mut pool, 70), WaitBound::MaxPoolSize { longest_use: Duration::from_millis(70) });
}

#[test]
fn max_connecting_bound_and_the_longest_establishment_is_told() {
    let mut pool = pool(|options| options.max_connecting = Some(1));
    ask(&mut pool, 0);
    ask(&mut pool, 5);
    ignore(&mut pool);

    pool.handle_timeout(at(55));
    let error = drain(&mut pool, 55).1.unwrap();

    assert!(matches!(error.bound_by, Some(WaitBound::MaxConnecting { establishing: 1, .. })), "{error}");
    assert!(
        error.to_string().contains("maxConnecting bound: 1 under way, the longest of them connection 1"),
        "{error}"
    );
    assert!(error.to_string().contains("under way for 55ms"), "{error}");
}

#[test]
fn one_whose_own_connection_was_under_way_waited_for_that() {
    let mut pool = pool(|_| {});
    let _ = pool.check_out(at(0), CheckOutRequest::until(at(40)));
    ignore(&mut pool);

    pool.handle_timeout(at(40));
    let error = drain(&mut pool, 40).1.unwrap();

    assert!(error.to_string().contains("waited for connection 1, under way for 40ms"), "{error}");
}

#[test]
fn the_pause_of_a_backoff_bound() {
    let mut pool = pool(|options| options.max_connecting = Some(1));
    ask(&mut pool, 0);
    ask(&mut pool, 0);
    let mut pending = None;
    while let Some(output) = pool.poll_output() {
        if let Output::Action(Action::Connect { connection }) = output {
            pending = Some(connection);
        }
    }
    let refused = EstablishError::new(Phase::Connect, Fault::Network, "connection refused");
    pool.handle_establish_failed(at(45), pending.unwrap(), refused, Reaction::KeepPool).unwrap();
    ignore(&mut pool);

    assert_eq!(bound_of(&mut pool, 50), WaitBound::Backoff);
}

#[test]
fn the_rate_of_new_connections_bound() {
    let mut pool = pool(|options| {
        options.max_connecting = Some(1);
        options.max_new_connections_per_second = Some(1);
    });
    ask(&mut pool, 0);
    drain(&mut pool, 0);
    ask(&mut pool, 0);

    assert_eq!(bound_of(&mut pool, 50), WaitBound::CreationRate);
}

#[test]
fn a_check_out_without_time_waited_for_nothing() {
    let mut pool = pool(|options| options.max_pool_size = Some(1));
    ask(&mut pool, 0);
    drain(&mut pool, 0);
    let _ = pool.check_out(at(1), CheckOutRequest::until(at(1)));

    assert_eq!(drain(&mut pool, 1).1.unwrap().bound_by, Some(WaitBound::NoTime));
}

#[test]
fn time_outs_are_numbered() {
    let mut pool = pool(|options| options.max_pool_size = Some(1));
    ask(&mut pool, 0);
    drain(&mut pool, 0);
    for now in [0, 100, 200] {
        ask(&mut pool, now);
        pool.handle_timeout(at(now + 50));
    }

    let error = drain(&mut pool, 250).1.unwrap();

    assert_eq!(error.timeouts, 3);
    assert!(error.to_string().contains("the pool's time-out number 3"), "{error}");
}

#[test]
fn a_paused_pool_says_for_how_long() {
    let mut pool = pool(|_| {});
    pool.clear(at(0), cmap_core::pool::Clear::pool(cmap_core::pool::Cause::new("the server hung up"))).unwrap();
    ask(&mut pool, 3000);

    let error = drain(&mut pool, 3000).1.unwrap();

    assert!(error.to_string().contains("the pool has been paused for 3s; try again"), "{error}");
}

#[test]
fn every_connection_is_listed_by_its_slot_with_its_state() {
    let mut pool = pool(|_| {});
    ask(&mut pool, 1);
    let held = drain(&mut pool, 2).0.unwrap();
    ask(&mut pool, 3);
    ignore(&mut pool);

    let listed: Vec<_> = pool.connections().map(|it| (it.slot, it.connection.id().get(), it.state)).collect();
    assert_eq!(listed, [(0, 1, ConnectionState::InUse), (1, 2, ConnectionState::Pending)]);
    assert_eq!(pool.connections().next().unwrap().check_out, Some(held.check_out));
}

#[test]
fn a_pause_is_told_with_its_cause_and_only_while_it_lasts() {
    let mut pool = pool(|_| {});

    assert_eq!(pool.pause(), None);
    pool.clear(at(7), Clear::pool(Cause::new("connection reset"))).unwrap();
    assert_eq!(pool.pause().map(|(since, cause)| (since, cause.to_string())), Some((at(7), "connection reset".into())));
    pool.close(at(8));
    assert_eq!(pool.pause(), None);
}

#[test]
fn a_check_out_that_waits_tells_when_its_time_is_up_whatever_limits_it() {
    let mut pool = pool(|options| options.max_pool_size = Some(1));
    ask(&mut pool, 0);
    drain(&mut pool, 0);

    ask(&mut pool, 10);

    assert_eq!(pool.waiting_check_outs().next().unwrap().deadline, Some(at(60)));
}
