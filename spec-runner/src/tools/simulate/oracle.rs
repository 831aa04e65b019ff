//! The laws that a client must keep, judged from outside: from its answers, actions and events alone.
//!
//! The oracle shares no code with the machine and predicts nothing. It keeps a ledger of connections, waiters and sockets, and
//! after every call it asks whether what it saw is lawful. The names of its laws are what a failing run reports.

mod beliefs;
mod clears;
mod endings;
mod identities;
mod lives;
mod rest;
mod seed_list;
mod warm_ups;

use cmap_core::pool::{
    Action, CheckOutId, ConnectionClosedReason, ConnectionId, Counts, Event, Handle, Output as PoolOutput, ServiceId,
};
use cmap_core::server::ServerId;
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Output, WarmUpId};

use self::beliefs::Beliefs;
use self::clears::Clears;
use self::endings::Patience;
use self::identities::Identities;
use self::lives::Lives;
use self::rest::Rest;
use self::seed_list::SeedList;
use super::ledger::{Connections, Pool, Pools, State, Waiter, Waiting};
use super::mark::{Mark, Marks};
use super::step::{ClientCase, Establishment};

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
    /// A waiter takes any connection, so all are served in the order of their arrival.
    takes_any: bool,
    /// A pool creates as soon as its limits allow it.
    is_prompt: bool,
    /// That ends when an establishment fails.
    backs_off: bool,
}

/// The ledger.
#[derive(Debug)]
pub(super) struct Oracle {
    limits: Limits,
    patience: Patience,
    lives: Lives,
    rest: Rest,
    plainness: Plainness,
    /// The time of the call.
    now: Instant,
    is_closed: bool,
    beliefs: Option<Beliefs>,
    /// What the call has to clear.
    clears: Clears,
    /// Whether the call tells of a failed establishment.
    has_failed_to_establish: bool,
    connections: Connections,
    pools: Pools,
    waiting: Waiting,
    /// Those that have not ended, and how many connections the pool must have then, if that is known.
    warm_ups: Vec<(WarmUpId, Option<u32>)>,
    identities: Identities,
    seed_list: Option<SeedList>,
    pub(super) marks: Marks,
}

impl Oracle {
    pub(super) fn new(case: &ClientCase) -> Self {
        let ClientCase { pool: options, max_connections, .. } = case;
        let (max_connections, is_limited) = (*max_connections, *max_connections > 0);
        Self {
            limits: Limits {
                max_pool_size: options.max_pool_size.unwrap_or(100),
                max_connecting: options.max_connecting.unwrap_or(2),
                max_connections,
            },
            plainness: Plainness {
                takes_any: options.affinity.is_none(),
                is_prompt: options.affinity.is_none()
                    && options.max_new_connections_per_second.is_none()
                    && options.refresh_requirement.is_none()
                    && !is_limited,
                backs_off: options.backoff != Some(false),
            },
            patience: Patience::of(options),
            lives: Lives::of(options, case.lateness),
            rest: Rest::of(options, is_limited),
            now: Instant::ORIGIN,
            is_closed: false,
            beliefs: Beliefs::of(case),
            clears: Clears::default(),
            has_failed_to_establish: false,
            connections: Connections::default(),
            pools: Pools::default(),
            waiting: Waiting::default(),
            warm_ups: Vec::new(),
            identities: Identities::new(options),
            seed_list: SeedList::of(case),
            marks: Marks::default(),
        }
    }

    // What the driver does.

    /// A call is made at this time.
    pub(super) fn called(&mut self, now: Instant) {
        self.now = now;
    }

    /// The client is closed.
    pub(super) fn closing(&mut self) {
        self.is_closed = true;
        self.beliefs.iter_mut().for_each(Beliefs::forget_all);
    }

    /// A check-out began, and has not been served yet as far as the oracle knows.
    pub(super) fn began(&mut self, waiter: Waiter) {
        self.waiting.begin(waiter);
    }

    pub(super) fn cancelled(&mut self, check_out: CheckOut) {
        self.marks.meet(Mark::Cancelled);
        self.end(check_out);
    }

