//! The backoff of a pool whose server cannot take more connections.
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

use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::Pool;
use super::connections::Stage;
use super::error::Cause;
use super::handle::ConnectionId;
use crate::connection::{EstablishError, SYSTEM_OVERLOADED_ERROR};
use crate::time::{Instant, nanos};

/// The upper end of the first pause.
const BASE: Duration = Duration::from_millis(100);

/// The upper end of the longest pause.
const LONGEST: Duration = Duration::from_millis(800);

/// A backoff under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Backoff {
    /// The end of the pause: no connection is created before it.
    until: Instant,
    /// The connection that is being tried since the pause ended.
    tried: Option<ConnectionId>,
    /// How often a connection that was tried has failed.
    failures: u32,
    /// The latest failure.
    cause: Cause,
}

impl<C> Pool<C> {
    /// Why connections are created one at a time and after pauses, if they are.
    pub(super) fn backed_off_by(&self) -> Option<Cause> {
        self.backoff.as_ref().map(|backoff| backoff.cause.clone())
    }

    /// Whether the connection that the backoff tries is still being established.
    pub(super) fn check_backoff(&self) -> bool {
        let tried = self.backoff.as_ref().and_then(|backoff| backoff.tried);
        let is_pending = |id| {
            let mut slots = self.connections.slots.iter();
            slots.any(|slot| slot.id == id && matches!(slot.stage, Stage::Pending { .. }))
        };
        tried.is_none_or(is_pending)
    }

    /// The time from which on the backoff lets a connection be created; `None` while one is being tried.
    pub(super) fn backoff_allows_at(&self) -> Option<Instant> {
        match &self.backoff {
            None => Some(Instant::ORIGIN),
            Some(Backoff { tried: Some(_), .. }) => None,
            Some(Backoff { until, .. }) => Some(*until),
        }
    }

    /// A connection was created: while the pool backs off, it is the one that is tried.
    pub(super) fn note_created(&mut self, connection: ConnectionId) {
        if let Some(backoff) = &mut self.backoff {
            backoff.tried = Some(connection);
        }
    }

    /// A pending connection has left that state, established or not.
    pub(super) fn note_tried(&mut self, connection: ConnectionId) {
        if let Some(backoff) = &mut self.backoff
            && backoff.tried == Some(connection)
        {
            backoff.tried = None;
        }
    }

    /// Establishing a connection failed: begins a pause, if the error speaks of overload.
    pub(super) fn back_off(&mut self, connection: ConnectionId, error: &EstablishError) {
        if !self.limits.backoff || !error.has_label(SYSTEM_OVERLOADED_ERROR) {
            return;
        }
        let failures = match &self.backoff {
            None => 0,
            Some(backoff) if backoff.tried == Some(connection) => backoff.failures.saturating_add(1),
            // It was created before the pause, like the connections whose failure began it.
            Some(_) => return,
        };
        let most = nanos(BASE).saturating_mul(1 << failures.min(10)).min(nanos(LONGEST));
        let until = self.now.after(most - self.random.up_to(most / 2));
        self.backoff = Some(Backoff { until, tried: None, failures, cause: Cause::of(error) });
        self.note_restraint();
    }

    /// A connection was established: the backoff, if there is one, is over.
    pub(super) fn end_backoff(&mut self) {
        self.backoff = None;
        self.note_restraint();
    }
}
