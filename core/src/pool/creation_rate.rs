//! When connections may be created: not before a backoff's pause ends, and not more in a second than the option allows.
//!
//! The limit of new connections per second is a token bucket on the pool's clock. It holds as many tokens as
//! there are permits to establish (maxConnecting), but no more than one second's. Every new connection takes one,
//! whatever it is for. The bucket is one moment: the time until which all tokens so far are spent, which each creation
//! moves on by one interval.

use super::Pool;
use super::timer::{Timeout, TimeoutReason};
use crate::options::SECOND;
use crate::time::Instant;

impl<C> Pool<C> {
    /// The time from which on backoff and rate let a connection be created; `None` while the backoff tries one.
    pub(super) fn creation_allowed_at(&self) -> Option<Instant> {
        Some(self.backoff_allows_at()?.max(self.rate_allows_at()))
    }

    /// Whether neither backoff nor rate hold back a connection now.
    #[cold]
    pub(super) fn is_creation_allowed(&self) -> bool {
        self.creation_allowed_at().is_some_and(|at| at <= self.now)
    }

    /// The time from which on a waiter gets the connection that backoff or rate hold back, if they do.
    pub(super) fn creation_timeout(&self) -> Option<Timeout> {
        if !self.restrained {
            return None;
        }
        let (paused_until, spent_until) = (self.backoff_allows_at()?, self.rate_allows_at());
        let is_needed = self.wait_queue.next_origin().is_some()
            && self.wait_queue.len() > self.checks()
            && self.has_room()
            // Without a permit of the client's budget, the end of the pause is news, and nothing after it.
            && (self.may_ask_for_permit() || paused_until.max(spent_until) > self.now);
        let reason = if self.backoff.is_some() && paused_until >= spent_until {
            TimeoutReason::Backoff
        } else {
            TimeoutReason::CreationRate
        };
        is_needed.then(|| Timeout { at: paused_until.max(spent_until).max(self.now), reason })
    }

    /// A connection was created: it takes a token.
    pub(super) fn take_token(&mut self) {
        let interval = self.limits.creation_interval;
        if interval > 0 {
            self.created_until = self.created_until.max(self.now).after(interval);
        }
    }

    /// The limit has changed from one connection in `interval`, or none if that is 0: as many tokens are missing as before.
    pub(super) fn convert_tokens(&mut self, interval: u64) {
        let missing = self.created_until.saturating_since(self.now).as_nanos();
        let missing = missing * u128::from(self.limits.creation_interval) / u128::from(interval.max(1));
        if self.created_until > self.now {
            self.created_until = self.now.after(u64::try_from(missing).unwrap_or(u64::MAX));
        }
    }

    /// Notes whether anything may hold back a connection that there is room for.
    pub(super) fn note_restraint(&mut self) {
        self.restrained = self.is_restrained();
    }

    pub(super) fn is_restrained(&self) -> bool {
        self.backoff.is_some() || self.limits.creation_interval > 0
    }

    /// The time from which on the limit of new connections allows one.
    pub(super) fn rate_allows_at(&self) -> Instant {
        let interval = self.limits.creation_interval;
        let others = u64::from(self.limits.max_connecting.saturating_sub(1));
        let saved = interval.saturating_mul(others).min(SECOND.saturating_sub(interval));
        Instant::from_nanos(self.created_until.as_nanos().saturating_sub(saved))
    }
}
