//! How many connections there are while nobody waits: which of the available ones are closed, and which are missing.
//!
//! **The background thread of the specification** (CMAP-47), without a thread. There is no tick: the next run follows from the state. It
//! is due at once when a clear left stale connections available (CMAP-43). It is also due when the least recently used connection
//! reaches maxIdleTimeMS, or when connections are missing, but then never sooner than the interval after the last run. So an idle pool
//! asks for no wake-up, and a population that fails cannot spin.
//!
//! **Limits that change while the pool runs** (X-70). A pool that grows serves its waiters at once. One that shrinks closes its least
//! recently used available connections; those in use stay, and are closed when they come back for as long as there are too many, also if
//! somebody waits: the limit counts more than the wait. A connection that is being established goes to a waiter, if there is one, and is
//! closed otherwise. A queue that is deeper than it may be now shrinks as it is served: nobody who waits already is refused.
//!
//! **A host that nobody has used for long** (X-72): its pool closes its connections, and keeps no minimum pool size until it is used again.
//! Check-outs and check-ins are not timed for this. The pool looks when `hostTimeout` has passed since the last use that it
//! knows of: whether check-outs have begun since, and when the last connection came back. So the timer costs one look in
//! each `hostTimeout`, and the warm path nothing.

use serde::{Deserialize, Serialize};

use super::list::Key;
use super::settle::Due;
use super::timer::{Timeout, TimeoutReason};
use super::{ConnectionClosedReason, Pool, PoolState};
use crate::options::{PoolLimits, PoolOptionsError};
use crate::service_id::ServiceId;
use crate::time::Instant;

/// What the last look at the host found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostUse {
    /// Check-outs that had begun by then.
    started: u64,
    /// The host was not used after this, up to the look; or it was in use at the look, which was then.
    pub(super) since: Instant,
    /// Whether it was in use, or somebody waited for it.
    is_busy: bool,
    /// Whether it has been unused for `hostTimeout`.
    pub(super) is_over: bool,
}

impl<C> Pool<C> {
    /// When maintenance is due, and why.
    #[inline]
    pub(super) fn maintenance_timeout(&self) -> Option<Timeout> {
        let interval = self.limits.maintenance?;
        let least_recent = self.connections.available.front();
        let is_stale = least_recent.is_some_and(|key| self.is_stale_at(key)) || !self.generations.to_prune.is_empty();
        if is_stale {
            return Some(Timeout { at: self.now, reason: TimeoutReason::PruneStale });
        }
        let earliest = self.last_maintenance.map_or(Instant::ORIGIN, |last| last.after(interval));
        if earliest == Instant::END {
            return None;
        }
        let may_populate = self.must_populate() && self.has_room() && self.may_ask_for_permit();
        let populates_at = if may_populate { self.creation_allowed_at() } else { None };
        let populate = populates_at
            .map(|allowed| Timeout { at: earliest.max(allowed).max(self.now), reason: TimeoutReason::Populate });
        let expiry = least_recent.and_then(|key| self.expiry(key));
        let prune = expiry.map(|expiry| Timeout { at: earliest.max(expiry), reason: TimeoutReason::PruneIdle });
        populate.into_iter().chain(prune).min_by_key(|timeout| timeout.at)
    }

    /// Begins a run, if one is due: prunes. The pool populates next. It does what can be done now and ends (CMAP-47).
    pub(super) fn begin_maintenance(&mut self) -> bool {
        let is_due = self.maintenance_timeout().is_some_and(|timeout| timeout.at <= self.now);
        if is_due {
            self.last_maintenance = Some(self.now);
            self.population_failed = false;
            self.prune();
        }
        is_due
    }

    /// Closes available connections that perished (CMAP-47), from the least recently used on.
    pub(super) fn prune(&mut self) {
        while let Some(key) = self.connections.available.front()
            && let Some(reason) = self.perished(key)
        {
            self.close_connection(key, reason);
        }
        while let Some(id) = self.generations.to_prune.pop_first() {
            while self.has_stale_available(id)
                && let Some(key) = self.generations.services.get(&id).and_then(|service| service.available.front())
            {
                self.close_connection(key, ConnectionClosedReason::Stale);
            }
        }
    }

    /// Whether a service that was cleared still has connections to prune. They are the oldest of its available ones.
    pub(super) fn has_stale_available(&self, id: ServiceId) -> bool {
        let oldest = self.generations.services.get(&id).and_then(|service| service.available.front());
        oldest.is_some_and(|key| self.is_stale_at(key))
    }

