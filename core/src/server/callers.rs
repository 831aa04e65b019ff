//! Calls of a server's users: its beginning, check-outs and check-ins, and its end.

use alloc::sync::Arc;

use super::selection::{SelectionErrorKind, SelectionId};
use super::{CheckOut, Output, Phase, SelectionError, Server, ServerEvent, TopologyDescription};
use crate::monitor::{Call, ServerDescription, ServerType};
use crate::pool::{
    ApiMisuse, Cancellation, Cause, CheckOutRequest, CheckedIn, Clear, Condition, Delivery, Handle, Purpose, Refused,
};
use crate::time::Instant;

impl<C> Server<C> {
    /// The client begins: the topology opens, with this server in it. A load balancer is known from the start, and
    /// never checked (LB-3, LB-4). Does nothing the second time.
    pub fn open(&mut self, now: Instant) {
        self.advance(now);
        if !self.topology.servers.is_empty() || matches!(self.phase, Phase::Unmonitored | Phase::Closed) {
            return;
        }
        let load_balanced = self.pool.options().load_balanced;
        let topology = TopologyDescription::initial(&self.options, load_balanced, Arc::clone(&self.description));
        // In front of everything: the pool has already reported its creation, and TopologyOpening is the first event
        // (MON-14).
        if self.observed {
            let opened = self.topology_changed(&topology);
            for event in [ServerEvent::ServerOpening, opened, ServerEvent::TopologyOpening] {
                self.outputs.push_front(Output::Event(event));
            }
        }
        self.topology = Arc::new(topology);
        if load_balanced {
            let address = Arc::clone(&self.description.address);
            self.take_description(ServerDescription::new(address, ServerType::LoadBalancer));
        }
    }

    /// Asks for a connection: from the pool, if the server is usable; otherwise as soon as it is, for at most
    /// serverSelectionTimeoutMS. That limit bounds the whole of a request with a deadline (CSOT-4).
    ///
    /// Returns the check-out and, if it was served at once, the delivery. Otherwise the answer comes through the queue;
    /// so does the delivery if outputs were queued before the call.
    #[must_use = "a delivered connection has to be checked in"]
    #[inline(always)]
    pub fn check_out(&mut self, now: Instant, request: CheckOutRequest) -> (CheckOut, Option<Delivery<C>>) {
        if matches!(self.phase, Phase::Usable | Phase::Unmonitored) && self.outputs.is_empty() {
            let request = self.bounded(now, request);
            if let Some(delivery) = self.pool.check_out_available(now, request) {
                return (CheckOut::Started(delivery.check_out), Some(delivery));
            }
        }
        self.begin_check_out(now, request)
    }

    #[inline(never)]
    fn begin_check_out(&mut self, now: Instant, request: CheckOutRequest) -> (CheckOut, Option<Delivery<C>>) {
        if self.phase == Phase::Unusable {
            return (CheckOut::Selecting(self.select(now, request)), None);
        }
        let (check_out, delivery) = self.pool.begin_check_out(now, self.bounded(now, request));
        let delivery = if self.has_outputs() { self.queue_outputs(now, delivery) } else { delivery };
        (CheckOut::Started(check_out), delivery)
    }

    /// Gives up a check-out in any state. One that waits for the server never began, and ends without an event.
    #[must_use = "a delivered connection has to be checked in"]
    pub fn cancel_check_out(&mut self, now: Instant, check_out: CheckOut) -> Cancellation {
        match check_out {
            CheckOut::Started(id) => self.call_pool(now, |pool| pool.cancel_check_out(now, id)),
            CheckOut::Selecting(selection) => match self.selections.remove(selection) {
                Some(_) => Cancellation::Cancelled,
                None => Cancellation::Finished,
            },
        }
    }

