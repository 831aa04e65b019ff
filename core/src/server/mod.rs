//! One endpoint: its pool, its monitor, and what checks and errors say about the server behind it.
//!
//! An error of a connection may mean that the server is gone, or only that this connection is. [`reaction`] decides which
//! by the rules of SDAM; [`Server`] carries it out in one call, so that nobody sees the one without the other (SDAM-3), and
//! in the order that can be observed: the server is unknown, the pool is cleared, then the failed connection is closed, and
//! last its check-out fails (CMAP-49). A check that succeeds makes the pool ready in the same way.
//!
//! A [`Server`] is data, like its pool, and knows no monitor: where it needs one, a [`MonitorCall`] comes out. An
//! `Endpoint` (features `wire` and `auth`) is a server and its monitor, each told what the other finds: it is what an
//! adapter drives.
//!
//! A check-out that comes while the server is unknown waits for it ([`CheckOut::Selecting`]) and goes on in the pool as
//! soon as a check succeeds.

pub mod reaction;

mod description;
#[cfg(all(feature = "wire", feature = "auth"))]
mod endpoint;
mod event;
#[cfg(feature = "wire")]
mod hello_reply;
mod operation_error;
mod output;
mod selection;
mod server_options;
mod topology;
mod topology_version;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(all(feature = "wire", feature = "auth"))]
pub(crate) use self::description::incompatibility;
pub use self::description::{MAX_WIRE_VERSION, MIN_WIRE_VERSION, ServerDescription, ServerType};
#[cfg(all(feature = "wire", feature = "auth"))]
pub use self::endpoint::Endpoint;
pub use self::event::{MonitorConnection, ServerEvent};
pub use self::operation_error::{OperationError, StateChange};
pub use self::output::{MonitorCall, Output, Timeout, TimeoutReason};
use self::reaction::{Circumstances, Reactions};
pub use self::selection::{SelectionError, SelectionErrorKind, SelectionId};
use self::selection::{Selections, Waiter};
pub use self::server_options::ServerOptions;
pub use self::topology::{TopologyDescription, TopologyType};
use self::topology_version::Disbelief;
pub use self::topology_version::TopologyVersion;
use crate::connection::{EstablishError, Fault};
use crate::pool::{
    ApiMisuse, Cancellation, Cause, CheckOutId, CheckOutRequest, Clear, Condition, Delivery, Handle, Pool, Reaction,
    Refused,
};
use crate::time::Instant;

/// One server as the client knows it: a pool, what is known of the server, and who waits for it.
///
/// **The driving rule** is the pool's: call any method, drain [`poll_output`](Self::poll_output), ask
/// [`poll_timeout`](Self::poll_timeout). The pool is driven through it: calls that say nothing about the server are made of
/// [`pool_mut`](Self::pool_mut), and their outputs come out here.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "C: Serialize", deserialize = "C: Deserialize<'de>"))]
pub struct Server<C> {
    pool: Pool<C>,
    options: ServerOptions,
    topology: Arc<TopologyDescription>,
    description: Arc<ServerDescription>,
    disbelief: Disbelief,
    phase: Phase,
    now: Instant,
    selections: Selections,
    /// What happened before anything that is in the pool's own queue.
    outputs: VecDeque<Output<C>>,
    observed: bool,
}

/// What becomes of a check-out that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    /// Waits for the server.
    Unusable,
    /// Goes on in the pool.
    Usable,
    /// Goes on in the pool, for ever: nobody checks the server, and the pool alone knows whether it may be used.
    Unchecked,
    /// Fails: the pool is closed and says so.
    Closed,
}

/// A check-out that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CheckOut {
    /// It began in the pool.
    Started(CheckOutId),
    /// It waits for the server: [`Output::Selected`] or [`Output::SelectionFailed`] follows.
    Selecting(SelectionId),
}

impl<C> Server<C> {
    /// A server that was not checked yet. Nothing happens before [`open`](Self::open).
    pub fn new(pool: Pool<C>, options: ServerOptions) -> Self {
        let address = Arc::new(pool.address().clone());
        Self {
            pool,
            options,
            topology: Arc::new(TopologyDescription::empty()),
            description: Arc::new(ServerDescription::new(address, ServerType::Unknown)),
            disbelief: Disbelief::default(),
            phase: Phase::Unusable,
            now: Instant::ORIGIN,
            selections: Selections::default(),
            outputs: VecDeque::new(),
            observed: true,
        }
    }

