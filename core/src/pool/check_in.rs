//! Connections that come back (CMAP-35, CMAP-36): closed, available again, or handed straight to the longest waiter.

use super::connections::{Perished, Stage};
use super::event::{ConnectionClosedReason, Event};
use super::list::Key;
use super::settle::Due;
use super::{Action, ApiMisuse, CheckOutId, CheckedIn, Condition, Handle, Output, Pool, PoolState, Purpose, Refused};
use crate::time::Instant;

impl<C> Pool<C> {
    /// Ends a use of a connection (CMAP-35, CMAP-36): that of the check-out it was delivered to. The connection serves the
    /// next waiter, becomes available, or is closed if it perished or the pool was closed. Returns the delivery to the next waiter, unless
    /// outputs were queued before the call or the call led to further outputs: then the delivery comes through the queue.
    ///
    /// Where nothing is queued afterwards, no timeout has become an earlier one, but for that at the end of
    /// [`idle_until`](Self::idle_until).
    ///
    /// # Errors
    /// The handle is another pool's, its connection is not in use, or another check-out uses it. The socket comes back with
    /// the error.
    #[inline]
    pub fn check_in(
        &mut self,
        now: Instant,
        check_out: CheckOutId,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<CheckedIn<C>, Refused<C>> {
        if !self.outputs.is_empty() {
            return self.begin_check_in(now, check_out, connection, socket, condition);
        }
        match self.check_in_fast(now, check_out, connection, socket, condition) {
            Ok(()) => Ok(CheckedIn::Done),
            Err(socket) => self.begin_check_in(now, check_out, connection, socket, condition),
        }
    }

    /// Out of line, so that the code inlined into a caller stays small.
    #[inline(never)]
    pub(crate) fn begin_check_in(
        &mut self,
        now: Instant,
        check_out: CheckOutId,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<CheckedIn<C>, Refused<C>> {
        let was_drained = self.is_drained();
        self.advance(now);
        let refused = |misuse, socket| Err(Refused { misuse, socket });
        if connection.pool != self.id {
            return refused(ApiMisuse::ForeignConnection, socket);
        }
        let Some(key) = self.connections.find(connection) else { return refused(ApiMisuse::NotInUse, socket) };
        let slot = self.connections.slot(key);
        let Stage::InUse { check_out: user, perished, purpose } = slot.stage else {
            return refused(ApiMisuse::NotInUse, socket);
        };
        if !self.wait_queue.is_at(check_out, user) {
            return refused(ApiMisuse::OtherUse, socket);
        }
        let is_stale = self.generations.is_stale(slot.generation, slot.service.as_ref());
        let retires = !self.attention.fast_check_in && self.note_check_in(key, connection);
        self.wait_queue.finish(user);
        if purpose != Purpose::Other {
            self.connections.set_purpose(key, Purpose::Other);
        }
        let reason = match (condition, perished) {
            _ if self.state == PoolState::Closed => Some(ConnectionClosedReason::PoolClosed),
            (_, Some(Perished::Interrupted)) => Some(ConnectionClosedReason::Stale),
            (Condition::Errored, _) | (_, Some(Perished::PeerClosed)) => Some(ConnectionClosedReason::Error),
            (Condition::Usable, None) if is_stale => Some(ConnectionClosedReason::Stale),
            (Condition::Usable, None) if self.is_given_up() => Some(ConnectionClosedReason::Surplus),
            (Condition::Usable, None) => retires.then_some(ConnectionClosedReason::Idle),
        };
        match reason {
            None => {
                self.put_most_recent(self.now, key, socket);
                self.serve_sticky(key);
            }
            Some(reason) => {
                self.forget(key, reason, None);
                self.note_last_use();
                self.outputs.push_back(Output::Action(Action::Close { connection, socket, reason }));
            }
        }
        self.settle(Due::Queue);
        Ok(self.take_back_delivery(was_drained, |_| true).map_or(CheckedIn::Done, CheckedIn::Delivered))
    }

    /// Reports the check-in, records the use, and says whether the connection's life ends with it. Out of line: most pools do
    /// none of it.
    #[inline(never)]
    fn note_check_in(&mut self, key: Key, connection: Handle) -> bool {
        self.record_use(key);
        self.emit(|| Event::ConnectionCheckedIn { connection_id: connection.id });
        self.ends_life_at_check_in(key)
    }
}
