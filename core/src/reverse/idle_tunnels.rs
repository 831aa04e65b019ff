//! An application's parked sockets: whose they are, which one is taken next, and who is turned away before it is parked.
//!
//! Strangers cost little: so many sockets may be on their way to being parked, from one address a few of them fail in a minute, and no
//! member has more than its share. A member that a client asks for has room for the sockets that its agent is to have parked, however
//! many others there are: if all places are taken, it gets that of another.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use thiserror::Error;

use super::message::{BootId, Refusal};
use crate::address::ServerAddress;
use crate::time::Instant;

/// The time in which failures from one address are counted.
const MINUTE: Duration = Duration::from_secs(60);

/// The most addresses whose failures are remembered, and the most that are known for their agents. Beyond that, the oldest entries are
/// forgotten first.
const ADDRESSES: usize = 4096;

/// What a socket that was refused costs its address, and one that ended before its HELLO: a health check, or a look at the port.
const COST_OF_REFUSED: u32 = 10;
const COST_OF_UNHEARD: u32 = 1;

/// How long an address is known from which an agent has parked a socket. An agent parks anew more often.
const KNOWN_LASTS: Duration = Duration::from_secs(24 * 60 * 60);

/// The most members that are remembered, and the most that clients ask for. Beyond that, one without parked sockets is forgotten for a new
/// one, and the one that was asked for longest ago.
const MEMBERS: usize = 1024;

/// How long the run of an agent is remembered that has nothing parked.
const RUN_LASTS: Duration = Duration::from_secs(60);

/// What an application takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdleTunnelOptions {
    /// The most sockets that are accepted and not parked yet; half of them from one address. Beyond that half a new one is closed or,
    /// where an agent has parked from that address within a day, the oldest. Default 256.
    pub max_greeting: u32,
    /// The most sockets that are parked for one member. Default 256.
    pub max_parked: u16,
    /// The most sockets that are parked. Default 4,096.
    pub max_parked_in_all: u32,
    /// How many sockets from one address may be refused in a minute, after a HELLO. One that ends before its HELLO, such as that of a
    /// health check, counts a tenth, and nothing where an agent has parked from that address within a day. Default 20.
    pub max_failures: u32,
}

impl Default for IdleTunnelOptions {
    fn default() -> Self {
        Self { max_greeting: 256, max_parked: 256, max_parked_in_all: 4096, max_failures: 20 }
    }
}

/// A socket, by a number of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u64);

/// The parked sockets of an application.
#[derive(Clone, Debug, Default)]
pub struct IdleTunnels {
    options: IdleTunnelOptions,
    /// How many sockets there is room for of each member that a client asks for.
    reserved: usize,
    now: Instant,
    /// Sockets that are accepted and not parked yet, by their address, in the order in which they were accepted; no list is empty.
    greeting: BTreeMap<IpAddr, VecDeque<SocketId>>,
    members: BTreeMap<ServerAddress, Member>,
    /// The members that clients ask for, and when they last did.
    asked_for: BTreeMap<ServerAddress, Instant>,
    failures: BTreeMap<IpAddr, Failures>,
    /// Their addresses, the one first whose minute ends first.
    failed: VecDeque<IpAddr>,
    /// The addresses from which agents have parked sockets, and when they last did.
    known: BTreeMap<IpAddr, Instant>,
}

/// Those of one member.
#[derive(Clone, Debug)]
struct Member {
    boot: BootId,
    /// In the order in which they were parked.
    parked: Vec<SocketId>,
    /// When the last of them was taken, or ended.
    empty_since: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    number: u32,
    /// What they cost together.
    cost: u32,
    /// When they are forgotten.
    until: Instant,
}

/// Why a socket is closed as soon as it is accepted, before its TLS handshake.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TurnedAway {
    /// Too many are on their way.
    #[error("{0} sockets are not parked yet, as many as are allowed; look for clients that connect and say nothing")]
    TooManyGreeting(u32),
    /// Too many from this address are on their way.
    #[error(
        "{number} sockets from {address} are not parked yet, as many as are allowed; look for a client there that says nothing"
    )]
    TooManyGreetingFrom {
        /// The address.
        address: IpAddr,
        /// How many.
        number: u32,
    },
    /// Too many of this address have failed.
    #[error(
        "{number} sockets from {address} have failed within a minute; look for a wrong token or a wrong name of a member there, or for \
         a client that connects and hangs up"
    )]
    TooManyFailures {
        /// The address.
        address: IpAddr,
        /// How many.
        number: u32,
    },
}

crate::error_text::readable_debug!(TurnedAway);

/// How the greeting of a socket that was not parked ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotParked {
    /// The peer said HELLO, and proved nothing or broke the protocol.
    Refused,
    /// It said no HELLO: it hung up, was silent or did not speak the protocol.
    Unheard,
    /// It was closed for a reason that blames nobody.
    Left,
}

/// A socket that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The socket: start it.
    pub socket: SocketId,
    /// How many more sockets to demand by it, before that: those who wait find none.
    pub demand: u16,
}