    /// A server that nobody checks, for whoever has a monitor of their own: every check-out goes to the pool at once,
    /// which is paused and ready as its owner says. Errors of connections clear it as ever, and come out as calls of the
    /// monitor, for the owner's to obey; nothing else is known of the server, there are no events of it, and it is never
    /// opened.
    pub fn unchecked(pool: Pool<C>) -> Self {
        // A deadline is the caller's alone: there is no selection that could bound it.
        let options = ServerOptions { server_selection_timeout: Duration::MAX, ..ServerOptions::default() };
        Self { phase: Phase::Unchecked, ..Self::new(pool, options) }
    }

    /// The client begins: the topology opens, with this server in it. A load balancer is known from the start, and never
    /// checked (LB-3, LB-4). Does nothing the second time.
    pub fn open(&mut self, now: Instant) {
        self.advance(now);
        if !self.topology.servers.is_empty() || matches!(self.phase, Phase::Unchecked | Phase::Closed) {
            return;
        }
        let load_balanced = self.pool.options().load_balanced;
        let topology = TopologyDescription::initial(&self.options, load_balanced, Arc::clone(&self.description));
        // In front of everything: the pool has said already that it was created, and TopologyOpening is the first (MON-14).
        if self.observed {
            let opened = self.topology_changed(&topology);
            let events = [ServerEvent::TopologyOpening, opened, ServerEvent::ServerOpening];
            self.outputs.extend(events.map(Output::Event));
        }
        self.topology = Arc::new(topology);
        if load_balanced {
            let address = Arc::clone(&self.description.address);
            self.take_description(ServerDescription::new(address, ServerType::LoadBalancer));
        }
    }

    // What can be asked.

    /// The pool.
    pub fn pool(&self) -> &Pool<C> {
        &self.pool
    }

    /// The pool, for the calls that say nothing about the server. Drain the server, not the pool, afterwards.
    pub fn pool_mut(&mut self) -> &mut Pool<C> {
        &mut self.pool
    }

    /// What is known of the server.
    pub fn description(&self) -> &Arc<ServerDescription> {
        &self.description
    }

    /// What is known of the topology that the server makes.
    pub fn topology(&self) -> &Arc<TopologyDescription> {
        &self.topology
    }

    /// Whether check-outs go on in the pool at once.
    pub fn is_usable(&self) -> bool {
        matches!(self.phase, Phase::Usable | Phase::Unchecked)
    }

    /// The latest time seen.
    #[cfg(all(feature = "wire", feature = "auth"))]
    fn now(&self) -> Instant {
        self.now
    }

    #[cfg(all(feature = "wire", feature = "auth"))]
    fn is_observed(&self) -> bool {
        self.observed
    }

    /// How many check-outs wait for the server.
    pub fn selecting(&self) -> usize {
        self.selections.len()
    }

    // Callers.

    /// Asks for a connection: of the pool, if the server is usable; otherwise as soon as it is, for at most
    /// serverSelectionTimeoutMS. That bounds the whole of a request with a deadline (CSOT-4).
    #[inline]
    pub fn check_out(&mut self, now: Instant, request: CheckOutRequest) -> CheckOut {
        if self.phase == Phase::Unusable {
            return self.select(now, request);
        }
        CheckOut::Started(self.pool.check_out(now, self.bounded(now, request)))
    }

    /// The short way of a check-out, where a delivery is all that would come of it: see [`Pool::try_check_out`].
    #[must_use = "a delivered connection has to be checked in"]
    #[inline]
    pub fn try_check_out(&mut self, now: Instant, request: CheckOutRequest) -> Option<Delivery<C>> {
        if !self.is_usable() || !self.outputs.is_empty() {
            return None;
        }
        self.pool.try_check_out(now, self.bounded(now, request))
    }

