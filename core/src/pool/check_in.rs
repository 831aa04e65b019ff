//! Connections that come back (CMAP-35, CMAP-36): closed, available again, or straight to who waits longest.

use super::connections::{Perished, Stage};
use super::list::Key;
use super::{Action, ApiMisuse, Condition, Delivery, Handle, Output, Pool, PoolState, Purpose, Refused};
use crate::event::{ConnectionClosedReason, Event};
use crate::time::Instant;

impl<C> Pool<C> {
    /// Gives a connection back (CMAP-35, CMAP-36). It serves the next waiter, becomes available, or is closed if it
    /// perished or the pool was closed.
    ///
    /// # Errors
    /// The handle is another pool's, or its connection is not in use. The socket comes back with the error.
    #[inline]
    pub fn check_in(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<(), Refused<C>> {
        if let Some(delivery) = self.take_back(now, connection, socket, condition)? {
            self.outputs.push_back(delivery.into());
        }
        Ok(())
    }

    /// The short way of a check-in: the same as [`check_in`](Self::check_in), but if all that comes of it is that the
    /// connection goes to who waits longest, its delivery is handed over at once.
    ///
    /// Then there is nothing to drain, the pool is the same as after `check_in` and a drain, and no deadline has become an
    /// earlier one. `None` means that nobody waits, or more came of it than that, or somebody listens: the driving rule
    /// goes on as after `check_in`.
    ///
    /// # Errors
    /// Those of [`check_in`](Self::check_in).
    #[must_use = "a delivered connection has to be checked in"]
    #[inline]
    pub fn hand_over(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<Option<Delivery<C>>, Refused<C>> {
        let delivery = self.take_back(now, connection, socket, condition)?;
        if self.is_drained() {
            return Ok(delivery);
        }
        self.outputs.extend(delivery.map(Output::from));
        Ok(None)
    }

    /// A connection is given back. The delivery to the next waiter comes after all that is in the outputs.
    #[inline(always)]
    fn take_back(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<Option<Delivery<C>>, Refused<C>> {
        self.advance(now);
        let refused = |misuse, socket| Err(Refused { misuse, socket });
        if connection.pool != self.id {
            return refused(ApiMisuse::ForeignConnection, socket);
        }
        let Some(key) = self.connections.find(connection) else { return refused(ApiMisuse::NotInUse, socket) };
        let slot = self.connections.slot(key);
        let Stage::InUse { check_out, perished, purpose } = slot.stage else {
            return refused(ApiMisuse::NotInUse, socket);
        };
        let is_stale = self.generations.is_stale(slot.generation, slot.service.as_ref());
        self.emit(|| Event::ConnectionCheckedIn { connection_id: connection.id });
        self.wait_queue.finish(check_out);
        if purpose != Purpose::Other {
            self.connections.set_purpose(key, Purpose::Other);
        }
        let reason = match (condition, perished) {
            _ if self.state == PoolState::Closed => ConnectionClosedReason::PoolClosed,
            (_, Some(Perished::Interrupted)) => ConnectionClosedReason::Stale,
            (Condition::Errored, _) | (_, Some(Perished::PeerClosed)) => ConnectionClosedReason::Error,
            (Condition::Usable, None) if is_stale => ConnectionClosedReason::Stale,
            (Condition::Usable, None) if self.wait_queue.len() > 0 => return Ok(self.serve_with(connection, socket)),
            (Condition::Usable, None) => {
                self.put_hottest(key, socket);
                return Ok(None);
            }
        };
        self.close_checked_in(key, connection, socket, reason);
        Ok(None)
    }

    /// Closes a connection that came back and must not be used again; others may be served in its place.
    #[cold]
    fn close_checked_in(&mut self, key: Key, connection: Handle, socket: C, reason: ConnectionClosedReason) {
        self.forget(key, reason, None);
        self.outputs.push_back(Output::Action(Action::Close { connection, socket, reason }));
        self.serve();
    }
}
