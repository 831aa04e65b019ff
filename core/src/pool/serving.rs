//! Which waiter gets which connection, and when one is created (CMAP-26, CMAP-27, X-15, X-16).
//!
//! Waiters are served in the order of their arrival by whatever comes first: a connection that is returned or one that
//! is newly established. Connections are taken hottest first. After every call either no check-out waits, or the only
//! available connections are being checked for waiters or held for keys, and then there is no permit, no room, or
//! a pending connection for each waiter.

use alloc::sync::Arc;

use super::connections::Stage;
use super::error::{CheckOutError, CheckOutErrorKind, WaitLimit};
use super::event::{ConnectionClosedReason, Event};
use super::handle::Handle;
use super::input::Reaction;
use super::list::Key;
use super::output::{Action, Delivery, Output};
use super::state::PoolState;
use super::wait_bound::WaitBound;
use super::wait_queue::{CheckOutId, CheckOutRequest};
use super::{Clear, Pool};
use crate::connection::EstablishError;
use crate::time::Instant;

/// The connection to take next, and whether it was idle for so long that it has to be checked first.
struct Next {
    key: Key,
    needs_check: bool,
}

impl<C> Pool<C> {
    /// Serves a check-out that has just arrived, or lets it wait.
    #[inline]
    pub(super) fn serve_arrival(&mut self, check_out: Key, request: CheckOutRequest) -> Option<Delivery<C>> {
        let deadline = request.deadline;
        if self.affinity.is_some() {
            return self.serve_arrival_by_key(check_out, request);
        }
        if self.chooses() {
            return self.serve_arrival_by_choice(check_out, request);
        }
        if !self.connections.available.is_empty()
            && (self.can_serve_arrival(self.now) || self.can_serve_arrival_after_closing())
        {
            let hottest = self.connections.available.back()?;
            return self.take_for(hottest, check_out);
        }
        self.enqueue(check_out, deadline);
        None
    }

    #[inline]
    pub(super) fn enqueue(&mut self, check_out: Key, deadline: Option<Instant>) {
        self.wait_queue.enqueue(check_out, deadline, self.limits.wait_queue_timeout);
        if !self.connections.available.is_empty() {
            self.serve_from_available();
        }
        // An arrival creates a connection whenever it may (CMAP-26), even if the pending ones would suffice. Its origin
        // is the longest waiter without one.
        if self.wait_queue.len() > self.checks()
            && self.may_create()
            && let Some(origin) = self.wait_queue.next_origin()
        {
            self.create_for(origin);
        }
        self.serve_by_lending();
        self.note_waiting();
    }

    #[inline]
    pub(super) fn note_waiting(&mut self) {
        let waiting = self.waiting();
        let high = &mut self.totals.high_water;
        high.waiting = high.waiting.max(waiting);
    }

    /// Serves the queue after something became available or free.
    #[inline]
    pub(super) fn serve(&mut self) {
        if self.wait_queue.len() > 0 {
            self.serve_waiters();
        }
    }

    #[inline(never)]
    fn serve_waiters(&mut self) {
        self.serve_from_available();
        self.create_for_waiters();
        self.serve_by_lending();
    }

    fn serve_by_lending(&mut self) {
        while self.lend() {
            self.create_for_waiters();
        }
    }

    fn create_for_waiters(&mut self) {
        while self.wait_queue.len() > self.connections.pending + self.checks()
            && self.may_create()
            && let Some(origin) = self.wait_queue.next_origin()
        {
            self.create_for(origin);
        }
    }

    /// A connection that came back at `now` is available.
    #[inline(always)]
    pub(super) fn put_hottest(&mut self, now: Instant, key: Key, socket: C) {
        self.connections.put_hottest(&mut self.generations, key, now, socket);
        self.note_available();
    }

    #[inline]
    fn note_available(&mut self) {
        let high = &mut self.totals.high_water;
        high.available = high.available.max(self.connections.available.len());
    }

    /// Creates a pending connection (CMAP-22), for a waiter or to populate the pool.
    pub(super) fn create(&mut self, origin: Option<Key>) -> Key {
        let key = self.connections.create(self.generations.pool, self.now, origin);
        let connection = self.handle(key);
        let high = &mut self.totals;
        high.high_water.pending = high.high_water.pending.max(self.connections.pending);
        high.high_water_total = high.high_water_total.max(self.connections.total());
        self.note_created(connection.id);
        self.use_permit();
        self.take_token();
        self.renew_attention();
        self.emit(|| Event::ConnectionCreated { connection_id: connection.id });
        self.outputs.push_back(Output::Action(Action::Connect { connection }));
        key
    }

