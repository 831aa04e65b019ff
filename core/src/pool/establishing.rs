//! Connections from their creation until they are established, or are not (CMAP-22, CMAP-23, CMAP-31).

use alloc::sync::Arc;

use super::connections::Stage;
use super::event::{ConnectionClosedReason, Event};
use super::input::Reaction;
use super::list::Key;
use super::output::{Action, Output};
use super::settle::Due;
use super::state::PoolState;
use super::{Clear, Handle, Pool};
use crate::connection::EstablishError;

impl<C> Pool<C> {
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
    pub(super) fn establish(&mut self, key: Key, connection: Handle, socket: C) {
        let reason = match self.state {
            PoolState::Closed => Some(ConnectionClosedReason::PoolClosed),
            _ if self.is_stale_at(key) => Some(ConnectionClosedReason::Stale),
            // One that was created for a waiter serves a waiter; it is closed when it comes back.
            PoolState::Paused | PoolState::Ready => self.superfluous(),
        };
        // The server takes connections, whatever happens to this one.
        self.end_backoff();
        if let Some(reason) = reason {
            let origin = self.release_origin(key);
            self.forget(key, reason, None);
            self.outputs.push_back(Output::Action(Action::Close { connection, socket, reason }));
            // Only behind a load balancer, or in an edition without pauses: elsewhere a clear or close has left no waiter.
            self.replace_for(origin);
        } else {
            let Stage::Pending { created_at, .. } = self.connections.slot(key).stage else { return };
            let duration = self.now.saturating_since(created_at);
            self.totals.established = self.totals.established.saturating_add(1);
            self.record_establishment(duration);
            self.emit(|| Event::ConnectionReady { connection_id: connection.id, duration });
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
    pub(super) fn fail_establishment(&mut self, key: Key, error: EstablishError, reaction: Reaction) {
        let error = Arc::new(error);
        let service_id = self.connections.slot(key).service;
        let clears = reaction == Reaction::ClearPool && service_id.is_some() == self.limits.load_balanced;
        if clears {
            let cause = super::Cause::of(&*error);
            self.raise_generation(&Clear { service_id, ..Clear::pool(cause) });
        }
        let reason = match self.state {
            PoolState::Closed => ConnectionClosedReason::PoolClosed,
            PoolState::Paused | PoolState::Ready => ConnectionClosedReason::Error,
        };
        let connection = self.connections.slot(key).id;
        self.back_off(connection, &error);
        let origin = self.release_origin(key);
        self.forget(key, reason, Some(Arc::clone(&error)));
        match origin {
            Some(origin) => self.fail_with_connection(origin, connection, error),
            None => {
                self.population_failed = true;
                self.fail_warm_ups(&error);
            }
        }
        self.settle(Due::Queue);
    }

    /// The origin of a connection that is gone gets another one, and stays where origins stand in the queue.
    pub(super) fn replace_for(&mut self, origin: Option<Key>) {
        if let Some(origin) = origin {
            let replacement = self.create(Some(origin));
            self.wait_queue.set_pending(origin, Some(replacement));
        }
    }

    /// The pending connection has no origin any more; returns its former origin.
    pub(super) fn release_origin(&mut self, connection: Key) -> Option<Key> {
        match &mut self.connections.slot_mut(connection).stage {
            Stage::Pending { origin, .. } => origin.take(),
            Stage::Closed
            | Stage::Available { .. }
            | Stage::Checking { .. }
            | Stage::Refreshing { .. }
            | Stage::InUse { .. } => None,
        }
    }

    /// A pending connection has another origin from now on.
    pub(super) fn change_origin(&mut self, connection: Key, new: Key) {
        if let Stage::Pending { origin, .. } = &mut self.connections.slot_mut(connection).stage {
            *origin = Some(new);
        }
    }

    /// The head of the queue is about to take the connection that was established for another waiter, who gets the
    /// head's pending connection in exchange.
    fn exchange_origins(&mut self, established: Key) {
        let origin = self.release_origin(established);
        let Some(head) = self.wait_queue.front() else { return };
        if origin == Some(head) {
            self.wait_queue.set_pending(head, None);
        } else if let Some(pending) = self.wait_queue.pending(head) {
            self.wait_queue.set_pending(head, None);
            if let Stage::Pending { origin: origin_of_heads, .. } = &mut self.connections.slot_mut(pending).stage {
                *origin_of_heads = origin;
            }
            if let Some(origin) = origin {
                self.wait_queue.set_pending(origin, Some(pending));
            }
        }
    }
}