impl IdleTunnels {
    /// Nothing is parked. Each agent is to have `wanted` sockets parked for each of its members.
    pub fn new(options: IdleTunnelOptions, wanted: u16) -> Self {
        // An agent has at least one, by which it can be asked for more.
        Self { options, reserved: usize::from(wanted.max(1)), ..Self::default() }
    }

    /// A socket was accepted. It is on its way until it is [parked](Self::park) or [not](Self::end_greeting). Returns one that is on
    /// its way no longer: where too many are from the address of an agent, the oldest gives way. Close it.
    ///
    /// # Errors
    /// It is to be closed.
    pub fn accept(&mut self, now: Instant, socket: SocketId, address: IpAddr) -> Result<Option<SocketId>, TurnedAway> {
        self.advance(now);
        if let Some(failures) = self
            .failures
            .get(&address)
            .filter(|failures| failures.cost >= self.options.max_failures.saturating_mul(COST_OF_REFUSED))
        {
            return Err(TurnedAway::TooManyFailures { address, number: failures.number });
        }
        let from = self.greeting.get(&address).map_or(0, count);
        let is_full = from >= self.options.max_greeting.div_ceil(2);
        // An agent greets at once, so those that say nothing are the oldest.
        if is_full
            && self.is_known(address)
            && let Some(sockets) = self.greeting.get_mut(&address)
            && let Some(oldest) = sockets.pop_front()
        {
            sockets.push_back(socket);
            return Ok(Some(oldest));
        }
        let greeting = self.greeting();
        if greeting >= self.options.max_greeting {
            return Err(TurnedAway::TooManyGreeting(greeting));
        }
        if is_full {
            return Err(TurnedAway::TooManyGreetingFrom { address, number: from });
        }
        self.greeting.entry(address).or_default().push_back(socket);
        Ok(None)
    }

    /// A socket that was accepted will not be parked.
    pub fn end_greeting(&mut self, now: Instant, socket: SocketId, address: IpAddr, ended: NotParked) {
        self.advance(now);
        self.leave_greeting(socket, address);
        let cost = match ended {
            NotParked::Refused => COST_OF_REFUSED,
            // Who shares the address of an agent cannot keep it out.
            NotParked::Unheard if self.is_known(address) => return,
            NotParked::Unheard => COST_OF_UNHEARD,
            NotParked::Left => return,
        };
        let until = self.now + MINUTE;
        if let Some(failures) = self.failures.get_mut(&address) {
            failures.number = failures.number.saturating_add(1);
            failures.cost = failures.cost.saturating_add(cost);
            return;
        }
        if self.failed.len() >= ADDRESSES {
            self.forget_first();
        }
        self.failed.push_back(address);
        self.failures.insert(address, Failures { number: 1, cost, until });
    }

    /// A socket of this address is on its way no longer.
    fn leave_greeting(&mut self, socket: SocketId, address: IpAddr) {
        let Some(sockets) = self.greeting.get_mut(&address) else { return };
        sockets.retain(|own| *own != socket);
        if sockets.is_empty() {
            self.greeting.remove(&address);
        }
    }

    fn is_known(&self, address: IpAddr) -> bool {
        self.known.get(&address).is_some_and(|last| *last + KNOWN_LASTS > self.now)
    }

    /// An agent has proven itself from this address.
    fn know(&mut self, address: IpAddr) {
        if self.known.len() >= ADDRESSES && !self.known.contains_key(&address) {
            let first = self.known.iter().min_by_key(|(_, last)| **last).map(|(address, _)| *address);
            first.and_then(|first| self.known.remove(&first));
        }
        self.known.insert(address, self.now);
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.failed.pop_front() {
            self.failures.remove(&first);
        }
    }

    /// Parks a socket that was accepted, and whose agent has proven that it speaks for the member. Returns those that are parked no
    /// longer: of another run of the agent, or of members that have more than their due where this one has less. Close them.
    ///
    /// Of two runs of an agent the later one counts, until it has had nothing parked for a minute: so one that began while its clock was
    /// ahead keeps nobody out once it is gone. That does not weaken the proof, which is good for its own connection alone.
    ///
    /// # Errors
    /// It is to be refused; it is still on its way until [`end_greeting`](Self::end_greeting).
    pub fn park(
        &mut self,
        now: Instant,
        socket: SocketId,
        address: IpAddr,
        member: ServerAddress,
        boot: BootId,
    ) -> Result<Vec<SocketId>, Refusal> {
        self.advance(now);
        let (of_this_run, of_another) = match self.members.get(&member) {
            Some(own) if boot < own.boot && !own.is_forgotten(self.now) => return Err(Refusal::Superseded),
            Some(own) if boot == own.boot => (own.parked.len(), 0),
            Some(own) => (0, own.parked.len()),
            None => (0, 0),
        };
        if of_this_run >= usize::from(self.options.max_parked) {
            return Err(Refusal::Full);
        }
        let is_due = of_this_run < self.reserved && self.asked_for.contains_key(&member);
        let mut leaving = Vec::new();
        if !self.members.contains_key(&member) && self.members.len() >= MEMBERS {
            leaving = self.forget_a_member(is_due).ok_or(Refusal::Full)?;
        }
        let in_all: usize = self.members().map(|(_, parked)| parked).sum();
        if u32::try_from(in_all - of_another).unwrap_or(u32::MAX) >= self.options.max_parked_in_all {
            let other = is_due.then(|| self.take_from_another(&member)).flatten();
            leaving.push(other.ok_or(Refusal::Full)?);
        }
        let own = self.members.entry(member).or_insert(Member { boot, parked: Vec::new(), empty_since: self.now });
        if boot != own.boot {
            own.boot = boot;
            leaving.append(&mut own.parked);
        }
        own.parked.push(socket);
        self.leave_greeting(socket, address);
        if let Some(failures) = self.failures.get_mut(&address) {
            // An agent may come in the end. The entry stays in its place until its minute is over.
            (failures.number, failures.cost) = (0, 0);
        }
        self.know(address);
        Ok(leaving)
    }