    /// Whether there is room for another connection, a permit to establish it (CMAP-1, CMAP-4), and neither backoff nor rate
    /// hold it back.
    pub(super) fn may_create(&self) -> bool {
        self.has_room() && (!self.restrained || self.is_creation_allowed()) && self.has_permit()
    }

    /// Whether there is room for another connection, and a permit to establish it (CMAP-1, CMAP-4).
    pub(super) fn has_room(&self) -> bool {
        self.state == PoolState::Ready
            && self.connections.total() < self.limits.max_pool_size
            && self.connections.pending < self.limits.max_connecting
    }

    /// A connection was established: it is available first, and only then is its permit free (CMAP-45).
    pub(super) fn settle(&mut self, key: Key, connection: Handle, socket: C) {
        let reason = match self.state {
            PoolState::Closed => Some(ConnectionClosedReason::PoolClosed),
            _ if self.is_stale_at(key) => Some(ConnectionClosedReason::Stale),
            // One that was created for a waiter serves a waiter; it is closed when it comes back.
            PoolState::Paused | PoolState::Ready => self.superfluous(),
        };
        // The server takes connections, whatever happens to this one.
        self.end_backoff();
        if let Some(reason) = reason {
            let origin = self.release_origin(key);
            self.forget(key, reason, None);
            self.outputs.push_back(Output::Action(Action::Close { connection, socket, reason }));
            // Only behind a load balancer, or in an edition without pauses: elsewhere a clear or close has left no waiter.
            self.replace_for(origin);
        } else {
            let Stage::Pending { created_at, .. } = self.connections.slot(key).stage else { return };
            let duration = self.now.saturating_since(created_at);
            self.totals.established = self.totals.established.saturating_add(1);
            self.record_establishment(duration);
            self.emit(|| Event::ConnectionReady { connection_id: connection.id, duration });
            self.exchange_origins(key);
            self.connections.make_available(&mut self.generations, key, self.now, socket);
            self.note_available();
            self.begin_life(key);
            self.watch_refreshed(key);
        }
        self.serve();
        self.retire();
        self.populate();
        self.warm();
    }

    /// The origin of a connection that is gone gets another one, and stays where origins stand in the queue.
    pub(super) fn replace_for(&mut self, origin: Option<Key>) {
        if let Some(origin) = origin {
            let replacement = self.create(Some(origin));
            self.wait_queue.set_pending(origin, Some(replacement));
        }
    }

    /// Establishing a connection failed: its origin fails, if it still waits, and no other waiter. If that
    /// clears the pool, PoolCleared comes first and the other waiters' failure last (CMAP-49).
    pub(super) fn fail_establishment(&mut self, key: Key, error: EstablishError, reaction: Reaction) {
        let error = Arc::new(error);
        let service_id = self.connections.slot(key).service;
        let clears = reaction == Reaction::ClearPool && service_id.is_some() == self.limits.load_balanced;
        if clears {
            let cause = super::Cause::of(&*error);
            self.raise_generation(&Clear { service_id, ..Clear::pool(cause) });
        }
        let reason = match self.state {
            PoolState::Closed => ConnectionClosedReason::PoolClosed,
            PoolState::Paused | PoolState::Ready => ConnectionClosedReason::Error,
        };
        self.back_off(self.connections.slot(key).id, &error);
        let origin = self.release_origin(key);
        self.forget(key, reason, Some(Arc::clone(&error)));
        match origin {
            Some(origin) => self.fail(origin, CheckOutErrorKind::Establish(error)),
            None => {
                self.population_failed = true;
                self.fail_warm_ups(&error);
            }
        }
        self.evict_waiters();
        self.serve();
    }

    /// The driver has checked a connection that was idle for long.
    pub(super) fn finish_check(&mut self, key: Key, alive: bool) {
        let reason = match self.state {
            PoolState::Closed => Some(ConnectionClosedReason::PoolClosed),
            _ if !alive => Some(ConnectionClosedReason::Error),
            _ if self.is_stale_at(key) => Some(ConnectionClosedReason::Stale),
            PoolState::Paused | PoolState::Ready => self.superfluous(),
        };
        match reason {
            Some(reason) => self.close_connection(key, reason),
            // It counts as returned just now: the list of available connections stays in the order of their return.
            None => {
                self.connections.pass_check(&mut self.generations, key, self.now);
                self.note_return_from_check(key);
                self.serve_loyal(key);
            }
        }
        self.serve();
        // Waiters may leave a connection that is held for its keys.
        self.close_surplus();
        self.retire();
    }

    /// Ends a check-out without a connection and tells its caller.
    pub(super) fn fail(&mut self, check_out: Key, kind: CheckOutErrorKind) {
        let error = self.end_in_failure(check_out, kind);
        self.tell_failure(self.wait_queue.id(check_out), error);
    }

