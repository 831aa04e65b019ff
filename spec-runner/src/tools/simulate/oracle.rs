//! The laws that a client must keep, judged from outside: from its answers, actions and events alone.
//!
//! The oracle shares no code with the machine and predicts nothing. It keeps a ledger of connections, waiters and sockets, and
//! after every call it asks whether what it saw is lawful. The names of its laws are what a failing run reports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cmap_core::options::{PoolOptions, WaitOrder};
use cmap_core::pool::{
    Action, CheckOutId, ConnectionClosedReason, ConnectionId, Counts, Event, Handle, Output as PoolOutput,
};
use cmap_core::server::ServerId;
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Output};

use super::mark::{Mark, Marks};

/// A broken law.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    /// The law.
    pub(super) law: &'static str,
    /// What broke it.
    pub(super) detail: String,
}

/// Fails unless the law holds.
pub(super) fn law(law: &'static str, holds: bool, detail: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken { law, detail: detail() }) }
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Available,
    Checking,
    Refreshing,
    InUse,
}

#[derive(Debug)]
struct Connection {
    server: ServerId,
    state: State,
    /// Its pool was cleared since it was created.
    is_stale: bool,
    /// It was returned as unusable, or its server hung it up.
    is_broken: bool,
}

/// The pool of one server.
#[derive(Debug, Default)]
struct Pool {
    is_ready: bool,
    /// Connections by state, in the order of the variants.
    counts: [u32; 5],
    /// The check-outs that wait, in the order in which they began here.
    queue: VecDeque<CheckOutId>,
    /// Connections, and pending ones, after the last call.
    before: (u32, u32),
}

impl Pool {
    fn number(&self, state: State) -> u32 {
        self.counts[state as usize]
    }

    fn total(&self) -> u32 {
        self.counts.iter().sum()
    }
}

/// The limits of the pools.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// 0 = none.
    max_pool_size: u32,
    max_connecting: u32,
    /// Of all pools; 0 = none.
    max_connections: u32,
}

/// Whether connections are all alike, and nothing but the limits keeps a pool from serving and from creating.
#[derive(Clone, Copy, Debug)]
struct Plainness {
    /// Waiters are served in the order of their arrival.
    is_fair: bool,
    /// A waiter takes any connection.
    takes_any: bool,
    /// A pool creates as soon as its limits allow it.
    is_prompt: bool,
}

/// The ledger.
#[derive(Debug)]
pub(super) struct Oracle {
    limits: Limits,
    plainness: Plainness,
    connections: BTreeMap<Handle, Connection>,
    ids: BTreeMap<(ServerId, ConnectionId), Handle>,
    /// Connections that the pool gave up while they were being established or pinged.
    given_up: BTreeSet<Handle>,
    /// Open sockets.
    sockets: BTreeSet<Handle>,
    pools: BTreeMap<ServerId, Pool>,
    /// The deadlines of those that wait.
    waiting: BTreeMap<CheckOut, Option<Instant>>,
    pub(super) marks: Marks,
}

impl Oracle {
    pub(super) fn new(options: &PoolOptions, max_connections: u32) -> Self {
        let is_limited = max_connections > 0;
        Self {
            limits: Limits {
                max_pool_size: options.max_pool_size.unwrap_or(100),
                max_connecting: options.max_connecting.unwrap_or(2),
                max_connections,
            },
            plainness: Plainness {
                is_fair: options.affinity.is_none() && options.wait_order.unwrap_or_default() == WaitOrder::Arrival,
                takes_any: options.affinity.is_none(),
                is_prompt: options.affinity.is_none()
                    && options.backoff == Some(false)
                    && options.max_new_connections_per_second.is_none()
                    && options.refresh_requirement.is_none()
                    && !is_limited,
            },
            connections: BTreeMap::new(),
            ids: BTreeMap::new(),
            given_up: BTreeSet::new(),
            sockets: BTreeSet::new(),
            pools: BTreeMap::new(),
            waiting: BTreeMap::new(),
            marks: Marks::default(),
        }
    }

    // What the driver does.

    /// A check-out began, and has not been served yet as far as the oracle knows.
    pub(super) fn began(&mut self, check_out: CheckOut, deadline: Option<Instant>) {
        self.waiting.insert(check_out, deadline);
    }

    pub(super) fn cancelled(&mut self, check_out: CheckOut) {
        self.marks.meet(Mark::Cancelled);
        self.end(check_out);
    }

    pub(super) fn established(&mut self, connection: Handle) {
        self.sockets.insert(connection);
        self.become_available(connection);
    }

