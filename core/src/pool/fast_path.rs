//! The path of nearly all check-outs and check-ins: nobody waits or listens, nothing is queued, and a connection may be
//! used as it is.
//!
//! Each call here either does all of its work or changes nothing. What it does is a special case of what
//! [`check_out`](Pool::check_out) and [`check_in`](Pool::check_in) do otherwise, without their branches; the property
//! test compares both with one reference.

use super::connections::Stage;
use super::list::Key;
use super::{CheckOutRequest, Condition, Delivery, Handle, Pool, PoolState, Purpose};
use crate::options::Reuse;
use crate::time::Instant;

impl<C> Pool<C> {
    /// Delivers the hottest connection, if nothing stands in the way.
    #[inline(always)]
    pub(crate) fn check_out_available(&mut self, now: Instant, request: CheckOutRequest) -> Option<Delivery<C>> {
        self.check_out_plainly::<false>(now, request)
    }

    /// The same where it is recorded how long everything takes.
    #[inline(always)]
    pub(crate) fn check_out_recorded(&mut self, now: Instant, request: CheckOutRequest) -> Option<Delivery<C>> {
        if self.durations.is_none() { None } else { self.check_out_plainly::<true>(now, request) }
    }

    #[inline(always)]
    fn check_out_plainly<const RECORDED: bool>(
        &mut self,
        now: Instant,
        request: CheckOutRequest,
    ) -> Option<Delivery<C>> {
        let latest = self.now.max(now);
        if !matches!(self.state, PoolState::Ready)
            || !self.is_quiet(if RECORDED { !self.attention.recorded_check_out } else { self.attention.check_out })
            || request.deadline.is_some_and(|deadline| deadline <= latest)
            || !self.can_serve_arrival(latest)
        {
            return None;
        }
        self.take_at_once::<RECORDED>(latest)
    }

    /// The hottest connection serves a check-out that begins now.
    #[inline(always)]
    fn take_at_once<const RECORDED: bool>(&mut self, latest: Instant) -> Option<Delivery<C>> {
        self.now = latest;
        // The connection first: what is known of it from above need not be read again.
        let key = self.wait_queue.next_key();
        if RECORDED {
            self.record_immediate_delivery();
        }
        let (connection, socket) = self.take_hottest(key)?;
        let check_out = self.wait_queue.start_delivered(latest, key);
        Some(Delivery { check_out, connection, socket })
    }

    /// Makes a connection that came back the hottest one, if nothing stands in the way. Otherwise its socket is returned.
    #[inline(always)]
    pub(crate) fn check_in_available(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<(), C> {
        self.check_in_plainly::<false>(now, connection, socket, condition)
    }

    /// The same where it is recorded how long everything takes.
    #[inline(always)]
    pub(crate) fn check_in_recorded(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<(), C> {
        if self.durations.is_none() {
            return Err(socket);
        }
        self.check_in_plainly::<true>(now, connection, socket, condition)
    }

    #[inline(always)]
    fn check_in_plainly<const RECORDED: bool>(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<(), C> {
        if !self.is_quiet(if RECORDED { !self.attention.recorded_check_in } else { self.attention.check_in })
            || self.wait_queue.len() > 0
            || matches!(condition, Condition::Errored)
        {
            return Err(socket);
        }
        let Some(check_out) = self.reusable(connection) else { return Err(socket) };
        self.now = self.now.max(now);
        if RECORDED {
            self.record_use_of(check_out);
        }
        self.wait_queue.finish(check_out);
        self.put_hottest(connection.key, socket);
        Ok(())
    }

    /// As [`check_out_available`](Self::check_out_available), where another connection than the hottest may be next.
    pub(super) fn check_out_by_reuse(&mut self, now: Instant, request: CheckOutRequest) -> Option<Delivery<C>> {
        let latest = self.now.max(now);
        if self.limits.reuse == Reuse::LastIn
            || self.observed
            || self.affinity.is_some()
            || self.share.is_sought()
            || !matches!(self.state, PoolState::Ready)
            || !self.outputs.is_empty()
            || self.wait_queue.len() > 0
            || request.deadline.is_some_and(|deadline| deadline <= latest)
        {
            return None;
        }
        let key = self.next_at_once(latest)?;
        self.connections.make_hottest(key);
        self.take_at_once::<true>(latest)
    }

    /// As [`check_in_available`](Self::check_in_available), where lives of connections end.
    pub(super) fn check_in_counted(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<(), C> {
        if self.retirement.is_none()
            || self.observed
            || self.affinity.is_some()
            || self.is_given_up()
            || !self.outputs.is_empty()
            || self.wait_queue.len() > 0
            || matches!(condition, Condition::Errored)
        {
            return Err(socket);
        }
        let Some(check_out) = self.reusable(connection) else { return Err(socket) };
        let latest = self.now.max(now);
        if !self.count_use(connection.key, latest) {
            return Err(socket);
        }
        self.now = latest;
        self.record_use_of(check_out);
        self.wait_queue.finish(check_out);
        self.put_hottest(connection.key, socket);
        Ok(())
    }

    /// The check-out that a connection was delivered to, if the connection may be used again and was used by one operation.
    #[inline(always)]
    fn reusable(&self, connection: Handle) -> Option<Key> {
        let slot = self.connections.slots.get(connection.key as usize)?;
        let Stage::InUse { check_out, perished: None, purpose: Purpose::Other } = slot.stage else { return None };
        let may_be_used = slot.id == connection.id
            && connection.pool == self.id
            && !matches!(self.state, PoolState::Closed)
            && !self.generations.is_stale(slot.generation, slot.service.as_ref());
        may_be_used.then_some(check_out)
    }

    /// Whether a check-out that arrives at `now` is next, and the available connection that was returned last can be
    /// delivered as it is.
    #[inline(always)]
    pub(super) fn can_serve_arrival(&self, now: Instant) -> bool {
        self.connections.available.back().is_some_and(|key| self.wait_queue.len() == 0 && self.can_deliver(key, now))
    }

    /// Whether an available connection can be delivered at `now` as it is.
    #[inline(always)]
    pub(super) fn can_deliver(&self, key: Key, now: Instant) -> bool {
        let slot = self.connections.slot(key);
        let Stage::Available { since, .. } = slot.stage else { return false };
        let idle_time = now.nanos_since(since);
        !self.generations.is_stale(slot.generation, slot.service.as_ref())
            && idle_time <= self.limits.max_idle
            && idle_time <= self.limits.check_after_idle
    }

    /// Whether no outputs are queued, and nothing asks for another way.
    #[inline(always)]
    fn is_quiet(&self, takes_another_way: bool) -> bool {
        !takes_another_way && self.outputs.is_empty()
    }
}
