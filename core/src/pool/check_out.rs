//! A check-out from its beginning to its end: with a connection, or without one (CMAP-25 to CMAP-32, X-18).
//!
//! Nearly all end where they begin, by the fast path: nobody waits or listens, nothing is queued, and the connection that came back last may be
//! used as it is. That is a special case of what a check-out does otherwise, without its branches; the property test compares both with
//! one reference.

use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::{CheckOutError, CheckOutErrorKind, WaitLimit};
use super::list::Key;
use super::output::{Action, Delivery, Event, Output};
use super::queries::WaitBound;
use super::settle::Due;
use super::{Cancellation, CheckOutId, CheckOutRequest, Handle, Pool, PoolState};
use crate::options::Reuse;
use crate::time::Instant;

/// What calls have to attend to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attention {
    /// Whether a check-out may take the most recently used connection, and do nothing else.
    pub(super) fast_check_out: bool,
    /// Whether a check-in may make its connection available, and do nothing else.
    pub(super) fast_check_in: bool,
    /// Whether something but maxIdleTimeMS may happen to an available connection at some time.
    pub(super) idle: bool,
}

impl<C> Pool<C> {
    /// Asks for a connection (CMAP-25 to CMAP-32). Returns the check-out and, if it was served at once, the delivery.
    ///
    /// Otherwise the answer comes through the queue, now or later: [`Action::Deliver`] or [`Action::Fail`], exactly one of them, unless the
    /// check-out is cancelled. The delivery comes through the queue, too, if outputs were queued before the call.
    ///
    /// Where nothing is queued afterwards, no timeout has become an earlier one, but for
    /// [`next_check_out_timeout`](Self::next_check_out_timeout).
    #[must_use = "a delivered connection has to be checked in"]
    #[inline(always)]
    pub fn check_out(&mut self, now: Instant, request: CheckOutRequest) -> (CheckOutId, Option<Delivery<C>>) {
        if self.outputs.is_empty()
            && let Some(delivery) = self.check_out_fast(now, request)
        {
            return (delivery.check_out, Some(delivery));
        }
        self.begin_check_out(now, request)
    }

    /// Out of line, so that the code inlined into a caller stays small.
    #[inline(never)]
    pub(crate) fn begin_check_out(
        &mut self,
        now: Instant,
        request: CheckOutRequest,
    ) -> (CheckOutId, Option<Delivery<C>>) {
        let was_drained = self.is_drained();
        self.advance(now);
        self.use_host();
        self.end_holds();
        let check_out = self.wait_queue.start(self.now);
        let key = check_out.key;
        self.emit(|| Event::ConnectionCheckOutStarted { check_out });
        if let Some(kind) = self.refusal() {
            self.fail(key, kind);
        } else if request.deadline.is_some_and(|deadline| deadline <= self.now) {
            self.fail_at_its_time(key, WaitLimit::Deadline, WaitBound::NoTime);
        } else if self.is_queue_full() && !self.can_serve_at_once(&request) {
            let max_wait_queue_depth = self.limits.max_wait_queue_depth;
            self.fail(key, CheckOutErrorKind::WaitQueueFull { max_wait_queue_depth });
        } else {
            let due = self.arrive(key, request);
            self.settle(due);
            self.note_waiting();
        }
        (check_out, self.take_back_delivery(was_drained, |id| id == check_out))
    }

    /// Why the pool serves no check-out, if it is paused or closed.
    pub(super) fn refusal(&self) -> Option<CheckOutErrorKind> {
        match self.state {
            PoolState::Ready => None,
            PoolState::Paused => Some(CheckOutErrorKind::PoolCleared { cause: self.paused_by.clone() }),
            PoolState::Closed => Some(CheckOutErrorKind::PoolClosed),
        }
    }

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

    /// Whether nobody waits, and the available connection that was returned last can be delivered at `now` as it is.
    #[inline(always)]
    fn can_deliver_most_recent(&self, now: Instant) -> bool {
        // No closure, so that all of it is inlined.
        match self.connections.available.back() {
            Some(most_recent) if self.wait_queue.len() == 0 => {
                self.connections.slot(most_recent).is_deliverable(now, &self.generations, &self.limits)
            }
            _ => false,
        }
    }