    /// Ends a check-out whose time is up, and says what it lacked.
    pub(super) fn fail_at_its_time(&mut self, check_out: Key, limit: WaitLimit, bound: WaitBound) {
        let mut error = self.end_in_failure(check_out, CheckOutErrorKind::Timeout(limit));
        error.bound_by = Some(bound);
        error.timeouts = self.totals.check_outs_failed.timeout.saturating_add(1);
        self.tell_failure(self.wait_queue.id(check_out), error);
    }

    fn tell_failure(&mut self, id: CheckOutId, error: CheckOutError) {
        let error = Arc::new(error);
        let reason = error.reason();
        self.emit_failure(&error, id);
        self.totals.check_outs_failed.count(reason);
        self.outputs.push_back(Output::Action(Action::Fail { check_out: id, error }));
    }

    /// Ends a check-out that its caller has given up.
    pub(super) fn cancel(&mut self, check_out: Key) {
        let id = self.wait_queue.id(check_out);
        let error = self.end_in_failure(check_out, CheckOutErrorKind::Cancelled);
        self.totals.cancelled = self.totals.cancelled.saturating_add(1);
        self.totals.check_outs_failed.count(error.reason());
        if self.observed {
            self.emit_failure(&Arc::new(error), id);
        }
    }

    /// The pending connection has no origin any more; returns its former origin.
    pub(super) fn release_origin(&mut self, connection: Key) -> Option<Key> {
        match &mut self.connections.slot_mut(connection).stage {
            Stage::Pending { origin, .. } => origin.take(),
            Stage::Closed
            | Stage::Available { .. }
            | Stage::Checking { .. }
            | Stage::Refreshing { .. }
            | Stage::InUse { .. } => None,
        }
    }

    fn serve_from_available(&mut self) {
        while let Some(waiter) = self.wait_queue.front()
            && let Some(Next { key, needs_check }) = self.next()
        {
            if !needs_check {
                self.serve_head(waiter, key);
            } else if self.wait_queue.len() > self.checks() {
                self.begin_check(key);
            } else if let Some(proven) = self.proven_at_once() {
                self.serve_head(waiter, proven);
            } else {
                break;
            }
        }
    }

    fn serve_head(&mut self, head: Key, connection: Key) {
        self.leave_queue(head);
        let delivery = self.take_bound(connection, head);
        self.outputs.extend(delivery.map(Output::from));
    }

    /// The hottest connection that any waiter may take, if it needs no check. Where colder ones come first and a check runs
    /// for each waiter, it must not lie idle: one that was just established has its origin no more.
    fn proven_at_once(&self) -> Option<Key> {
        let hottest = self.hottest_free()?;
        (self.perished(hottest).is_none() && !self.needs_check(hottest)).then_some(hottest)
    }

    /// As [`can_serve_arrival`](Self::can_serve_arrival) at the latest time, after closing the perished connections in
    /// front of it: behind a load balancer the connections of other services stay.
    #[inline(never)]
    fn can_serve_arrival_after_closing(&mut self) -> bool {
        self.wait_queue.len() == 0 && self.next().is_some_and(|next| !next.needs_check)
    }

    /// The available connection to take next, after closing those that perished (CMAP-26).
    fn next(&mut self) -> Option<Next> {
        while let Some(key) = self.next_available() {
            match self.perished(key) {
                None => {
                    let needs_check = self.needs_check(key);
                    return Some(Next { key, needs_check });
                }
                Some(reason) => self.close_connection(key, reason),
            }
        }
        None
    }

    /// Whether an available connection has shown no sign of life for so long that it has to be checked first.
    pub(super) fn needs_check(&self, key: Key) -> bool {
        self.unproven_time(key) > self.limits.check_after_idle || self.is_suspect(key)
    }

    /// Gives an available connection to a check-out that does not wait, or has stopped waiting.
    #[inline]
    pub(super) fn take_for(&mut self, key: Key, check_out: Key) -> Option<Delivery<C>> {
        let id = self.wait_queue.deliver(check_out);
        self.record_idle(key);
        let (connection, socket) = self.take(check_out, Some(key))?;
        self.begin_use(id, connection);
        Some(Delivery { check_out: id, connection, socket })
    }

    /// Serves the queue with a connection that came back. If no other connection is available that would have to be
    /// checked, it goes straight to the head of the queue; that delivery is returned, and no other output follows:
    /// there is one waiter less, but neither more room nor another permit. Only the end of a backoff's pause may let
    /// one be created as well.
    #[inline(never)]
    pub(super) fn serve_with(&mut self, connection: Handle, socket: C) -> Option<Delivery<C>> {
        match self.wait_queue.front() {
            Some(heir) if self.connections.available.is_empty() && !self.is_creation_due() => {
                Some(self.pass_on(connection, socket, heir))
            }
            _ => {
                self.put_hottest(self.now, connection.key, socket);
                self.serve();
                None
            }
        }
    }

