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

use core::mem;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::Pool;
use super::connections::Stage;
use super::error::Cause;
use super::handle::ConnectionId;
use super::state::PoolState;
use super::timer::{Timeout, TimeoutReason};
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

impl<C> Pool<C> {
    /// Whether there is room for another connection, a permit to establish it (CMAP-1, CMAP-4), and neither backoff nor rate
    /// hold it back.
    pub(super) fn may_create(&self) -> bool {
        self.has_room() && self.is_creation_allowed() && self.has_permit()
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

    /// Whether neither backoff nor rate hold back a connection now.
    #[inline]
    pub(super) fn is_creation_allowed(&self) -> bool {
        self.is_creation_allowed_at(self.now)
    }

    /// Whether neither of them does at `now`.
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
        let is_pending = |id| {
            let mut slots = self.connections.slots.iter();
            slots.any(|slot| slot.id == id && matches!(slot.stage, Stage::Pending { .. }))
        };
        match tried {
            Some(Tried::Own(id)) => is_pending(id),
            Some(Tried::Elsewhere) | None => true,
        }
    }
}
