//! Connections from their creation until they are established, or are not (CMAP-22, CMAP-23, CMAP-31).

use alloc::sync::Arc;

use super::connections::Stage;
use super::error::{Cause, CheckOutErrorKind, WarmUpErrorKind};
use super::list::Key;
use super::output::{Action, Event, Output};
use super::settle::Due;
use super::{ApiMisuse, Clear, ConnectionClosedReason, ConnectionState, Handle, Pool, Reaction, Refused, ServiceId};
use crate::connection::EstablishError;
use crate::time::Instant;

impl<C> Pool<C> {
    /// The hello of a load-balanced connection named its service: the connection takes that service's generation
    /// (LB-7).
    ///
    /// # Errors
    /// The pool is not load-balanced, the service is known already, or the handle is another pool's or of a connection
    /// that is not pending. A connection that was interrupted is ignored.
    pub fn handle_hello(&mut self, now: Instant, connection: Handle, service_id: ServiceId) -> Result<(), ApiMisuse> {
        self.advance(now);
        let Some(key) = self.find_in(connection, ConnectionState::Pending)? else { return Ok(()) };
        if !self.limits.load_balanced || self.connections.slot(key).service.is_some() {
            return Err(ApiMisuse::UnexpectedService);
        }
        self.connections.join_service(&mut self.generations, key, service_id);
        Ok(())
    }

    /// A connection was established (CMAP-23). It serves the head of the queue, whichever waiter that is, or
    /// becomes available. A connection that a clear has made stale, or whose pool was closed, is closed.
    ///
    /// # Errors
    /// The handle is another pool's or of a connection that is not pending, or the service of a load-balanced
    /// connection is not known; the socket comes back. The socket of an interrupted connection goes to
    /// [`Action::Close`].
    pub fn handle_established(&mut self, now: Instant, connection: Handle, socket: C) -> Result<(), Refused<C>> {
        self.advance(now);
        let Some((key, socket)) = self.find_for(connection, ConnectionState::Pending, socket)? else { return Ok(()) };
        if self.limits.load_balanced && self.connections.slot(key).service.is_none() {
            return Err(Refused { misuse: ApiMisuse::ServiceUnknown, socket });
        }
        self.establish(key, socket);
        Ok(())
    }

    /// Establishing a connection failed. The check-out that caused it fails too, if it still waits (CMAP-31, X-15).
    ///
    /// With [`Reaction::ClearPool`] the pool is cleared as part of it, in the order of CMAP-49. One that was refused because
    /// its credential has been replaced since fails nothing and clears nothing.
    ///
    /// # Errors
    /// The handle is another pool's or of a connection that is not pending. A connection that was interrupted is
    /// ignored.
    pub fn handle_establish_failed(
        &mut self,
        now: Instant,
        connection: Handle,
        error: EstablishError,
        reaction: Reaction,
    ) -> Result<(), ApiMisuse> {
        self.advance(now);
        match self.find_in(connection, ConnectionState::Pending)? {
            Some(key) if self.is_refused_as_outdated(connection, &error) => self.replace_outdated(key, error),
            Some(key) => self.fail_establishment(key, error, reaction),
            None => {}
        }
        Ok(())
    }

    /// Creates a pending connection (CMAP-22), for a waiter or to populate the pool.
    pub(super) fn create(&mut self, origin: Option<Key>) -> Key {
        let key = self.connections.create(self.generations.pool, self.now, origin);
        let connection = self.handle(key);
        let high = &mut self.totals;
        high.high_water.pending = high.high_water.pending.max(self.connections.pending);
        high.high_water_total = high.high_water_total.max(self.connections.total());
        self.note_created(connection.id);
        self.use_permit();
        self.renew_attention();
        self.emit(|| Event::ConnectionCreated { connection_id: connection.id });
        self.outputs.push_back(Output::Action(Action::Connect { connection }));
        key
    }