    /// Gives up a check-out in any state. One that waits ends with ConnectionCheckOutFailed and no
    /// [`Action::Fail`]; a connection that is being established for it stays in the pool.
    #[must_use = "a delivered connection has to be checked in"]
    pub fn cancel_check_out(&mut self, now: Instant, id: CheckOutId) -> Cancellation {
        let met = self.withdraw_check_out(now, id);
        if met == Cancellation::Cancelled {
            self.totals.cancelled = self.totals.cancelled.saturating_add(1);
            // The next in the queue may want a connection that this one did not.
            self.settle(Due::Queue);
        }
        met
    }

    /// Cancels a check-out that goes elsewhere, one of several: nobody is served in its place before
    /// [`serve_queue`](Self::serve_queue).
    pub(crate) fn withdraw_check_out(&mut self, now: Instant, id: CheckOutId) -> Cancellation {
        self.advance(now);
        let met = self.wait_queue.progress(id);
        if met == Cancellation::Cancelled {
            let error = self.end_in_failure(id.key, CheckOutErrorKind::Cancelled);
            self.emit(|| Event::failed_check_out(id, Arc::new(error)));
        }
        met
    }

    /// Serves those who wait, after others were withdrawn.
    pub(crate) fn serve_queue(&mut self) {
        self.settle(Due::Queue);
    }

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
            self.set_origin(pending, None);
        }
        self.wait_queue.leave(waiter);
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

    /// Ends a check-out without a connection and tells its caller.
    pub(super) fn fail(&mut self, check_out: Key, kind: CheckOutErrorKind) {
        self.fail_with(check_out, kind, |_| {});
    }

    /// Ends a check-out whose time is up, and says what it lacked.
    pub(super) fn fail_at_its_time(&mut self, check_out: Key, limit: WaitLimit, bound: WaitBound) {
        self.fail_with(check_out, CheckOutErrorKind::Timeout(limit), |error| error.bound_by = Some(bound));
    }

    /// Ends a check-out without a connection; `complete` adds to the error what is known.
    pub(super) fn fail_with(
        &mut self,
        check_out: Key,
        kind: CheckOutErrorKind,
        complete: impl FnOnce(&mut CheckOutError),
    ) {
        let id = self.wait_queue.id(check_out);
        let mut error = self.end_in_failure(check_out, kind);
        complete(&mut error);
        let error = Arc::new(error);
        self.emit(|| Event::failed_check_out(id, Arc::clone(&error)));
        self.outputs.push_back(Output::Action(Action::Fail { check_out: id, error }));
    }

    fn end_in_failure(&mut self, check_out: Key, kind: CheckOutErrorKind) -> CheckOutError {
        let waited = self.now.saturating_since(self.wait_queue.started_at(check_out));
        let (counts, in_use_by) = (self.counts(), self.in_use_by());
        self.leave_queue(check_out);
        self.leave_sticky(check_out);
        self.wait_queue.finish(check_out);
        let address = Arc::clone(&self.address);
        let in_use_by = self.limits.load_balanced.then_some(in_use_by);
        let max_pool_size = if self.limits.max_pool_size == u32::MAX { 0 } else { self.limits.max_pool_size };
        let backed_off_by = self.backed_off_by();
        let paused_for = (self.state == PoolState::Paused).then(|| self.now.saturating_since(self.paused_since));
        let mut error = CheckOutError {
            kind,
            address,
            counts,
            waited,
            in_use_by,
            max_pool_size,
            backed_off_by,
            paused_for,
            connection: None,
            bound_by: None,
            held_by: Arc::default(),
            timeouts: 0,
        };
        self.totals.check_outs_failed.count(error.reason());
        error.timeouts = self.totals.check_outs_failed.timeout;
        error
    }

    /// Notes which calls must not take the fast path.
    pub(super) fn renew_attention(&mut self) {
        self.attention = self.needed_attention();
    }

    pub(super) fn needed_attention(&self) -> Attention {
        let everywhere = self.observed || self.share.is_sought || self.has_surplus() || self.has_sticky_waiters();
        let is_plain = !everywhere && self.durations.is_none();
        Attention {
            fast_check_out: is_plain
                && self.state == PoolState::Ready
                && self.suspects.is_empty()
                && self.limits.reuse == Reuse::Lifo
                && self.affinity.is_none(),
            fast_check_in: is_plain && self.state != PoolState::Closed && self.retirement.is_none(),
            idle: self.affinity.is_some() || self.retirement.is_some() || self.refresh.is_some(),
        }
    }
}
