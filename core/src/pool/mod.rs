//! The connection pool of one endpoint: the CMAP machine.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the pool, and what its parts share |
//! | `state` | the states of pools and connections, and every transition |
//! | `check_out`, `check_in` | a check-out from its beginning to its end; connections that come back. Both begin with the fast path |
//! | `settle` | what follows from a call, in one order, and which available connection serves next |
//! | `establishing` | connections from their creation until they are established, or are not |
//! | `admission` | whether a connection may be created now: pauses while the server is overloaded, the limit of new connections per second, permits of a budget |
//! | `maintenance` | how many connections there are while nobody waits: pruning, populating, limits that change, an unused host |
//! | `retirement` | connections whose life is over, and a new credential |
//! | `keep_alive` | signs of life of connections that are idle for long |
//! | `clearing` | ready, clear, close, interrupt, a fork |
//! | `affinity` | keys that keep their connections |
//! | `warm_up` | connections that are established before anybody needs them |
//! | `connections`, `wait_queue`, `list` | where connections and check-outs live |
//! | `generation` | which connections a clear has made stale |
//! | `timer` | when to come back, and why |
//! | `handle` | how callers name a connection, a check-out, a warm-up, and a user besides that of the options |
//! | `queries` | what can be asked of a pool: who holds what, who waits, and for what |
//! | `input`, `output`, `error` | calls as data; actions and events; errors |
//! | `statistics` | counts and durations |
//! | `invariants` | its state without the sockets, and what holds after every call |
//!
#![doc = include_str!("../../docs/states.md")]

mod admission;
mod affinity;
mod check_in;
mod check_out;
mod clearing;
mod connections;
mod error;
mod establishing;
mod generation;
mod handle;
mod input;
mod invariants;
mod keep_alive;
mod list;
mod maintenance;
mod output;
mod queries;
mod retirement;
mod settle;
pub(crate) mod state;
mod statistics;
mod timer;
mod wait_queue;
mod warm_up;

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

use self::admission::Share;
pub(crate) use self::admission::{Admission, NextPermit};
use self::affinity::StickyKeys;
use self::check_out::Attention;
use self::connections::Connections;
use self::generation::Generations;
pub(crate) use self::handle::{PoolId, PoolOwner};
pub(crate) use self::input::Misuse;
use self::keep_alive::Refresh;
use self::list::Key;
pub(crate) use self::list::reach;
use self::maintenance::HostUse;
use self::retirement::Retirement;
use self::statistics::Totals;
use self::wait_queue::WaitQueue;
use self::warm_up::WarmUps;
use crate::address::ServerAddress;
use crate::connection::EstablishError;
use crate::options::{Limits, PoolOptions, PoolOptionsError};
use crate::random::Random;
use crate::time::Instant;

pub use self::affinity::AffinityKey;
pub use self::connections::{InUseBy, Purpose};
pub use self::error::{
    ApiMisuse, Cause, CheckOutError, CheckOutErrorKind, Refused, WaitLimit, WarmUpError, WarmUpErrorKind,
};
pub use self::generation::Generation;
pub use self::handle::{CheckOutId, ConnectionId, Handle, IdentityId, WarmUpId};
pub use self::input::{Answer, Clear, Condition, Input, Reaction};
pub use self::invariants::BrokenInvariant;
pub use self::output::{Action, CheckOutFailedReason, CheckedIn, ConnectionClosedReason, Delivery, Event, Output};
pub use self::queries::{Establishing, HeldBy, InUse, Kept, WaitBound, Waiting};
pub use self::state::{ConnectionState, PoolState};
pub use self::statistics::{
    ClosedTotals, Counts, Durations, FailedTotals, PhaseDurations, PhaseTimes, Statistics, Stats,
};
pub use self::timer::{Timeout, TimeoutReason};
pub use self::wait_queue::{Cancellation, CheckOutRequest};
pub use crate::service_id::{ParseServiceIdError, ServiceId};

/// The connection pool of one endpoint, as a machine without I/O.
///
/// `C` is what an established connection owns: a socket and its protocol machine, or `()` in replay and simulation.
///
/// **The driving rule.** Call any method; then drain [`poll_output`](Self::poll_output) until it returns `None`; then ask
/// [`poll_timeout`](Self::poll_timeout) when to come back. Every call is legal in every state; [the module's table](self)
/// says what it does. Every call takes `now`; a `now` before the latest one seen is read as that one.
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
        let mut pool = Self {
            id,
            address,
            random: Random::new(options.seed ^ u64::from(server.number)),
            options: Box::new(options),
            state: if limits.profile.pauses() { PoolState::Paused } else { PoolState::Ready },
            retirement: Retirement::of(&limits),
            affinity: StickyKeys::of(&limits),
            refresh: Refresh::of(&limits),
            limits,
            paused_by: Cause::new("the server has not been checked successfully yet"),
            paused_since: now,
            now,
            last_maintenance: None,
            population_failed: false,
            admission: Admission::default(),
            suspects: BTreeSet::new(),
            generations: Generations::default(),
            outdated_until: ConnectionId(0),
            connections: Connections::new(),
            wait_queue: WaitQueue::new(id),
            outputs: VecDeque::new(),
            observed: true,
            attention: Attention::default(),
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

    /// Moves the clock forward and fails the check-outs whose time is up.
    #[inline]
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.wait_queue.next_deadline().is_some_and(|at| at <= self.now) {
            self.fail_overdue();
        }
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
            None if !(1..=self.connections.last_id).contains(&connection.id.0) => Err(never_issued),
            found => Ok(found),
        }
    }

    /// The slot of a connection in this state; `None` if it was closed meanwhile.
    pub(crate) fn find_in(&self, connection: Handle, state: ConnectionState) -> Result<Option<Key>, ApiMisuse> {
        let misuse = match state {
            ConnectionState::Pending => ApiMisuse::NotPending,
            ConnectionState::Checking => ApiMisuse::NotChecking,
            ConnectionState::Refreshing => ApiMisuse::NotRefreshing,
            ConnectionState::Closed | ConnectionState::Available | ConnectionState::InUse => ApiMisuse::NotInUse,
        };
        match self.known(connection, misuse)? {
            Some(key) if self.connections.slot(key).stage.state() != state => Err(misuse),
            found => Ok(found),
        }
    }

    /// The slot of a connection in this state, whose socket comes with a report. If the work at it was given up meanwhile, the socket is closed.
    fn find_for(
        &mut self,
        connection: Handle,
        state: ConnectionState,
        socket: C,
    ) -> Result<Option<(Key, C)>, Refused<C>> {
        match self.find_in(connection, state) {
            Err(misuse) => Err(Refused { misuse, socket }),
            Ok(Some(key)) => Ok(Some((key, socket))),
            Ok(None) => {
                let reason = self.unless_closed(ConnectionClosedReason::Stale);
                self.outputs.push_back(Output::Action(Action::Close { connection, socket, reason }));
                Ok(None)
            }
        }
    }

    /// The reason for closing a connection: that of the pool, if that is closed.
    fn unless_closed(&self, reason: ConnectionClosedReason) -> ConnectionClosedReason {
        if self.state == PoolState::Closed { ConnectionClosedReason::PoolClosed } else { reason }
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

    /// Closes a connection whose socket has just come with a report.
    fn discard(&mut self, key: Key, socket: C, reason: ConnectionClosedReason) {
        let connection = self.handle(key);
        self.forget(key, reason, None);
        self.outputs.push_back(Output::Action(Action::Close { connection, socket, reason }));
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