    /// Creates the connections that are missing to minPoolSize, within the limit of permits (CMAP-44). An established
    /// connection passes its permit on, so a population needs one run. After a failure, the rest waits for the next run
    ///
    pub(super) fn populate(&mut self) {
        while self.limits.maintenance.is_some() && !self.population_failed && self.must_populate() && self.may_create()
        {
            self.create(None);
        }
    }

    /// Why a connection must not be used any more (CMAP-11), if so.
    pub(super) fn perished(&self, key: Key) -> Option<ConnectionClosedReason> {
        if self.is_stale_at(key) {
            Some(ConnectionClosedReason::Stale)
        } else if self.unused_since(key).is_some_and(|since| self.now.nanos_since(since) > self.limits.max_idle) {
            Some(ConnectionClosedReason::Idle)
        } else {
            None
        }
    }

    /// Why a connection that the driver has worked at is closed instead of becoming available, if so.
    pub(super) fn unusable(&self, key: Key) -> Option<ConnectionClosedReason> {
        match self.state {
            PoolState::Closed => Some(ConnectionClosedReason::PoolClosed),
            PoolState::Paused | PoolState::Ready => self.perished(key).or_else(|| self.superfluous()),
        }
    }

    fn must_populate(&self) -> bool {
        if self.state != PoolState::Ready {
            return false;
        }
        let (total, least) = (self.connections.total(), self.min_pool_size());
        // a connection at the end of its life gets its replacement first.
        let lacks_one = total < least || (total == least && self.wants_replacement());
        lacks_one && self.has_permit_to_spare()
    }

    /// Since when a connection has been without use.
    pub(super) fn unused_since(&self, connection: Key) -> Option<Instant> {
        self.connections.slot(connection).stage.unused_since()
    }

    /// The first moment at which an available connection exceeds maxIdleTimeMS (CMAP-3).
    fn expiry(&self, key: Key) -> Option<Instant> {
        let since = self.unused_since(key).filter(|_| self.limits.max_idle != u64::MAX)?;
        Some(since.after(self.limits.max_idle.saturating_add(1))).filter(|&expiry| expiry != Instant::END)
    }

    /// Closes the least recently used available connection, for `reason` if it could be used. Returns whether there was one.
    pub(super) fn close_least_recent(&mut self, reason: ConnectionClosedReason) -> bool {
        let Some(key) = self.connections.available.front() else { return false };
        let reason = self.perished(key).unwrap_or(reason);
        self.close_connection(key, reason);
        true
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
            let started = self.wait_queue.last_sequence;
            let is_busy = self.connections.in_use > 0 || self.waiting() > 0 || self.is_warming();
            let before = self.host_use;
            let is_over = !is_busy && !before.is_busy && started == before.started;
            // A connection that was established to populate is taken for one that came back: the next look knows better.
            let last_return = self.connections.available.back().and_then(|key| self.unused_since(key));
            let since = if is_busy { self.now } else { last_return.unwrap_or(self.now).max(before.since) };
            self.host_use = HostUse { started, since, is_busy, is_over };
            while is_over && self.close_least_recent(ConnectionClosedReason::Idle) {}
        }
    }

    /// A check-out begins: the host is in use.
    #[inline]
    pub(super) fn use_host(&mut self) {
        if self.host_use.is_over {
            let started = self.wait_queue.last_sequence;
            self.host_use = HostUse { started, since: self.now, is_busy: true, is_over: false };
        }
    }

    /// Gives the pool new limits. A higher minPoolSize is for the next run of maintenance.
    ///
    /// # Errors
    /// A limit has a value that it cannot have together with the others. Then nothing has changed.
    pub fn resize(&mut self, now: Instant, limits: impl Into<PoolLimits>) -> Result<(), PoolOptionsError> {
        self.advance(now);
        let options = limits.into().applied_to(&self.options)?;
        let interval = self.limits.creation_interval;
        self.limits = options.limits()?;
        *self.options = options;
        self.convert_tokens(interval);
        self.renew_attention();
        self.refuse_warm_ups();
        self.settle(Due::Spare);
        Ok(())
    }

    /// Whether there are more connections than maxPoolSize, because that has become smaller.
    pub(super) fn has_surplus(&self) -> bool {
        self.connections.total() > self.limits.max_pool_size
    }

    /// Closes the least recently used available connection, in favour of another server.
    pub(crate) fn give_up_least_recent(&mut self, now: Instant) {
        // Fail no overdue check-out here: the waiter behind it could be served with the connection that is to be closed.
        self.now = self.now.max(now);
        self.close_least_recent(ConnectionClosedReason::Surplus);
    }
}

impl HostUse {
    /// Of a pool that was made at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, ..Self::default() }
    }
}
