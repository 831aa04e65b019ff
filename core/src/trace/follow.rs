//! Follows a check-out that waits: at each look the state says what binds it, and a limit lasts until another one is seen.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::wait::{Establishment, Interval, Limit, Use, Wait, WaitEnd};
use crate::pool::{Establishing, InUse, WaitBound};
use crate::server::ServerId;
use crate::time::Instant;
use crate::topology::{Binding, CheckOut, Topology};

/// A wait that has not ended, and what binds it.
#[derive(Clone, Debug)]
pub(super) struct Following {
    /// The check-out as it is called now.
    pub(super) check_out: CheckOut,
    pub(super) wait: Wait<u32>,
    /// The time of the last look, or of the beginning.
    pub(super) looked_at: Instant,
    bound: Option<Bound>,
}

#[derive(Clone, Debug)]
struct Bound {
    since: Instant,
    limit: Limit<u32>,
    /// When its figures were taken.
    seen_at: Instant,
}

impl Following {
    /// A wait that begins with a call.
    pub(super) fn new(call: Option<u64>, check_out: CheckOut, began: Instant) -> Self {
        let (intervals, occurrences) = (Vec::new(), Vec::new());
        let (end, ended) = (WaitEnd::Open, began);
        let wait = Wait { call, check_out, holder: None, began, end, ended, intervals, occurrences };
        Self { check_out, wait, looked_at: began, bound: None }
    }

    /// One that nobody has looked at until `now`. What bound `other`, which waits in the same queue or has waited there until now,
    /// bound this one, too.
    pub(super) fn behind(mut self, other: &Self, now: Instant) -> Self {
        let mut other = other.clone();
        other.leave_open(now);
        let began = self.wait.began;
        for interval in other.wait.intervals.into_iter().filter(|interval| interval.to > began) {
            let from = self.explained_until();
            self.push(Interval { from, limit: interval.limit.of_another(), ..interval });
        }
        self
    }

    /// Nobody knows what bound it until `now`.
    pub(super) fn begin_unseen(&mut self, now: Instant) {
        if self.wait.began < now {
            self.bound = Some(Bound { since: self.wait.began, limit: Limit::BeforeTheTrace, seen_at: now });
        }
    }

    /// Looks what binds it since `now`, or bound it already. `holder` says who uses a connection.
    pub(super) fn look<C>(&mut self, machine: &Topology<C>, now: Instant, holder: &dyn Fn(&InUse) -> Option<u32>) {
        self.looked_at = now;
        let Some(binding) = machine.binding(self.check_out) else { return };
        let limit = limit(machine, now, binding, holder);
        if self.bound.as_ref().is_some_and(|bound| !bound.limit.is_same(&limit)) {
            self.close_interval(now);
        }
        let (since, limit) = match self.bound.take() {
            Some(before) => (before.since, limit.continued(before.limit, now.saturating_since(before.seen_at))),
            None => (self.explained_until(), limit),
        };
        self.bound = Some(Bound { since, limit, seen_at: now });
    }

    /// Ends it. What is left of it, whose result lay in the queue of outputs, was its turn.
    pub(super) fn end(&mut self, now: Instant, end: WaitEnd) {
        (self.wait.ended, self.wait.end) = (now, end);
        self.close_interval(now);
        self.close_with(now, Limit::Turn);
    }

    /// Ends it so soon that nobody cares what bound it.
    pub(super) fn end_unexplained(&mut self, now: Instant, end: WaitEnd) {
        (self.wait.ended, self.wait.end, self.bound) = (now, end, None);
        self.wait.intervals.clear();
    }

    /// Stops following it. Its last interval, which may have no length yet, lasts until nobody knows when.
    pub(super) fn leave_open(&mut self, now: Instant) {
        self.wait.ended = now;
        if let Some(Bound { since, limit, seen_at }) = self.bound.take() {
            let limit = limit.aged(now.saturating_since(seen_at)).shortened();
            self.push(Interval { from: since, to: now, limit });
        }
        self.close_with(now, Limit::Turn);
    }

