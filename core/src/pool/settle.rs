//! What follows from a call, in one order, and which available connection serves next.
//!
//! A call first fails the check-outs whose time is up, and gives those behind them the available connections that they did not want. Then
//! it does what its caller said, and nothing that follows from that. Then it settles. Nothing else serves a check-out, creates a connection,
//! or closes one that nobody needs; but for the fast path, which does in one step what settling does where nobody waits.
//!
//! | | what is due | after | rules |
//! |---|---|---|---|
//! | 1 | who waits in a pool that is not ready fails | every call | CMAP-29, CMAP-39 |
//! | 2 | available connections go to the queue, the longest waiter first | every call but [`Due::Time`] | CMAP-26, X-16 |
//! | 3 | connections are created for waiters | every call | CMAP-26, CMAP-27, X-15 |
//! | 4 | held connections are lent to waiters for whom none can be created | every call but [`Due::Time`] | X-87 |
//! | 5 | available connections beyond maxPoolSize are closed | [`Due::Time`], [`Due::Spare`] | X-70 |
//! | 6 | connections whose lives are over are closed; others serve in their place | [`Due::Time`], [`Due::Spare`] | X-84 |
//! | 7 | idle connections are refreshed | [`Due::Time`], [`Due::Spare`] | X-95 |
//! | 8 | what is missing to minPoolSize is created | [`Due::Permit`] | CMAP-44, X-19 |
//! | 9 | warm-ups end or go on | [`Due::Time`], [`Due::Spare`] | X-96 |
//!
//! Afterwards either no check-out waits, or the only available connections are being checked for waiters or held for keys, and then there is no
//! permit, no room, or a pending connection for each waiter.
//!
//! The list of available connections is in the order of their return whatever the option `reuse` says, so maintenance still closes the
//! least recently used.

use super::list::Key;
use super::{ConnectionClosedReason, Pool, PoolState};
use crate::options::Reuse;

/// What a call may have made due, besides what the queue waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing.
    Queue,
    /// A connection for the check-out that has just joined the queue, though pending ones would suffice for all.
    Arrival,
    /// The connections that backoff or rate held back, and all that concerns connections that nobody waits for, but for what is missing to
    /// minPoolSize. Nothing has become available for the queue.
    Time,
    /// All that concerns connections that nobody waits for, but for what is missing to minPoolSize: one of them has come back, or there may be
    /// fewer.
    Spare,
    /// That, too: a permit is free, or maintenance runs.
    Permit,
}

impl<C> Pool<C> {
    /// Does all that is due. Looks at no connection and no waiter that nothing is due for.
    #[inline]
    pub(super) fn settle(&mut self, due: Due) {
        if self.state != PoolState::Ready {
            self.evict_waiters();
        }
        match due {
            _ if self.wait_queue.len() == 0 => {}
            Due::Time => self.create_for_waiters(due),
            Due::Queue | Due::Arrival | Due::Spare | Due::Permit => self.serve(due),
        }
        if let Due::Time | Due::Spare | Due::Permit = due {
            self.settle_spare(due);
        }
    }

    #[inline(never)]
    fn settle_spare(&mut self, due: Due) {
        while self.has_surplus() && self.close_least_recent(ConnectionClosedReason::Surplus) {}
        if self.retire() && self.wait_queue.len() > 0 {
            self.serve(Due::Queue);
        }
        self.refresh_due();
        if due == Due::Permit {
            self.populate();
        }
        self.warm();
    }

    #[inline(never)]
    fn serve(&mut self, due: Due) {
        self.serve_from_available();
        self.create_for_waiters(due);
        while self.lend() {
            self.create_for_waiters(Due::Queue);
        }
    }

    pub(super) fn serve_from_available(&mut self) {
        while let Some(waiter) = self.wait_queue.front() {
            let awaits_check = self.wait_queue.len() <= self.checks();
            let next = if awaits_check { self.next_available() } else { self.next_usable() };
            match next {
                Some(key) if self.is_usable(key) => self.serve_head(waiter, key),
                Some(key) if !awaits_check => self.begin_check(key),
                Some(_) => match self.proven_at_once() {
                    Some(proven) => self.serve_head(waiter, proven),
                    None => break,
                },
                None => break,
            }
        }
    }

    /// The origin of each is the longest waiter without one. Where backoff or rate hold connections back, each waiter had a right to one when it
    /// arrived, whatever is pending now.
    fn create_for_waiters(&mut self, mut due: Due) {
        while let Some(origin) = self.wait_queue.next_origin()
            && self.may_create()
        {
            let pending = if due == Due::Arrival || self.is_restrained() { 0 } else { self.connections.pending };
            if self.wait_queue.len() <= pending + self.checks() {
                break;
            }
            let connection = self.create(Some(origin));
            self.wait_queue.make_origin(origin, connection);
            due = Due::Queue;
        }
    }

    fn serve_head(&mut self, head: Key, connection: Key) {
        self.leave_queue(head);
        self.bind(connection, head);
        self.deliver(connection, head);
    }

    /// The available connection for the head of the queue, after closing those that perished (CMAP-26).
    pub(super) fn next_usable(&mut self) -> Option<Key> {
        while let Some(key) = self.next_available() {
            match self.perished(key) {
                None => return Some(key),
                Some(reason) => self.close_connection(key, reason),
            }
        }
        None
    }

    /// The available connection for the head of the queue.
    pub(super) fn next_available(&self) -> Option<Key> {
        if self.affinity.is_some() {
            return self.next_for_head();
        }
        match self.limits.reuse {
            Reuse::Lifo => self.connections.available.back(),
            Reuse::Fifo => self.connections.available.front(),
        }
    }

    /// The available connection that is next by the option `reuse`, of those that are not held for their keys.
    pub(super) fn next_free(&self) -> Option<Key> {
        match self.limits.reuse {
            Reuse::Lifo => self.most_recent_free(),
            Reuse::Fifo => self.connections.least_recent_first(|key| !self.is_kept(key)).next(),
        }
    }

    /// The most recently used connection that any waiter may take, if it needs no check. Where less recently used ones come first and a
    /// check runs for each waiter, it must not lie idle: one that was just established has its origin no more.
    pub(super) fn proven_at_once(&self) -> Option<Key> {
        let most_recent = self.most_recent_free()?;
        self.is_usable(most_recent).then_some(most_recent)
    }

    /// Whether an available connection can be delivered as it is.
    pub(super) fn is_usable(&self, key: Key) -> bool {
        self.perished(key).is_none() && !self.needs_check(key)
    }

    /// Whether an available connection has to be checked first: it has shown no sign of life for long, or was idle while the machine
    /// was suspended.
    pub(super) fn needs_check(&self, key: Key) -> bool {
        let unproven_time = self.fresh_since(key).map_or(0, |fresh_since| self.now.nanos_since(fresh_since));
        unproven_time > self.limits.check_after_idle || self.suspects.contains(&key)
    }
}
