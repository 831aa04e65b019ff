//! What each choice of the option gives a key.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use super::*;
use crate::address::ServerAddress;
use crate::options::PoolOptions;
use crate::pool::{Condition, Handle};

const NOW: Instant = Instant::ORIGIN;
const ONE: AffinityKey = AffinityKey(1);
const TWO: AffinityKey = AffinityKey(2);

fn pool(affinity: Affinity, max: u32) -> Pool<()> {
    let options = PoolOptions {
        max_pool_size: Some(max),
        max_connecting: Some(10),
        affinity: Some(affinity),
        ..PoolOptions::default()
    };
    let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, NOW).unwrap();
    pool.observe(false);
    pool.ready(NOW);
    pool
}

/// Asks at `now`, establishes what the pool asks for, and returns the deliveries, in the order of the check-outs' numbers.
fn ask(pool: &mut Pool<()>, now: Instant, key: impl Into<Option<AffinityKey>>) -> Vec<Handle> {
    let request = CheckOutRequest { affinity: key.into(), ..CheckOutRequest::default() };
    let (_, delivery) = pool.check_out(now, request);
    let mut delivered: Vec<_> = delivery.into_iter().map(|delivery| delivery.connection).collect();
    delivered.extend(carry_out(pool, now));
    delivered
}

fn carry_out(pool: &mut Pool<()>, now: Instant) -> Vec<Handle> {
    let mut delivered = Vec::new();
    while let Some(output) = pool.poll_output() {
        match output {
            Output::Action(Action::Connect { connection }) => pool.handle_established(now, connection, ()).unwrap(),
            Output::Action(Action::Deliver { connection, .. }) => delivered.push(connection),
            Output::Action(_) | Output::Event(_) => {}
        }
    }
    assert_eq!(pool.check_invariants(), Ok(()));
    delivered
}

/// Gives a connection back; returns the one that is delivered in its place.
fn give_back(pool: &mut Pool<()>, now: Instant, connection: Handle) -> Option<Handle> {
    let delivery = pool
        .check_in(now, pool.use_of(connection).unwrap().check_out, connection, (), Condition::Usable)
        .unwrap()
        .delivery();
    delivery.map(|delivery| delivery.connection).or_else(|| carry_out(pool, now).pop())
}

#[test]
fn a_key_gets_its_connection_though_another_one_is_hotter() {
    let mut pool = pool(Affinity::Prefer, 2);
    let (first, second) = (ask(&mut pool, NOW, ONE)[0], ask(&mut pool, NOW, TWO)[0]);
    give_back(&mut pool, NOW, first);
    give_back(&mut pool, NOW, second);

    assert_eq!(ask(&mut pool, NOW, ONE), [first]);
}

#[test]
fn a_key_that_prefers_takes_another_connection_and_keeps_that() {
    let mut pool = pool(Affinity::Prefer, 2);
    let first = ask(&mut pool, NOW, ONE)[0];

    let second = ask(&mut pool, NOW, ONE)[0];

    assert_ne!(first, second);
    give_back(&mut pool, NOW, second);
    give_back(&mut pool, NOW, first);
    assert_eq!(ask(&mut pool, NOW, ONE), [second]);
}

#[test]
fn a_new_key_takes_the_least_shared_connection() {
    let mut pool = pool(Affinity::Prefer, 2);
    let (first, second) = (ask(&mut pool, NOW, ONE)[0], ask(&mut pool, NOW, None)[0]);
    give_back(&mut pool, NOW, second);
    give_back(&mut pool, NOW, first);

    assert_eq!(ask(&mut pool, NOW, TWO), [second]);
}

#[test]
fn a_key_that_requires_its_connection_waits_for_it_and_goes_first() {
    let mut pool = pool(Affinity::Require, 2);
    let (first, _other) = (ask(&mut pool, NOW, ONE)[0], ask(&mut pool, NOW, None)[0]);
    ask(&mut pool, NOW, None);
    let (sticky, _) = pool.check_out(NOW, CheckOutRequest::default().affinity(ONE));
    assert_eq!(pool.counts().waiting, 2);

    let checked_in = pool.check_in(NOW, pool.use_of(first).unwrap().check_out, first, (), Condition::Usable).unwrap();

    assert_eq!(checked_in.delivery().map(|delivery| (delivery.check_out, delivery.connection)), Some((sticky, first)));
}