    pub(super) fn establish_failed(&mut self, connection: Handle) {
        self.marks.meet(Mark::EstablishFailed);
        self.given_up.remove(&connection);
    }

    pub(super) fn checked_in(&mut self, connection: Handle, is_usable: bool) {
        self.become_available(connection);
        if !is_usable {
            self.break_off(connection);
        }
    }

    /// The server hung it up.
    pub(super) fn hung_up(&mut self, connection: Handle) {
        self.break_off(connection);
    }

    pub(super) fn checked(&mut self, connection: Handle, is_alive: bool) {
        self.become_available(connection);
        if !is_alive {
            self.marks.meet(Mark::FoundDead);
            self.break_off(connection);
        }
    }

    pub(super) fn refreshed(&mut self, connection: Handle) {
        self.marks.meet(Mark::Refreshed);
        self.become_available(connection);
    }

    /// Its driver closes the socket.
    pub(super) fn refresh_failed(&mut self, connection: Handle) {
        self.marks.meet(Mark::RefreshFailed);
        self.sockets.remove(&connection);
        self.given_up.remove(&connection);
    }

    pub(super) fn resized(&mut self, max_pool_size: u32, max_connecting: u32) {
        self.marks.meet(Mark::Resized);
        (self.limits.max_pool_size, self.limits.max_connecting) = (max_pool_size, max_connecting);
    }

    /// A monitor's check of the server failed.
    pub(super) fn heard_failure(&mut self, server: ServerId) {
        self.make_stale(server);
    }

    // What the machine does.

    pub(super) fn delivered(&mut self, check_out: CheckOutId, connection: Handle, at_once: bool) -> Result<(), Broken> {
        self.marks.meet(if at_once { Mark::DeliveredAtOnce } else { Mark::DeliveredAfterWait });
        let was_waiting = self.waiting.remove(&CheckOut::Started(check_out)).is_some();
        law("a connection goes to a check-out that waits", was_waiting, || format!("{check_out:?}"))?;
        let Some(known) = self.connections.get(&connection) else {
            return law("a delivered connection is the pool's", false, || format!("{connection:?}"));
        };
        let (server, state) = (known.server, known.state);
        law("a delivered connection was available", state == State::Available, || format!("{known:?}"))?;
        law("a stale connection is never delivered", !known.is_stale, || format!("{known:?}"))?;
        law("a broken connection is never delivered", !known.is_broken, || format!("{known:?}"))?;
        law("a delivered connection has a socket", self.sockets.contains(&connection), || format!("{known:?}"))?;
        let queue = &mut self.pools.entry(server).or_default().queue;
        let place = queue.iter().position(|waiter| *waiter == check_out);
        if let Some(place) = place {
            queue.remove(place);
        }
        if place.is_some_and(|place| place > 0) && !self.plainness.takes_any {
            self.marks.meet(Mark::LeftInQueueByKey);
        }
        law("a check-out is served by the server that it began at", place.is_some(), || format!("{check_out:?}"))?;
        law("waiters are served in their order", place == Some(0) || !self.plainness.is_fair, || {
            format!("{check_out:?} had {place:?} before it")
        })?;
        self.set(connection, State::InUse);
        Ok(())
    }

    pub(super) fn output(&mut self, output: &Output<()>) -> Result<(), Broken> {
        match output {
            Output::Pool { server, output: PoolOutput::Action(action) } => self.action(*server, action),
            Output::Pool { server, output: PoolOutput::Event(event) } => self.event(*server, event),
            Output::Selected { selection, check_out } => {
                self.rename(CheckOut::Selecting(*selection), CheckOut::Started(*check_out))
            }
            Output::Reselecting { check_out, selection } => {
                self.marks.meet(Mark::Reselected);
                self.leave_queues(*check_out);
                self.rename(CheckOut::Started(*check_out), CheckOut::Selecting(*selection))
            }
            Output::SelectionFailed { selection, .. } => {
                self.marks.meet(Mark::FailedInSelection);
                let was_waiting = self.end(CheckOut::Selecting(*selection));
                law("a check-out ends once", was_waiting, || format!("{selection:?}"))
            }
            Output::WarmedUp { .. }
            | Output::Selection(_)
            | Output::ResolveSrv { .. }
            | Output::Topology(_)
            | Output::Server { .. }
            | Output::Monitor { .. } => Ok(()),
        }
    }

