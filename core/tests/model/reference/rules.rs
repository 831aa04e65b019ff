//! The common parts of the reference's calls: service, creation, clearing, maintenance, deadlines.

use super::{
    ApiMisuse, Backoff, Cause, CheckOut, CheckOutFailedReason, Connection, Due, Failure, Id, Kind, Named, Output,
    PoolState, Profile, Reason, Reference, Service, State, TimeoutReason, WaitLimit, Waiter,
};

impl Reference {
    // Serving.

    /// What follows from a call.
    pub(super) fn settle(&mut self, due: Due) {
        self.evict();
        match due {
            Due::Time => self.create_for_waiters(false),
            Due::Queue | Due::Arrival | Due::Spare | Due::Permit => self.serve(due),
        }
        if let Due::Time | Due::Spare | Due::Permit = due {
            self.close_surplus();
            let before = self.connections.len();
            self.retire();
            if self.connections.len() < before {
                self.serve(Due::Queue);
            }
            self.refresh_due();
            // Once a population has failed, the next attempt waits for the next run.
            if due == Due::Permit && !self.population_failed {
                self.populate();
            }
            self.warm();
        }
    }

    fn serve(&mut self, due: Due) {
        self.serve_from_available();
        self.create_for_waiters(due == Due::Arrival);
        while self.lend() {
            self.create_for_waiters(false);
        }
    }

    /// An arrival creates whenever it may (CMAP-26), and what backoff or rate held back is created as soon as they allow it. A freed permit
    /// creates only while there are more waiters than pending connections. A connection that is being checked counts as on its
    /// way.
    fn create_for_waiters(&mut self, mut has_arrived: bool) {
        loop {
            let is_restrained = self.backoff.is_some() || self.options.creation_interval > 0;
            let pending = if has_arrived || is_restrained { 0 } else { self.count(State::Pending) };
            if self.waiters.len() <= pending + self.checks() || !self.create_for_waiter() {
                break;
            }
            has_arrived = false;
        }
    }

    pub(super) fn serve_from_available(&mut self) {
        while let Some(&head) = self.waiters.first()
            && let Some(next) = self.next_for(head)
        {
            // A check for each waiter: nothing has to give way.
            let awaits_check = self.waiters.len() <= self.checks();
            let perished = self.perished(&next);
            if perished.is_none() && !self.needs_check(&next) {
                self.deliver(head, next.id);
            } else if let Some(reason) = perished.filter(|_| !awaits_check) {
                self.close(next.id, reason, None, true);
            } else if !awaits_check {
                self.change(next.id, |c| (c.state, c.suspect) = (State::Checking, false));
                self.outputs.push(Output::Check(next.id));
            } else if let Some(proven) = self.proven_at_once() {
                self.deliver(head, proven);
            } else {
                break;
            }
        }
    }

    /// Enough connections are being checked: the most recently used that is free serves, if it needs no check.
    fn proven_at_once(&self) -> Option<Id> {
        let most_recent = self.connections.iter().rfind(|c| c.state == State::Available && !self.is_held(c))?;
        (self.perished(most_recent).is_none() && !self.needs_check(most_recent)).then_some(most_recent.id)
    }

    pub(super) fn deliver(&mut self, waiter: Waiter, id: Id) {
        self.bind(waiter.key, id);
        self.deliver_unbound(waiter, id);
    }

    pub(super) fn deliver_unbound(&mut self, waiter: Waiter, id: Id) {
        self.leave(waiter.check_out);
        self.change(id, |c| (c.state, c.check_out) = (State::InUse, Some(waiter.check_out)));
        self.outputs.push(Output::CheckedOut(waiter.check_out, id, self.now - waiter.started_at));
        self.outputs.push(Output::Deliver(waiter.check_out, id));
    }

    /// Whether an available connection has shown no sign of life for so long that it is checked before its delivery.
    pub(super) fn needs_check(&self, c: &Connection) -> bool {
        self.now - c.since.max(c.refreshed_at) > self.options.check_after_idle || c.suspect
    }

    /// Creates a connection for the first waiter that is not an origin, if there is one, room and a permit.
    pub(super) fn create_for_waiter(&mut self) -> bool {
        let origin = self.waiters.iter().map(|w| w.check_out).find(|&check_out| !self.is_origin(check_out));
        let creates = origin.is_some() && self.may_create();
        if creates {
            self.create(origin);
        }
        creates
    }