    pub(super) fn established(&mut self, connection: Handle, service: Option<ServiceId>) {
        if let Some(known) = self.connections.find_any(connection) {
            (known.has_socket, known.service) = (true, service);
        }
        self.set(connection, State::Available);
    }

    pub(super) fn establish_failed(&mut self, connection: Handle, end: Establishment) {
        self.marks.meet(Mark::EstablishFailed);
        self.weigh_establishment(connection, end);
        self.plainness.is_prompt &= !self.plainness.backs_off;
        if let Some(known) = self.connections.find_any(connection) {
            known.is_given_up = false;
        }
        self.connections.forget_if_over(connection);
    }

    pub(super) fn checked_in(&mut self, connection: Handle, is_usable: bool) {
        self.set(connection, State::Available);
        if !is_usable {
            self.break_off(connection);
        }
    }

    /// The server hung it up.
    pub(super) fn hung_up(&mut self, connection: Handle) {
        self.break_off(connection);
    }

    pub(super) fn checked(&mut self, connection: Handle, is_alive: bool) {
        self.set(connection, State::Available);
        if !is_alive {
            self.marks.meet(Mark::FoundDead);
            self.break_off(connection);
        }
    }

    pub(super) fn refreshed(&mut self, connection: Handle) {
        self.marks.meet(Mark::Refreshed);
        self.set(connection, State::Available);
    }

    /// Its driver closes the socket.
    pub(super) fn refresh_failed(&mut self, connection: Handle) {
        self.marks.meet(Mark::RefreshFailed);
        if let Some(known) = self.connections.find_any(connection) {
            (known.has_socket, known.is_given_up) = (false, false);
        }
        self.connections.forget_if_over(connection);
    }

    /// Its pool was forgotten meanwhile.
    pub(super) fn closed_by_driver(&mut self, connection: Handle) {
        self.marks.meet(Mark::RefusedForgotten);
        if let Some(known) = self.connections.find_any(connection) {
            (known.has_socket, known.is_given_up) = (false, false);
        }
        self.connections.forget_if_over(connection);
    }

    pub(super) fn resized(&mut self, max_pool_size: u32, max_connecting: u32) {
        self.marks.meet(Mark::Resized);
        (self.limits.max_pool_size, self.limits.max_connecting) = (max_pool_size, max_connecting);
        self.pools.touch_all();
    }

    /// The limits beside the sizes are others.
    pub(super) fn limited(&mut self, max_wait_queue_depth: Option<u32>, is_rated: bool) {
        self.marks.meet(Mark::Limited);
        self.patience.max_wait_queue_depth = max_wait_queue_depth;
        // A rate that was lifted may have left a pool without a permit for a while.
        self.plainness.is_prompt &= !is_rated;
    }

    /// A monitor's check of the server failed.
    pub(super) fn heard_failure(&mut self, server: ServerId) {
        if let Some(beliefs) = &mut self.beliefs {
            beliefs.disbelieve(server);
            self.clears = Clears::Server(server);
        }
        let pools: Vec<_> = self.pools.at_server(server).map(|(place, _)| place).collect();
        pools.into_iter().for_each(|pool| self.connections.make_stale(pool, None));
    }

    // What the machine does.