    fn action(&mut self, server: ServerId, action: &Action<()>) -> Result<(), Broken> {
        match action {
            Action::Connect { connection } => {
                let known = Connection { server, state: State::Pending, is_stale: false, is_broken: false };
                let is_new = self.connections.insert(*connection, known).is_none();
                self.ids.insert((server, connection.id()), *connection);
                self.count(server, State::Pending, 1);
                law("a connection is created once", is_new, || format!("{connection:?}"))
            }
            Action::Check { connection } => self.lend(*connection, State::Checking),
            Action::Refresh { connection, .. } => self.lend(*connection, State::Refreshing),
            Action::Deliver { check_out, connection, .. } => self.delivered(*check_out, *connection, false),
            Action::Fail { check_out, .. } => {
                self.marks.meet(Mark::FailedInPool);
                let was_waiting = self.end(CheckOut::Started(*check_out));
                law("a check-out ends once", was_waiting, || format!("{check_out:?}"))
            }
            Action::Close { connection, reason, .. } => {
                self.marks_of_close(*reason);
                if self.given_up.remove(connection) {
                    self.marks.meet(Mark::ClosedLate);
                }
                let is_used = self.connections.get(connection).is_some_and(|known| known.state == State::InUse);
                law("a connection in use is not closed", !is_used, || format!("{connection:?}"))?;
                law("a socket is closed once", self.sockets.remove(connection), || format!("{connection:?}"))
            }
            Action::Interrupt { .. } => {
                self.marks.meet(Mark::Interrupted);
                Ok(())
            }
            Action::WarmedUp { .. } => Ok(()),
        }
    }

    fn event(&mut self, server: ServerId, event: &Event) -> Result<(), Broken> {
        match event {
            Event::PoolReady => self.pools.entry(server).or_default().is_ready = true,
            Event::PoolCleared { .. } => {
                self.marks.meet(Mark::Cleared);
                self.pools.entry(server).or_default().is_ready = false;
                self.make_stale(server);
            }
            Event::PoolClosed => self.pools.entry(server).or_default().is_ready = false,
            Event::ConnectionCheckOutStarted { check_out } => {
                self.pools.entry(server).or_default().queue.push_back(*check_out);
            }
            Event::ConnectionClosed { connection_id, .. } => {
                let known = self.ids.remove(&(server, *connection_id));
                let Some((handle, known)) = known.and_then(|handle| self.connections.remove_entry(&handle)) else {
                    return law("a connection is closed once", false, || format!("{connection_id:?}"));
                };
                self.count(server, known.state, -1);
                if matches!(known.state, State::Pending | State::Refreshing) {
                    self.given_up.insert(handle);
                }
                let is_used = known.state == State::InUse;
                return law("a connection in use is not closed", !is_used, || format!("{handle:?}"));
            }
            Event::PoolCreated { .. }
            | Event::ConnectionCreated { .. }
            | Event::ConnectionReady { .. }
            | Event::ConnectionCheckOutFailed { .. }
            | Event::ConnectionCheckedOut { .. }
            | Event::ConnectionCheckedIn { .. }
            | _ => {}
        }
        Ok(())
    }

    fn marks_of_close(&mut self, reason: ConnectionClosedReason) {
        match reason {
            ConnectionClosedReason::Stale => self.marks.meet(Mark::ClosedStale),
            ConnectionClosedReason::Idle => self.marks.meet(Mark::ClosedIdle),
            ConnectionClosedReason::Surplus => self.marks.meet(Mark::ClosedSurplus),
            ConnectionClosedReason::Error | ConnectionClosedReason::PoolClosed => {}
        }
    }

    // The laws that hold between calls.

    /// Judges what every call leaves behind.
    pub(super) fn settle(&mut self) -> Result<(), Broken> {
        let Limits { max_pool_size: max, max_connecting, max_connections } = self.limits;
        let all: u32 = self.pools.values().map(Pool::total).sum();
        for pool in self.pools.values_mut() {
            let (total, pending) = (pool.total(), pool.number(State::Pending));
            let available = pool.number(State::Available);
            let on_their_way = pending + pool.number(State::Checking);
            let waiting = pool.queue.len();
            let (had, had_pending) = std::mem::replace(&mut pool.before, (total, pending));
            let is_within = max == 0 || total <= max.max(had);
            law("a pool has at most maxPoolSize connections", is_within, || format!("{total} of {max}"))?;
            let is_within = pending <= max_connecting.max(had_pending);
            law("a pool establishes at most maxConnecting at a time", is_within, || format!("{pending}"))?;
            let is_within = max == 0 || total <= max || available == 0;
            law("a pool with too many connections keeps none available", is_within, || format!("{pool:?}"))?;
            if pool.is_ready && self.plainness.takes_any {
                let is_served = available == 0 || waiting <= pool.number(State::Checking) as usize;
                law("nobody waits while a connection is available", is_served, || format!("{pool:?}"))?;
            }
            if pool.is_ready && self.plainness.is_prompt {
                let may_create = (max == 0 || total < max) && pending < max_connecting;
                let is_served = !may_create || waiting <= on_their_way as usize;
                law("nobody waits while a connection could be created", is_served, || format!("{pool:?}"))?;
            }
        }
        let is_within = max_connections == 0 || all <= max_connections;
        law("all pools have at most as many connections as they share", is_within, || format!("{all}"))
    }

