//! What a pool has from the topology that its server belongs to: a minimum that follows another pool, and permits of the
//! client's budget.
//!
//! Both are decided there, from what is known of all servers; here they are only obeyed. A pool alone has neither.

use core::mem;

use serde::{Deserialize, Serialize};

use super::Pool;
use super::event::ConnectionClosedReason;
use super::settle::Due;
use super::state::PoolState;
use crate::time::Instant;

/// The pool's part in its deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Share {
    /// Connections that maintenance keeps up besides minPoolSize, because another pool has so many.
    followed: u32,
    /// The limit of connections that all pools of the client have together, if there is one.
    budget: Option<Permits>,
    /// Whether a connection that comes back may be given up: a waiter of another server needs a permit, or the pools that
    /// share a server's limits have too many connections.
    is_sought: bool,
    /// Whether the next connection that comes back is given up for a waiter of another server.
    yields: bool,
    /// Check-outs that wait in the other pools of the server, which share maxWaitQueueDepth with this one.
    waiting_elsewhere: u32,
}

/// Connections that the pool may create besides those that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Permits {
    /// At this moment.
    left: u32,
    /// When there are others to ask for.
    next: NextPermit,
}

/// When limits that pools share leave a permit for one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NextPermit {
    /// Nothing that the pool does changes it: others establish too many connections, or have too many.
    Later,
    /// Now.
    Now,
    /// As soon as the pool closes a connection: there are as many as there may be.
    AfterClose,
}

/// What calls have to attend to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attention {
    /// Whether a check-out may take the most recently used connection, and do nothing else.
    pub(super) fast_check_out: bool,
    /// Whether a check-in may make its connection available, and do nothing else.
    pub(super) fast_check_in: bool,
    /// Whether something but maxIdleTimeMS may happen to an available connection at some time.
    pub(super) idle: bool,
}

impl Attention {
    /// Until the options have been looked at.
    pub(super) const EVERYWHERE: Self = Self { fast_check_out: false, fast_check_in: false, idle: true };
}

impl NextPermit {
    /// By the permits that are `free` when so many connections are closed.
    pub(crate) fn of(free: impl Fn(u32) -> u32) -> Self {
        if free(0) > 0 {
            Self::Now
        } else if free(1) > 0 {
            Self::AfterClose
        } else {
            Self::Later
        }
    }
}

impl<C> Pool<C> {
    /// Lets maintenance keep up as many connections, within maxPoolSize.
    pub(crate) fn follow(&mut self, size: u32) {
        self.share.followed = size;
    }

    /// The connections that maintenance keeps up: none while the host is not used.
    pub(super) fn min_pool_size(&self) -> u32 {
        if self.is_host_unused() {
            return 0;
        }
        self.limits.min_pool_size.max(self.share.followed).min(self.limits.max_pool_size)
    }

    /// Lends permits until the next [`end_of_call`](Self::end_of_call): no connection is created beyond them.
    pub(crate) fn lend_permits(&mut self, left: u32, next: NextPermit) {
        self.share.budget = Some(Permits { left, next });
    }

    /// Lends nothing: no connection is created.
    pub(crate) fn lend_nothing(&mut self) {
        self.lend_permits(0, NextPermit::Later);
    }

    /// Takes back what was lent. `next` says when there is another permit, `is_sought` whether a connection that comes back
    /// may be given up.
    pub(crate) fn end_of_call(&mut self, next: NextPermit, is_sought: bool) {
        self.lend_permits(0, next);
        self.share.yields = false;
        if mem::replace(&mut self.share.is_sought, is_sought) != is_sought {
            self.renew_attention();
        }
    }

    /// Creates a connection for the waiter that needs one, with a permit of the budget.
    pub(crate) fn spend_permit(&mut self, now: Instant) {
        self.advance(now);
        self.lend_permits(1, NextPermit::Now);
        self.settle(Due::Queue);
        self.lend_nothing();
    }

    /// Notes how many check-outs wait in the other pools of the server.
    pub(crate) fn note_waiting_elsewhere(&mut self, waiting: u32) {
        self.share.waiting_elsewhere = waiting;
    }

    /// Whether the queue is as long as it may be, with those of the other pools of the server.
    pub(super) fn is_queue_full(&self) -> bool {
        self.waiting().saturating_add(self.share.waiting_elsewhere) >= self.limits.max_wait_queue_depth
    }

