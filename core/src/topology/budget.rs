//! A limit of the connections that all pools of a client have together: pending, available and in use; the
//! monitors' connections come on top.
//!
//! No pool creates a connection by itself while there is such a limit: it spends a permit, and has none but those
//! that it is lent for one call. After the call, what is free goes to the waiter that has waited longest, whichever server
//! it waits for. If nothing is free, the least recently used available connection of another server is closed for it. If there is none,
//! it waits for the first connection that comes back anywhere:
//!
//! - One that nobody waits for there is closed for it.
//! - One that somebody waits for there stays, unless that waiter came later, and its server has more connections than the
//!   one that has none to spare. So a busy server starves no other, and two busy servers do not change places all the time.
//!
//! The pools of one server share its limits in the same way, where there are several of them.
//!
//! Minimum sizes yield: they are populated with permits that nobody waits for. Where nothing is free, a connection at the end of its
//! life is closed before its replacement is created.

use alloc::vec::Vec;
use core::mem;

use super::Topology;
use super::usage::Outlook;
use crate::pool::{NextPermit, Pool};
use crate::server::{Membership, ServerId};
use crate::time::Instant;

/// A server of which a waiter needs a permit.
struct Neediest {
    server: ServerId,
    /// Since when the waiter waits.
    since: Instant,
    /// Connections that the server has.
    connections: u32,
}

/// The server of the longest waiter that needs a permit; of several that came at once, the one with the fewest connections.
fn neediest(needy: &[Neediest]) -> Option<&Neediest> {
    needy.iter().min_by_key(|neediest| (neediest.since, neediest.connections))
}

impl<C> Topology<C> {
    /// Whether all pools together have a limit.
    #[inline]
    pub(super) fn has_budget(&self) -> bool {
        self.options.max_connections > 0 || self.shares_limits()
    }

    /// Lends a server's pool what is free, for the next call.
    pub(super) fn lend_permits(&mut self, server: ServerId) {
        if self.has_budget() {
            self.count_usage();
            let (free, next) = (self.free_permits(server, 0), self.next_permit(server));
            if let Some(pool) = self.servers.pool_mut(server) {
                pool.lend_permits(free, next);
            }
        }
    }

    /// A pool was called: notes what it has now.
    pub(super) fn note_call(&mut self, id: ServerId) {
        if self.has_budget()
            && let Some(pool) = self.servers.pool_mut(id)
        {
            self.usage.note(id, pool.counts());
            if let Some(admission) = pool.take_admission() {
                self.share_admission(id, &admission);
            }
        }
    }

    /// Knows what all pools have. From the first time on they have nothing but what they are lent.
    pub(super) fn count_usage(&mut self) {
        if self.usage.count(&self.servers) {
            self.servers.iter_mut().for_each(|(_, server)| server.pool.lend_nothing());
        }
    }

    /// Lets a server give up the connection that is about to come back, if a waiter of another one has the better claim.
    pub(super) fn yield_if_due(&mut self, id: ServerId) {
        self.count_usage();
        if self.has_too_many(id) {
            return self.servers.pool_mut(id).into_iter().for_each(Pool::yield_next);
        }
        let (mut needy, member) = (self.needy(Instant::ORIGIN), self.member_of(id));
        needy.retain(|needy| self.may_give(member, needy.server));
        let Some(neediest) = neediest(&needy).filter(|neediest| neediest.server != id) else { return };
        if let Some(pool) = self.servers.pool_mut(id)
            && pool.waits_since().is_some_and(|since| neediest.since < since)
            && neediest.connections < pool.counts().total()
        {
            pool.yield_next();
        }
    }

    /// Gives what is free to those that need it, after a call of a pool. Time counts as far as each pool knows it: only a timeout lets it
    /// pass.
    pub(super) fn share_budget(&mut self) {
        self.share_budget_at(Instant::ORIGIN);
    }

    /// Gives what is free to those that need it at `now`, which a pool may not know of yet.
    fn share_budget_at(&mut self, now: Instant) {
        if self.has_budget() {
            // What the pools were lent that were called.
            self.count_usage();
            for &id in &self.usage.called {
                self.servers.pool_mut(id).into_iter().for_each(Pool::lend_nothing);
            }
            let is_sought = self.serve_neediest(now);
            self.end_call(is_sought);
        }
    }

    /// Serves those that need a permit, as long as there is one. Whether somebody needs one that comes back.
    fn serve_neediest(&mut self, now: Instant) -> bool {
        let mut needy = self.needy(now);
        let mut are_same = true;
        // Those that cannot get one, though others might: each server has limits of its own.
        let mut without = Vec::new();
        while let Some(&Neediest { server, .. }) = neediest(&needy) {
            if self.free_permits(server, 0) == 0 && !self.give_up_least_recent(server) {
                if !self.shares_limits() {
                    return true;
                }
                without.push(server);
                needy.retain(|needy| needy.server != server);
                continue;
            }
            let Some(pool) = self.servers.pool_mut(server) else { return true };
            let before = pool.counts();
            pool.spend_permit(self.now);
            let after = pool.counts();
            self.drain_pool(server);
            // At least a waiter has failed whose time is up, if none has got a connection.
            if after == before {
                return !self.needy(now).is_empty();
            }
            needy = self.needy(now);
            needy.retain(|needy| !without.contains(&needy.server));
            are_same = false;
        }
        !without.is_empty() && (are_same || !self.needy(now).is_empty())
    }