    pub(super) fn delivered(&mut self, check_out: CheckOutId, connection: Handle, at_once: bool) -> Result<(), Broken> {
        self.marks.meet(if at_once { Mark::DeliveredAtOnce } else { Mark::DeliveredAfterWait });
        let waiter = self.waiting.end(CheckOut::Started(check_out));
        let Some(waiter) = waiter else {
            return law("a connection goes to a check-out that waits", false, || format!("{check_out:?}"));
        };
        let Some(known) = self.connections.find(connection) else {
            return law("a delivered connection is the pool's", false, || format!("{connection:?}"));
        };
        law("a delivered connection was available", known.state == State::Available, || format!("{known:?}"))?;
        law("a stale connection is never delivered", !known.is_stale, || format!("{known:?}"))?;
        law("a broken connection is never delivered", !known.is_broken, || format!("{known:?}"))?;
        law("a delivered connection has a socket", known.has_socket, || format!("{known:?}"))?;
        known.state = State::InUse;
        let pool = known.pool;
        self.lives.judge_delivery(known, self.now)?;
        self.identities.judge_delivery(waiter, known, &mut self.marks)?;
        self.pools.change(pool, Some(State::Available), Some(State::InUse));
        self.judge_server(waiter, pool)?;
        let Some(queue) = self.pools.at(pool).map(|pool| &mut pool.queue) else { return Ok(()) };
        let place = queue.iter().position(|waiter| *waiter == check_out);
        if let Some(place) = place {
            queue.remove(place);
        }
        if place.is_some_and(|place| place > 0) && !self.plainness.takes_any {
            self.marks.meet(Mark::LeftInQueueByKey);
        }
        law("a check-out is served by the server that it began at", place.is_some(), || format!("{check_out:?}"))?;
        law("waiters are served in their order", place == Some(0) || !self.plainness.takes_any, || {
            format!("{check_out:?} had {place:?} before it")
        })
    }

    pub(super) fn output(&mut self, now: Instant, output: &Output<()>) -> Result<(), Broken> {
        match output {
            Output::Pool { server, output } => {
                let place = self.pools.place(*server);
                self.pools.at(place).into_iter().for_each(|pool| pool.is_told_of = true);
                match output {
                    PoolOutput::Action(action) => self.action(*server, action),
                    PoolOutput::Event(event) => self.event(*server, event),
                }
            }
            Output::Selected { selection, check_out } => {
                self.rename(CheckOut::Selecting(*selection), CheckOut::Started(*check_out))?;
                self.named(CheckOut::Started(*check_out));
                Ok(())
            }
            Output::Reselecting { check_out, selection } => {
                self.marks.meet(Mark::Reselected);
                self.pools.leave_queues(*check_out);
                self.rename(CheckOut::Started(*check_out), CheckOut::Selecting(*selection))
            }
            Output::SelectionFailed { selection, error } => {
                self.marks.meet(Mark::FailedInSelection);
                self.judge_selection(*selection, &error.kind)?;
                let was_waiting = self.end(CheckOut::Selecting(*selection));
                law("a check-out ends once", was_waiting, || format!("{selection:?}"))
            }
            Output::WarmedUp { warm_up, result } => self.warmed_up(*warm_up, result.is_ok()),
            Output::ResolveSrv { .. } => self.asked_for_seed_list(now),
            Output::Selection(_) | Output::Topology(_) | Output::Server { .. } | Output::Monitor { .. } => Ok(()),
        }
    }