    /// Whether maxPoolSize, maxConnecting (CMAP-1, CMAP-4) and the backoff allow another connection.
    pub(super) fn may_create(&self) -> bool {
        self.has_room() && self.allowed_at().is_some_and(|at| at <= self.now)
    }

    pub(super) fn has_room(&self) -> bool {
        let max = self.options.max_pool_size as usize;
        self.state == PoolState::Ready
            && (max == 0 || self.connections.len() < max)
            && self.count(State::Pending) < self.options.max_connecting as usize
    }

    /// Whether there are more connections than maxPoolSize, because that has become smaller.
    pub(super) fn has_surplus(&self) -> bool {
        let max = self.options.max_pool_size as usize;
        max > 0 && self.connections.len() > max
    }

    /// Why a connection that nobody waits for is closed before it is available, if so.
    pub(super) fn superfluous(&self) -> Option<Reason> {
        match self.waiters.is_empty() {
            true if self.has_surplus() => Some(Reason::Surplus),
            true if self.host.is_over => Some(Reason::Idle),
            _ => None,
        }
    }

    /// When the pool looks whether its host is used.
    pub(super) fn host_look(&self) -> Option<(u64, TimeoutReason)> {
        let is_limited = self.options.host_timeout > 0 && self.state != PoolState::Closed && !self.host.is_over;
        is_limited.then(|| ((self.host.since + self.options.host_timeout).max(self.now), TimeoutReason::HostTimeout))
    }

    pub(super) fn look_at_host(&mut self) {
        while self.host_look().is_some_and(|(at, _)| at <= self.now) {
            let is_busy = self.count(State::InUse) > 0 || self.counts()[3] > 0 || !self.warm_ups.is_empty();
            let is_over = !is_busy && !self.host.is_busy && self.started == self.host.started;
            let most_recent = self.connections.iter().rfind(|c| c.state == State::Available).map(|c| c.since);
            let since = most_recent.filter(|_| !is_busy).unwrap_or(self.now).max(self.host.since);
            self.host = super::Host { started: self.started, since, is_busy, is_over };
            if is_over {
                for id in self.ids(|c| c.state == State::Available) {
                    let reason = self.get(id).and_then(|c| self.perished(c)).unwrap_or(Reason::Idle);
                    self.close(id, reason, None, true);
                }
            }
        }
    }

    pub(super) fn create(&mut self, origin: Option<CheckOut>) {
        self.created += 1;
        let id = self.created;
        if let Some(backoff) = &mut self.backoff {
            backoff.tried = Some(id);
        }
        if self.options.creation_interval > 0 {
            self.created_until = self.created_until.max(self.now) + self.options.creation_interval;
        }
        let slot = self.vacant.pop().unwrap_or(self.connections.len());
        self.connections.push(Connection {
            id,
            slot,
            state: State::Pending,
            service: None,
            generation: self.generation,
            since: self.now,
            check_out: origin,
            interrupted: false,
            hung_up: false,
            ends_at: u64::MAX,
            uses: 0,
            keys: Vec::new(),
            refreshed_at: 0,
            suspect: false,
            look_at: 0,
        });
        self.outputs.extend([Output::ConnectionCreated(id), Output::Connect(id)]);
    }

    // Ends.

    /// Ends a check-out without a connection. One that waits is still among the waiters that its error counts.
    pub(super) fn fail(&mut self, waiter: Waiter, kind: Kind) {
        let failure = Failure { kind, counts: self.counts(), waited: self.now - waiter.started_at };
        self.leave(waiter.check_out);
        let reason = match kind {
            Kind::PoolClosed => CheckOutFailedReason::PoolClosed,
            Kind::Timeout(_) => CheckOutFailedReason::Timeout,
            Kind::PoolCleared(_) | Kind::Establish(_) | Kind::Cancelled | Kind::WaitQueueFull => {
                CheckOutFailedReason::ConnectionError
            }
        };
        self.outputs.push(Output::CheckOutFailed(waiter.check_out, reason, failure));
        // A caller that cancels gets no answer.
        if kind != Kind::Cancelled {
            self.outputs.push(Output::Fail(waiter.check_out, failure));
        }
    }

