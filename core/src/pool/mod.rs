//! The connection pool of one endpoint: the CMAP machine.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the pool's public interface: calls in, outputs out |
//! | `state` | the states of pools and connections, and every transition |
//! | `fast_path` | the check-outs and check-ins that meet no obstacle |
//! | `settle` | what follows from a call, in one order |
//! | `selection`, `delivery` | which available connection serves next; how it gets to a check-out, and back |
//! | `establishing`, `failing` | connections that are being established; check-outs that end without one |
//! | `check_in` | connections that come back |
//! | `clearing` | clear, close, interrupt |
//! | `admission` | whether a connection may be created now: pauses while the server is overloaded, the limit of new connections per second |
//! | `retirement` | connections whose life is over |
//! | `affinity`, `sticky_keys` | keys that keep their connections |
//! | `refresh` | connections that are kept alive between their uses |
//! | `resume` | what becomes of idle connections when the machine was suspended |
//! | `rotation` | a new credential |
//! | `maintenance` | pruning and populating |
//! | `warm_up` | connections that are established before anybody needs them |
//! | `resize` | limits that change while the pool runs |
//! | `share` | what the topology decides: a minimum that follows, permits of a budget |
//! | `host_timeout` | a host that nobody has used for long |
//! | `connections`, `wait_queue`, `list` | where connections and check-outs live |
//! | `generation` | which connections a clear has made stale |
//! | `timer` | when to come back, and why |
//! | `handle` | how callers name a connection, a warm-up, and a user besides that of the options |
//! | `queries`, `holders`, `wait_bound` | what can be asked of a pool; who holds what, who waits, and for what |
//! | `input`, `output`, `event`, `error`, `stats`, `statistics`, `phases` | calls as data, outputs, events, errors, counts, durations |
//! | `snapshot` | its state without the sockets |
//! | `invariants` | what holds after every call |
//!
#![doc = include_str!("../../docs/states.md")]

mod admission;
mod affinity;
mod check_in;
mod clearing;
mod connections;
mod delivery;
mod error;
mod establishing;
mod event;
mod failing;
mod fast_path;
mod generation;
mod handle;
mod holders;
mod host_timeout;
mod input;
mod invariants;
mod list;
mod maintenance;
mod output;
mod phases;
mod queries;
mod refresh;
mod resize;
mod resume;
mod retirement;
mod rotation;
mod selection;
mod settle;
mod share;
mod snapshot;
pub(crate) mod state;
mod statistics;
mod stats;
mod sticky_keys;
mod timer;
mod wait_bound;
mod wait_queue;
mod warm_up;

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use self::admission::Admission;
use self::connections::{Connections, Perished, Stage};
use self::generation::Generations;
pub(crate) use self::handle::PoolId;
pub(crate) use self::handle::PoolOwner;
use self::host_timeout::HostUse;
use self::list::Key;
use self::refresh::Refresh;
use self::retirement::Retirement;
use self::settle::Due;
pub(crate) use self::share::NextPermit;
use self::share::{Attention, Share};
use self::state::PoolCall;
use self::stats::Totals;
use self::sticky_keys::StickyKeys;
use self::wait_queue::WaitQueue;
use self::warm_up::WarmUps;
use crate::address::ServerAddress;
use crate::connection::EstablishError;
use crate::options::{Limits, PoolOptions, PoolOptionsError};
use crate::random::Random;
use crate::time::Instant;

pub use self::connections::{InUseBy, Purpose};
pub use self::error::{
    ApiMisuse, Cause, CheckOutError, CheckOutErrorKind, Refused, WaitLimit, WarmUpError, WarmUpErrorKind,
};
pub use self::event::{CheckOutFailedReason, ConnectionClosedReason, Event};
pub use self::generation::Generation;
pub use self::handle::{ConnectionId, Handle, IdentityId, WarmUpId};
pub use self::holders::{Establishing, InUse, Kept, Waiting};
pub use self::input::{Answer, Clear, Condition, Input, Reaction};
pub use self::invariants::BrokenInvariant;
pub use self::output::{Action, CheckedIn, Delivery, Output};
pub use self::phases::{PhaseDurations, PhaseTimes};
pub use self::state::{ConnectionState, PoolState};
pub use self::statistics::{Durations, Statistics};
pub use self::stats::{ClosedTotals, Counts, FailedTotals, Stats};
pub use self::sticky_keys::AffinityKey;
pub use self::timer::{Timeout, TimeoutReason};
pub use self::wait_bound::{HeldBy, WaitBound};
pub use self::wait_queue::{Cancellation, CheckOutId, CheckOutRequest};
pub use crate::service_id::{ParseServiceIdError, ServiceId};

