//! A host that nobody has used for long: its pool closes its connections, and keeps no minimum pool size until it is used again.
//!
//! Check-outs and check-ins are not timed for this. The pool looks when `hostTimeout` has passed since the last use that it
//! knows of: whether check-outs have begun since, and when the last connection came back. So the timer costs one look in
//! each `hostTimeout`, and the warm path nothing.

use serde::{Deserialize, Serialize};

use super::Pool;
use super::connections::Stage;
use super::event::ConnectionClosedReason;
use super::list::Key;
use super::state::PoolState;
use super::timer::{Timeout, TimeoutReason};
use crate::time::Instant;

/// What the last look at the host found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostUse {
    /// Check-outs that had begun by then.
    started: u64,
    /// The host was not used after this, up to the look; or it was in use at the look, which was then.
    since: Instant,
    /// Whether it was in use, or somebody waited for it.
    is_busy: bool,
    /// Whether it has been unused for `hostTimeout`.
    is_over: bool,
}

impl<C> Pool<C> {
    /// Whether nobody has used the host for `hostTimeout`.
    pub(super) fn is_host_unused(&self) -> bool {
        self.host_use.is_over
    }

    /// Whether a host that nobody uses loses its connections.
    #[inline]
    pub(super) fn has_host_timeout(&self) -> bool {
        self.limits.host_timeout != u64::MAX
    }

    /// When the pool looks whether its host is used.
    pub(super) fn host_timeout(&self) -> Option<Timeout> {
        if !self.has_host_timeout() || self.state == PoolState::Closed || self.host_use.is_over {
            return None;
        }
        let at = Some(self.host_use.since.after(self.limits.host_timeout)).filter(|&at| at != Instant::END)?;
        Some(Timeout { at: at.max(self.now), reason: TimeoutReason::HostTimeout })
    }

    /// Looks, if it is time: closes the connections of a host that was not used.
    pub(super) fn expire_host(&mut self) {
        while self.host_timeout().is_some_and(|timeout| timeout.at <= self.now) {
            let started = self.wait_queue.started();
            let is_busy = self.connections.in_use > 0 || self.waiting() > 0 || self.is_warming();
            let before = self.host_use;
            let is_over = !is_busy && !before.is_busy && started == before.started;
            // A connection that was established to populate is taken for one that came back: the next look knows better.
            let since = if is_busy { self.now } else { self.most_recent_since().unwrap_or(self.now).max(before.since) };
            self.host_use = HostUse { started, since, is_busy, is_over };
            if is_over {
                self.close_unused();
            }
        }
    }

    fn close_unused(&mut self) {
        while let Some(least_recent) = self.connections.available.front() {
            let reason = self.perished(least_recent).unwrap_or(ConnectionClosedReason::Idle);
            self.close_connection(least_recent, reason);
        }
    }

    /// A check-out begins: the host is in use.
    #[inline]
    pub(super) fn use_host(&mut self) {
        if self.host_use.is_over {
            let started = self.wait_queue.started();
            self.host_use = HostUse { started, since: self.now, is_busy: true, is_over: false };
        }
    }

    /// A connection that was in use is closed: no available one will tell of that use.
    pub(super) fn note_last_use(&mut self) {
        self.host_use.since = self.now;
    }

    fn most_recent_since(&self) -> Option<Instant> {
        self.available_since(self.connections.available.back()?)
    }

    /// Since when a connection has been available.
    pub(super) fn available_since(&self, connection: Key) -> Option<Instant> {
        match self.connections.slot(connection).stage {
            Stage::Available { since, .. } => Some(since),
            Stage::Closed
            | Stage::Pending { .. }
            | Stage::Checking { .. }
            | Stage::Refreshing { .. }
            | Stage::InUse { .. } => None,
        }
    }
}

impl HostUse {
    /// Of a pool that was made at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::address::ServerAddress;
    use crate::options::PoolOptions;
    use crate::pool::{Action, CheckOutRequest, Condition, Handle, Output};

    const TIMEOUT: u64 = 300;

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1000)
    }

    /// A pool of a driver that establishes at once and comes back exactly when it is told to.
    struct Driven(Pool<()>);

    impl Driven {
        fn new(minimum: u32) -> Self {
            let options = PoolOptions {
                min_pool_size: Some(minimum),
                host_timeout: Some(Duration::from_secs(TIMEOUT)),
                ..PoolOptions::default()
            };
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
        fn carry_out(&mut self) -> alloc::vec::Vec<Handle> {
            let mut delivered = alloc::vec::Vec::new();
            while let Some(output) = self.0.poll_output() {
                if let Output::Action(Action::Connect { connection }) = output {
                    let now = self.0.now;
                    self.0.handle_established(now, connection, ()).unwrap();
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
        let _ = pool
            .0
            .check_in(at(TIMEOUT - 1), pool.0.use_of(used).unwrap().check_out, used, (), Condition::Errored)
            .unwrap();

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
        let mut pool = Driven::new(1);
        pool.0.limits.host_timeout = u64::MAX;
        pool.pass(at(1));

        assert_eq!(pool.0.poll_timeout(), None);
    }
}