    /// Judges the machine's own numbers.
    pub(super) fn compare(&self, counts: Counts) -> Result<(), Broken> {
        let sum = |number: fn(&Pool) -> u32| self.pools.values().map(number).sum::<u32>();
        let seen = [
            sum(|pool| pool.number(State::Pending)),
            sum(|pool| pool.number(State::Available) + pool.number(State::Checking) + pool.number(State::Refreshing)),
            sum(|pool| pool.number(State::InUse)),
            sum(|pool| u32::try_from(pool.queue.len()).unwrap_or(u32::MAX)),
        ];
        let told = [counts.pending, counts.available, counts.in_use, counts.waiting];
        law("the client's numbers are what was seen", seen == told, || format!("saw {seen:?}, was told {told:?}"))
    }

    /// Judges what is left when timeouts have been handled.
    pub(super) fn after_timeout(&self, now: Instant) -> Result<(), Broken> {
        let is_overdue = |deadline: &Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        let overdue = self.waiting.iter().find(|(_, deadline)| is_overdue(deadline));
        law("nobody waits beyond a deadline", overdue.is_none(), || format!("{overdue:?}"))
    }

    /// Judges what is left of a client that was closed.
    pub(super) fn after_close(&self) -> Result<(), Broken> {
        let left = &self.waiting;
        law("nobody waits for a client that is closed", left.is_empty(), || format!("{left:?}"))?;
        let left = &self.connections;
        law("a closed client has no connections", left.is_empty(), || format!("{left:?}"))?;
        let left = &self.sockets;
        law("no socket is lost", left.is_empty(), || format!("{left:?}"))
    }

    pub(super) fn is_waiting(&self, check_out: CheckOut) -> bool {
        self.waiting.contains_key(&check_out)
    }

    /// How many check-outs wait, for a server or for a connection.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    // The ledger.

    fn become_available(&mut self, connection: Handle) {
        self.set(connection, State::Available);
    }

    fn lend(&mut self, connection: Handle, state: State) -> Result<(), Broken> {
        let was_available = self.connections.get(&connection).is_some_and(|known| known.state == State::Available);
        self.set(connection, state);
        law("only an available connection is looked at", was_available, || format!("{connection:?}"))
    }

    fn set(&mut self, connection: Handle, state: State) {
        if let Some(known) = self.connections.get_mut(&connection) {
            let (server, before) = (known.server, std::mem::replace(&mut known.state, state));
            self.count(server, before, -1);
            self.count(server, state, 1);
        }
    }

    fn count(&mut self, server: ServerId, state: State, change: i32) {
        let counts = &mut self.pools.entry(server).or_default().counts;
        counts[state as usize] = counts[state as usize].saturating_add_signed(change);
    }

    fn break_off(&mut self, connection: Handle) {
        if let Some(known) = self.connections.get_mut(&connection) {
            known.is_broken = true;
        }
    }

    fn make_stale(&mut self, server: ServerId) {
        self.connections.values_mut().filter(|known| known.server == server).for_each(|known| known.is_stale = true);
    }

    fn rename(&mut self, from: CheckOut, to: CheckOut) -> Result<(), Broken> {
        let Some(deadline) = self.waiting.remove(&from) else {
            return law("only a check-out that waits goes on elsewhere", false, || format!("{from:?}"));
        };
        self.waiting.insert(to, deadline);
        Ok(())
    }

    /// Whether it waited.
    fn end(&mut self, check_out: CheckOut) -> bool {
        if let CheckOut::Started(id) = check_out {
            self.leave_queues(id);
        }
        self.waiting.remove(&check_out).is_some()
    }

    fn leave_queues(&mut self, check_out: CheckOutId) {
        self.pools.values_mut().for_each(|pool| pool.queue.retain(|waiter| *waiter != check_out));
    }
}
