//! A warm pool allocates nothing: check-outs and check-ins live in memory that the pool already has. Neither does the choice of a
//! server.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::monitor::{ServerDescription, ServerType};
use cmap_core::options::{Affinity, PoolOptions, Profile, QueueDepth, Reuse};
use cmap_core::pool::{Action, AffinityKey, CheckOutRequest, Condition, Delivery, Output, Pool};
use cmap_core::random::Random;
use cmap_core::time::Instant;
use cmap_core::topology::selection::{LatencyWindow, ServerSelector};
use cmap_core::topology::{TopologyDescription, TopologyType};

/// A ready pool with idle time, wait queue timeout and events as in production.
fn pool(max_pool_size: u32) -> Pool<u64> {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(max_pool_size);
    options.max_idle_time = Some(Duration::from_secs(60));
    options.wait_queue_timeout = Some(Duration::from_secs(5));
    let mut pool = Pool::new(ServerAddress::tcp("localhost", 27017), options, Instant::ORIGIN).unwrap();
    pool.ready(Instant::ORIGIN);
    pool
}

/// Drains the outputs, establishes connections, and returns the last delivery.
fn drain(pool: &mut Pool<u64>, now: Instant) -> Option<Delivery<u64>> {
    let mut delivery = None;
    while let Some(output) = pool.poll_output() {
        match output {
            Output::Action(Action::Connect { connection }) => pool.handle_established(now, connection, 7).unwrap(),
            Output::Action(Action::Deliver { check_out, connection, socket }) => {
                delivery = Some(Delivery { check_out, connection, socket });
            }
            Output::Action(_) | Output::Event(_) => {}
        }
    }
    delivery
}

/// Asks for a connection; returns it, if it is there.
fn check_out(pool: &mut Pool<u64>, now: Instant) -> Option<Delivery<u64>> {
    let (_, delivery) = pool.check_out(now, CheckOutRequest::default());
    let queued = drain(pool, now);
    delivery.or(queued)
}

/// Gives a connection back; returns the next waiter's delivery.
fn check_in(pool: &mut Pool<u64>, now: Instant, held: Delivery<u64>) -> Option<Delivery<u64>> {
    let Delivery { check_out, connection, socket } = held;
    let delivery = pool.check_in(now, check_out, connection, socket, Condition::Usable).unwrap().delivery();
    let queued = drain(pool, now);
    delivery.or(queued)
}

fn pair(pool: &mut Pool<u64>, now: Instant) {
    let held = check_out(pool, now).unwrap();
    assert_eq!(check_in(pool, now, held), None);
}

#[test]
fn a_pair_allocates_nothing_once_warm() {
    for (observed, recorded) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut pool = pool(10);
        pool.observe(observed);
        pool.record_durations(recorded);
        pair(&mut pool, Instant::from_millis(1));

        let allocations = allocation_counter::measure(|| {
            for round in 0..1000 {
                pair(&mut pool, Instant::from_millis(2 + round));
            }
        });

        assert_eq!(allocations.count_total, 0, "observed: {observed}, recorded: {recorded}");
    }
}

#[test]
fn a_pair_of_a_key_allocates_nothing_once_warm() {
    let time = Duration::from_secs(1);
    for affinity in [Affinity::Prefer, Affinity::Require, Affinity::Hold { time, lend: true }] {
        let mut options = PoolOptions::default();
        options.affinity = Some(affinity);
        let mut pool = Pool::new(ServerAddress::tcp("localhost", 27017), options, Instant::ORIGIN).unwrap();
        pool.ready(Instant::ORIGIN);
        let pair = |pool: &mut Pool<u64>, now: Instant| {
            let (_, delivery) = pool.check_out(now, CheckOutRequest::default().affinity(AffinityKey(7)));
            let queued = drain(pool, now);
            assert_eq!(check_in(pool, now, delivery.or(queued).unwrap()), None);
        };
        pair(&mut pool, Instant::from_millis(1));

        let allocations = allocation_counter::measure(|| {
            for round in 0..1000 {
                pair(&mut pool, Instant::from_millis(2 + round));
            }
        });

        assert_eq!(allocations.count_total, 0, "{affinity:?}");
    }
}

#[test]
fn a_pair_with_an_option_beyond_the_specification_allocates_nothing_once_warm() {
    const HOUR: Duration = Duration::from_secs(3600);
    let switches: [fn(&mut PoolOptions); 7] = [
        |options| options.reuse = Some(Reuse::Fifo),
        |options| options.max_uses = Some(1_000_000),
        |options| options.max_lifetime = Some(HOUR),
        |options| options.refresh_requirement = Some(HOUR),
        |options| options.max_new_connections_per_second = Some(20),
        |options| options.max_wait_queue_depth = Some(QueueDepth::TimesMaxPoolSize(2)),
        |options| options.profile = Profile::Cmap1_1,
    ];
    for (number, switch_on) in switches.into_iter().enumerate() {
        let mut options = PoolOptions::default();
        switch_on(&mut options);
        let mut pool = Pool::new(ServerAddress::tcp("localhost", 27017), options, Instant::ORIGIN).unwrap();
        pool.ready(Instant::ORIGIN);
        pair(&mut pool, Instant::from_millis(1));

        let allocations = allocation_counter::measure(|| {
            for round in 0..1000 {
                pair(&mut pool, Instant::from_millis(2 + round));
            }
        });

        assert_eq!(allocations.count_total, 0, "number {number}");
    }
}

#[test]
fn waiting_for_a_returned_connection_allocates_nothing_once_warm() {
    let mut pool = pool(1);
    let round = |pool: &mut Pool<u64>, now: Instant| {
        let first = check_out(pool, now).unwrap();
        let deadline = now + Duration::from_secs(1);
        let (gives_up, _) = pool.check_out(now, CheckOutRequest::until(deadline));
        assert!(check_out(pool, now).is_none());
        let _ = pool.cancel_check_out(now, gives_up);
        let second = check_in(pool, now, first).unwrap();
        assert_eq!(check_in(pool, now, second), None);
    };
    // Without a listener: the event of a cancellation carries an error, which is allocated.
    pool.observe(false);
    round(&mut pool, Instant::from_millis(1));

    let allocations = allocation_counter::measure(|| {
        for number in 0..1000 {
            round(&mut pool, Instant::from_millis(2 + number));
        }
    });

    assert_eq!(allocations.count_total, 0);
}

#[test]
fn choosing_one_of_fifty_servers_allocates_nothing() {
    let address = |port| Arc::new(ServerAddress::tcp("router", port));
    let routers = (1..=50).map(|port| Arc::new(ServerDescription::new(address(port), ServerType::Mongos)));
    let topology = TopologyDescription::of_servers(TopologyType::Sharded, routers.collect());
    let suitable = topology.suitable_servers(&ServerSelector::Writable, &[], Duration::from_secs(10)).unwrap();
    let window = LatencyWindow::new(&topology, &suitable, Duration::from_millis(15));
    let operations = [3; 50];
    let mut random = Random::new(1);

    let allocations = allocation_counter::measure(|| {
        for _ in 0..1000 {
            assert!(window.choose(&mut random, |server| operations[server]).is_some());
        }
    });

    assert_eq!((window.servers().len(), allocations.count_total), (50, 0));
}