    pub(super) fn fail_if_waiting(&mut self, check_out: Option<CheckOut>, kind: Kind) {
        let waiter = self.waiters.iter().copied().find(|waiter| Some(waiter.check_out) == check_out);
        if let Some(waiter) = waiter {
            self.fail(waiter, kind);
        }
    }

    /// Fails every waiter of a pool that is not ready (CMAP-39).
    pub(super) fn evict(&mut self) {
        let kind = match self.state {
            PoolState::Ready => return,
            PoolState::Paused => Kind::PoolCleared(self.paused_by),
            PoolState::Closed => Kind::PoolClosed,
        };
        self.evict_by(kind);
    }

    pub(super) fn evict_by(&mut self, kind: Kind) {
        self.end_sticky_waits();
        while let Some(&head) = self.waiters.first() {
            self.fail(head, kind);
        }
        self.evict_warm_ups();
    }

    /// A waiter leaves the queue; the connection that it was the origin of stays.
    fn leave(&mut self, check_out: CheckOut) {
        self.waiters.retain(|waiter| waiter.check_out != check_out);
        self.sticky.retain(|waiter| waiter.check_out != check_out);
        let of_it = |c: &&mut Connection| c.state == State::Pending && c.check_out == Some(check_out);
        self.connections.iter_mut().filter(of_it).for_each(|c| c.check_out = None);
    }

    pub(super) fn close_or_make_available(&mut self, id: Id, reason: Option<Reason>) {
        match reason {
            Some(reason) => self.close(id, reason, None, true),
            None => self.change(id, |c| (c.state, c.check_out) = (State::Available, None)),
        }
    }

    /// Takes a connection out of the pool; its socket, if it has one, goes to the caller that closes it (CMAP-24).
    pub(super) fn close(&mut self, id: Id, reason: Reason, error: Option<Cause>, has_socket: bool) {
        self.send_to_queue(id);
        self.vacant.extend(self.get(id).map(|c| c.slot));
        if let Some(backoff) = self.backoff.as_mut().filter(|backoff| backoff.tried == Some(id)) {
            backoff.tried = None;
        }
        self.connections.retain(|c| c.id != id);
        // A service is forgotten with its last connection (LB-7).
        let connections = &self.connections;
        self.services.retain(|&(service, _)| connections.iter().any(|c| c.service == Some(service)));
        self.outputs.push(Output::ConnectionClosed(id, reason, error));
        if has_socket {
            self.outputs.push(Output::Close(id, reason));
        }
    }

    // Backing off.

    /// The time from which on a connection is allowed: after the backoff's pause, never while it tries one, and when there
    /// is a token left of those for new connections.
    pub(crate) fn allowed_at(&self) -> Option<u64> {
        Some(self.pause()?.max(self.token_at()))
    }

    fn pause(&self) -> Option<u64> {
        self.backoff.as_ref().map_or(Some(0), |backoff| backoff.tried.is_none().then_some(backoff.until))
    }

    fn token_at(&self) -> u64 {
        let others = u64::from(self.options.max_connecting) - 1;
        self.created_until.saturating_sub(others * self.options.creation_interval)
    }

    /// The time at which a waiter gets the connection that backoff or rate held back.
    pub(super) fn pause_end(&self) -> Option<(u64, TimeoutReason)> {
        let lacks_one = self.waiters.iter().any(|waiter| !self.is_origin(waiter.check_out));
        let is_held_back = lacks_one && self.waiters.len() > self.checks() && self.has_room();
        let is_restrained = self.backoff.is_some() || self.options.creation_interval > 0;
        let at = self.allowed_at().filter(|_| is_restrained && is_held_back)?;
        let is_pause = self.backoff.is_some() && self.pause() >= Some(self.token_at());
        Some((at.max(self.now), if is_pause { TimeoutReason::Backoff } else { TimeoutReason::CreationRate }))
    }

    /// A half to the whole of 100 ms, twice as much for each failure in a row, but no more than 800 ms.
    pub(super) fn back_off(&mut self, id: Id) {
        let failures = match &self.backoff {
            None => 0,
            Some(backoff) if backoff.tried == Some(id) => backoff.failures + 1,
            Some(_) => return,
        };
        let most = (100_000_000 << failures.min(3)).min(800_000_000);
        let until = self.now + most - self.random.up_to(most / 2);
        self.backoff = Some(Backoff { until, tried: None, failures });
    }

