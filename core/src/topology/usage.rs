//! How many connections the pools have together that share limits: those of each server, and of the client.
//!
//! The numbers follow the calls: after one, only the pool that was called is looked at. All of them are counted when a pool
//! comes or goes, and after a topology was restored.

use alloc::vec::Vec;
use core::{fmt, mem};

use super::servers::Servers;
use crate::pool::{Counts, NextPermit};
use crate::server::ServerId;

/// The connections of several pools, and who waits there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) total: u32,
    /// Those that are being established.
    pub(super) pending: u32,
    /// The check-outs that wait.
    pub(super) waiting: u32,
}

/// The connections of all pools that share limits.
#[derive(Clone, Default)]
pub(super) struct Usage {
    is_counted: bool,
    /// What each pool had after its last call, in its slot.
    of_pools: Vec<OfPool>,
    /// What the pools of each server have, in its slot.
    of_servers: Vec<OfServer>,
    of_client: u32,
    /// The check-outs that wait in all pools.
    waiting: u32,
    /// The pools that were called since all pools learned what is left.
    called: Vec<ServerId>,
    /// What they know of the client.
    told: Option<Outlook>,
}

/// What pools learn after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outlook {
    /// When there may be another connection.
    pub(super) next: NextPermit,
    /// Whether one that comes back may be given up.
    pub(super) is_sought: bool,
}

#[derive(Clone, Copy, Default)]
struct OfPool {
    used: Used,
    /// The slot of its server, unless that is forgotten: then it shares limits with no other pool.
    server: Option<u32>,
}

#[derive(Clone, Copy, Default)]
struct OfServer {
    used: Used,
    /// What its pools know.
    told: Option<Outlook>,
}

impl From<Counts> for Used {
    fn from(counts: Counts) -> Self {
        Self { total: counts.total(), pending: counts.pending, waiting: counts.waiting }
    }
}

impl Used {
    /// The sum after its part `before` has become `now`.
    fn with(self, before: Self, now: Self) -> Self {
        let number = |all: u32, before: u32, now: u32| all.saturating_sub(before).saturating_add(now);
        Self {
            total: number(self.total, before.total, now.total),
            pending: number(self.pending, before.pending, now.pending),
            waiting: number(self.waiting, before.waiting, now.waiting),
        }
    }
}

impl Usage {
    /// Counts all pools, unless that was done.
    ///
    /// Returns whether it was not.
    pub(super) fn count<C>(&mut self, servers: &Servers<C>) -> bool {
        if self.is_counted {
            return false;
        }
        let slots = servers.slots() as usize;
        (self.of_client, self.waiting, self.told) = (0, 0, None);
        self.of_pools.clear();
        self.of_pools.resize(slots, OfPool::default());
        self.of_servers.clear();
        self.of_servers.resize(slots, OfServer::default());
        self.called.clear();
        for (id, server) in servers.iter() {
            let (used, member) = (Used::from(server.pool.counts()), server.member(id));
            let server = servers.get(member).map(|_| member.slot());
            if let Some(pool) = self.of_pools.get_mut(id.slot() as usize) {
                *pool = OfPool { server, ..OfPool::default() };
            }
            self.change(id, used);
            self.called.push(id);
        }
        self.is_counted = true;
        true
    }

    /// A pool comes or goes: all are counted before the next question.
    pub(super) fn forget(&mut self) {
        self.is_counted = false;
    }

    /// A pool was called, and has so many connections and waiters now.
    pub(super) fn note(&mut self, pool: ServerId, counts: Counts) {
        if self.is_counted {
            self.change(pool, counts.into());
            if !self.called.contains(&pool) {
                self.called.push(pool);
            }
        }
    }

    fn change(&mut self, pool: ServerId, used: Used) {
        let Some(of_pool) = self.of_pools.get_mut(pool.slot() as usize) else { return };
        let before = mem::replace(of_pool, OfPool { used, ..*of_pool });
        self.waiting = self.waiting.saturating_sub(before.used.waiting).saturating_add(used.waiting);
        if used != before.used {
            self.of_client = self.of_client.saturating_sub(before.used.total).saturating_add(used.total);
            let of_server = before.server.and_then(|server| self.of_servers.get_mut(server as usize));
            of_server.into_iter().for_each(|server| server.used = server.used.with(before.used, used));
        }
    }

    /// Whether it is what a count says.
    pub(super) fn is_right<C>(&self, servers: &Servers<C>) -> bool {
        let mut counted = Self::default();
        counted.count(servers);
        let of_servers = |usage: &Self| usage.of_servers.iter().map(|server| server.used).collect::<Vec<_>>();
        (self.of_client, self.waiting, of_servers(self)) == (counted.of_client, counted.waiting, of_servers(&counted))
    }

    /// The connections of a server's pools.
    pub(super) fn of_server(&self, server: ServerId) -> Used {
        self.of_servers.get(server.slot() as usize).map(|of_server| of_server.used).unwrap_or_default()
    }

    /// The connections of all pools.
    pub(super) fn of_client(&self) -> u32 {
        self.of_client
    }

    /// The slots of the pools in which check-outs wait.
    pub(super) fn slots_with_waiters(&self) -> impl Iterator<Item = u32> {
        let of_pools = if self.waiting == 0 { &[] } else { self.of_pools.as_slice() };
        (0..).zip(of_pools).filter(|(_, pool)| pool.used.waiting > 0).map(|(slot, _)| slot)
    }

    /// The pool that was called as the nth since all learned what is left.
    pub(super) fn called(&self, nth: usize) -> Option<ServerId> {
        self.called.get(nth).copied()
    }

    /// The pools learn this of the client. Whether that is news.
    pub(super) fn tell(&mut self, outlook: Outlook) -> bool {
        self.told.replace(outlook) != Some(outlook)
    }

    /// The pools of a server learn this of it and of the client. Whether that is news.
    pub(super) fn tell_of_server(&mut self, server: ServerId, outlook: Outlook) -> bool {
        let of_server = self.of_servers.get_mut(server.slot() as usize);
        of_server.is_some_and(|of_server| of_server.told.replace(outlook) != Some(outlook))
    }

    /// All pools know what is left.
    pub(super) fn all_told(&mut self) {
        self.called.clear();
    }
}

impl fmt::Debug for Usage {
    /// What was counted makes no difference between topologies.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Usage")
    }
}
