//! How long everything takes: recorded by the state, for pools and for a topology.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{Action, CheckOutRequest, Condition, Delivery, Durations, Output, Pool};
use cmap_core::time::Instant;

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// A ready pool of one connection that nobody listens to.
fn pool() -> Pool<()> {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(1);
    let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, at(0)).unwrap();
    pool.observe(false);
    pool.record_durations(true);
    pool.ready(at(0));
    pool
}

fn ask(pool: &mut Pool<()>, now: u64) -> Option<Delivery<()>> {
    pool.check_out(at(now), CheckOutRequest::default()).1
}

/// Establishes connections at `now`; returns the last delivery.
fn drain(pool: &mut Pool<()>, now: u64) -> Option<Delivery<()>> {
    let mut last = None;
    while let Some(output) = pool.poll_output() {
        match output {
            Output::Action(Action::Connect { connection }) => pool.handle_established(at(now), connection, ()).unwrap(),
            Output::Action(Action::Deliver { check_out, connection, socket }) => {
                last = Some(Delivery { check_out, connection, socket });
            }
            Output::Action(_) | Output::Event(_) => {}
        }
    }
    last
}

fn give_back(pool: &mut Pool<()>, now: u64, held: &Delivery<()>) -> Option<Delivery<()>> {
    pool.check_in(at(now), held.check_out, held.connection, (), Condition::Usable).unwrap().delivery()
}

/// How often, and how long together in milliseconds: wait, establishment, in use, idle.
fn taken(durations: &Durations) -> [(u64, u128); 4] {
    [&durations.wait, &durations.establishment, &durations.in_use, &durations.idle]
        .map(|histogram| (histogram.count(), histogram.sum().as_millis()))
}

#[test]
fn wait_establishment_use_and_idleness_are_recorded_though_nobody_listens() {
    let mut pool = pool();
    assert!(ask(&mut pool, 0).is_none());
    let first = drain(&mut pool, 30).unwrap();
    give_back(&mut pool, 50, &first);
    let second = ask(&mut pool, 90).unwrap();
    assert!(ask(&mut pool, 100).is_none());
    let heir = give_back(&mut pool, 150, &second).unwrap();
    give_back(&mut pool, 160, &heir);

    let statistics = pool.statistics(at(200));

    assert_eq!(taken(&statistics.durations.unwrap()), [(3, 80), (1, 30), (3, 90), (1, 40)]);
    assert_eq!((statistics.period, statistics.stats.checked_in), (Duration::from_millis(200), 3));
}

#[test]
fn what_happened_since_an_earlier_moment_leaves_out_what_came_before() {
    let mut pool = pool();
    assert!(ask(&mut pool, 0).is_none());
    let first = drain(&mut pool, 30).unwrap();
    give_back(&mut pool, 50, &first);
    let earlier = pool.statistics(at(1000));
    for second in 1..=20 {
        let held = ask(&mut pool, second * 1000).unwrap();
        give_back(&mut pool, second * 1000 + 10, &held);
    }

    let between = pool.statistics(at(21_000)).since(&earlier);

    assert_eq!(taken(between.durations.as_ref().unwrap())[2], (20, 200));
    assert_eq!((between.stats.checked_out, between.stats.created), (20, 0));
    assert_eq!(between.period, Duration::from_secs(20));
    assert_eq!([20, 1, 0].map(|total| format!("{:.2}", between.per_second(total))), ["1.00", "0.05", "0.00"]);
}

#[test]
fn a_pool_that_records_nothing_has_counts_alone() {
    let mut pool = pool();
    pool.record_durations(false);
    assert!(ask(&mut pool, 0).is_none());
    drain(&mut pool, 30).unwrap();

    let statistics = pool.statistics(at(30));

    assert_eq!((statistics.durations, statistics.stats.checked_out), (None, 1));
}

#[test]
fn as_many_were_available_at_least_once_as_are_after_their_refreshes_x_107() {
    let mut options = PoolOptions::default();
    options.refresh_requirement = Some(Duration::from_millis(20));
    let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, at(0)).unwrap();
    pool.ready(at(0));
    let [a, b, c] = [(); 3].map(|()| {
        ask(&mut pool, 0);
        drain(&mut pool, 0).unwrap()
    });
    give_back(&mut pool, 0, &a);
    give_back(&mut pool, 0, &b);
    pool.handle_timeout(at(20));
    let refreshing: Vec<_> = std::iter::from_fn(|| pool.poll_output())
        .filter_map(|output| match output {
            Output::Action(Action::Refresh { connection, .. }) => Some(connection),
            Output::Action(_) | Output::Event(_) => None,
        })
        .collect();
    give_back(&mut pool, 21, &c);

    for connection in &refreshing {
        pool.handle_refreshed(at(22), *connection, ()).unwrap();
    }

    assert_eq!((refreshing.len(), pool.counts().available, pool.stats().high_water.available), (2, 3, 3));
}