    /// Forgets a member without parked sockets, and with it its latest run; or, where a place `is_due`, one that nobody asks for.
    /// Returns the sockets that were parked for it.
    fn forget_a_member(&mut self, is_due: bool) -> Option<Vec<SocketId>> {
        let is_spare = |(member, own): &(&ServerAddress, &Member)| {
            own.parked.is_empty() || (is_due && !self.asked_for.contains_key(*member))
        };
        let spare = self.members.iter().filter(is_spare).min_by_key(|(_, own)| own.parked.len());
        let member = spare.map(|(member, _)| member.clone())?;
        self.members.remove(&member).map(|own| own.parked)
    }

    /// The longest parked socket of the member that has the most beyond its due; of those first that nobody asks for.
    fn take_from_another(&mut self, member: &ServerAddress) -> Option<SocketId> {
        let (asked_for, reserved) = (&self.asked_for, self.reserved);
        let others = self.members.iter_mut().filter(|(other, _)| *other != member);
        let spare = others.filter_map(|(other, own)| {
            let is_asked_for = asked_for.contains_key(other);
            let spare = own.parked.len().saturating_sub(if is_asked_for { reserved } else { 0 });
            (spare > 0).then_some((!is_asked_for, spare, own))
        });
        let (.., own) = spare.max_by_key(|(is_unasked, spare, _)| (*is_unasked, *spare))?;
        own.end(0, self.now)
    }

    /// A client wants to connect to `member`: its agent is let in, however many sockets of others are parked. The members that are
    /// asked for are trusted to be those of the clients' deployments.
    pub fn ask_for(&mut self, now: Instant, member: &ServerAddress) {
        self.advance(now);
        if let Some(last) = self.asked_for.get_mut(member) {
            *last = self.now;
            return;
        }
        if self.asked_for.len() >= MEMBERS {
            let first = self.asked_for.iter().min_by_key(|(_, last)| **last).map(|(member, _)| member.clone());
            first.and_then(|first| self.asked_for.remove(&first));
        }
        self.asked_for.insert(member.clone(), self.now);
    }

    /// Takes the socket of a member that was parked last: what was heard of it is newest. `waiting` check-outs want one, this one among
    /// them.
    pub fn take(&mut self, now: Instant, member: &ServerAddress, waiting: u16) -> Option<Taken> {
        self.advance(now);
        let own = self.members.get_mut(member)?;
        let socket = own.end(own.parked.len().checked_sub(1)?, self.now)?;
        // Each that is started is replaced without being asked for.
        let served = u16::try_from(own.parked.len()).unwrap_or(u16::MAX).saturating_add(2);
        Some(Taken { socket, demand: waiting.saturating_sub(served) })
    }

    /// Removes a socket that has ended. Returns whether it was parked.
    pub fn remove(&mut self, now: Instant, member: &ServerAddress, socket: SocketId) -> bool {
        self.advance(now);
        let Some(own) = self.members.get_mut(member) else { return false };
        let place = own.parked.iter().position(|parked| *parked == socket);
        place.and_then(|place| own.end(place, self.now)).is_some()
    }

    /// The members that agents have spoken for, and how many sockets are parked for each.
    pub fn members(&self) -> impl Iterator<Item = (&ServerAddress, usize)> {
        self.members.iter().map(|(member, own)| (member, own.parked.len()))
    }

    /// Sockets that are accepted and not parked yet.
    pub fn greeting(&self) -> u32 {
        self.greeting.values().map(count).sum()
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while let Some(first) = self.failed.front().and_then(|first| self.failures.get(first))
            && first.until <= self.now
        {
            self.forget_first();
        }
    }
}

fn count(sockets: &VecDeque<SocketId>) -> u32 {
    u32::try_from(sockets.len()).unwrap_or(u32::MAX)
}

impl Member {
    /// The socket at `place` is parked no longer.
    fn end(&mut self, place: usize, now: Instant) -> Option<SocketId> {
        let socket = (place < self.parked.len()).then(|| self.parked.remove(place));
        if self.parked.is_empty() {
            self.empty_since = now;
        }
        socket
    }

    /// Whether its run counts no longer.
    fn is_forgotten(&self, now: Instant) -> bool {
        self.parked.is_empty() && self.empty_since + RUN_LASTS <= now
    }
}
