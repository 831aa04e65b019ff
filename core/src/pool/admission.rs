//! Whether a connection may be created now, and if not, when: the backoff of a server that cannot take more connections, and the limit of
//! new connections per second.
//!
//! A failure that carries SystemOverloadedError (CMAP-50) clears nothing (SDAM-7): the pool stays ready and its waiters go on
//! waiting. Without a backoff each of them would connect again at once, which keeps an overloaded server overloaded. So the
//! next connection is created after a pause, and until one has been established only one is tried at a time:
//!
//! | event | pause before the next connection | failures in a row |
//! |---|---|---|
//! | the first failure | 50 to 100 ms | 0 |
//! | the connection that was tried after the pause fails as well | twice as long, up to 400 to 800 ms | one more |
//! | a connection created before the first failure fails | as it is | as they are |
//! | any connection is established | none: the backoff is over | |
//!
//! A connection refused counts as well, so the longest pause is short: a server that was restarted is found soon.
//!
//! The limit of new connections per second is a token bucket on the pool's clock. It holds as many tokens as
//! there are permits to establish (maxConnecting), but no more than one second's. Every new connection takes one,
//! whatever it is for. The bucket is one moment: the time until which all tokens so far are spent, which each creation
//! moves on by one interval.
//!
//! The pools of several identities at one server protect that server together: what one of them learns, the topology tells the
//! others after the call.
//!
//! The topology that a pool's server belongs to has a say, too: a minimum that follows another pool, and permits of the client's budget
//! . Both are decided there, from what is known of all servers; here they are only obeyed. A pool alone has neither.

use core::mem;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::connections::Stage;
use super::settle::Due;
use super::timer::{Timeout, TimeoutReason};
use super::{Cause, ConnectionClosedReason, ConnectionId, Pool, PoolState};
use crate::connection::{EstablishError, SYSTEM_OVERLOADED_ERROR};
use crate::options::SECOND;
use crate::time::{Instant, nanos};

/// The upper end of the first pause.
const BASE: Duration = Duration::from_millis(100);

/// The upper end of the longest pause.
const LONGEST: Duration = Duration::from_millis(800);

/// What holds back connections besides maxPoolSize and maxConnecting.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Admission {
    backoff: Option<Backoff>,
    /// Until when the limit of new connections per second is used up.
    created_until: Instant,
    /// Whether any of it has changed since the other pools of the server learned it.
    is_news: bool,
}

/// A backoff under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Backoff {
    /// The end of the pause: no connection is created before it.
    until: Instant,
    /// The connection that is being tried since the pause ended.
    tried: Option<Tried>,
    /// How often a connection that was tried has failed.
    failures: u32,
    /// The latest failure.
    cause: Cause,
}

/// Whose connection a backoff tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Tried {
    /// This pool's.
    Own(ConnectionId),
    /// One of another pool of the server.
    Elsewhere,
}

/// The pool's part in its deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Share {
    /// Connections that maintenance keeps up besides minPoolSize, because another pool has so many.
    followed: u32,
    /// The limit of connections that all pools of the client have together, if there is one.
    budget: Option<Permits>,
    /// Whether a connection that comes back may be given up: a waiter of another server needs a permit, or the pools that
    /// share a server's limits have too many connections.
    pub(super) is_sought: bool,
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

impl<C> Pool<C> {
    /// Whether there is room for another connection, a permit to establish it (CMAP-1, CMAP-4), and neither backoff nor rate
    /// hold it back.
    pub(super) fn may_create(&self) -> bool {
        self.has_room() && self.is_creation_allowed_at(self.now) && self.has_permit()
    }

    /// Whether there is room for another connection, and a permit to establish it (CMAP-1, CMAP-4).
    pub(super) fn has_room(&self) -> bool {
        self.state == PoolState::Ready
            && self.connections.total() < self.limits.max_pool_size
            && self.connections.pending < self.limits.max_connecting
    }

    /// The time from which on backoff and rate let a connection be created; `None` while the backoff tries one.
    pub(super) fn creation_allowed_at(&self) -> Option<Instant> {
        Some(self.backoff_allows_at()?.max(self.rate_allows_at()))
    }

    /// Whether neither backoff nor rate hold back a connection at `now`.
    pub(super) fn is_creation_allowed_at(&self, now: Instant) -> bool {
        !self.is_restrained() || self.creation_allowed_at().is_some_and(|at| at <= now)
    }

    /// The time from which on a waiter gets the connection that backoff or rate hold back, if they do.
    pub(super) fn creation_timeout(&self) -> Option<Timeout> {
        if !self.is_restrained() {
            return None;
        }
        let (paused_until, spent_until) = (self.backoff_allows_at()?, self.rate_allows_at());
        let is_needed = self.wait_queue.next_origin().is_some()
            && self.wait_queue.len() > self.checks()
            && self.has_room()
            // Without a permit of the client's budget, the end of the pause is news, and nothing after it.
            && (self.may_ask_for_permit() || paused_until.max(spent_until) > self.now);
        let reason = if self.admission.backoff.is_some() && paused_until >= spent_until {
            TimeoutReason::Backoff
        } else {
            TimeoutReason::CreationRate
        };
        is_needed.then(|| Timeout { at: paused_until.max(spent_until).max(self.now), reason })
    }