    // Clearing.

    /// Raises a generation, pauses the pool (CMAP-37) or not (LB-8), reports it, and interrupts connections if told to.
    /// A closed pool and a service without connections stay as they are; then it returns false.
    pub(super) fn clear(&mut self, service: Option<Service>, interrupts: bool, cause: Cause) -> bool {
        let is_known = service.is_none() || self.services.iter().any(|&(known, _)| Some(known) == service);
        if self.state == PoolState::Closed || !is_known {
            return false;
        }
        match service {
            None => self.generation += 1,
            Some(id) => self.services.iter_mut().filter(|(known, _)| *known == id).for_each(|(_, raised)| *raised += 1),
        }
        // A pool that is paused already emits nothing (CMAP-38) and keeps its cause.
        if self.state == PoolState::Ready || service.is_some() {
            self.outputs.push(Output::PoolCleared { service, interrupts });
            if service.is_none() && self.options.profile == Profile::Current {
                (self.state, self.paused_by) = (PoolState::Paused, cause);
            }
        }
        if interrupts {
            self.interrupt(service, cause);
        }
        true
    }

    /// CMAP-40 to CMAP-42: those in use are closed at their check-in, pending ones now, before their origins fail.
    pub(super) fn interrupt(&mut self, service: Option<Service>, cause: Cause) {
        let mut ids = self.ids(|c| c.service == service && c.state != State::Available && !c.interrupted);
        if service.is_none() {
            ids.sort_by_key(|&id| self.get(id).map(|c| c.slot));
        }
        for id in ids {
            let connection = self.get(id).expect("an interruption closes no other connection").clone();
            match connection.state {
                State::InUse => {
                    self.connections.iter_mut().filter(|c| c.id == id).for_each(|c| c.interrupted = true);
                    self.outputs.push(Output::Interrupt(id));
                }
                State::Pending => {
                    self.close(id, self.unless_closed(Reason::Stale), None, false);
                    self.outputs.push(Output::Interrupt(id));
                    // Elsewhere the clear is about to evict all waiters in their order.
                    if self.options.load_balanced {
                        self.fail_if_waiting(connection.check_out, Kind::PoolCleared(cause));
                    }
                }
                State::Refreshing => {
                    self.close(id, self.unless_closed(Reason::Stale), None, false);
                    self.outputs.push(Output::Interrupt(id));
                }
                State::Checking | State::Available => self.close(id, self.unless_closed(Reason::Stale), None, true),
            }
        }
    }

    // Maintenance and time.

    /// When maintenance is due: at once for stale connections (CMAP-43), else not sooner than its interval.
    pub(super) fn maintenance(&self) -> Option<(u64, TimeoutReason)> {
        let interval = self.options.maintenance?;
        let earliest = self.last_run.map_or(0, |last| last + interval);
        let least_recent = self.connections.iter().find(|c| c.state == State::Available);
        if self.connections.iter().any(|c| c.state == State::Available && self.is_stale(c)) {
            Some((self.now, TimeoutReason::PruneStale))
        } else {
            let allowed_at = self.allowed_at().filter(|_| self.misses_connections() && self.has_room());
            let populate = allowed_at.map(|at| (earliest.max(at).max(self.now), TimeoutReason::Populate));
            // A nanosecond more than maxIdleTimeMS is longer than maxIdleTimeMS (CMAP-3).
            let expiry =
                least_recent.filter(|_| self.options.max_idle > 0).map(|c| c.since + self.options.max_idle + 1);
            let prune = expiry.map(|at| (earliest.max(at), TimeoutReason::PruneIdle));
            populate.into_iter().chain(prune).min_by_key(|&(at, _)| at)
        }
    }

    /// Closes perished connections: from the least recently used on; stale ones of a service that lie between others, after that.
    pub(super) fn prune(&mut self) {
        let available = |c: &Connection| c.state == State::Available;
        let least_recent = self.ids(available).into_iter().map_while(|id| Some((id, self.perished(self.get(id)?)?)));
        for (id, reason) in least_recent.collect::<Vec<_>>() {
            self.close(id, reason, None, true);
        }
        let mut stale = self.ids(|c| available(c) && self.is_stale(c));
        stale.sort_by_key(|&id| self.get(id).and_then(|c| c.service));
        for id in stale {
            self.close(id, Reason::Stale, None, true);
        }
    }

