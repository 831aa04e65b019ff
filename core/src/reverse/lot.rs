//! An application's parked sockets: whose they are, which one is taken next, and who is turned away before it is parked.
//!
//! Strangers cost little: so many sockets may be on their way to being parked, from one address a few of them fail in a minute, and no
//! member has more than its share.

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

/// The most addresses whose failures are remembered. Beyond that, the oldest entries are forgotten first.
const ADDRESSES: usize = 4096;

/// The most members that are remembered. Beyond that, one without parked sockets is forgotten for a new one.
const MEMBERS: usize = 1024;

/// What an application takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LotOptions {
    /// The most sockets that are accepted and not parked yet; half of them from one address. Default 256.
    pub max_greeting: u32,
    /// The most sockets that are parked for one member. Default 256.
    pub max_parked: u16,
    /// The most sockets that are parked. Default 4,096.
    pub max_parked_in_all: u32,
    /// How many sockets from one address may end in a minute without having been parked, whichever side ended them. Health checks that
    /// connect count, too. Default 20.
    pub max_failures: u32,
}

impl Default for LotOptions {
    fn default() -> Self {
        Self { max_greeting: 256, max_parked: 256, max_parked_in_all: 4096, max_failures: 20 }
    }
}

/// A socket, by a number of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u64);

/// The parked sockets of an application.
#[derive(Clone, Debug, Default)]
pub struct Lot {
    options: LotOptions,
    now: Instant,
    /// Sockets that are accepted and not parked yet, by their address; none has zero.
    greeting: BTreeMap<IpAddr, u32>,
    members: BTreeMap<ServerAddress, Member>,
    failures: BTreeMap<IpAddr, Failures>,
    /// Their addresses, the one first whose minute ends first.
    failed: VecDeque<IpAddr>,
}

/// Those of one member.
#[derive(Clone, Debug)]
struct Member {
    boot: BootId,
    /// In the order in which they were parked.
    parked: Vec<SocketId>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    number: u32,
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
        "{number} sockets from {address} have failed within a minute; look for a wrong token or a wrong name of a member there"
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
    /// The peer did not speak the protocol, proved nothing, or hung up.
    Failed,
    /// It was closed for a reason that speaks against nobody.
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

impl Lot {
    /// Nothing is parked.
    pub fn new(options: LotOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// A socket was accepted. It is on its way until it is [parked](Self::park) or [not](Self::end_greeting).
    ///
    /// # Errors
    /// It is to be closed.
    pub fn accept(&mut self, now: Instant, address: IpAddr) -> Result<(), TurnedAway> {
        self.advance(now);
        if let Some(failures) =
            self.failures.get(&address).filter(|failures| failures.number >= self.options.max_failures)
        {
            return Err(TurnedAway::TooManyFailures { address, number: failures.number });
        }
        let greeting = self.greeting();
        if greeting >= self.options.max_greeting {
            return Err(TurnedAway::TooManyGreeting(greeting));
        }
        let from = self.greeting.get(&address).copied().unwrap_or_default();
        if from >= self.options.max_greeting.div_ceil(2) {
            return Err(TurnedAway::TooManyGreetingFrom { address, number: from });
        }
        self.greeting.insert(address, from + 1);
        Ok(())
    }

    /// A socket that was accepted will not be parked.
    pub fn end_greeting(&mut self, now: Instant, address: IpAddr, ended: NotParked) {
        self.advance(now);
        self.leave_greeting(address);
        if ended == NotParked::Left {
            return;
        }
        let until = self.now + MINUTE;
        if let Some(failures) = self.failures.get_mut(&address) {
            failures.number = failures.number.saturating_add(1);
            return;
        }
        if self.failed.len() >= ADDRESSES {
            self.forget_first();
        }
        self.failed.push_back(address);
        self.failures.insert(address, Failures { number: 1, until });
    }

    /// A socket of this address is on its way no longer.
    fn leave_greeting(&mut self, address: IpAddr) {
        if let Some(others) = self.greeting.remove(&address).filter(|number| *number > 1) {
            self.greeting.insert(address, others - 1);
        }
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.failed.pop_front() {
            self.failures.remove(&first);
        }
    }

    /// Parks a socket that was accepted, and whose agent has proven that it speaks for the member. Returns those of an earlier run of
    /// the agent, which are parked no longer: close them.
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
        if !self.members.contains_key(&member) && !self.has_room_for_a_member() {
            return Err(Refusal::Full);
        }
        let in_all: usize = self.members().map(|(_, parked)| parked).sum();
        let own = self.members.entry(member).or_insert(Member { boot, parked: Vec::new() });
        if boot < own.boot {
            return Err(Refusal::Superseded);
        }
        let earlier = if boot > own.boot { core::mem::take(&mut own.parked) } else { Vec::new() };
        let others = u32::try_from(in_all.saturating_sub(earlier.len())).unwrap_or(u32::MAX);
        if own.parked.len() >= usize::from(self.options.max_parked) || others >= self.options.max_parked_in_all {
            return Err(Refusal::Full);
        }
        own.boot = boot;
        own.parked.push(socket);
        self.leave_greeting(address);
        Ok(earlier)
    }

    /// Whether one more can be remembered; for that, one without parked sockets is forgotten, and with it its latest run.
    fn has_room_for_a_member(&mut self) -> bool {
        if self.members.len() < MEMBERS {
            return true;
        }
        let empty = self.members.iter().find(|(_, own)| own.parked.is_empty()).map(|(member, _)| member.clone());
        empty.is_some_and(|member| self.members.remove(&member).is_some())
    }

    /// Takes the socket of a member that was parked last: what was heard of it is newest. `waiting` check-outs want one, this one among
    /// them.
    pub fn take(&mut self, member: &ServerAddress, waiting: u16) -> Option<Taken> {
        let own = self.members.get_mut(member)?;
        let socket = own.parked.pop()?;
        // Each that is started is replaced without being asked for.
        let served = u16::try_from(own.parked.len()).unwrap_or(u16::MAX).saturating_add(2);
        Some(Taken { socket, demand: waiting.saturating_sub(served) })
    }

    /// A parked socket has ended. Returns whether it was parked.
    pub fn remove(&mut self, member: &ServerAddress, socket: SocketId) -> bool {
        let Some(own) = self.members.get_mut(member) else { return false };
        let place = own.parked.iter().position(|parked| *parked == socket);
        place.is_some_and(|place| {
            own.parked.remove(place);
            true
        })
    }

    /// The members that agents have spoken for, and how many sockets are parked for each.
    pub fn members(&self) -> impl Iterator<Item = (&ServerAddress, usize)> {
        self.members.iter().map(|(member, own)| (member, own.parked.len()))
    }

    /// Sockets that are accepted and not parked yet.
    pub fn greeting(&self) -> u32 {
        self.greeting.values().sum()
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
