//! A new credential in the reference.

use super::{Cause, CheckOut, Due, Id, PoolState, Reason, Reference};

impl Reference {
    pub(super) fn renew_credential(&mut self) {
        if self.state != PoolState::Closed {
            self.outdated_until = self.created;
            self.replace_connections(0);
            if std::mem::take(&mut self.population_failed) {
                self.settle(Due::Permit);
            }
        }
    }

    /// A connection was refused because of its old credential: another one takes its place.
    pub(super) fn replace(&mut self, id: Id) {
        let origin = self.get(id).and_then(|connection| connection.check_out);
        let is_closed = self.state == PoolState::Closed;
        let reason = if is_closed { Reason::PoolClosed } else { Reason::Error };
        self.close(id, reason, Some(Cause::Call(self.calls)), false);
        self.replace_for(origin);
        self.settle(Due::Permit);
    }

    /// Another connection takes the place of one that is gone before it was of use, if it may be created now.
    pub(super) fn replace_for(&mut self, origin: Option<CheckOut>) {
        if self.may_create() && origin.is_some() {
            self.create(origin);
        } else if let Some(origin) = origin {
            // Nothing may be created now. Connections are pending for the first in the queue, so the last of those
            // goes without.
            let last = self.waiters.iter().rev().find(|waiter| self.is_origin(waiter.check_out));
            let last = last.map(|last| last.check_out);
            let position = |of| self.waiters.iter().position(|waiter| waiter.check_out == of);
            if let Some(last) = last.filter(|&last| position(last) > position(origin)) {
                self.connections
                    .iter_mut()
                    .filter(|c| c.check_out == Some(last))
                    .for_each(|c| c.check_out = Some(origin));
            }
        }
    }
}
