//! How a connection gets from the available ones to a check-out, and back.

use super::event::Event;
use super::list::Key;
use super::output::{Action, Delivery, Output};
use super::{CheckOutId, Handle, Pool};
use crate::time::Instant;

impl<C> Pool<C> {
    /// Gives an available connection to a check-out that does not wait, or has stopped waiting.
    pub(super) fn deliver(&mut self, connection: Key, check_out: Key) {
        self.release(connection);
        self.record_idle(connection);
        let id = self.wait_queue.deliver(check_out);
        if let Some((connection, socket)) = self.take(check_out, Some(connection)) {
            self.begin_use(id, connection);
            self.outputs.push_back(Output::from(Delivery { check_out: id, connection, socket }));
        }
    }

    /// Reports a delivery; from now on its connection is held.
    fn begin_use(&mut self, check_out: CheckOutId, connection: Handle) {
        if !self.attention.fast_check_out {
            let duration = self.now.saturating_since(self.wait_queue.started_at(check_out.key));
            self.emit(|| Event::ConnectionCheckedOut { check_out, connection_id: connection.id, duration });
            self.record_wait(check_out.key);
        }
        self.wait_queue.begin_use(check_out.key, self.now);
    }

    /// An available connection, or the most recently used, is in use from now on, by this check-out.
    #[inline(always)]
    pub(super) fn take(&mut self, check_out: Key, chosen: Option<Key>) -> Option<(Handle, C)> {
        let (key, id, socket) = self.connections.take(&mut self.generations, check_out, chosen)?;
        let high = &mut self.totals.high_water;
        high.in_use = high.in_use.max(self.connections.in_use);
        Some((Handle { id, key, pool: self.id }, socket))
    }

    /// A check-out waits no more; the connection that was created for it is for any other one.
    pub(super) fn leave_queue(&mut self, waiter: Key) {
        if let Some(pending) = self.wait_queue.pending(waiter) {
            self.release_origin(pending);
        }
        self.wait_queue.leave(waiter);
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

    #[inline]
    pub(super) fn note_waiting(&mut self) {
        let waiting = self.waiting();
        let high = &mut self.totals.high_water;
        high.waiting = high.waiting.max(waiting);
    }

    /// The last output, if it is a delivery that the call returns: nothing was queued before the call, and it is `meant` for the caller.
    pub(super) fn take_back_delivery(
        &mut self,
        was_drained: bool,
        meant: impl Fn(CheckOutId) -> bool,
    ) -> Option<Delivery<C>> {
        if !was_drained {
            return None;
        }
        match self.outputs.pop_back()? {
            Output::Action(Action::Deliver { check_out, connection, socket }) if meant(check_out) => {
                Some(Delivery { check_out, connection, socket })
            }
            other @ (Output::Action(_) | Output::Event(_)) => {
                self.outputs.push_back(other);
                None
            }
        }
    }
}