    /// Whether a backoff or a rate may hold back a connection that there is room for.
    #[inline]
    pub(super) fn is_restrained(&self) -> bool {
        self.admission.backoff.is_some() || self.limits.creation_interval > 0
    }

    /// Why connections are created one at a time and after pauses, if they are.
    pub(super) fn backed_off_by(&self) -> Option<Cause> {
        self.admission.backoff.as_ref().map(|backoff| backoff.cause.clone())
    }

    /// The time from which on the backoff lets a connection be created; `None` while one is being tried.
    pub(super) fn backoff_allows_at(&self) -> Option<Instant> {
        match &self.admission.backoff {
            None => Some(Instant::ORIGIN),
            Some(Backoff { tried: Some(_), .. }) => None,
            Some(Backoff { until, .. }) => Some(*until),
        }
    }

    /// The time from which on the limit of new connections allows one.
    pub(super) fn rate_allows_at(&self) -> Instant {
        let interval = self.limits.creation_interval;
        let others = u64::from(self.limits.max_connecting.saturating_sub(1));
        let saved = interval.saturating_mul(others).min(SECOND.saturating_sub(interval));
        Instant::from_nanos(self.admission.created_until.as_nanos().saturating_sub(saved))
    }

    /// A connection was created: it takes a token and, while the pool backs off, it is the one that is tried.
    pub(super) fn note_created(&mut self, connection: ConnectionId) {
        let (now, interval, admission) = (self.now, self.limits.creation_interval, &mut self.admission);
        if interval > 0 {
            admission.created_until = admission.created_until.max(now).after(interval);
            admission.is_news = true;
        }
        if let Some(backoff) = &mut admission.backoff {
            backoff.tried = Some(Tried::Own(connection));
            admission.is_news = true;
        }
    }

    /// A pending connection has left that state, established or not.
    pub(super) fn note_tried(&mut self, connection: ConnectionId) {
        if let Some(backoff) = &mut self.admission.backoff
            && backoff.tried == Some(Tried::Own(connection))
        {
            backoff.tried = None;
            self.admission.is_news = true;
        }
    }

    /// Establishing a connection failed: begins a pause, if the error speaks of overload.
    pub(super) fn back_off(&mut self, connection: ConnectionId, error: &EstablishError) {
        if !self.limits.backoff || !error.has_label(SYSTEM_OVERLOADED_ERROR) {
            return;
        }
        let failures = match &self.admission.backoff {
            None => 0,
            Some(backoff) if backoff.tried == Some(Tried::Own(connection)) => backoff.failures.saturating_add(1),
            // It was created before the pause, like the connections whose failure began it.
            Some(_) => return,
        };
        let most = nanos(BASE).saturating_mul(1 << failures.min(10)).min(nanos(LONGEST));
        let until = self.now.after(most - self.random.up_to(most / 2));
        self.admission.backoff = Some(Backoff { until, tried: None, failures, cause: Cause::of(error) });
        self.admission.is_news = true;
    }

    /// A connection was established: the backoff, if there is one, is over.
    pub(super) fn end_backoff(&mut self) {
        self.admission.is_news |= self.admission.backoff.take().is_some();
    }

    /// The limit has changed from one connection in `interval`, or none if that is 0: as many tokens are missing as before.
    pub(super) fn convert_tokens(&mut self, interval: u64) {
        let missing = self.admission.created_until.saturating_since(self.now).as_nanos();
        let missing = missing * u128::from(self.limits.creation_interval) / u128::from(interval.max(1));
        if self.admission.created_until > self.now {
            self.admission.created_until = self.now.after(u64::try_from(missing).unwrap_or(u64::MAX));
        }
    }

    /// What the other pools of the server have to know, if anything has changed since the last call of this.
    pub(crate) fn take_admission(&mut self) -> Option<Admission> {
        mem::take(&mut self.admission.is_news).then(|| self.admission())
    }

    /// What holds back connections, as another pool of the server sees it.
    pub(crate) fn admission(&self) -> Admission {
        let mut admission = self.admission.clone();
        let tried = admission.backoff.as_mut().and_then(|backoff| backoff.tried.as_mut());
        tried.into_iter().for_each(|tried| *tried = Tried::Elsewhere);
        admission
    }

    /// Another pool of the server has learnt this. A closed pool follows, too: its last connection may be the one that is tried.
    pub(crate) fn follow_admission(&mut self, admission: Admission) {
        self.admission = admission;
    }

    /// Whether the connection that the backoff tries is still being established.
    pub(super) fn check_backoff(&self) -> bool {
        let tried = self.admission.backoff.as_ref().and_then(|backoff| backoff.tried);
        let is_pending = |key| matches!(self.connections.slot(key).stage, Stage::Pending { .. });
        match tried {
            Some(Tried::Own(id)) => self.connections.search(id).is_some_and(is_pending),
            Some(Tried::Elsewhere) | None => true,
        }
    }

    /// Lets maintenance keep up as many connections, within maxPoolSize.
    pub(crate) fn follow(&mut self, size: u32) {
        self.share.followed = size;
    }

    /// The connections that maintenance keeps up: none while the host is not used.
    pub(super) fn min_pool_size(&self) -> u32 {
        if self.host_use.is_over {
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
        self.unused_since(self.connections.available.front()?)
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
            0 if self.host_use.is_over => Some(ConnectionClosedReason::Idle),
            _ => None,
        }
    }
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
