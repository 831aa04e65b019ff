//! A new credential, without a clear.
//!
//! Connections keep the credential with which they were established. When that is replaced, those that exist are
//! outdated: by their ids, because later ones have later ids. They retire: nothing is cut off, and minPoolSize of
//! them stay until their successors are established. One that is being established serves the next waiter, and
//! retires at its check-in. Where the server refuses it because of the old credential, that speaks neither against the
//! server nor against the caller: another connection takes its place.

use core::time::Duration;

use super::Pool;
use super::connections::{Slot, Stage};
use super::event::ConnectionClosedReason;
use super::handle::{ConnectionId, Handle};
use super::list::Key;
use super::settle::Due;
use super::state::PoolState;
use super::wait_queue::WaitQueue;
use crate::connection::EstablishError;
use crate::time::Instant;

impl<C> Pool<C> {
    /// The driver establishes connections with another credential from now on: all that exist retire. Tell the
    /// pool after the driver has changed. A population that has failed goes on, because the old one may be why.
    pub fn renew_credential(&mut self, now: Instant) {
        self.advance(now);
        self.outdate_connections();
        self.retire_outdated(now);
    }

    /// The connections that exist have an old credential.
    pub(crate) fn outdate_connections(&mut self) {
        if self.state != PoolState::Closed {
            self.outdated_until = ConnectionId(self.connections.created());
        }
    }

    /// Retires the connections that have an old credential, and goes on with a population that may have failed because of it.
    pub(crate) fn retire_outdated(&mut self, now: Instant) {
        if self.state != PoolState::Closed {
            self.replace_connections(now, Duration::ZERO);
            if core::mem::take(&mut self.population_failed) {
                self.settle(Due::Permit);
            }
        }
    }

    /// Connections whose credential has been replaced since, those that are being established included. At zero the old
    /// credential may be revoked.
    pub fn outdated(&self) -> u32 {
        let is_outdated = |slot: &&Slot<C>| slot.id <= self.outdated_until && !matches!(slot.stage, Stage::Closed);
        let outdated = self.connections.slots.iter().filter(is_outdated).count();
        u32::try_from(outdated).unwrap_or(u32::MAX)
    }

    /// Whether a connection that could not be established was refused only because its credential is an old one.
    pub(crate) fn is_refused_as_outdated(&self, connection: Handle, error: &EstablishError) -> bool {
        self.own(connection).is_some_and(|key| self.is_outdated(key)) && error.is_about_the_credential()
    }

    pub(super) fn is_outdated(&self, key: Key) -> bool {
        self.connections.slot(key).id <= self.outdated_until
    }

    /// Replaces a connection that was refused as outdated. The waiter that it was created for keeps its place.
    #[cold]
    pub(super) fn replace_outdated(&mut self, key: Key, error: EstablishError) {
        let origin = self.release_origin(key);
        let reason = match self.state {
            PoolState::Closed => ConnectionClosedReason::PoolClosed,
            PoolState::Paused | PoolState::Ready => ConnectionClosedReason::Error,
        };
        self.forget(key, reason, Some(error.into()));
        match origin {
            // A backoff or a rate may hold back another one.
            Some(origin) if !self.may_create() => self.defer(origin),
            origin => self.replace_for(origin),
        }
        self.settle(Due::Permit);
    }

    /// An origin whose connection is gone takes over that of the last origin: they are the front part of the queue.
    fn defer(&mut self, origin: Key) {
        let timeout = self.limits.wait_queue_timeout;
        if let Some(connection) = self.wait_queue.pass_last_origin(origin, timeout) {
            self.change_origin(connection, origin);
        }
    }
}

impl WaitQueue {
    /// `heir` stands among the origins, but its connection is gone: it takes over that of the last one, which is returned.
    fn pass_last_origin(&mut self, heir: Key, timeout: u64) -> Option<Key> {
        let last = self.last_origin()?;
        let connection = self.pending(last).filter(|_| last != heir);
        self.pass_origin(last, heir, connection);
        self.bound(last, timeout);
        connection
    }
}
