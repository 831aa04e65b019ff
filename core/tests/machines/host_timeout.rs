//! A host that nobody has used for long.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{Action, CheckOutRequest, Condition, Handle, Output, Pool, PoolState};
use cmap_core::time::Instant;

const TIMEOUT: u64 = 300;

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1000)
}

/// A pool of a driver that establishes at once and comes back exactly when it is told to.
struct Driven(Pool<()>);

impl Driven {
    fn new(minimum: u32) -> Self {
        Self::with(minimum, Some(Duration::from_secs(TIMEOUT)))
    }

    fn with(minimum: u32, host_timeout: Option<Duration>) -> Self {
        let mut options = PoolOptions::default();
        options.min_pool_size = Some(minimum);
        options.host_timeout = host_timeout;
        let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, at(0)).unwrap();
        pool.observe(false);
        pool.ready(at(0));
        Self(pool)
    }

    /// Lets time pass up to `end`.
    fn pass(&mut self, end: Instant) {
        self.carry_out();
        while let Some(due) = self.0.poll_timeout().filter(|due| due.at <= end) {
            self.0.handle_timeout(due.at);
            self.carry_out();
        }
    }

    /// Returns the connections that were delivered.
    fn carry_out(&mut self) -> Vec<Handle> {
        let mut delivered = Vec::new();
        while let Some(output) = self.0.poll_output() {
            if let Output::Action(Action::Connect { connection }) = output {
                // A time before the latest one that the pool has seen counts as that one.
                self.0.handle_established(at(0), connection, ()).unwrap();
            } else if let Output::Action(Action::Deliver { connection, .. }) = output {
                delivered.push(connection);
            }
        }
        delivered
    }

    fn check_out(&mut self, now: Instant) -> Handle {
        let (_, delivery) = self.0.check_out(now, CheckOutRequest::default());
        let queued = self.carry_out();
        delivery.map(|delivery| delivery.connection).or(queued.first().copied()).unwrap()
    }

    fn check_in(&mut self, now: Instant, connection: Handle) {
        let _ = self
            .0
            .check_in(now, self.0.use_of(connection).unwrap().check_out, connection, (), Condition::Usable)
            .unwrap();
    }

    fn connections(&self) -> u32 {
        assert_eq!(self.0.check_invariants(), Ok(()));
        self.0.counts().total()
    }
}

#[test]
fn a_host_that_was_never_used_keeps_its_floor_for_the_time_and_no_longer() {
    let mut pool = Driven::new(3);
    pool.pass(at(TIMEOUT - 1));
    assert_eq!(pool.connections(), 3);

    pool.pass(at(TIMEOUT + 1));

    assert_eq!(pool.connections(), 0);
    assert_eq!((pool.0.state(), pool.0.poll_timeout()), (PoolState::Ready, None), "it asks for no wake-up");
}

#[test]
fn the_time_counts_from_the_last_use() {
    let mut pool = Driven::new(0);
    let connection = pool.check_out(at(100));
    pool.check_in(at(250), connection);

    pool.pass(at(250 + TIMEOUT - 1));
    assert_eq!(pool.connections(), 1);
    pool.pass(at(250 + TIMEOUT));

    assert_eq!(pool.connections(), 0);
    assert_eq!(pool.0.stats().closed.idle, 1);
}

#[test]
fn a_connection_in_use_is_a_use_however_long_it_takes() {
    let mut pool = Driven::new(2);
    let connection = pool.check_out(at(1));

    pool.pass(at(10 * TIMEOUT));
    assert_eq!(pool.connections(), 2);
    pool.check_in(at(10 * TIMEOUT + 7), connection);
    pool.pass(at(11 * TIMEOUT + 6));
    assert_eq!(pool.connections(), 2);
    pool.pass(at(11 * TIMEOUT + 7));

    assert_eq!(pool.connections(), 0);
}

#[test]
fn a_use_whose_connection_was_closed_counts_as_well() {
    let mut pool = Driven::new(0);
    let (old, used) = (pool.check_out(at(0)), pool.check_out(at(0)));
    pool.check_in(at(0), old);
    let _ =
        pool.0.check_in(at(TIMEOUT - 1), pool.0.use_of(used).unwrap().check_out, used, (), Condition::Errored).unwrap();

    pool.pass(at(2 * TIMEOUT - 2));
    assert_eq!(pool.connections(), 1);
    pool.pass(at(2 * TIMEOUT - 1));

    assert_eq!(pool.connections(), 0);
}

#[test]
fn the_next_use_brings_the_minimum_back() {
    let mut pool = Driven::new(3);
    pool.pass(at(2 * TIMEOUT));

    let connection = pool.check_out(at(2 * TIMEOUT + 1));
    pool.check_in(at(2 * TIMEOUT + 1), connection);
    pool.pass(at(2 * TIMEOUT + 5));

    assert_eq!(pool.connections(), 3);
}

#[test]
fn without_the_option_nothing_expires_and_no_wake_up_is_asked_for() {
    let mut pool = Driven::with(1, None);
    pool.pass(at(1));

    assert_eq!(pool.0.poll_timeout(), None);
}
