//! The path of nearly all check-outs and check-ins: nobody waits or listens, nothing is queued, and a connection may be
//! used as it is.
//!
//! Each call here either does all of its work or changes nothing. The caller has seen that no outputs are queued: in the pool, or in the
//! topology that contains it. What a call does is a special case of what [`check_out`](Pool::check_out) and
//! [`check_in`](Pool::check_in) do otherwise, without their branches; the property test compares both with one reference.

use super::connections::Stage;
use super::{CheckOutId, CheckOutRequest, Condition, Delivery, Handle, Pool, Purpose};
use crate::time::Instant;

impl<C> Pool<C> {
    /// Delivers the most recently used connection, if nothing stands in the way.
    #[inline(always)]
    pub(crate) fn check_out_fast(&mut self, now: Instant, request: CheckOutRequest) -> Option<Delivery<C>> {
        let latest = self.now.max(now);
        if !self.attention.fast_check_out
            || request.deadline.is_some_and(|deadline| deadline <= latest)
            || !self.can_deliver_most_recent(latest)
        {
            return None;
        }
        // Move the connection first, while what was read of it above is still in registers.
        let key = self.wait_queue.next_key();
        let (connection, socket) = self.take(key, None)?;
        self.now = latest;
        let check_out = self.wait_queue.start_delivered(latest, key);
        Some(Delivery { check_out, connection, socket })
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
        if !self.attention.fast_check_in {
            return Err(socket);
        }
        if !self.is_reusable(check_out, connection, condition) {
            return Err(socket);
        }
        // As above, the connection comes first.
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

    /// Whether nobody waits, and the available connection that was returned last can be delivered at `now` as it is.
    #[inline(always)]
    fn can_deliver_most_recent(&self, now: Instant) -> bool {
        // No closure, so that all of it is inlined.
        match self.connections.available.back() {
            Some(most_recent) if self.wait_queue.len() == 0 => {
                let slot = self.connections.slot(most_recent);
                slot.idle_time_if_deliverable(now, &self.generations, &self.limits).is_some()
            }
            _ => false,
        }
    }
}