    fn action(&mut self, server: ServerId, action: &Action<()>) -> Result<(), Broken> {
        match action {
            Action::Connect { connection } => {
                self.rest.count();
                let pool = self.pools.place(server);
                let is_new = self.connections.create(*connection, pool);
                self.pools.change(pool, None, Some(State::Pending));
                let is_closed = self.pools.at(pool).is_some_and(|pool| pool.is_closed);
                law("a pool that is closed creates no connections", !is_closed, || format!("{connection:?}"))?;
                law("a connection is created once", is_new, || format!("{connection:?}"))
            }
            Action::Check { connection } => self.lend(*connection, State::Checking),
            Action::Refresh { connection, .. } => self.lend(*connection, State::Refreshing),
            Action::Deliver { check_out, connection, .. } => self.delivered(*check_out, *connection, false),
            Action::Fail { check_out, error } => {
                self.marks.meet(Mark::FailedInPool);
                let place = self.pools.place(server);
                self.judge_failure(place, *check_out, &error.kind)?;
                let was_waiting = self.end(CheckOut::Started(*check_out));
                law("a check-out ends once", was_waiting, || format!("{check_out:?}"))
            }
            Action::Close { connection, reason, .. } => {
                self.marks_of_close(*reason);
                let Some(known) = self.connections.find_any(*connection) else {
                    return law("a socket is closed once", false, || format!("{connection:?}"));
                };
                if std::mem::take(&mut known.is_given_up) {
                    self.marks.meet(Mark::ClosedLate);
                }
                let is_lawful = *reason != ConnectionClosedReason::Stale || known.is_stale;
                law("only what was cleared is closed as stale", is_lawful, || format!("{known:?}"))?;
                let is_used = known.is_there && known.state == State::InUse;
                law("a connection in use is not closed", !is_used, || format!("{connection:?}"))?;
                let had_socket = std::mem::take(&mut known.has_socket);
                law("a socket is closed once", had_socket, || format!("{connection:?}"))?;
                self.connections.forget_if_over(*connection);
                Ok(())
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
            Event::PoolReady => {
                self.set_ready(server, true);
            }
            Event::PoolCleared { .. } if self.identities.is_spared() => {
                return law("the refusal of one identity, or of an old credential, clears no pool", false, || {
                    format!("{server:?}")
                });
            }
            Event::PoolCleared { service_id: None, .. } => {
                self.marks.meet(Mark::Cleared);
                let pool = self.set_ready(server, false);
                self.connections.make_stale(pool, None);
                return self.cleared(pool, None);
            }
            // The pool goes on with the other services.
            Event::PoolCleared { service_id, .. } => {
                self.marks.meet(Mark::ServiceCleared);
                let pool = self.pools.place(server);
                self.connections.make_stale(pool, *service_id);
                return self.cleared(pool, *service_id);
            }
            Event::PoolClosed => {
                let place = self.set_ready(server, false);
                self.pools.at(place).into_iter().for_each(|pool| pool.is_closed = true);
            }
            Event::ConnectionCheckOutStarted { check_out } => {
                let place = self.pools.place(server);
                if let Some(pool) = self.pools.at(place) {
                    pool.queue.push_back(*check_out);
                }
                self.begun_in_pool(CheckOut::Started(*check_out), place);
            }
            Event::ConnectionClosed { connection_id, .. } => return self.closed(server, *connection_id),
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

    fn set_ready(&mut self, server: ServerId, is_ready: bool) -> usize {
        let place = self.pools.place(server);
        if let Some(pool) = self.pools.at(place) {
            pool.is_ready = is_ready;
        }
        place
    }

    fn closed(&mut self, server: ServerId, id: ConnectionId) -> Result<(), Broken> {
        let pool = self.pools.place(server);
        let Some(known) = self.connections.find_by_id(pool, id) else {
            return law("a connection is closed once", false, || format!("{id:?}"));
        };
        known.is_there = false;
        known.is_given_up = matches!(known.state, State::Pending | State::Refreshing);
        let (handle, state) = (known.handle, known.state);
        self.pools.change(pool, Some(state), None);
        self.connections.forget_if_over(handle);
        law("a connection in use is not closed", state != State::InUse, || format!("{handle:?}"))
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
        self.judge_clears()?;
        if let Some(beliefs) = &mut self.beliefs {
            beliefs.judge_choices(&mut self.marks)?;
        }
        let touched = self.pools.take_touched();
        for &place in &touched {
            self.settle_pool(place)?;
        }
        if !touched.is_empty() && self.identities.share_limits() {
            self.settle_servers(&touched)?;
        }
        if !touched.is_empty() && self.limits.max_connections > 0 {
            self.settle_client()?;
        }
        self.pools.all_judged(touched);
        Ok(())
    }

    fn settle_pool(&mut self, place: usize) -> Result<(), Broken> {
        let Limits { max_pool_size: max, max_connecting, .. } = self.limits;
        let Some(pool) = self.pools.judged(place) else { return Ok(()) };
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
        if pool.is_ready && self.plainness.is_prompt && !self.identities.share_limits() {
            let may_create = (max == 0 || total < max) && pending < max_connecting;
            let is_served = !may_create || waiting <= on_their_way as usize;
            law("nobody waits while a connection could be created", is_served, || format!("{pool:?}"))?;
        }
        Ok(())
    }

    /// Judges all pools together.
    fn settle_client(&self) -> Result<(), Broken> {
        let all: u32 = self.pools.iter().map(Pool::total).sum();
        let is_within = all <= self.limits.max_connections;
        law("all pools have at most as many connections as they share", is_within, || format!("{all}"))
    }

    /// Judges the machine's own numbers.
    pub(super) fn compare(&self, counts: Counts) -> Result<(), Broken> {
        let sum = |number: fn(&Pool) -> u32| self.pools.iter().map(number).sum::<u32>();
        let seen = [
            sum(|pool| pool.number(State::Pending)),
            sum(|pool| pool.number(State::Available) + pool.number(State::Checking) + pool.number(State::Refreshing)),
            sum(|pool| pool.number(State::InUse)),
            sum(|pool| u32::try_from(pool.queue.len()).unwrap_or(u32::MAX)),
        ];
        let told = [counts.pending, counts.available, counts.in_use, counts.waiting];
        law("the client's numbers are what was seen", seen == told, || format!("saw {seen:?}, was told {told:?}"))
    }

    /// Nothing of a pool is left but what the driver is still about.
    pub(super) fn pool_forgotten(&mut self, pool: ServerId) {
        let place = self.pools.place(pool);
        self.pools.at(place).into_iter().for_each(|pool| pool.is_forgotten = true);
    }

    /// Whether the pool of a connection was forgotten.
    pub(super) fn is_forgotten(&mut self, connection: Handle) -> bool {
        let place = self.connections.find_any(connection).map(|known| known.pool);
        place.is_some_and(|place| self.pools.is_forgotten(place))
    }

    /// Whether the outputs of a pool have been seen, and must not be kept back.
    pub(super) fn is_told_of(&self, pool: ServerId) -> bool {
        self.pools.is_told_of(pool)
    }

    /// Judges what is left when timeouts have been handled.
    pub(super) fn after_timeout(&self, now: Instant) -> Result<(), Broken> {
        self.judge_waits(now)?;
        self.seed_list.as_ref().map_or(Ok(()), |seed_list| seed_list.judge_delay(now))
    }

    /// Judges what is left of a client that was closed.
    pub(super) fn after_close(&self) -> Result<(), Broken> {
        let left = &self.waiting;
        law("nobody waits for a client that is closed", left.len() == 0, || format!("{left:?}"))?;
        let left = &self.warm_ups;
        law("no warm-up goes on in a client that is closed", left.is_empty(), || format!("{left:?}"))?;
        let left: Vec<_> = self.connections.there().collect();
        law("a closed client has no connections", left.is_empty(), || format!("{left:?}"))?;
        let left: Vec<_> = self.connections.with_sockets().collect();
        law("no socket is lost", left.is_empty(), || format!("{left:?}"))
    }

    pub(super) fn is_waiting(&self, check_out: CheckOut) -> bool {
        self.waiting.contains(check_out)
    }

    /// How many check-outs wait, for a server or for a connection.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    // The ledger.

    fn lend(&mut self, connection: Handle, state: State) -> Result<(), Broken> {
        let was_available = self.set(connection, state) == Some(State::Available);
        law("only an available connection is looked at", was_available, || format!("{connection:?}"))
    }

    /// Its state before.
    fn set(&mut self, connection: Handle, state: State) -> Option<State> {
        let known = self.connections.find(connection)?;
        let before = std::mem::replace(&mut known.state, state);
        Lives::leave(known, before, self.now);
        self.pools.change(known.pool, Some(before), Some(state));
        Some(before)
    }

    fn break_off(&mut self, connection: Handle) {
        if let Some(known) = self.connections.find(connection) {
            known.is_broken = true;
        }
    }

    fn rename(&mut self, from: CheckOut, to: CheckOut) -> Result<(), Broken> {
        let was_waiting = self.waiting.rename(from, to);
        law("only a check-out that waits goes on elsewhere", was_waiting, || format!("{from:?}"))
    }

    /// Whether it waited.
    fn end(&mut self, check_out: CheckOut) -> bool {
        if let CheckOut::Started(id) = check_out {
            self.pools.leave_queues(id);
        }
        self.waiting.end(check_out).is_some()
    }
}
