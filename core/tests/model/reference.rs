//! The pool as the rules describe it, as short and as naive as possible: two lists, and a scan for every question.
//!
//! Nothing here is shared with the pool under test beyond its vocabulary. One convention carries the orders that the
//! rules ask for: a connection that changes its state moves to the end of the list. So among the available ones the
//! last is the most recently used, and among the others the first has been where it is for longest.

use cmap_core::options::{Profile, Reuse};
use cmap_core::pool::{ApiMisuse, Cancellation, Condition, PoolState, Reaction, TimeoutReason, WaitLimit};
use cmap_core::pool::{CheckOutFailedReason, ConnectionClosedReason as Reason};
use cmap_core::random::Random;

use super::output::{Cause, CheckOut, Failure, Id, Kind, Output, Service, Warmed};
use super::transition::{Call, Key, Named, Options, Refusal, Resized};

#[derive(Clone, Debug)]
pub(crate) struct Reference {
    pub(crate) options: Options,
    pub(crate) now: u64,
    pub(crate) state: PoolState,
    pub(crate) generation: u64,
    /// The generation of every service that has connections (LB-7).
    pub(crate) services: Vec<(Service, u64)>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) created: u64,
    /// First in, first out (CMAP-14).
    pub(crate) waiters: Vec<Waiter>,
    /// Those that wait for the connection of their key, in the order of their arrival.
    pub(crate) sticky: Vec<Waiter>,
    pub(crate) started: CheckOut,
    /// The outputs since they were last taken.
    pub(crate) outputs: Vec<Output>,
    /// Slots without a connection; the one that was vacated last is taken first.
    vacant: Vec<usize>,
    paused_by: Cause,
    last_run: Option<u64>,
    /// A connection that no check-out waited for has failed since the last run.
    population_failed: bool,
    /// What the last look at the host found.
    pub(crate) host: Host,
    /// Those under way, the oldest first.
    pub(crate) warm_ups: Vec<WarmUp>,
    pub(crate) warm_ups_begun: u64,
    pub(crate) backoff: Option<Backoff>,
    /// Until when the limit of new connections is used up.
    created_until: u64,
    /// The last connection whose credential has been replaced.
    pub(crate) outdated_until: Id,
    /// How often a held connection was lent.
    pub(crate) lent: usize,
    random: Random,
    calls: u64,
}

/// The use of the host: how many check-outs had begun at the last look, the time after which it was not used up to then, and
/// whether it was in use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Host {
    started: CheckOut,
    since: u64,
    is_busy: bool,
    pub(crate) is_over: bool,
}

/// The server is overloaded: no connection is created before `until`, and then one at a time.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    until: u64,
    pub(crate) tried: Option<Id>,
    pub(crate) failures: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) id: Id,
    pub(crate) state: State,
    pub(crate) service: Option<Service>,
    pub(crate) generation: u64,
    /// Where the pool keeps it. No rule orders interruptions; the pool goes by its slots.
    slot: usize,
    /// When it entered its state.
    since: u64,
    /// Of a pending connection its origin, while that waits; of one in use its holder.
    pub(crate) check_out: Option<CheckOut>,
    interrupted: bool,
    hung_up: bool,
    /// When its life ends, and how often it was used.
    ends_at: u64,
    uses: u32,
    /// The keys that it is bound to.
    pub(crate) keys: Vec<Key>,
    /// When it last answered a ping, or was established.
    refreshed_at: u64,
    /// It was idle while the machine was suspended.
    suspect: bool,
    /// When the pool looks whether it has to be refreshed.
    look_at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Available,
    Checking,
    Refreshing,
    InUse,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) check_out: CheckOut,
    started_at: u64,
    deadline: Option<u64>,
    pub(crate) key: Option<Key>,
    /// The connection that it waits for, if not for any.
    pub(crate) wants: Option<Id>,
}

/// What a call makes due, beside what those who wait need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Queue,
    /// A connection for one who has just come, whatever is pending.
    Arrival,
    /// What concerns connections that nobody waits for, and what backoff or rate held back.
    Time,
    /// What concerns connections that nobody waits for.
    Spare,
    /// That, and a population.
    Permit,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    CheckOut(CheckOut),
    Cancellation(Cancellation),
    Refused,
    WarmUp(u64),
    WarmUpCancelled { was_open: bool },
}