    /// Gives a connection back, as [`Pool::check_in`](crate::pool::Pool::check_in) does. Returns the delivery to the
    /// next waiter, unless outputs were queued before the call or the call led to further outputs.
    ///
    /// # Errors
    /// Those of [`Pool::check_in`](crate::pool::Pool::check_in).
    #[inline(always)]
    pub fn check_in(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<CheckedIn<C>, Refused<C>> {
        let socket = if self.outputs.is_empty() {
            match self.pool.check_in_available(now, connection, socket, condition) {
                Ok(()) => return Ok(CheckedIn::Done),
                Err(socket) => socket,
            }
        } else {
            socket
        };
        self.begin_check_in(now, connection, socket, condition)
    }

    #[inline(never)]
    fn begin_check_in(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<CheckedIn<C>, Refused<C>> {
        let checked_in = self.pool.begin_check_in(now, connection, socket, condition);
        if !self.has_outputs() {
            return checked_in;
        }
        let (delivery, refused) = match checked_in {
            Ok(checked_in) => (checked_in.delivery(), None),
            Err(refused) => (None, Some(refused)),
        };
        let delivery = self.queue_outputs(now, delivery);
        refused.map_or_else(|| Ok(delivery.map_or(CheckedIn::Done, CheckedIn::Delivered)), Err)
    }

    /// Changes the purpose of a connection in use, as [`Pool::set_purpose`](crate::pool::Pool::set_purpose) does.
    ///
    /// # Errors
    /// The handle is another pool's, or its connection is not in use.
    pub fn set_purpose(&mut self, connection: Handle, purpose: Purpose) -> Result<(), ApiMisuse> {
        self.pool.set_purpose(connection, purpose)
    }

    /// Makes the pool of a server without a monitor ready.
    ///
    /// # Errors
    /// The server is monitored.
    pub fn ready(&mut self, now: Instant) -> Result<(), ApiMisuse> {
        self.check_unmonitored()?;
        self.call_pool(now, |pool| pool.ready(now));
        Ok(())
    }

    /// Clears the pool of a server without a monitor.
    ///
    /// # Errors
    /// The server is monitored; or those of [`Pool::clear`](crate::pool::Pool::clear).
    pub fn clear(&mut self, now: Instant, clear: Clear) -> Result<(), ApiMisuse> {
        self.check_unmonitored()?;
        self.call_pool(now, |pool| pool.clear(now, clear))
    }

    /// Closes the server and its pool; the waiters of both fail. Close the monitor first: TopologyClosed is the last
    /// event (MON-14).
    pub fn close(&mut self, now: Instant) {
        self.advance(now);
        if self.phase == Phase::Closed {
            return;
        }
        self.phase = Phase::Closed;
        self.call_pool(now, |pool| pool.close(now));
        while let Some(selection) = self.selections.first() {
            self.fail_selection(selection, SelectionErrorKind::Closed);
        }
        if self.topology.servers.is_empty() {
            return;
        }
        let last = TopologyDescription::empty();
        let closed = self.topology_changed(&last);
        self.topology = Arc::new(last);
        for event in [ServerEvent::ServerClosed, closed, ServerEvent::TopologyClosed] {
            self.emit(event);
        }
    }

    /// Call this in a process that was forked, as [`Pool::reset_after_fork`](crate::pool::Pool::reset_after_fork)
    /// (FORK-2): the waiters of the server and of its pool fail, and the server is unknown until the next check.
    pub fn reset_after_fork(&mut self, now: Instant) {
        self.advance(now);
        if self.phase == Phase::Closed {
            return;
        }
        if !self.pool.options().load_balanced {
            self.mark_unknown(Cause::new("the process was forked"), None);
        }
        self.call_pool(now, |pool| pool.reset_after_fork(now));
        while let Some(selection) = self.selections.first() {
            self.fail_selection(selection, SelectionErrorKind::Forked);
        }
    }

    pub(super) fn fail_overdue_selections(&mut self) {
        while let Some((at, selection)) = self.selections.next_deadline()
            && at <= self.now
        {
            self.fail_selection(selection, SelectionErrorKind::Timeout);
        }
    }

    pub(super) fn fail_selection(&mut self, selection: SelectionId, kind: SelectionErrorKind) {
        let Some(waiter) = self.selections.remove(selection) else { return };
        let error = Arc::new(SelectionError {
            kind,
            address: Arc::clone(&self.description.address),
            cause: self.description.error.clone(),
            waited: self.now.saturating_since(waiter.arrived_at),
        });
        self.outputs.push_back(Output::SelectionFailed { selection, error });
    }

    #[cold]
    fn select(&mut self, now: Instant, request: CheckOutRequest) -> SelectionId {
        self.advance(now);
        let limit = self.now + self.options.server_selection_timeout;
        let deadline = request.deadline.map_or(limit, |deadline| deadline.min(limit));
        let request = CheckOutRequest { deadline: request.deadline.map(|_| deadline), ..request };
        let selection = self.selections.add(self.now, request, deadline);
        if deadline <= self.now {
            // Nobody would wait for the check.
            self.fail_selection(selection, SelectionErrorKind::Timeout);
        } else {
            self.outputs.push_back(Output::Monitor(Call::RequestCheck));
        }
        self.refuse_if_incompatible();
        selection
    }

    /// A request with a deadline ends within serverSelectionTimeoutMS at the latest (CSOT-4).
    #[inline]
    fn bounded(&self, now: Instant, mut request: CheckOutRequest) -> CheckOutRequest {
        if let Some(deadline) = &mut request.deadline {
            *deadline = (*deadline).min(now + self.options.server_selection_timeout);
        }
        request
    }

    /// Whether the owner makes the pool ready and clears it. A closed pool stays as it is.
    fn check_unmonitored(&self) -> Result<(), ApiMisuse> {
        match self.phase {
            Phase::Unmonitored | Phase::Closed => Ok(()),
            Phase::Unusable | Phase::Usable => Err(ApiMisuse::Monitored),
        }
    }
}
