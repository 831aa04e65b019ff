//! Connections that come back (CMAP-35, CMAP-36): closed, available again, or handed straight to the longest waiter.

use super::connections::{Perished, Stage};
use super::list::Key;
use super::settle::Due;
use super::{
    ApiMisuse, CheckOutId, CheckedIn, Condition, ConnectionClosedReason, Event, Handle, Pool, PoolState, Purpose,
    Refused,
};
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
                self.discard(key, socket, reason);
                // No available connection will tell of this use.
                self.host_use.since = self.now;
            }
        }
        self.settle(Due::Queue);
        Ok(self.take_back_delivery(was_drained, |_| true).map_or(CheckedIn::Done, CheckedIn::Delivered))
    }

    /// Makes a connection that came back the most recently used one, if nothing stands in the way. Otherwise its socket is returned.
    #[inline(always)]
    pub(crate) fn check_in_fast(
        &mut self,
        now: Instant,
        check_out: CheckOutId,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<(), C> {
        if !self.attention.fast_check_in || !self.is_reusable(check_out, connection, condition) {
            return Err(socket);
        }
        // Move the connection first, while what was read of it above is still in registers.
        let latest = self.now.max(now);
        self.put_most_recent(latest, connection.key, socket);
        self.now = latest;
        self.wait_queue.finish(check_out.key);
        Ok(())
    }

    /// Whether the check-out has the connection, for one operation, the connection may be used again, and nobody waits for it.
    #[inline(always)]
    fn is_reusable(&self, check_out: CheckOutId, connection: Handle, condition: Condition) -> bool {
        if self.wait_queue.len() > 0 || matches!(condition, Condition::Errored) {
            return false;
        }
        let Some(slot) = self.connections.slots.get(connection.key as usize) else { return false };
        let Stage::InUse { check_out: user, perished: None, purpose: Purpose::Other } = slot.stage else {
            return false;
        };
        slot.id == connection.id
            && connection.pool == self.id
            && self.wait_queue.is_at(check_out, user)
            && !self.generations.is_stale(slot.generation, slot.service.as_ref())
    }

    /// Reports the check-in, records the use, and says whether the connection's life ends with it. Out of line: most pools do
    /// none of it.
    #[inline(never)]
    fn note_check_in(&mut self, key: Key, connection: Handle) -> bool {
        self.record_use(key);
        self.emit(|| Event::ConnectionCheckedIn { connection_id: connection.id });
        self.ends_life_at_check_in(key)
    }

    /// A connection that came back at `now` is available.
    #[inline(always)]
    pub(super) fn put_most_recent(&mut self, now: Instant, key: Key, socket: C) {
        self.connections.put_most_recent(&mut self.generations, key, now, socket);
        self.note_available();
    }

    #[inline]
    pub(super) fn note_available(&mut self) {
        let high = &mut self.totals.high_water;
        high.available = high.available.max(self.connections.available.len());
    }

    /// Changes the purpose of a connection in use: a cursor or a transaction keeps it, or has let go of it (LB-12 to
    /// LB-16). At its delivery it is for an operation. The call is ignored if the connection was closed since.
    ///
    /// # Errors
    /// The handle is another pool's, its connection is not in use, or another check-out uses it.
    pub fn set_purpose(
        &mut self,
        check_out: CheckOutId,
        connection: Handle,
        purpose: Purpose,
    ) -> Result<(), ApiMisuse> {
        if let Some(key) = self.known(connection, ApiMisuse::NotInUse)? {
            let Stage::InUse { check_out: user, .. } = self.connections.slot(key).stage else {
                return Err(ApiMisuse::NotInUse);
            };
            if !self.wait_queue.is_at(check_out, user) {
                return Err(ApiMisuse::OtherUse);
            }
            self.connections.set_purpose(key, purpose);
        }
        Ok(())
    }
}