impl Reference {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            now: 0,
            state: if options.profile == Profile::Current { PoolState::Paused } else { PoolState::Ready },
            generation: 0,
            services: Vec::new(),
            connections: Vec::new(),
            created: 0,
            waiters: Vec::new(),
            sticky: Vec::new(),
            started: 0,
            outputs: vec![Output::PoolCreated],
            vacant: Vec::new(),
            paused_by: Cause::PoolsOwn,
            last_run: None,
            population_failed: false,
            host: Host::default(),
            warm_ups: Vec::new(),
            warm_ups_begun: 0,
            backoff: None,
            created_until: 0,
            outdated_until: 0,
            lent: 0,
            random: Random::new(0),
            calls: 0,
        }
    }

    pub(crate) fn apply(&mut self, now: u64, call: Call<Named>) -> Result<Answer, ApiMisuse> {
        self.calls += 1;
        self.now = self.now.max(now);
        let mut has_failed = false;
        // A member past its deadline leaves the queue at once (CMAP-15), whatever the call is; the earliest first.
        while let Some((at, waiter, limit)) = self.next_deadline().filter(|&(at, ..)| at <= self.now) {
            debug_assert!(at >= waiter.started_at);
            self.fail(waiter, Kind::Timeout(limit));
            has_failed = true;
        }
        if has_failed && self.options.affinity.is_some() {
            // Those behind them may want connections that they did not.
            self.serve_from_available();
        }
        match call {
            Call::CheckOut(offset, key) => return Ok(Answer::CheckOut(self.check_out(offset, key))),
            Call::Cancel(check_out) => return Ok(Answer::Cancellation(self.cancel(check_out))),
            Call::CheckIn(user, connection, condition) => self.check_in(user, connection, condition)?,
            Call::Ready if self.state == PoolState::Paused => {
                self.state = PoolState::Ready;
                self.last_run = None;
                self.population_failed = false;
                self.outputs.push(Output::PoolReady);
            }
            Call::Ready => {}
            Call::Clear { service, .. } if service.is_some() != self.options.load_balanced => {
                // The two kinds of clear never mix (LB-8).
                return Err(if service.is_some() {
                    ApiMisuse::ClearWithService
                } else {
                    ApiMisuse::ClearWithoutService
                });
            }
            Call::Clear { service, interrupts } => {
                // The older edition interrupts nothing.
                let interrupts = interrupts && self.options.profile == Profile::Current;
                if self.clear(service, interrupts, Cause::Call(self.calls)) {
                    self.settle(Due::Queue);
                }
            }
            Call::Close => self.close_pool(),
            Call::ResetAfterFork => self.reset_after_fork(),
            Call::Hello(connection, service) => self.hello(connection, service)?,
            Call::Established(connection) => self.established(connection)?,
            Call::EstablishFailed(connection, reaction, failure) => {
                match self.find(connection, &[State::Pending], ApiMisuse::NotPending)? {
                    Some(id) if failure == Refusal::Credential && id <= self.outdated_until => self.replace(id),
                    Some(id) => self.establish_failed(id, reaction, failure == Refusal::Overload),
                    None => {}
                }
            }
            Call::Checked(connection, alive) => {
                if let Some(id) = self.find(connection, &[State::Checking], ApiMisuse::NotChecking)? {
                    self.checked(id, alive);
                }
            }
            Call::Refreshed(connection) => self.refreshed(connection)?,
            Call::RefreshFailed(connection) => self.refresh_failed(connection)?,
            Call::PeerClosed(connection) => self.peer_closed(connection)?,
            Call::Resize(resized) => return Ok(self.resize(resized)),
            Call::ReplaceConnections(over) => self.replace_connections(over),
            Call::EndAffinity(key) => self.end_affinity(key),
            Call::Resume => {
                let available = self.connections.iter_mut().filter(|c| c.state == State::Available);
                available.for_each(|c| c.suspect = true);
            }
            Call::RenewCredential => self.renew_credential(),
            Call::WarmUp(connections) => return Ok(Answer::WarmUp(self.warm_up(connections))),
            Call::CancelWarmUp(number) => {
                return Ok(Answer::WarmUpCancelled { was_open: self.cancel_warm_up(number) });
            }
            Call::Timeout => {
                self.end_holds();
                self.look_at_host();
                self.settle(Due::Time);
                if self.maintenance().is_some_and(|(at, _)| at <= self.now) {
                    self.last_run = Some(self.now);
                    self.population_failed = false;
                    self.prune();
                    self.settle(Due::Permit);
                }
            }
        }
        Ok(Answer::Done)
    }

    /// When the pool wants to be called, if its outputs have been drained.
    pub(crate) fn timeout(&self) -> Option<(u64, TimeoutReason)> {
        let check_out = self.next_deadline().map(|(at, ..)| (at, TimeoutReason::CheckOut));
        let others =
            self.maintenance().into_iter().chain(self.host_look()).chain(self.pause_end()).chain(self.next_end());
        let others = others.chain(self.hold_end()).chain(self.next_look()).chain(self.next_warm_connection());
        check_out.into_iter().chain(others).min_by_key(|&(at, _)| at)
    }

    pub(crate) fn counts(&self) -> [usize; 4] {
        let available = self.count(State::Available) + self.count(State::Checking) + self.count(State::Refreshing);
        [self.count(State::Pending), available, self.count(State::InUse), self.waiters.len() + self.sticky.len()]
    }

    pub(crate) fn get(&self, id: Id) -> Option<&Connection> {
        self.connections.iter().find(|connection| connection.id == id)
    }

    /// The check-out that has a connection in use.
    pub(crate) fn holder(&self, connection: Named) -> Option<CheckOut> {
        let Named::Own(id) = connection else { return None };
        self.get(id).filter(|connection| connection.state == State::InUse)?.check_out
    }

    // Calls.

    fn check_out(&mut self, offset: Option<i64>, key: Option<Key>) -> CheckOut {
        self.use_host();
        self.end_holds();
        self.started += 1;
        let deadline = offset.map(|offset| self.now.saturating_add_signed(offset));
        let waiter = Waiter { check_out: self.started, started_at: self.now, deadline, key, wants: None };
        self.outputs.push(Output::CheckOutStarted(self.started));
        let state = self.state;
        match state {
            PoolState::Closed => self.fail(waiter, Kind::PoolClosed),
            PoolState::Paused => self.fail(waiter, Kind::PoolCleared(self.paused_by)),
            PoolState::Ready if deadline.is_some_and(|at| at <= self.now) => {
                self.fail(waiter, Kind::Timeout(WaitLimit::Deadline));
            }
            PoolState::Ready
                if (1..=self.counts()[3]).contains(&self.options.max_wait_queue_depth)
                    && !self.can_serve_at_once(waiter) =>
            {
                self.fail(waiter, Kind::WaitQueueFull);
            }
            PoolState::Ready => {
                let due = self.arrive(waiter);
                self.settle(due);
            }
        }
        waiter.check_out
    }

    pub(super) fn use_host(&mut self) {
        if self.host.is_over {
            self.host = Host { started: self.started, since: self.now, is_busy: true, is_over: false };
        }
    }

    fn cancel(&mut self, check_out: Named) -> Cancellation {
        let Named::Own(number) = check_out else { return Cancellation::Finished };
        if let Some(&waiter) = self.waiters.iter().chain(&self.sticky).find(|waiter| waiter.check_out as u64 == number)
        {
            self.fail(waiter, Kind::Cancelled);
            self.settle(Due::Queue);
            return Cancellation::Cancelled;
        }
        let holds =
            |c: &Connection| c.state == State::InUse && c.check_out.is_some_and(|holder| holder as u64 == number);
        if self.connections.iter().any(holds) { Cancellation::Delivered } else { Cancellation::Finished }
    }

    fn check_in(&mut self, user: Named, connection: Named, condition: Condition) -> Result<(), ApiMisuse> {
        // Here a connection that was closed is misuse, too: it cannot have been in use.
        let found = self.find(connection, &[State::InUse], ApiMisuse::NotInUse)?;
        let connection = found.and_then(|id| self.get(id)).ok_or(ApiMisuse::NotInUse)?.clone();
        if connection.check_out.map(|holder| Named::Own(holder as u64)) != Some(user) {
            return Err(ApiMisuse::OtherUse);
        }
        let is_over = self.is_over_after_use(connection.id);
        self.outputs.push(Output::CheckedIn(connection.id));
        let reason = match self.state {
            PoolState::Closed => Some(Reason::PoolClosed),
            _ if connection.interrupted => Some(Reason::Stale),
            _ if condition == Condition::Errored || connection.hung_up => Some(Reason::Error),
            _ if self.is_stale(&connection) => Some(Reason::Stale),
            // also if somebody waits.
            _ if self.has_surplus() => Some(Reason::Surplus),
            _ => (is_over && self.may_retire()).then_some(Reason::Idle),
        };
        if reason.is_some() {
            // no available connection will tell of this use.
            self.host.since = self.now;
        }
        self.close_or_make_available(connection.id, reason);
        self.serve_sticky(connection.id);
        self.settle(Due::Queue);
        Ok(())
    }

    /// the least recently used available connections make room; those in use stay.
    fn resize(&mut self, resized: Resized) -> Answer {
        let options = resized.applied_to(self.options);
        let is_too_small = options.max_pool_size > 0 && options.min_pool_size > options.max_pool_size;
        if is_too_small || options.max_connecting == 0 {
            return Answer::Refused;
        }
        // a new rate misses as many tokens as the old one did.
        let debt = self.created_until.saturating_sub(self.now) * options.creation_interval;
        if debt > 0 || options.creation_interval == 0 {
            self.created_until = self.created_until.min(self.now) + debt / self.options.creation_interval.max(1);
        }
        self.options = options;
        self.refuse_warm_ups();
        self.settle(Due::Spare);
        Answer::Done
    }

    pub(crate) fn close_surplus(&mut self) {
        while self.has_surplus()
            && let Some(least_recent) = self.connections.iter().find(|c| c.state == State::Available).cloned()
        {
            self.close(least_recent.id, self.perished(&least_recent).unwrap_or(Reason::Surplus), None, true);
        }
    }

    fn close_pool(&mut self) {
        if self.state == PoolState::Closed {
            return;
        }
        self.state = PoolState::Closed;
        for id in self.ids(|c| c.state == State::Available) {
            self.close(id, Reason::PoolClosed, None, true);
        }
        self.outputs.push(Output::PoolClosed);
        self.settle(Due::Queue);
    }

    fn reset_after_fork(&mut self) {
        let mut services: Vec<_> = self.services.iter().map(|&(service, _)| Some(service)).collect();
        services.sort_unstable();
        for service in if self.options.load_balanced { services } else { vec![None] } {
            // Nothing is cleared in a closed pool, but what it has left belongs to the parent, too.
            if !self.clear(service, true, Cause::PoolsOwn) {
                self.interrupt(service, Cause::PoolsOwn);
            }
        }
        // Some belong to no service yet.
        if self.options.load_balanced {
            self.interrupt(None, Cause::PoolsOwn);
        }
        // The users of connections live in the parent process: all count as checked in and closed.
        let mut ids = self.ids(|c| c.state == State::InUse);
        ids.sort_by_key(|&id| self.get(id).map(|c| c.slot));
        for id in ids {
            self.outputs.push(Output::CheckedIn(id));
            self.close(id, self.unless_closed(Reason::Stale), None, false);
        }
        self.prune();
        if self.state == PoolState::Ready {
            self.evict_by(Kind::PoolCleared(Cause::PoolsOwn));
            self.end_warm_ups(|_| Some(Warmed::PoolCleared(Cause::PoolsOwn)));
        }
        self.settle(Due::Queue);
    }

    /// The reason of a closed pool is its own.
    pub(super) fn unless_closed(&self, reason: Reason) -> Reason {
        if self.state == PoolState::Closed { Reason::PoolClosed } else { reason }
    }

    fn hello(&mut self, connection: Named, service: Service) -> Result<(), ApiMisuse> {
        let Some(id) = self.find(connection, &[State::Pending], ApiMisuse::NotPending)? else { return Ok(()) };
        if !self.options.load_balanced || self.get(id).is_some_and(|c| c.service.is_some()) {
            return Err(ApiMisuse::UnexpectedService);
        }
        if !self.services.iter().any(|&(known, _)| known == service) {
            self.services.push((service, 0));
        }
        let generation = self.current_generation(Some(service));
        self.change(id, |c| (c.service, c.generation) = (Some(service), generation));
        Ok(())
    }

    fn established(&mut self, connection: Named) -> Result<(), ApiMisuse> {
        let Some(id) = self.find(connection, &[State::Pending], ApiMisuse::NotPending)? else {
            self.close_late(connection);
            return Ok(());
        };
        let connection = self.get(id).expect("it was found").clone();
        if self.options.load_balanced && connection.service.is_none() {
            return Err(ApiMisuse::ServiceUnknown);
        }
        let reason = match self.state {
            PoolState::Closed => Some(Reason::PoolClosed),
            // never delivered if a clear came between.
            _ if self.is_stale(&connection) => Some(Reason::Stale),
            _ => self.superfluous(),
        };
        self.backoff = None;
        match reason {
            None => {
                self.outputs.push(Output::ConnectionReady(id, self.now - connection.since));
                // the head takes it; if that is the origin of another one, the two swap origins.
                let head = self.waiters.first().map(|head| head.check_out);
                let of_head = |c: &&mut Connection| c.state == State::Pending && head.is_some() && c.check_out == head;
                self.connections.iter_mut().filter(of_head).for_each(|c| c.check_out = connection.check_out);
                // Available first, and only then is its permit free (CMAP-45).
                self.close_or_make_available(id, None);
                self.begin_life(id);
                self.note_sign_of_life(id);
            }
            Some(_) => {
                self.close_or_make_available(id, reason);
                // Only behind a load balancer (LB-8), or in the older edition, may its origin still wait: that origin gets another
                // connection.
                self.replace_for(connection.check_out);
            }
        }
        self.settle(Due::Permit);
        Ok(())
    }

    /// It was given up meanwhile, but its socket has to go somewhere.
    fn close_late(&mut self, connection: Named) {
        let Named::Own(id) = connection else { return };
        let is_closed = self.state == PoolState::Closed;
        self.outputs.push(Output::Close(id, if is_closed { Reason::PoolClosed } else { Reason::Stale }));
    }

    fn establish_failed(&mut self, id: Id, reaction: Reaction, overloaded: bool) {
        let cause = Cause::Call(self.calls);
        let connection = self.get(id).expect("it was found").clone();
        // Behind a load balancer there is nothing to clear before the service is known (LB-9).
        if reaction == Reaction::ClearPool && connection.service.is_some() == self.options.load_balanced {
            self.clear(connection.service, false, cause);
        }
        if overloaded && self.options.backoff {
            self.back_off(id);
        }
        let is_closed = self.state == PoolState::Closed;
        self.close(id, if is_closed { Reason::PoolClosed } else { Reason::Error }, Some(cause), false);
        // Its origin fails, if it still waits, before those that the clear evicts (CMAP-49).
        self.fail_if_waiting(connection.check_out, Kind::Establish(cause));
        if connection.check_out.is_none() {
            self.population_failed = true;
            self.fail_warm_ups(cause);
        }
        // No population: that one waits for the next run.
        self.settle(Due::Queue);
    }

    fn checked(&mut self, id: Id, alive: bool) {
        let is_stale = self.get(id).is_some_and(|c| self.is_stale(c));
        let reason = match self.state {
            PoolState::Closed => Some(Reason::PoolClosed),
            _ if !alive => Some(Reason::Error),
            _ if is_stale => Some(Reason::Stale),
            _ => self.superfluous(),
        };
        self.close_or_make_available(id, reason);
        self.serve_sticky(id);
        self.settle(Due::Spare);
    }

    fn peer_closed(&mut self, connection: Named) -> Result<(), ApiMisuse> {
        let all = [State::Pending, State::Available, State::Checking, State::Refreshing, State::InUse];
        let Some(id) = self.find(connection, &all, ApiMisuse::NotInUse)? else { return Ok(()) };
        match self.get(id).expect("it was found").state {
            // What goes on will fail on its own.
            State::Pending | State::Refreshing => {}
            State::Available => {
                self.close(id, Reason::Error, None, true);
                self.settle(Due::Queue);
            }
            State::Checking => self.checked(id, false),
            // Closed when it comes back (CMAP-11).
            State::InUse => self.connections.iter_mut().filter(|c| c.id == id).for_each(|c| c.hung_up = true),
        }
        Ok(())
    }
}

mod affinity;
mod refresh;
mod retirement;
mod rotation;
mod rules;
mod warm_up;

pub(crate) use self::warm_up::WarmUp;