/// The connection pool of one endpoint, as a machine without I/O.
///
/// `C` is what an established connection owns: a socket and its protocol machine, or `()` in replay and simulation.
///
/// **The driving rule.** Call any method; then drain [`poll_output`](Self::poll_output) until it returns `None`; then ask
/// [`poll_timeout`](Self::poll_timeout) when to come back. Every call is legal in every state; the table above says what
/// it does. Every call takes `now`; a `now` before the latest one seen is read as that one.
///
/// Cloning and serialising a pool copies its whole state: a copy given the same calls has the same outputs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Pool<C> {
    id: PoolId,
    address: Arc<ServerAddress>,
    options: Box<PoolOptions>,
    limits: Limits,
    state: PoolState,
    /// Why the pool is paused.
    paused_by: Cause,
    paused_since: Instant,
    now: Instant,
    last_maintenance: Option<Instant>,
    /// Whether a connection that no check-out waited for has failed since: then only the next run populates again
    ///
    population_failed: bool,
    admission: Admission,
    /// The lives of connections, where they end.
    retirement: Option<Box<Retirement>>,
    /// The connections that keys keep.
    affinity: Option<Box<StickyKeys>>,
    /// When connections are refreshed, if they are.
    refresh: Option<Box<Refresh>>,
    /// Available connections that were idle while the machine was suspended.
    suspects: BTreeSet<Key>,
    /// The source of all that happens by chance.
    random: Random,
    generations: Generations,
    /// The last connection whose credential has been replaced.
    outdated_until: ConnectionId,
    connections: Connections<C>,
    wait_queue: WaitQueue,
    outputs: VecDeque<Output<C>>,
    observed: bool,
    attention: Attention,
    share: Share,
    host_use: HostUse,
    warm_ups: WarmUps,
    totals: Totals,
    /// How long everything takes, if that is recorded.
    durations: Option<Box<Durations>>,
}

impl<C> Pool<C> {
    /// A paused pool for `address` (CMAP-17). Nothing happens before [`ready`](Self::ready), unless its profile is an edition
    /// that is ready at once.
    ///
    /// # Errors
    /// An option has a value that it cannot have.
    pub fn new(address: ServerAddress, options: PoolOptions, now: Instant) -> Result<Self, PoolOptionsError> {
        Self::of_server(Arc::new(address), options, now, PoolOwner::default())
    }

    /// The pool of a server of a topology.
    pub(crate) fn of_server(
        address: Arc<ServerAddress>,
        options: PoolOptions,
        now: Instant,
        server: PoolOwner,
    ) -> Result<Self, PoolOptionsError> {
        let limits = options.limits()?;
        let id = PoolId::new(&address, now, server, options.pool_number);
        let random = Random::new(options.seed ^ u64::from(server.number));
        let (retirement, refresh) = (Retirement::of(&limits), Refresh::of(&limits));
        let affinity = StickyKeys::of(&limits);
        let state = if limits.profile.pauses() { PoolState::Paused } else { PoolState::Ready };
        let mut pool = Self {
            id,
            address,
            options: Box::new(options),
            limits,
            state,
            paused_by: Cause::new("the server has not been checked successfully yet"),
            paused_since: now,
            now,
            last_maintenance: None,
            population_failed: false,
            admission: Admission::default(),
            retirement,
            affinity,
            refresh,
            suspects: BTreeSet::new(),
            random,
            generations: Generations::new(),
            outdated_until: ConnectionId(0),
            connections: Connections::new(),
            wait_queue: WaitQueue::new(id),
            outputs: VecDeque::new(),
            observed: true,
            attention: Attention::EVERYWHERE,
            share: Share::default(),
            host_use: HostUse::new(now),
            warm_ups: WarmUps::default(),
            totals: Totals::default(),
            durations: None,
        };
        pool.renew_attention();
        let options = pool.options.clone();
        pool.emit(|| Event::PoolCreated { options });
        Ok(pool)
    }

