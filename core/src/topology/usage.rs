//! How many connections the pools have together that share limits: those of each server, and of the client.
//!
//! The numbers follow the calls: after one, only the pool that was called is looked at. All of them are counted when a pool
//! comes or goes, and after a topology was restored.

use alloc::vec::Vec;
use core::{fmt, mem};

use super::servers::Servers;
use crate::pool::{Counts, NextPermit};
use crate::server::ServerId;

/// The connections of all pools that share limits.
#[derive(Clone, Default)]
pub(super) struct Usage {
    is_counted: bool,
    /// What each pool had after its last call, in its slot.
    of_pools: Vec<OfPool>,
    /// What the pools of each server have, in its slot.
    of_servers: Vec<OfServer>,
    of_client: Counts,
    /// The pools that were called since all pools learned what is left.
    pub(super) called: Vec<ServerId>,
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
    used: Counts,
    /// The slot of its server, unless that is forgotten: then it shares limits with no other pool.
    server: Option<u32>,
}

#[derive(Clone, Copy, Default)]
struct OfServer {
    used: Counts,
    /// What its pools know.
    told: Option<Outlook>,
}

/// A sum after its part `before` has become `now`.
fn changed(sum: Counts, before: Counts, now: Counts) -> Counts {
    sum.with(before, u32::saturating_sub).with(now, u32::saturating_add)
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
        *self = Self { is_counted: true, ..Self::default() };
        self.of_pools.resize(slots, OfPool::default());
        self.of_servers.resize(slots, OfServer::default());
        for (id, server) in servers.iter() {
            let (used, member) = (server.pool.counts(), server.member(id));
            let server = servers.get(member).map(|_| member.slot());
            if let Some(pool) = self.of_pools.get_mut(id.slot() as usize) {
                *pool = OfPool { server, ..OfPool::default() };
            }
            self.change(id, used);
            self.called.push(id);
        }
        true
    }

    /// A pool comes or goes: all are counted before the next question.
    pub(super) fn forget(&mut self) {
        self.is_counted = false;
    }

    /// A pool was called, and has so many connections and waiters now.
    pub(super) fn note(&mut self, pool: ServerId, counts: Counts) {
        if self.is_counted {
            self.change(pool, counts);
            if !self.called.contains(&pool) {
                self.called.push(pool);
            }
        }
    }

    fn change(&mut self, pool: ServerId, used: Counts) {
        let Some(of_pool) = self.of_pools.get_mut(pool.slot() as usize) else { return };
        let before = mem::replace(of_pool, OfPool { used, ..*of_pool });
        self.of_client = changed(self.of_client, before.used, used);
        if let Some(server) = before.server.and_then(|server| self.of_servers.get_mut(server as usize)) {
            server.used = changed(server.used, before.used, used);
        }
    }

    /// Whether it is what a count says.
    pub(super) fn is_right<C>(&self, servers: &Servers<C>) -> bool {
        let mut counted = Self::default();
        counted.count(servers);
        // A connection may have become available, or not be so any more, without a note.
        let parts = |counts: Counts| (counts.total(), counts.pending, counts.waiting);
        let all = |usage: &Self| -> Vec<_> {
            let of_servers = usage.of_servers.iter().map(|server| server.used);
            of_servers.chain([usage.of_client]).map(parts).collect()
        };
        all(self) == all(&counted)
    }

    /// The connections of a server's pools.
    pub(super) fn of_server(&self, server: ServerId) -> Counts {
        self.of_servers.get(server.slot() as usize).map(|of_server| of_server.used).unwrap_or_default()
    }

    /// The connections of all pools.
    pub(super) fn of_client(&self) -> u32 {
        self.of_client.total()
    }

    /// The slots of the pools in which check-outs wait.
    pub(super) fn slots_with_waiters(&self) -> impl Iterator<Item = u32> {
        let of_pools = if self.of_client.waiting == 0 { &[] } else { self.of_pools.as_slice() };
        (0..).zip(of_pools).filter(|(_, pool)| pool.used.waiting > 0).map(|(slot, _)| slot)
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
}

impl fmt::Debug for Usage {
    /// What was counted makes no difference between topologies.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Usage")
    }
}
