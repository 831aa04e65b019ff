//! The sockets between one member and one application, without I/O: how many there are, how many there are to be, when to dial,
//! and which of them leave.
//!
//! It keeps as many parked as the application wants, and, while somebody waits there, as many more as it demands. One
//! that is started, lost or old is replaced. After a failure there are pauses, and one attempt at a time. One that has been
//! parked for too long leaves when its successor is parked; those that were demanded and not used leave after a minute.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use cmap_core::random::Random;
use cmap_core::time::Instant;

use crate::backoff::Backoff;
use crate::settings::Limits;

/// The most sockets that are dialled at a time: a burst beyond that would only wait at the application.
const DIALLED_TOGETHER: usize = 16;

/// How long a demand counts that could not be met: the waiters for a connection have given up by then.
const DEMAND_LASTS: Duration = Duration::from_secs(10);

/// How long a socket stays that was demanded and is not needed.
const SURPLUS_LASTS: Duration = Duration::from_secs(60);

/// A socket that is lost sooner, after it was parked or after it was started, counts as an attempt that has failed.
const PROVEN_AFTER: Duration = Duration::from_secs(5);

/// A socket of a stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SocketId(pub(crate) u64);

/// The sockets between one member and one application.
#[derive(Clone, Debug)]
pub(crate) struct Tunnels {
    max_sockets: usize,
    max_parked_time: Option<Duration>,
    random: Random,
    backoff: Backoff,
    now: Instant,
    next: u64,
    wanted: usize,
    demanded: usize,
    demanded_until: Instant,
    dialling: BTreeSet<SocketId>,
    parked: BTreeMap<SocketId, Parked>,
    /// And when each was started.
    in_use: BTreeMap<SocketId, Instant>,
    leaving: BTreeSet<SocketId>,
    is_over: bool,
    outputs: VecDeque<TunnelOutput>,
}

#[derive(Clone, Copy, Debug)]
struct Parked {
    since: Instant,
    /// When another one is to take its place.
    old_at: Option<Instant>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TunnelOutput {
    /// Dial the application, for a socket of this number.
    Dial(SocketId),
    /// Let the socket say that it goes away.
    Leave(SocketId),
}

/// How a socket ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketEnd {
    /// It is over, as it had to come.
    Over,
    /// The application could not be reached, or does not hold to the protocol, or the socket was lost; or it was started and given up
    /// before the member had answered.
    Failed,
    /// The application does not want it.
    Refused {
        /// When it may be asked again.
        retry_after: Duration,
    },
}

/// How many sockets there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketCounts {
    /// On their way to being parked.
    pub dialling: usize,
    /// Parked.
    pub parked: usize,
    /// Started: connections, or about to be.
    pub in_use: usize,
    /// Told to end.
    pub leaving: usize,
}

impl Tunnels {
    pub(crate) fn new(limits: &Limits, seed: u64, now: Instant) -> Self {
        let mut random = Random::new(seed);
        let mut tunnels = Self {
            max_sockets: usize::try_from(limits.max_sockets).unwrap_or(usize::MAX),
            max_parked_time: limits.max_parked_time,
            backoff: Backoff::new(Random::new(random.next_u64()), limits.max_reconnect_delay),
            random,
            now,
            next: 1,
            // The answer to the first one says how many.
            wanted: 1,
            demanded: 0,
            demanded_until: now,
            dialling: BTreeSet::new(),
            parked: BTreeMap::new(),
            in_use: BTreeMap::new(),
            leaving: BTreeSet::new(),
            is_over: false,
            outputs: VecDeque::new(),
        };
        tunnels.settle();
        tunnels
    }

    /// A socket is parked, where the application wants so many.
    pub(crate) fn handle_parked(&mut self, now: Instant, socket: SocketId, wanted: u16) {
        self.advance(now);
        if self.dialling.remove(&socket) {
            // Without a single one the application could not ask for more.
            self.wanted = usize::from(wanted).max(1);
            self.demanded = self.demanded.saturating_sub(1);
            let old_at = self.max_parked_time.map(|most| {
                let spread = Duration::from_nanos(self.random.up_to(u64::try_from(most.as_nanos() / 10).unwrap_or(0)));
                self.now + most.saturating_sub(spread)
            });
            self.parked.insert(socket, Parked { since: self.now, old_at });
        }
        self.settle();
    }

    /// The application wants so many more. A demand takes the place of an earlier one, which is being met.
    pub(crate) fn handle_demand(&mut self, now: Instant, number: u16) {
        self.advance(now);
        self.demanded = self.demanded.max(usize::from(number));
        self.demanded_until = self.now + DEMAND_LASTS;
        self.settle();
    }

    /// The application has started a socket.
    pub(crate) fn handle_start(&mut self, now: Instant, socket: SocketId) {
        self.advance(now);
        // One that was just told to leave may have been started before it could say so.
        let parked = self.parked.remove(&socket);
        if parked.is_some() | self.leaving.remove(&socket) {
            self.in_use.insert(socket, self.now);
        }
        if let Some(Parked { since, .. }) = parked.filter(|parked| parked.since + PROVEN_AFTER <= self.now) {
            self.backoff.prove(since);
        }
        self.settle();
    }