    // Callers.

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
        let state = self.state;
        match state {
            PoolState::Closed => self.fail(key, CheckOutErrorKind::PoolClosed),
            PoolState::Paused => {
                let cause = self.paused_by.clone();
                self.fail(key, CheckOutErrorKind::PoolCleared { cause });
            }
            PoolState::Ready if request.deadline.is_some_and(|deadline| deadline <= self.now) => {
                self.fail_at_its_time(key, WaitLimit::Deadline, WaitBound::NoTime);
            }
            PoolState::Ready if self.is_queue_full() && !self.can_serve_at_once(&request) => {
                let max_wait_queue_depth = self.limits.max_wait_queue_depth;
                self.fail(key, CheckOutErrorKind::WaitQueueFull { max_wait_queue_depth });
            }
            PoolState::Ready => {
                let due = self.arrive(key, request);
                self.settle(due);
                self.note_waiting();
                return (check_out, self.take_back_delivery(was_drained, |id| id == check_out));
            }
        }
        (check_out, None)
    }

    /// Gives up a check-out in any state. One that waits ends with ConnectionCheckOutFailed and no
    /// [`Action::Fail`]; a connection that is being established for it stays in the pool.
    #[must_use = "a delivered connection has to be checked in"]
    pub fn cancel_check_out(&mut self, now: Instant, id: CheckOutId) -> Cancellation {
        let met = self.withdraw_check_out(now, id);
        if met == Cancellation::Cancelled {
            // The next in the queue may want a connection that this one did not.
            self.settle(Due::Queue);
        }
        met
    }

    /// Cancels a check-out that goes elsewhere, one of several: nobody is served in its place yet.
    pub(crate) fn withdraw_check_out(&mut self, now: Instant, id: CheckOutId) -> Cancellation {
        self.advance(now);
        let met = self.wait_queue.progress(id);
        if met == Cancellation::Cancelled {
            self.cancel(id.key);
        }
        met
    }

    /// Changes the purpose of a connection in use: a cursor or a transaction keeps it, or has let go of it (LB-12 to
    /// LB-16). At its delivery it is for an operation. The call is ignored if the connection was closed since.
    ///
    /// # Errors
    /// The handle is another pool's, its connection is not in use, or another check-out uses it.
    pub fn set_purpose(
        &mut self,
        check_out: CheckOutId,
        connection: Handle,
        purpose: Purpose,
    ) -> Result<(), ApiMisuse> {
        if let Some(key) = self.known(connection, ApiMisuse::NotInUse)? {
            let Stage::InUse { check_out: user, .. } = self.connections.slot(key).stage else {
                return Err(ApiMisuse::NotInUse);
            };
            if !self.wait_queue.is_at(check_out, user) {
                return Err(ApiMisuse::OtherUse);
            }
            self.connections.set_purpose(key, purpose);
        }
        Ok(())
    }

    /// The server answers: check-outs are served from now on (CMAP-18). Does nothing unless the pool is paused.
    pub fn ready(&mut self, now: Instant) {
        self.advance(now);
        if let Some(state) = self.state.after(PoolCall::Ready) {
            self.state = state;
            self.renew_attention();
            // The first population after ready waits for no interval.
            self.last_maintenance = None;
            self.population_failed = false;
            self.emit(|| Event::PoolReady);
        }
    }

    /// Makes all connections stale (CMAP-37 to CMAP-43), or those of one service (LB-8).
    ///
    /// Without a service the pool is paused and every waiter fails at once, unless its profile is an edition that only raises
    /// the generation. A pool that is paused already only raises
    /// its generation; a closed one, and a service without connections, stay as they are.
    ///
    /// # Errors
    /// A service was named for a pool that is not load-balanced, or none for one that is.
    pub fn clear(&mut self, now: Instant, clear: Clear) -> Result<(), ApiMisuse> {
        self.advance(now);
        match (self.limits.load_balanced, clear.service_id) {
            (true, None) => return Err(ApiMisuse::ClearWithoutService),
            (false, Some(_)) => return Err(ApiMisuse::ClearWithService),
            (true, Some(_)) | (false, None) => {}
        }
        // Interruption came with a later edition.
        let interrupts = clear.interrupt_in_use_connections && self.limits.profile.pauses();
        let clear = Clear { interrupt_in_use_connections: interrupts, ..clear };
        if self.raise_generation(&clear) {
            if clear.interrupt_in_use_connections {
                self.interrupt(clear.service_id, &clear.cause);
            }
            self.settle(Due::Queue);
        }
        Ok(())
    }

    /// Closes the pool (CMAP-20): closes the available connections and fails every waiter. Connections in use or
    /// pending are closed when they come back.
    pub fn close(&mut self, now: Instant) {
        self.advance(now);
        if let Some(state) = self.state.after(PoolCall::Close) {
            self.state = state;
            self.renew_attention();
            self.close_available();
            self.emit(|| Event::PoolClosed);
            self.settle(Due::Queue);
        }
    }

    // Results of actions.

    /// The hello of a load-balanced connection named its service: the connection takes that service's generation
    /// (LB-7).
    ///
    /// # Errors
    /// The pool is not load-balanced, the service is known already, or the handle is another pool's or of a connection
    /// that is not pending. A connection that was interrupted is ignored.
    pub fn handle_hello(&mut self, now: Instant, connection: Handle, service_id: ServiceId) -> Result<(), ApiMisuse> {
        self.advance(now);
        let Some(key) = self.pending(connection)? else { return Ok(()) };
        if !self.limits.load_balanced || self.connections.slot(key).service.is_some() {
            return Err(ApiMisuse::UnexpectedService);
        }
        self.connections.join_service(&mut self.generations, key, service_id);
        Ok(())
    }

    /// A connection was established (CMAP-23). It serves the head of the queue, whichever waiter that is, or
    /// becomes available. A connection that a clear has made stale, or whose pool was closed, is closed.
    ///
    /// # Errors
    /// The handle is another pool's or of a connection that is not pending, or the service of a load-balanced
    /// connection is not known; the socket comes back. The socket of an interrupted connection goes to
    /// [`Action::Close`].
    pub fn handle_established(&mut self, now: Instant, connection: Handle, socket: C) -> Result<(), Refused<C>> {
        self.advance(now);
        let key = match self.pending(connection) {
            Err(misuse) => return Err(Refused { misuse, socket }),
            Ok(None) => {
                self.close_late(connection, socket);
                return Ok(());
            }
            Ok(Some(key)) => key,
        };
        if self.limits.load_balanced && self.connections.slot(key).service.is_none() {
            return Err(Refused { misuse: ApiMisuse::ServiceUnknown, socket });
        }
        self.establish(key, connection, socket);
        Ok(())
    }

    /// Establishing a connection failed. The check-out that caused it fails too, if it still waits (CMAP-31, X-15).
    ///
    /// With [`Reaction::ClearPool`] the pool is cleared as part of it, in the order of CMAP-49. One that was refused because
    /// its credential has been replaced since fails nothing and clears nothing.
    ///
    /// # Errors
    /// The handle is another pool's or of a connection that is not pending. A connection that was interrupted is
    /// ignored.
    pub fn handle_establish_failed(
        &mut self,
        now: Instant,
        connection: Handle,
        error: EstablishError,
        reaction: Reaction,
    ) -> Result<(), ApiMisuse> {
        self.advance(now);
        match self.pending(connection)? {
            Some(key) if self.is_refused_as_outdated(connection, &error) => self.replace_outdated(key, error),
            Some(key) => self.fail_establishment(key, error, reaction),
            None => {}
        }
        Ok(())
    }

    /// The answer to [`Action::Check`]: a connection that is alive is delivered; a dead one is closed, and its waiter
    /// stays at the head of the queue.
    ///
    /// # Errors
    /// The handle is another pool's or of a connection that is not being checked. A connection that was closed since is
    /// ignored.
    pub fn handle_checked(&mut self, now: Instant, connection: Handle, alive: bool) -> Result<(), ApiMisuse> {
        self.advance(now);
        let Some(key) = self.known(connection, ApiMisuse::NotChecking)? else { return Ok(()) };
        match self.connections.slot(key).stage {
            Stage::Checking { .. } => self.finish_check(key, alive),
            Stage::Closed
            | Stage::Pending { .. }
            | Stage::Available { .. }
            | Stage::Refreshing { .. }
            | Stage::InUse { .. } => {
                return Err(ApiMisuse::NotChecking);
            }
        }
        Ok(())
    }

    /// The peer of a connection hung up (CMAP-11). An available connection is closed at once, one in use at its
    /// check-in; one that is being established or refreshed will fail on its own.
    ///
    /// # Errors
    /// The handle is another pool's or was never issued. A connection that was closed since is ignored.
    pub fn handle_peer_closed(&mut self, now: Instant, connection: Handle) -> Result<(), ApiMisuse> {
        self.advance(now);
        let Some(key) = self.known(connection, ApiMisuse::NotInUse)? else { return Ok(()) };
        match &mut self.connections.slot_mut(key).stage {
            Stage::Available { .. } => {
                self.close_connection(key, ConnectionClosedReason::Error);
                self.settle(Due::Queue);
            }
            Stage::Checking { .. } => self.finish_check(key, false),
            Stage::InUse { perished, .. } => {
                perished.get_or_insert(Perished::PeerClosed);
            }
            // What goes on at it will fail on its own.
            Stage::Closed | Stage::Pending { .. } | Stage::Refreshing { .. } => {}
        }
        Ok(())
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
                self.serve_sticky(key);
            }
        }
        self.settle(Due::Spare);
    }

    // Shared by the parts of the machine.

    /// Moves the clock forward and fails the check-outs whose time is up. Returns whether there were any.
    #[inline]
    fn advance(&mut self, now: Instant) -> bool {
        self.now = self.now.max(now);
        let is_any_overdue = self.wait_queue.next_deadline().is_some_and(|at| at <= self.now);
        if is_any_overdue {
            self.fail_overdue();
        }
        is_any_overdue
    }

    #[inline]
    fn emit(&mut self, event: impl FnOnce() -> Event) {
        if self.observed {
            self.push(Output::Event(event()));
        }
    }

    /// Out of line, so that the code inlined into the calls of a pool without listeners stays small.
    #[inline(never)]
    fn push(&mut self, output: Output<C>) {
        self.outputs.push_back(output);
    }

    fn handle(&self, key: Key) -> Handle {
        Handle { pool: self.id, id: self.connections.slot(key).id, key }
    }

    /// The slot of this pool's connection, unless it was closed.
    fn own(&self, connection: Handle) -> Option<Key> {
        if connection.pool == self.id { self.connections.find(connection) } else { None }
    }

    /// As [`own`](Self::own), but a handle that this pool never issued is a misuse.
    fn known(&self, connection: Handle, never_issued: ApiMisuse) -> Result<Option<Key>, ApiMisuse> {
        if connection.pool != self.id {
            return Err(ApiMisuse::ForeignConnection);
        }
        match self.connections.find(connection) {
            None if !self.connections.was_created(connection.id) => Err(never_issued),
            found => Ok(found),
        }
    }

    /// The slot of a connection that is being established; `None` if it was closed meanwhile.
    fn pending(&self, connection: Handle) -> Result<Option<Key>, ApiMisuse> {
        let found = self.known(connection, ApiMisuse::NotPending)?;
        match found {
            Some(key) if !matches!(self.connections.slot(key).stage, Stage::Pending { .. }) => {
                Err(ApiMisuse::NotPending)
            }
            found => Ok(found),
        }
    }

    #[inline]
    fn is_stale_at(&self, key: Key) -> bool {
        let slot = self.connections.slot(key);
        self.generations.is_stale(slot.generation, slot.service.as_ref())
    }

    /// Closes a connection whose socket, if it has one, is here.
    #[cold]
    fn close_connection(&mut self, key: Key, reason: ConnectionClosedReason) {
        let connection = self.handle(key);
        let service = self.connections.slot(key).service;
        if let Some(socket) = self.forget(key, reason, None) {
            self.outputs.push_back(Output::Action(Action::Close { connection, socket, reason }));
        }
        if let Some(id) = service
            && !self.has_stale_available(id)
        {
            self.generations.to_prune.remove(&id);
        }
    }

    /// Takes a connection out of the counts and reports it (CMAP-24); returns its socket, if it was here.
    #[cold]
    fn forget(&mut self, key: Key, reason: ConnectionClosedReason, error: Option<Arc<EstablishError>>) -> Option<C> {
        let connection_id = self.connections.slot(key).id;
        self.note_tried(connection_id);
        self.end_life(key);
        self.end_pins(key);
        self.end_watch(key);
        self.end_suspicion(key);
        let socket = self.connections.close(&mut self.generations, key);
        self.renew_attention();
        self.totals.closed.count(reason);
        self.emit(|| Event::ConnectionClosed { connection_id, reason, error });
        socket
    }
}