#[test]
fn one_that_waits_joins_the_queue_if_its_connection_is_closed() {
    let mut pool = pool(Affinity::Require, 1);
    let first = ask(&mut pool, NOW, ONE)[0];
    assert_eq!(ask(&mut pool, NOW, ONE), []);

    let _ = pool.check_in(NOW, pool.use_of(first).unwrap().check_out, first, (), Condition::Errored).unwrap();

    let second = carry_out(&mut pool, NOW);
    assert_eq!((second.len(), pool.counts().waiting), (1, 0));
    assert_ne!(second, [first]);
}

#[test]
fn a_held_connection_is_for_its_key_alone_until_its_time_is_over() {
    let mut pool = pool(Affinity::Hold { time: Duration::from_millis(10), lend: false }, 1);
    let first = ask(&mut pool, NOW, ONE)[0];
    give_back(&mut pool, NOW, first);
    assert_eq!(ask(&mut pool, NOW, TWO), []);
    let timeout = Timeout { at: Instant::from_millis(10), reason: TimeoutReason::Hold };
    assert_eq!((pool.poll_timeout(), pool.counts().available), (Some(timeout), 1));

    pool.handle_timeout(timeout.at);

    assert_eq!(carry_out(&mut pool, timeout.at), [first]);
    assert_eq!((pool.is_bound(ONE), pool.is_bound(TWO)), (false, true));
}

#[test]
fn a_held_connection_is_lent_and_comes_back_to_its_key() {
    let mut pool = pool(Affinity::Hold { time: Duration::from_millis(10), lend: true }, 1);
    let first = ask(&mut pool, NOW, ONE)[0];
    give_back(&mut pool, NOW, first);

    assert_eq!(ask(&mut pool, NOW, None), [first]);

    ask(&mut pool, NOW, None);
    let (sticky, _) = pool.check_out(NOW, CheckOutRequest::default().affinity(ONE));
    let delivery =
        pool.check_in(NOW, pool.use_of(first).unwrap().check_out, first, (), Condition::Usable).unwrap().delivery();
    assert_eq!(delivery.map(|delivery| delivery.check_out), Some(sticky));
}

#[test]
fn an_ended_key_lets_go_of_its_connection() {
    let mut pool = pool(Affinity::Hold { time: Duration::from_millis(10), lend: false }, 1);
    let first = ask(&mut pool, NOW, ONE)[0];
    give_back(&mut pool, NOW, first);
    ask(&mut pool, NOW, None);

    pool.end_affinity(NOW, ONE);

    assert_eq!(carry_out(&mut pool, NOW), [first]);
}

#[test]
fn who_stands_behind_one_whose_time_ends_in_any_call_is_served_at_once() {
    let mut pool = pool(Affinity::Hold { time: Duration::from_secs(60), lend: false }, 1);
    let first = ask(&mut pool, NOW, None)[0];
    let deadline = Instant::from_millis(100);
    ask(&mut pool, NOW, ONE);
    let _ = pool.check_out(NOW, CheckOutRequest::until(deadline));
    ask(&mut pool, NOW, ONE);
    assert_eq!(give_back(&mut pool, NOW, first), Some(first), "the key has it");
    assert_eq!(give_back(&mut pool, NOW, first), None, "it is held, and not for the head of the queue");

    pool.resume(deadline);

    assert_eq!(carry_out(&mut pool, deadline), [first]);
}

#[test]
fn the_oldest_of_keys_that_nobody_ends_are_forgotten() {
    const KEYS: u64 = 10_000;
    let mut pool = pool(Affinity::Prefer, 1);
    for key in 0..KEYS {
        let connection = ask(&mut pool, NOW, AffinityKey(key))[0];
        give_back(&mut pool, NOW, connection);
    }

    assert_eq!(pool.affinity.as_ref().map(|affinity| affinity.keys.len()), Some(MOST_KEYS));
    assert!((KEYS - MOST_KEYS as u64..KEYS).all(|key| pool.is_bound(AffinityKey(key))));
}

#[test]
fn who_waits_in_vain_beside_a_held_connection_is_advised_on_holds() {
    let mut pool = pool(Affinity::Hold { time: Duration::from_secs(60), lend: false }, 1);
    let first = ask(&mut pool, NOW, ONE)[0];
    give_back(&mut pool, NOW, first);
    let deadline = NOW + Duration::from_millis(100);
    let _ = pool.check_out(NOW, CheckOutRequest::until(deadline));

    pool.handle_timeout(deadline);

    let error = core::iter::from_fn(|| pool.poll_output()).find_map(|output| match output {
        Output::Action(Action::Fail { error, .. }) => Some(error.to_string()),
        Output::Action(_) | Output::Event(_) => None,
    });
    assert!(error.unwrap().contains("held for their keys or being refreshed"));
}