    /// Gives the next connection that comes back up, for a waiter of another server.
    pub(crate) fn yield_next(&mut self) {
        self.share.yields = true;
    }

    /// maxPoolSize and maxConnecting, which the pools of several identities share.
    pub(crate) fn room(&self) -> (u32, u32) {
        (self.limits.max_pool_size, self.limits.max_connecting)
    }

    /// Since when a waiter waits that nothing but a permit of the budget keeps from a new connection at `now`, or later.
    pub(crate) fn wants_permit_since(&self, now: Instant) -> Option<Instant> {
        let origin = self.wait_queue.next_origin()?;
        let lacks_one = self.wait_queue.len() > self.connections.pending + self.checks();
        (lacks_one && self.has_room() && self.is_creation_allowed_at(self.now.max(now)))
            .then(|| self.wait_queue.started_at(origin))
    }

    /// Whether a waiter has nothing but the limit of all pools together in its way: it is served as soon as a
    /// connection of any server can be spared. For tests: the topology asks `wants_permit_since`.
    #[doc(hidden)]
    pub fn wants_connection_of_others(&self) -> bool {
        self.share.budget.is_some() && self.wants_permit_since(self.now).is_some()
    }

    /// Since when the head of the queue waits.
    pub(crate) fn waits_since(&self) -> Option<Instant> {
        self.wait_queue.front().map(|head| self.wait_queue.started_at(head))
    }

    /// Since when the least recently used available connection has been so.
    pub(crate) fn least_recent_since(&self) -> Option<Instant> {
        self.available_since(self.connections.available.front()?)
    }

    /// Closes the least recently used available connection, in favour of another server.
    pub(crate) fn give_up_least_recent(&mut self, now: Instant) {
        self.advance(now);
        if let Some(least_recent) = self.connections.available.front() {
            let reason = self.perished(least_recent).unwrap_or(ConnectionClosedReason::Surplus);
            self.close_connection(least_recent, reason);
        }
    }

    /// Whether the client's budget allows another connection now.
    pub(super) fn has_permit(&self) -> bool {
        self.share.budget.is_none_or(|permits| permits.left > 0)
    }

    /// Whether it may do so at the next call.
    pub(super) fn may_ask_for_permit(&self) -> bool {
        self.share.budget.is_none_or(|permits| permits.left > 0 || permits.next == NextPermit::Now)
    }

    /// Whether a connection has to be closed before the client's budget allows another one.
    pub(super) fn is_budget_full(&self) -> bool {
        self.share.budget.is_some_and(|permits| permits.next == NextPermit::AfterClose)
    }

    /// A connection was closed to make room for its replacement, which gets its permit, if that is created in this call.
    pub(super) fn keep_permit(&mut self) {
        if self.is_budget_full() {
            self.lend_permits(1, NextPermit::Later);
        }
    }

    /// A connection was created.
    pub(super) fn use_permit(&mut self) {
        if let Some(permits) = &mut self.share.budget {
            permits.left = permits.left.saturating_sub(1);
        }
    }

    /// Whether a connection that came back is closed though it could be used.
    pub(super) fn is_given_up(&self) -> bool {
        self.share.yields || self.has_surplus()
    }

    /// Why a connection that nobody waits for is closed as soon as it is established, if so.
    pub(super) fn superfluous(&self) -> Option<ConnectionClosedReason> {
        match self.wait_queue.len() {
            0 if self.has_surplus() => Some(ConnectionClosedReason::Surplus),
            0 if self.is_host_unused() => Some(ConnectionClosedReason::Idle),
            _ => None,
        }
    }

    /// Notes which calls must not take the fast path.
    pub(super) fn renew_attention(&mut self) {
        self.attention = self.needed_attention();
    }

    pub(super) fn needed_attention(&self) -> Attention {
        let everywhere = self.observed || self.share.is_sought || self.has_surplus() || self.has_sticky_waiters();
        let is_plain = !everywhere && self.durations.is_none();
        Attention {
            fast_check_out: is_plain
                && self.state == PoolState::Ready
                && self.suspects.is_empty()
                && self.serves_most_recent(),
            fast_check_in: is_plain && self.state != PoolState::Closed && self.retirement.is_none(),
            idle: self.affinity.is_some() || self.retirement.is_some() || self.refresh.is_some(),
        }
    }
}