    /// A connection was established: it is available first, and only then is its permit free (CMAP-45).
    fn establish(&mut self, key: Key, socket: C) {
        // One that was created for a waiter serves a waiter; it is closed when it comes back.
        let reason = self.unusable(key);
        // The server takes connections, whatever happens to this one.
        self.end_backoff();
        if let Some(reason) = reason {
            let origin = self.set_origin(key, None);
            self.discard(key, socket, reason);
            // Only behind a load balancer, or in an edition without pauses: elsewhere a clear or close has left no waiter.
            self.replace_for(origin);
        } else {
            let Stage::Pending { created_at, .. } = self.connections.slot(key).stage else { return };
            let duration = self.now.saturating_since(created_at);
            self.totals.established = self.totals.established.saturating_add(1);
            self.record_establishment(duration);
            let connection_id = self.connections.slot(key).id;
            self.emit(|| Event::ConnectionReady { connection_id, duration });
            self.exchange_origins(key);
            self.connections.make_available(&mut self.generations, key, self.now, socket);
            self.note_available();
            self.begin_life(key);
            self.watch_refreshed(key);
        }
        self.settle(Due::Permit);
    }

    /// Establishing a connection failed: its origin fails, if it still waits, and no other waiter. If that
    /// clears the pool, PoolCleared comes first and the other waiters' failure last (CMAP-49).
    fn fail_establishment(&mut self, key: Key, error: EstablishError, reaction: Reaction) {
        let error = Arc::new(error);
        let service_id = self.connections.slot(key).service;
        let clears = reaction == Reaction::ClearPool && service_id.is_some() == self.limits.load_balanced;
        if clears {
            let cause = Cause::of(&*error);
            self.raise_generation(&Clear { service_id, ..Clear::pool(cause) });
        }
        let connection = self.connections.slot(key).id;
        self.back_off(connection, &error);
        let origin = self.set_origin(key, None);
        self.forget(key, self.unless_closed(ConnectionClosedReason::Error), Some(Arc::clone(&error)));
        match origin {
            Some(origin) => {
                let kind = CheckOutErrorKind::Establish(error);
                self.fail_with(origin, kind, |failure| failure.connection = Some(connection));
            }
            None => {
                self.population_failed = true;
                self.fail_warm_ups(&WarmUpErrorKind::Establish(error));
            }
        }
        self.settle(Due::Queue);
    }

    /// The origin of a connection that is gone gets another one, and stays where origins stand in the queue; unless a limit, a
    /// backoff or a rate holds that one back.
    fn replace_for(&mut self, origin: Option<Key>) {
        match origin {
            Some(origin) if self.may_create() => {
                let replacement = self.create(Some(origin));
                self.wait_queue.set_pending(origin, Some(replacement));
            }
            Some(origin) => self.defer(origin),
            None => {}
        }
    }

    /// Gives a pending connection another origin, or none; returns the former one.
    pub(super) fn set_origin(&mut self, connection: Key, new: Option<Key>) -> Option<Key> {
        let Stage::Pending { origin, .. } = &mut self.connections.slot_mut(connection).stage else { return None };
        core::mem::replace(origin, new)
    }

    /// The head of the queue is about to take the connection that was established for another waiter, who gets the
    /// head's pending connection in exchange.
    fn exchange_origins(&mut self, established: Key) {
        let origin = self.set_origin(established, None);
        let Some(head) = self.wait_queue.front() else { return };
        if origin == Some(head) {
            self.wait_queue.set_pending(head, None);
        } else if let Some(pending) = self.wait_queue.pending(head) {
            self.wait_queue.set_pending(head, None);
            self.set_origin(pending, origin);
            if let Some(origin) = origin {
                self.wait_queue.set_pending(origin, Some(pending));
            }
        }
    }

    /// Whether a connection that could not be established was refused only because its credential is an old one.
    pub(crate) fn is_refused_as_outdated(&self, connection: Handle, error: &EstablishError) -> bool {
        self.own(connection).is_some_and(|key| self.is_outdated(key)) && error.is_about_the_credential()
    }

    /// Replaces a connection that was refused as outdated. The waiter that it was created for keeps its place.
    #[cold]
    fn replace_outdated(&mut self, key: Key, error: EstablishError) {
        let origin = self.set_origin(key, None);
        self.forget(key, self.unless_closed(ConnectionClosedReason::Error), Some(error.into()));
        self.replace_for(origin);
        self.settle(Due::Permit);
    }

    /// An origin whose connection is gone takes over that of the last origin: they are the front part of the queue.
    fn defer(&mut self, heir: Key) {
        let Some(last) = self.wait_queue.last_origin() else { return };
        let connection = self.wait_queue.pending(last).filter(|_| last != heir);
        self.wait_queue.pass_origin(last, heir, connection);
        self.wait_queue.bound(last, self.limits.wait_queue_timeout);
        if let Some(connection) = connection {
            self.set_origin(connection, Some(heir));
        }
    }
}