    /// A socket has ended.
    pub(crate) fn handle_end(&mut self, now: Instant, socket: SocketId, end: SocketEnd) {
        self.advance(now);
        self.dialling.remove(&socket);
        let was_leaving = self.leaving.remove(&socket);
        let parked_at = self.parked.remove(&socket).map(|parked| parked.since);
        let held_since = self.in_use.remove(&socket).or(parked_at);
        if let Some(since) = parked_at.filter(|since| *since + PROVEN_AFTER <= self.now) {
            self.backoff.prove(since);
        }
        match end {
            SocketEnd::Refused { retry_after } => self.backoff.refuse(self.now, retry_after),
            _ if was_leaving => {}
            _ if held_since.is_some_and(|since| since + PROVEN_AFTER <= self.now) => {}
            SocketEnd::Failed => self.backoff.fail(self.now),
            SocketEnd::Over => {}
        }
        self.settle();
    }

    /// Time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        self.settle();
    }

    /// Those that are in use stay; the others leave, and none is dialled any more.
    pub(crate) fn leave(&mut self, now: Instant) {
        self.advance(now);
        self.is_over = true;
        for socket in self.dialling.iter().chain(self.parked.keys()).copied().collect::<Vec<_>>() {
            self.tell_to_leave(socket);
        }
    }

    /// What is to be done next.
    pub(crate) fn poll_output(&mut self) -> Option<TunnelOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); always later than now, once all outputs are carried out.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.is_over {
            return None;
        }
        let after_pause = (self.missing() > 0 && self.has_room()).then_some(self.backoff.until());
        let old = self.parked.values().filter_map(|parked| parked.old_at).filter(|at| *at > self.now).min();
        let mut since: Vec<_> = self.parked.values().map(|parked| parked.since).collect();
        since.sort_unstable();
        let surplus = since.get(self.wanted).map(|since| *since + SURPLUS_LASTS);
        [after_pause, old, surplus].into_iter().flatten().filter(|at| *at > self.now).min()
    }

    pub(crate) fn counts(&self) -> SocketCounts {
        SocketCounts {
            dialling: self.dialling.len(),
            parked: self.parked.len(),
            in_use: self.in_use.len(),
            leaving: self.leaving.len(),
        }
    }

    /// Whether more are wanted than the limit allows.
    pub(crate) fn is_at_its_limit(&self) -> bool {
        let (has, wants) = (self.dialling.len() + self.parked.len(), self.wanted + self.demanded);
        has < wants && self.total() >= self.max_sockets
    }

    /// Whether it has to leave, and no socket is left.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_over && self.total() == 0
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.demanded_until <= self.now {
            self.demanded = 0;
        }
    }

    fn settle(&mut self) {
        if self.is_over {
            return;
        }
        let proven = self.parked.values().map(|parked| parked.since).filter(|since| *since + PROVEN_AFTER <= self.now);
        if let Some(latest) = proven.max() {
            self.backoff.prove(latest);
        }
        self.retire();
        while self.missing() > 0 && self.has_room() && self.backoff.until() <= self.now {
            let socket = SocketId(self.next);
            self.next += 1;
            self.dialling.insert(socket);
            self.outputs.push_back(TunnelOutput::Dial(socket));
        }
    }

    /// Old ones leave that have successors, and those that are too many for too long.
    fn retire(&mut self) {
        let is_full = self.total() >= self.max_sockets && self.dialling.is_empty() && self.leaving.is_empty();
        let old: Vec<_> = self.parked.iter().filter(|(_, parked)| self.is_old(parked)).map(|(id, _)| *id).collect();
        // Where the limit leaves no room for a successor, one goes before it comes.
        let with_successor = self.parked.len().saturating_sub(self.wanted).max(usize::from(is_full));
        for socket in old.into_iter().take(with_successor) {
            self.tell_to_leave(socket);
        }
        let lasting = self.parked.iter().filter(|(_, parked)| parked.since + SURPLUS_LASTS <= self.now);
        let lasting: Vec<_> = lasting.map(|(socket, _)| *socket).collect();
        let surplus = lasting.len().saturating_sub(self.wanted);
        for socket in lasting.into_iter().take(surplus) {
            self.tell_to_leave(socket);
        }
    }

    fn tell_to_leave(&mut self, socket: SocketId) {
        self.dialling.remove(&socket);
        self.parked.remove(&socket);
        self.leaving.insert(socket);
        self.outputs.push_back(TunnelOutput::Leave(socket));
    }

    /// How many more have to be dialled. Old ones do not count, so that each has a successor.
    fn missing(&self) -> usize {
        let young = self.parked.values().filter(|parked| !self.is_old(parked)).count();
        (self.wanted + self.demanded).saturating_sub(self.dialling.len() + young)
    }

    fn is_old(&self, parked: &Parked) -> bool {
        parked.old_at.is_some_and(|at| at <= self.now)
    }

    /// Whether one more may be dialled.
    fn has_room(&self) -> bool {
        let together = if self.backoff.is_on() { 1 } else { DIALLED_TOGETHER };
        self.dialling.len() < together && self.total() < self.max_sockets
    }

    fn total(&self) -> usize {
        self.dialling.len() + self.parked.len() + self.in_use.len() + self.leaving.len()
    }
}

#[cfg(test)]
mod tests;