    /// The short way of a check-in, where a delivery may be all that comes of it: see [`Pool::hand_over`].
    ///
    /// # Errors
    /// Those of [`Pool::check_in`].
    #[must_use = "a delivered connection has to be checked in"]
    #[inline]
    pub fn hand_over(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<Option<Delivery<C>>, Refused<C>> {
        if !self.outputs.is_empty() {
            return self.pool.check_in(now, connection, socket, condition).map(|()| None);
        }
        self.pool.hand_over(now, connection, socket, condition)
    }

    /// Gives up a check-out, wherever it stands. One that waits for the server never began, and ends without an event.
    #[must_use = "a delivered connection has to be checked in"]
    pub fn cancel_check_out(&mut self, now: Instant, check_out: CheckOut) -> Cancellation {
        match check_out {
            CheckOut::Started(id) => self.pool.cancel_check_out(now, id),
            CheckOut::Selecting(selection) => match self.selections.remove(selection) {
                Some(_) => Cancellation::Cancelled,
                None => Cancellation::Finished,
            },
        }
    }

    /// Ends the server and its pool; who waits for either fails. MON-14: the server becomes unknown before it is closed.
    pub fn close(&mut self, now: Instant) {
        self.advance(now);
        if self.phase == Phase::Closed {
            return;
        }
        self.phase = Phase::Closed;
        self.pool.close(now);
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

    /// To be called in a process that was forked, as [`Pool::reset_after_fork`] is (FORK-2): who waited for the server or its
    /// pool fails, and nothing is known of the server until the next check.
    pub fn reset_after_fork(&mut self, now: Instant) {
        self.advance(now);
        if self.phase == Phase::Closed {
            return;
        }
        if !self.pool.options().load_balanced {
            self.mark_unknown(Cause::new("the process was forked"), None);
        }
        self.pool.reset_after_fork(now);
        while let Some(selection) = self.selections.first() {
            self.fail_selection(selection, SelectionErrorKind::Forked);
        }
    }

    // What is learnt of the server.

    /// A check of the server succeeded and found `description`. One that is older than what is known already is ignored
    /// (SDAM-6), unless it is the third in a row: [`TopologyVersion`] says why. The pool of a usable server becomes ready,
    /// and who waits for it goes on there (SDAM-1, SDAM-2). A load balancer is not checked (LB-3): nothing changes.
    pub fn handle_check_succeeded(&mut self, now: Instant, description: ServerDescription) {
        self.advance(now);
        let is_older = self.is_older(&description);
        if self.disbelief.believes(is_older) {
            self.believe(description);
        }
        self.hurry_monitor();
    }

    /// A connection of the pool was greeted: its hello says of the server what that of a check would, but for the
    /// round-trip times (MON-5, SDAM-22). What is older than what is known already is ignored (SDAM-6), and so is a
    /// connection that a clear has made stale: what cleared the pool is newer. A load balancer stays one (LB-3).
    pub fn handle_application_hello(&mut self, now: Instant, connection: Handle, mut description: ServerDescription) {
        self.advance(now);
        if !self.pool.is_stale(connection) {
            description.round_trip_time = self.description.round_trip_time;
            description.min_round_trip_time = self.description.min_round_trip_time;
            if !self.is_older(&description) {
                self.believe(description);
            }
            self.hurry_monitor();
        }
    }

    /// A check of the server failed: it is unknown, its pool cleared. Connections in use are interrupted if the check
    /// timed out (MON-9): they would wait in vain as well.
    ///
    /// # Errors
    /// The server is load-balanced, and therefore not checked (LB-3).
    pub fn handle_check_failed(&mut self, now: Instant, fault: Fault, cause: Cause) -> Result<(), ApiMisuse> {
        self.advance(now);
        if self.pool.options().load_balanced {
            return Err(ApiMisuse::ClearWithoutService);
        }
        self.mark_unknown(cause.clone(), None);
        let clear = Clear::pool(cause);
        self.pool.clear(now, if fault == Fault::Timeout { clear.interrupting() } else { clear })?;
        self.hurry_monitor();
        Ok(())
    }

    /// Establishing a connection failed. Clears the pool if the error speaks against the server (SDAM-4 to SDAM-8), or
    /// the service's part of it (LB-9, LB-10).
    ///
    /// # Errors
    /// Those of [`Pool::handle_establish_failed`].
    pub fn handle_establish_failed(
        &mut self,
        now: Instant,
        connection: Handle,
        error: EstablishError,
    ) -> Result<(), ApiMisuse> {
        self.advance(now);
        let topology_version = error.topology_version;
        let reactions = reaction::to_establish_error(&error, self.circumstances(connection, topology_version));
        if reactions.mark_unknown && self.pool.is_pending(connection)? {
            self.mark_unknown(Cause::of(&error), topology_version);
        }
        let reaction = if reactions.clear { Reaction::ClearPool } else { Reaction::KeepPool };
        self.pool.handle_establish_failed(now, connection, error, reaction)?;
        self.call_monitor(reactions);
        Ok(())
    }

    /// An operation on a connection in use failed, or its reply announced a change of the server. Clears the pool if the
    /// error speaks against the server (SDAM-4 to SDAM-16), or the service's part of it (LB-11). Check the connection in
    /// afterwards: PoolCleared precedes CheckedIn (CMAP-49).
    ///
    /// # Errors
    /// The handle is another pool's, or of a connection that is not in use. An error of one that was closed since is old
    /// news.
    pub fn handle_operation_failed(
        &mut self,
        now: Instant,
        connection: Handle,
        error: OperationError,
    ) -> Result<(), ApiMisuse> {
        self.advance(now);
        if !self.pool.in_use(connection)? {
            return Ok(());
        }
        let reactions = reaction::to_operation_error(&error, self.circumstances(connection, error.topology_version));
        if reactions.mark_unknown {
            self.mark_unknown(error.cause.clone(), error.topology_version);
        }
        if reactions.clear {
            let service_id = self.pool.service_of(connection);
            self.pool.clear(now, Clear { service_id, ..Clear::pool(error.cause) })?;
        }
        self.call_monitor(reactions);
        Ok(())
    }

    /// Time has passed: who waited long enough for the server fails, and the pool does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        self.pool.handle_timeout(now);
        while let Some((at, selection)) = self.selections.next_deadline()
            && at <= self.now
        {
            self.fail_selection(selection, SelectionErrorKind::Timeout);
        }
    }

    // Outputs.

    /// The next output; `None` when there is nothing more to do.
    #[must_use = "an action that is not carried out is lost"]
    #[inline]
    pub fn poll_output(&mut self) -> Option<Output<C>> {
        if self.outputs.is_empty() { self.pool.poll_output().map(Output::Pool) } else { self.outputs.pop_front() }
    }

    /// Whether all outputs have been drained.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.outputs.is_empty() && self.pool.is_drained()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), and why; `None` if nothing depends on time.
    #[must_use = "without it nobody knows when to come back"]
    #[inline]
    pub fn poll_timeout(&self) -> Option<Timeout> {
        if !self.outputs.is_empty() {
            return Some(Timeout { at: self.now, reason: TimeoutReason::Outputs });
        }
        let pool = self.pool.poll_timeout();
        let pool = pool.map(|pool| Timeout { at: pool.at, reason: TimeoutReason::Pool(pool.reason) });
        let selection = self.selections.next_deadline();
        let selection = selection.map(|(at, _)| Timeout { at, reason: TimeoutReason::Selection });
        Timeout::earlier(pool, selection)
    }

    /// Whether events are produced at all: the server's and the pool's. On at first.
    pub fn observe(&mut self, on: bool) {
        self.observed = on;
        self.pool.observe(on);
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// A request with a deadline ends within serverSelectionTimeoutMS at the latest (CSOT-4).
    #[inline]
    fn bounded(&self, now: Instant, mut request: CheckOutRequest) -> CheckOutRequest {
        if let Some(deadline) = &mut request.deadline {
            *deadline = (*deadline).min(now + self.options.server_selection_timeout);
        }
        request
    }

    #[cold]
    fn select(&mut self, now: Instant, request: CheckOutRequest) -> CheckOut {
        self.advance(now);
        let limit = self.now + self.options.server_selection_timeout;
        let deadline = request.deadline.map_or(limit, |deadline| deadline.min(limit));
        let request = CheckOutRequest { deadline: request.deadline.map(|_| deadline), ..request };
        let selection = self.selections.add(self.now, request, deadline);
        self.push(Output::Monitor(MonitorCall::RequestCheck));
        if deadline <= self.now {
            self.fail_selection(selection, SelectionErrorKind::Timeout);
        }
        self.refuse_if_incompatible();
        CheckOut::Selecting(selection)
    }

    /// Whether `description` is older than what is known (SDAM-6).
    fn is_older(&self, description: &ServerDescription) -> bool {
        TopologyVersion::is_reply_stale(self.description.topology_version, description.topology_version)
    }

    /// Records what the server says of itself, or that it is not what the options ask for. A load balancer stays one (LB-3).
    fn believe(&mut self, description: ServerDescription) {
        if !self.pool.options().load_balanced {
            self.take_description(TopologyDescription::admit(description, &self.options));
        }
    }

    /// Replaces what is known of the server, and lets the pool and the waiters know (SDAM-3).
    fn take_description(&mut self, description: ServerDescription) {
        if matches!(self.phase, Phase::Unchecked | Phase::Closed) {
            return;
        }
        let description = Arc::new(description);
        let previous = core::mem::replace(&mut self.description, Arc::clone(&description));
        let topology = self.topology.with(Arc::clone(&description));
        let may_use = topology.may_use(description.server_type) && description.incompatibility().is_none();
        self.phase = if may_use { Phase::Usable } else { Phase::Unusable };
        if !previous.is_same(&description) {
            let changed = self.topology_changed(&topology);
            self.emit(ServerEvent::ServerDescriptionChanged { previous, new: description });
            self.emit(changed);
        }
        self.topology = Arc::new(topology);
        if may_use {
            self.pool.ready(self.now);
            while let Some(selection) = self.selections.first()
                && let Some(Waiter { request, .. }) = self.selections.remove(selection)
            {
                self.take_over_outputs();
                let check_out = self.pool.check_out(self.now, request);
                // In front of what the pool has just said of it.
                self.outputs.push_back(Output::Selected { selection, check_out });
            }
        }
        self.refuse_if_incompatible();
    }

    fn mark_unknown(&mut self, cause: Cause, topology_version: Option<TopologyVersion>) {
        let address = Arc::clone(&self.description.address);
        self.take_description(ServerDescription { topology_version, ..ServerDescription::unknown(address, cause) });
    }

    /// Nobody waits for a server that this client cannot talk to.
    fn refuse_if_incompatible(&mut self) {
        if let Some(text) = self.description.incompatibility() {
            while let Some(selection) = self.selections.first() {
                self.fail_selection(selection, SelectionErrorKind::Incompatible(text.clone()));
            }
        }
    }

    fn fail_selection(&mut self, selection: SelectionId, kind: SelectionErrorKind) {
        let Some(waiter) = self.selections.remove(selection) else { return };
        let error = Arc::new(SelectionError {
            kind,
            address: Arc::clone(&self.description.address),
            cause: self.description.error.clone(),
            waited: self.now.saturating_since(waiter.arrived_at),
        });
        self.push(Output::SelectionFailed { selection, error });
    }

    fn circumstances(&self, connection: Handle, topology_version: Option<TopologyVersion>) -> Circumstances {
        let is_old_news = TopologyVersion::is_error_stale(self.description.topology_version, topology_version);
        Circumstances {
            is_stale: self.pool.is_stale(connection) || is_old_news,
            load_balanced: self.pool.options().load_balanced,
            service_is_known: self.pool.service_of(connection).is_some(),
        }
    }

    fn call_monitor(&mut self, reactions: Reactions) {
        let Reactions { clear: _, mark_unknown, cancel_check, request_check } = reactions;
        for (is_wanted, call) in [
            (mark_unknown, MonitorCall::MarkUnknown),
            (cancel_check, MonitorCall::CancelCheck),
            (request_check, MonitorCall::RequestCheck),
        ] {
            if is_wanted {
                self.push(Output::Monitor(call));
            }
        }
        self.hurry_monitor();
    }

    /// While somebody waits for the server, the next check is soon, and not after heartbeatFrequencyMS (MON-3): whatever was
    /// found, and also if the check was cancelled that they waited for.
    fn hurry_monitor(&mut self) {
        if self.selections.len() > 0 {
            self.push(Output::Monitor(MonitorCall::RequestCheck));
        }
    }

    fn topology_changed(&self, new: &TopologyDescription) -> ServerEvent {
        ServerEvent::TopologyDescriptionChanged { previous: Arc::clone(&self.topology), new: Arc::new(new.clone()) }
    }

    fn emit(&mut self, event: ServerEvent) {
        if self.observed {
            self.push(Output::Event(event));
        }
    }

    /// Queues an output behind everything that happened before it, in the pool, too.
    fn push(&mut self, output: Output<C>) {
        self.take_over_outputs();
        self.outputs.push_back(output);
    }

    fn take_over_outputs(&mut self) {
        while let Some(output) = self.pool.poll_output() {
            self.outputs.push_back(Output::Pool(output));
        }
    }
}