    /// A check-out waits no more; the connection that was created for it is for any other one.
    #[inline(always)]
    pub(super) fn leave_queue(&mut self, waiter: Key) {
        if let Some(pending) = self.wait_queue.pending(waiter) {
            self.release_origin(pending);
        }
        self.wait_queue.leave(waiter);
    }

    /// A connection that came back stays in use, and belongs to the head of the queue from now on.
    #[inline(always)]
    pub(super) fn pass_on(&mut self, connection: Handle, socket: C, heir: Key) -> Delivery<C> {
        self.leave_queue(heir);
        let check_out = self.wait_queue.deliver(heir);
        self.connections.pass_on(&mut self.generations, connection.key, heir);
        // It was available, if only for an instant.
        let high = &mut self.totals.high_water;
        high.available = high.available.max(1);
        self.begin_use(check_out, connection);
        Delivery { check_out, connection, socket }
    }

    /// Reports a delivery; from now on its connection is held.
    #[inline(always)]
    fn begin_use(&mut self, check_out: CheckOutId, connection: Handle) {
        if !self.attention.fast_check_out {
            let duration = self.now.saturating_since(self.wait_queue.started_at(check_out.key));
            self.emit(|| Event::ConnectionCheckedOut { check_out, connection_id: connection.id, duration });
            self.record_wait(check_out.key);
        }
        self.wait_queue.begin_use(check_out.key, self.now);
    }

    /// An available connection, or the hottest, is in use from now on, by this check-out.
    #[inline(always)]
    pub(super) fn take(&mut self, check_out: Key, chosen: Option<Key>) -> Option<(Handle, C)> {
        let (key, id, socket) = self.connections.take(&mut self.generations, check_out, chosen)?;
        let high = &mut self.totals.high_water;
        high.in_use = high.in_use.max(self.connections.in_use);
        Some((Handle { id, key, pool: self.id }, socket))
    }

    pub(super) fn create_for(&mut self, origin: Key) {
        let key = self.create(Some(origin));
        self.wait_queue.make_origin(origin, key);
    }

    /// The head of the queue is about to take the connection that was established for another waiter, who gets the
    /// head's pending connection in exchange.
    fn exchange_origins(&mut self, established: Key) {
        let origin = self.release_origin(established);
        let Some(head) = self.wait_queue.front() else { return };
        if origin == Some(head) {
            self.wait_queue.set_pending(head, None);
        } else if let Some(pending) = self.wait_queue.pending(head) {
            self.wait_queue.set_pending(head, None);
            if let Stage::Pending { origin: origin_of_heads, .. } = &mut self.connections.slot_mut(pending).stage {
                *origin_of_heads = origin;
            }
            if let Some(origin) = origin {
                self.wait_queue.set_pending(origin, Some(pending));
            }
        }
    }

    /// A pending connection has another origin from now on.
    pub(super) fn change_origin(&mut self, connection: Key, new: Key) {
        if let Stage::Pending { origin, .. } = &mut self.connections.slot_mut(connection).stage {
            *origin = Some(new);
        }
    }

    fn end_in_failure(&mut self, check_out: Key, kind: CheckOutErrorKind) -> CheckOutError {
        let waited = self.now.saturating_since(self.wait_queue.started_at(check_out));
        let (counts, in_use_by) = (self.counts(), self.in_use_by());
        self.leave_queue(check_out);
        self.leave_loyal(check_out);
        self.wait_queue.finish(check_out);
        let address = Arc::clone(&self.address);
        let in_use_by = self.limits.load_balanced.then_some(in_use_by);
        let max_pool_size = if self.limits.max_pool_size == u32::MAX { 0 } else { self.limits.max_pool_size };
        let backed_off_by = self.backed_off_by();
        let paused_for = (self.state == PoolState::Paused).then(|| self.now.saturating_since(self.paused_since));
        CheckOutError {
            kind,
            address,
            counts,
            waited,
            in_use_by,
            max_pool_size,
            backed_off_by,
            paused_for,
            bound_by: None,
            held_by: Arc::default(),
            timeouts: self.totals.check_outs_failed.timeout,
        }
    }

    fn emit_failure(&mut self, error: &Arc<CheckOutError>, check_out: super::CheckOutId) {
        self.emit(|| Event::ConnectionCheckOutFailed {
            check_out,
            reason: error.reason(),
            duration: error.waited,
            error: Arc::clone(error),
        });
    }
}