    /// Its task has taken the connection that was delivered before.
    pub(super) fn take(&mut self, when: Instant) {
        if when > self.wait.ended {
            self.close_with(when, Limit::LateWakeUp);
            self.wait.ended = when;
        }
    }

    fn explained_until(&self) -> Instant {
        self.wait.intervals.last().map_or(self.wait.began, |last| last.to)
    }

    fn close_interval(&mut self, now: Instant) {
        if let Some(Bound { since, limit, seen_at }) = self.bound.take()
            && since < now
        {
            let limit = limit.aged(now.saturating_since(seen_at)).shortened();
            self.push(Interval { from: since, to: now, limit });
        }
    }

    fn close_with(&mut self, to: Instant, limit: Limit<u32>) {
        let from = self.explained_until();
        if from < to {
            self.push(Interval { from, to, limit });
        }
    }

    /// Adds an interval, or joins it to the last one if both are of the same limit.
    fn push(&mut self, interval: Interval<u32>) {
        match self.wait.intervals.last_mut() {
            Some(last) if last.limit.is_same(&interval.limit) => {
                last.to = interval.to;
                last.limit = interval.limit.after(&last.limit);
            }
            _ => self.wait.intervals.push(interval),
        }
    }
}

fn limit<C>(
    machine: &Topology<C>,
    now: Instant,
    binding: Binding,
    holder: &dyn Fn(&InUse) -> Option<u32>,
) -> Limit<u32> {
    match binding {
        Binding::Server => Limit::Selection { servers: servers(machine) },
        Binding::Paused { server, since, cause } => {
            Limit::Paused { server: address(machine, server), since, cause: cause.to_string() }
        }
        Binding::Pool { server, bound } => match bound {
            WaitBound::MaxPoolSize { .. } => uses(machine, now, server, holder),
            WaitBound::Establishment(own) => Limit::Establishment(own.into()),
            WaitBound::MaxConnecting { establishing, longest } => {
                Limit::MaxConnecting { establishing, longest: longest.into() }
            }
            WaitBound::Backoff => Limit::Backoff,
            WaitBound::CreationRate => Limit::CreationRate,
            WaitBound::MaxConnections => Limit::MaxConnections,
            WaitBound::NoTime | WaitBound::Turn => Limit::Turn,
            WaitBound::Affinity { .. } => Limit::Affinity,
        },
    }
}

/// Who uses the connections of a server.
fn uses<C>(
    machine: &Topology<C>,
    now: Instant,
    server: ServerId,
    holder: &dyn Fn(&InUse) -> Option<u32>,
) -> Limit<u32> {
    let pools = machine.pools().filter(|(id, _)| machine.member_of(*id) == server);
    let held = pools.flat_map(|(_, pool)| pool.connections_in_use());
    let uses = held.map(|held| Use {
        connection: held.connection.id().get(),
        holder: holder(&held),
        since: held.since,
        held_for: now.saturating_since(held.since),
        has_ended: false,
    });
    let uses: Vec<Use<u32>> = uses.collect();
    Limit::MaxPoolSize { in_use: uses.len(), uses, ended: 0 }
}

/// The address of a server.
pub(super) fn address<C>(machine: &Topology<C>, server: ServerId) -> String {
    machine.server(server).map_or_else(String::new, |server| server.description().address.to_string())
}

/// What is known of each server.
fn servers<C>(machine: &Topology<C>) -> Vec<String> {
    let told = |server: &alloc::sync::Arc<crate::monitor::ServerDescription>| match &server.error {
        Some(error) => alloc::format!("{}: {:?}, {error}", server.address, server.server_type),
        None => alloc::format!("{}: {:?}", server.address, server.server_type),
    };
    machine.description().servers.iter().map(told).collect()
}

impl From<Establishing> for Establishment {
    fn from(establishing: Establishing) -> Self {
        let Establishing { connection, elapsed, phase } = establishing;
        Self { connection: connection.get(), elapsed, phase }
    }
}