    /// Closes what the pools of a server have too many together, and tells the pools when there is more: those that were called, or
    /// all of them, if it is news.
    fn end_call(&mut self, is_sought: bool) {
        debug_assert!(self.usage.is_right(&self.servers), "each call of a pool was noted");
        let mut nth = 0;
        while self.shares_limits()
            && let Some(id) = self.usage.called.get(nth).copied()
        {
            let member = self.member_of(id);
            while self.has_too_many(member) && self.close_least_recent(|_, _, of| of == member) {}
            nth += 1;
        }
        let of_client = Outlook { next: NextPermit::of(|closed| self.free_of_client(closed)), is_sought };
        let (mut is_news, mut nth) = (self.usage.tell(of_client), 0);
        while let Some(id) = self.usage.called.get(nth).copied() {
            let outlook = self.tell(id, is_sought);
            is_news |= self.usage.tell_of_server(self.member_of(id), outlook);
            nth += 1;
        }
        if is_news {
            self.for_each(|topology, id| {
                topology.tell(id, is_sought);
            });
        }
        self.usage.called.clear();
    }

    /// Tells a pool when there is more, and whether a connection is sought: for the client, or at its server.
    fn tell(&mut self, id: ServerId, is_sought: bool) -> Outlook {
        let is_sought = is_sought || self.has_too_many(id);
        let outlook = Outlook { next: self.next_permit(id), is_sought };
        if let Some(pool) = self.servers.pool_mut(id) {
            pool.end_of_call(outlook.next, outlook.is_sought);
        }
        outlook
    }

    /// Does what is due in the pools, one after the other: each is lent what those before have left. What one closes may
    /// be what one before it lacks, so this ends when nothing is due.
    pub(super) fn handle_timeout_within_budget(&mut self) {
        let now = self.now;
        // What a backoff or a rate held back until now is for the longest waiter, whichever pool is asked first.
        self.share_budget_at(now);
        let mut is_first_round = true;
        for _ in 0..=self.servers.slots() {
            let mut was_any_due = false;
            for slot in 0..self.servers.slots() {
                let Some((id, server)) = self.servers.id_at(slot).zip(self.servers.at(slot)) else { continue };
                // What a pool holds back that nobody has needed is for nobody.
                let is_needed = server.membership != Membership::Unused;
                if is_needed && server.pool.poll_timeout().is_some_and(|timeout| timeout.at <= now) {
                    self.call_pool(id, |pool| pool.handle_timeout(now));
                    was_any_due = true;
                } else if is_first_round {
                    // It learns what time it is.
                    server.pool.handle_timeout(now);
                }
            }
            if mem::take(&mut is_first_round) {
                self.share_budget();
            } else if !was_any_due {
                break;
            }
        }
    }

    /// Permits that no connection has, for a pool, when it has `closed` so many of its own. Connections of servers that have left
    /// count until they are closed.
    fn free_permits(&self, pool: ServerId, closed: u32) -> u32 {
        let of_server = self.shared_limits(pool).map_or(u32::MAX, |limits| limits.left(closed));
        self.free_of_client(closed).min(of_server)
    }

    fn free_of_client(&self, closed: u32) -> u32 {
        match self.options.max_connections {
            0 => u32::MAX,
            most => most.saturating_add(closed).saturating_sub(self.usage.of_client()),
        }
    }

    /// When there is a permit for a pool.
    fn next_permit(&self, pool: ServerId) -> NextPermit {
        NextPermit::of(|closed| self.free_permits(pool, closed))
    }

    /// The servers of which a waiter needs a permit at `now`, or at the latest time that its pool knows.
    fn needy(&self, now: Instant) -> Vec<Neediest> {
        let pools = self.usage.slots_with_waiters().filter_map(|slot| {
            let server = self.servers.id_at(slot)?;
            let pool = self.servers.pool(server)?;
            Some(Neediest { server, since: pool.wants_permit_since(now)?, connections: pool.counts().total() })
        });
        pools.collect()
    }

    /// Closes the least recently used available connection that another server has. Returns whether there was one.
    fn give_up_least_recent(&mut self, needy: ServerId) -> bool {
        self.close_least_recent(|topology, id, member| id != needy && topology.may_give(member, needy))
    }

    /// Closes the connection that has been available longest, of the pools that `is_meant` takes by their ids and their servers'.
    /// Returns whether there was one.
    fn close_least_recent(&mut self, is_meant: impl Fn(&Self, ServerId, ServerId) -> bool) -> bool {
        let meant = self.servers.iter().filter(|&(id, server)| is_meant(self, id, server.member(id)));
        let available = meant.filter_map(|(id, server)| Some((server.pool.least_recent_since()?, id)));
        let Some((_, id)) = available.min_by_key(|&(since, _)| since) else { return false };
        let now = self.now;
        self.servers.pool_mut(id).into_iter().for_each(|pool| pool.give_up_least_recent(now));
        self.drain_pool(id);
        true
    }
}
