//! The background thread of the specification (CMAP-47), without a thread: pruning and populating when they are due.
//!
//! There is no tick. The next run follows from the state. It is due at once when a clear left stale connections
//! available (CMAP-43). It is also due when the least recently used connection reaches maxIdleTimeMS, or when connections are
//! missing, but then never sooner than the interval after the last run. So an idle pool asks for no wake-up, and a
//! population that fails cannot spin.

use super::Pool;
use super::connections::Stage;
use super::event::ConnectionClosedReason;
use super::list::Key;
use super::state::PoolState;
use super::timer::{Timeout, TimeoutReason};
use crate::service_id::ServiceId;
use crate::time::Instant;

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
        Timeout::earlier(populate, prune)
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
                && let Some(key) = self.generations.service(id).and_then(|service| service.available.front())
            {
                self.close_connection(key, ConnectionClosedReason::Stale);
            }
        }
    }

    /// Whether a service that was cleared still has connections to prune. They are the oldest of its available ones.
    pub(super) fn has_stale_available(&self, id: ServiceId) -> bool {
        let oldest = self.generations.service(id).and_then(|service| service.available.front());
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

    /// Why an available connection must not be used any more (CMAP-11), if so.
    pub(super) fn perished(&self, key: Key) -> Option<ConnectionClosedReason> {
        if self.is_stale_at(key) {
            Some(ConnectionClosedReason::Stale)
        } else if self.idle_time(key, self.now) > self.limits.max_idle {
            Some(ConnectionClosedReason::Idle)
        } else {
            None
        }
    }

    /// For how many nanoseconds a connection has been available at `now`.
    #[inline]
    pub(super) fn idle_time(&self, key: Key, now: Instant) -> u64 {
        match self.connections.slot(key).stage {
            Stage::Available { since, .. } => now.nanos_since(since),
            Stage::Closed
            | Stage::Pending { .. }
            | Stage::Checking { .. }
            | Stage::Refreshing { .. }
            | Stage::InUse { .. } => 0,
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

    /// The first moment at which an available connection exceeds maxIdleTimeMS (CMAP-3).
    fn expiry(&self, key: Key) -> Option<Instant> {
        match self.connections.slot(key).stage {
            Stage::Available { since, .. } if self.limits.max_idle != u64::MAX => {
                Some(since.after(self.limits.max_idle.saturating_add(1))).filter(|&expiry| expiry != Instant::END)
            }
            Stage::Closed
            | Stage::Pending { .. }
            | Stage::Available { .. }
            | Stage::Checking { .. }
            | Stage::Refreshing { .. }
            | Stage::InUse { .. } => None,
        }
    }
}
