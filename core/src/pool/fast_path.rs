//! The path of nearly all check-outs and check-ins: nobody waits or listens, nothing is queued, and a connection may be
//! used as it is.
//!
//! Each call here either does all of its work or changes nothing. The caller has seen that no outputs are queued: in the pool, or in the
//! topology that contains it. What a call does is a special case of what [`check_out`](Pool::check_out) and
//! [`check_in`](Pool::check_in) do otherwise, without their branches; the property test compares both with one reference.

use super::connections::Stage;
use super::list::Key;
use super::share::Way;
use super::{CheckOutRequest, Condition, Delivery, EndedUse, Handle, Pool, Purpose};
use crate::time::Instant;

impl<C> Pool<C> {
    /// The fast path of a pool that stands alone, which is closed while outputs are queued.
    #[inline(always)]
    pub(super) fn check_out_if_drained(&mut self, now: Instant, request: CheckOutRequest) -> Option<Delivery<C>> {
        if self.outputs.is_empty() { self.check_out_fast(now, request) } else { None }
    }

    /// The same of a check-in.
    #[inline(always)]
    pub(super) fn check_in_if_drained(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<(), C> {
        if self.outputs.is_empty() { self.check_in_fast(now, connection, socket, condition) } else { Err(socket) }
    }

    /// Delivers the hottest connection, if nothing stands in the way.
    #[inline(always)]
    pub(crate) fn check_out_fast(&mut self, now: Instant, request: CheckOutRequest) -> Option<Delivery<C>> {
        let latest = self.now.max(now);
        if !matches!(self.attention.check_out, Way::Plain)
            || request.deadline.is_some_and(|deadline| deadline <= latest)
            || !self.can_serve_arrival(latest)
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

    /// The same where options ask for more: another connection than the hottest, that of a key, histograms.
    #[inline(always)]
    pub(crate) fn check_out_with_options(&mut self, now: Instant, request: &CheckOutRequest) -> Option<Delivery<C>> {
        self.check_out_if(matches!(self.attention.check_out, Way::WithOptions), now, request)
    }

    /// The same whatever options ask for.
    #[inline(always)]
    pub(crate) fn check_out_at_once(&mut self, now: Instant, request: &CheckOutRequest) -> Option<Delivery<C>> {
        self.check_out_if(!matches!(self.attention.check_out, Way::Long), now, request)
    }

    /// The same where options ask for nothing but histograms.
    #[inline(always)]
    pub(crate) fn check_out_hottest(&mut self, now: Instant, request: CheckOutRequest) -> Option<Delivery<C>> {
        let latest = self.now.max(now);
        if matches!(self.attention.check_out, Way::Long)
            || !self.serves_hottest()
            || request.deadline.is_some_and(|deadline| deadline <= latest)
            || self.wait_queue.len() > 0
        {
            return None;
        }
        let hottest = self.connections.slots.get(self.connections.available.back()? as usize)?;
        let idle_time = hottest.idle_time_if_deliverable(latest, &self.generations, &self.limits)?;
        // It is taken for certain. Recorded first, the time need not be kept meanwhile.
        self.record_immediate_delivery(idle_time);
        let key = self.wait_queue.next_key();
        let (connection, socket) = self.take(key, None)?;
        self.now = latest;
        let check_out = self.wait_queue.start_delivered(latest, key);
        Some(Delivery { check_out, connection, socket })
    }

    #[inline(always)]
    fn check_out_if(&mut self, is_open: bool, now: Instant, request: &CheckOutRequest) -> Option<Delivery<C>> {
        let latest = self.now.max(now);
        if !is_open
            || !self.outputs.is_empty()
            || request.deadline.is_some_and(|deadline| deadline <= latest)
            || self.wait_queue.len() > 0
        {
            return None;
        }
        let chosen = self.choose(latest, request.affinity)?;
        let key = self.wait_queue.next_key();
        let (connection, socket, idle_time) = self.take_as_it_is(chosen, key, latest)?;
        self.now = latest;
        self.record_immediate_delivery(idle_time);
        let check_out = self.wait_queue.start_delivered(latest, key);
        Some(Delivery { check_out, connection, socket })
    }

    /// Makes a connection that came back the hottest one, if nothing stands in the way. Otherwise its socket is returned.
    #[inline(always)]
    pub(crate) fn check_in_fast(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<(), C> {
        if !matches!(self.attention.check_in, Way::Plain) {
            return Err(socket);
        }
        let Some(check_out) = self.reusable(connection, condition) else { return Err(socket) };
        // As above, the connection comes first.
        let latest = self.now.max(now);
        self.put_hottest(latest, connection.key, socket);
        self.now = latest;
        self.wait_queue.finish(check_out);
        Ok(())
    }

    /// The same where options ask for more: lives that end, histograms. The caller has seen that nobody seeks the connection for
    /// another server. Says which use has ended.
    #[inline(always)]
    pub(crate) fn check_in_with_options(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<EndedUse, C> {
        if matches!(self.attention.check_in, Way::Long) {
            return Err(socket);
        }
        let Some(check_out) = self.reusable(connection, condition) else { return Err(socket) };
        let latest = self.now.max(now);
        if !self.count_use(connection.key, latest) {
            return Err(socket);
        }
        self.put_hottest(latest, connection.key, socket);
        self.now = latest;
        let ended = EndedUse::new(self.wait_queue.end_use(check_out), latest);
        self.record_ended_use(ended);
        Ok(ended)
    }

    /// The check-out that a connection was delivered to, if the connection was used by one operation and may be used again, and nobody
    /// waits for it.
    #[inline(always)]
    fn reusable(&self, connection: Handle, condition: Condition) -> Option<Key> {
        self.user_of(connection, condition, self.wait_queue.len() == 0)
    }

    /// The same. `is_free` says that nobody waits, or that it does not matter.
    #[inline(always)]
    pub(super) fn user_of(&self, connection: Handle, condition: Condition, is_free: bool) -> Option<Key> {
        if !is_free || matches!(condition, Condition::Errored) {
            return None;
        }
        let slot = self.connections.slots.get(connection.key as usize)?;
        let Stage::InUse { check_out, perished: None, purpose: Purpose::Other } = slot.stage else { return None };
        let may_be_used = slot.id == connection.id
            && connection.pool == self.id
            && !self.generations.is_stale(slot.generation, slot.service.as_ref());
        may_be_used.then_some(check_out)
    }

    /// Whether a check-out that arrives at `now` is next, and the available connection that was returned last can be
    /// delivered as it is.
    #[inline(always)]
    pub(super) fn can_serve_arrival(&self, now: Instant) -> bool {
        // No closure, so that all of it is inlined.
        match self.connections.available.back() {
            Some(hottest) => self.wait_queue.len() == 0 && self.can_deliver(hottest, now),
            None => false,
        }
    }

    /// Whether an available connection can be delivered at `now` as it is.
    #[inline(always)]
    pub(super) fn can_deliver(&self, key: Key, now: Instant) -> bool {
        let slot = self.connections.slot(key);
        slot.idle_time_if_deliverable(now, &self.generations, &self.limits).is_some()
    }

    /// A connection is in use from now on, by this check-out, if it can be delivered at `now` as it is. Says for how long it was
    /// available.
    #[inline(always)]
    fn take_as_it_is(&mut self, connection: Key, check_out: Key, now: Instant) -> Option<(Handle, C, u64)> {
        let (generations, limits) = (&mut self.generations, &self.limits);
        let (id, socket, idle_time) =
            self.connections.take_as_it_is(generations, limits, check_out, connection, now)?;
        let high = &mut self.totals.high_water;
        high.in_use = high.in_use.max(self.connections.in_use);
        Some((Handle { id, key: connection, pool: self.id }, socket, idle_time))
    }
}