    /// Creates the connections missing to minPoolSize, within the limit of permits (CMAP-44, CMAP-47).
    pub(super) fn populate(&mut self) {
        while self.options.maintenance.is_some() && self.misses_connections() && self.may_create() {
            self.create(None);
        }
    }

    /// The connections that are kept up.
    pub(super) fn min_pool_size(&self) -> usize {
        if self.host.is_over { 0 } else { self.options.min_pool_size as usize }
    }

    fn misses_connections(&self) -> bool {
        let (total, least) = (self.connections.len(), self.min_pool_size());
        let lacks_one = total < least || (total == least && self.wants_replacement());
        self.state == PoolState::Ready && lacks_one && self.has_permit_to_spare()
    }

    /// The earliest deadline of a waiter, the older check-out first. An origin is exempt from waitQueueTimeoutMS, but
    /// not from its own deadline (CMAP-5, X-16).
    pub(super) fn next_deadline(&self) -> Option<(u64, Waiter, WaitLimit)> {
        let deadline_of = |&waiter: &Waiter| {
            let is_bounded = self.options.wait_queue_timeout > 0 && !self.is_origin(waiter.check_out);
            let limit = is_bounded.then(|| waiter.started_at + self.options.wait_queue_timeout);
            let limit = limit.map(|at| (at, waiter, WaitLimit::WaitQueueTimeout));
            let own = waiter.deadline.map(|at| (at, waiter, WaitLimit::Deadline));
            own.into_iter().chain(limit).min_by_key(|&(at, ..)| at)
        };
        self.waiters
            .iter()
            .chain(&self.sticky)
            .filter_map(deadline_of)
            .min_by_key(|&(at, waiter, _)| (at, waiter.check_out))
    }

    // Questions.

    pub(super) fn is_origin(&self, check_out: CheckOut) -> bool {
        self.connections.iter().any(|c| c.state == State::Pending && c.check_out == Some(check_out))
    }

    /// Why an available connection must not be used any more (CMAP-11).
    pub(super) fn perished(&self, available: &Connection) -> Option<Reason> {
        let is_idle = self.options.max_idle > 0 && self.now - available.since > self.options.max_idle;
        if self.is_stale(available) { Some(Reason::Stale) } else { is_idle.then_some(Reason::Idle) }
    }

    pub(crate) fn is_stale(&self, connection: &Connection) -> bool {
        connection.generation != self.current_generation(connection.service)
    }

    pub(super) fn current_generation(&self, service: Option<Service>) -> u64 {
        let own = self.services.iter().find(|&&(known, _)| Some(known) == service);
        own.map_or(self.generation, |&(_, generation)| generation)
    }

    pub(super) fn count(&self, state: State) -> usize {
        self.connections.iter().filter(|c| c.state == state).count()
    }

    pub(crate) fn ids(&self, is_meant: impl Fn(&Connection) -> bool) -> Vec<Id> {
        self.connections.iter().filter(|&c| is_meant(c)).map(|c| c.id).collect()
    }

    /// Changes a connection, which moves to the end of the list; if its state changes, so does the time since when.
    pub(super) fn change(&mut self, id: Id, change: impl FnOnce(&mut Connection)) {
        let place = self.connections.iter().position(|c| c.id == id).expect("only living connections change");
        let mut connection = self.connections.remove(place);
        let before = connection.state;
        change(&mut connection);
        if connection.state != before {
            connection.since = self.now;
        }
        self.connections.push(connection);
    }

    /// The connection of this pool that is in one of `states`; none if it was closed.
    pub(super) fn find(&self, named: Named, states: &[State], otherwise: ApiMisuse) -> Result<Option<Id>, ApiMisuse> {
        match named {
            Named::Foreign => Err(ApiMisuse::ForeignConnection),
            Named::NeverIssued => Err(otherwise),
            Named::Own(id) => match self.get(id) {
                None => Ok(None),
                Some(connection) if states.contains(&connection.state) => Ok(Some(id)),
                Some(_) => Err(otherwise),
            },
        }
    }
}
