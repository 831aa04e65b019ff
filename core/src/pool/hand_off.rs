//! The short way of a check-out that waits while all connections are in use, and of the check-in that serves it.
//!
//! As on the fast path, each call here either does all of its work or changes nothing, and its caller has seen that no outputs are
//! queued. Where time alone may allow a creation, because backoff or a rate holds it back, the short way is closed. What a call
//! does is a special case of what [`check_out`](Pool::check_out) and [`check_in`](Pool::check_in) do otherwise; the property test
//! compares both with one reference.

use super::share::Way;
use super::{CheckOutId, CheckOutRequest, CheckedIn, Condition, Delivery, Handle, Pool, Refused};
use crate::time::Instant;

impl<C> Pool<C> {
    /// A check-out that no available connection serves. Out of line, so that those that one serves stay small.
    #[inline(never)]
    pub(super) fn wait_or_check_out_at_length(
        &mut self,
        now: Instant,
        request: CheckOutRequest,
    ) -> (CheckOutId, Option<Delivery<C>>) {
        if self.outputs.is_empty()
            && let Some(waiting) = self.wait_in_line(now, &request)
        {
            return (waiting, None);
        }
        self.check_out_at_length(now, request)
    }

    /// A check-in after which the connection is not simply available, while no outputs are queued. Out of line, as above.
    #[inline(never)]
    pub(super) fn hand_over_or_check_in_at_length(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<CheckedIn<C>, Refused<C>> {
        match self.hand_to_waiter(now, connection, socket, condition) {
            Ok(delivery) => Ok(CheckedIn::Delivered(delivery)),
            Err(socket) => self.check_in_at_length(now, connection, socket, condition),
        }
    }

    /// Lets a check-out wait at the end of the queue, if no connection is available and none may be created for it.
    #[inline]
    pub(crate) fn wait_in_line(&mut self, now: Instant, request: &CheckOutRequest) -> Option<CheckOutId> {
        let latest = self.now.max(now);
        if !matches!(self.attention.check_out, Way::Plain)
            || request.deadline.is_some_and(|deadline| deadline <= latest)
            || self.wait_queue.len() >= self.limits.max_wait_queue_depth
            || !self.connections.available.is_empty()
            || self.restrained
            || self.may_create()
            || self.is_waiter_overdue(latest)
        {
            return None;
        }
        self.now = latest;
        self.use_host();
        let check_out = self.wait_queue.start(latest);
        self.wait_queue.enqueue(check_out.key, request.deadline, self.limits.wait_queue_timeout);
        self.note_waiting();
        Some(check_out)
    }

    /// Hands a connection that came back to the longest waiter. Otherwise its socket is returned.
    #[inline(always)]
    pub(crate) fn hand_to_waiter(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<Delivery<C>, C> {
        let latest = self.now.max(now);
        let Some(heir) = self.wait_queue.front() else { return Err(socket) };
        if !matches!((self.attention.check_out, self.attention.check_in), (Way::Plain, Way::Plain))
            || !self.connections.available.is_empty()
            || self.share.yields()
            || self.restrained
            || self.is_waiter_overdue(latest)
        {
            return Err(socket);
        }
        let Some(check_out) = self.user_of(connection, condition, true) else { return Err(socket) };
        self.now = latest;
        self.wait_queue.finish(check_out);
        Ok(self.pass_on(connection, socket, heir))
    }

    /// Whether the time of a waiter is up.
    #[inline]
    fn is_waiter_overdue(&self, now: Instant) -> bool {
        self.wait_queue.next_deadline().is_some_and(|at| at <= now)
    }
}
