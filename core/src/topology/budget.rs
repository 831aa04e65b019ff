//! A limit of the connections that all pools of a client have together: pending, available and in use; the
//! monitors' connections are beside it.
//!
//! No pool creates a connection of its own accord while there is such a limit: it spends a permit, and has none but those
//! that it is lent for one call. After the call, what is free goes to the waiter that has waited longest, whichever server
//! it waits for. If nothing is free, the coldest available connection of another server is closed for it. If there is none,
//! it waits for the first connection that comes back anywhere:
//!
//! - One that nobody waits for there is closed for it.
//! - One that somebody waits for there stays, unless that waiter came later, and its server has more connections than the
//!   one that has none to spare. So a busy server starves no other, and two busy servers do not change places all the time.
//!
//! The pools of one server share its limits in the same way, where there are several of them. If they take turns, what
//! is free goes to the pool that was served longest ago, and a connection that comes back makes way for one whose turn it
//! is.
//!
//! Floors yield: they are populated with permits that nobody waits for.

use alloc::vec::Vec;
use core::mem;

use super::Topology;
use super::usage::Usage;
use crate::server::{Membership, Server, ServerId};
use crate::time::Instant;

/// A server of which a waiter needs a permit.
struct Neediest {
    server: ServerId,
    /// When its pool was last served; where pools take no turns, all are 0.
    last_turn: u64,
    /// Since when the waiter waits.
    since: Instant,
    /// Connections that the server has.
    connections: u32,
}

/// Whether time has something for a pool to do. What one holds back that nobody has needed is for nobody.
fn is_due<C>(server: &Server<C>, now: Instant) -> bool {
    server.membership != Membership::Unused && server.pool.poll_timeout().is_some_and(|timeout| timeout.at <= now)
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
            let free = self.free_permits(server);
            if let Some(server) = self.servers.get_mut(server) {
                server.pool.lend_permits(free);
            }
        }
    }

    /// Lets a server give up the connection that is about to come back, if a waiter of another one has the better claim.
    pub(super) fn yield_if_due(&mut self, id: ServerId) {
        if self.has_too_many(id) {
            self.servers.get_mut(id).into_iter().for_each(|server| server.pool.yield_next());
            return;
        }
        let Some(neediest) = self.neediest(&[]).filter(|neediest| neediest.server != id) else { return };
        if !self.donors(neediest.server).include(self.member_of(id)) {
            return;
        }
        let takes_turns = self.takes_turns();
        if let Some(server) = self.servers.get_mut(id)
            && let Some(since) = server.pool.waits_since()
            && match takes_turns {
                true => (neediest.last_turn, neediest.since) < (server.last_turn, since),
                false => neediest.since < since && neediest.connections < server.pool.counts().total(),
            }
        {
            server.pool.yield_next();
        }
    }

    /// Gives what is free to those that need it, after a call of a pool.
    pub(super) fn share_budget(&mut self) {
        if !self.has_budget() {
            return;
        }
        let now = self.now;
        self.servers.iter_mut().for_each(|(_, server)| server.pool.lend_permits(0));
        // Those that cannot get one, though others might: each server has limits of its own.
        let mut without = Vec::new();
        let is_sought = loop {
            let Some(Neediest { server, .. }) = self.neediest(&without) else {
                break !without.is_empty() && self.neediest(&[]).is_some();
            };
            if self.free_permits(server) == 0 && !self.give_up_coldest(server) {
                if self.shares_limits() {
                    without.push(server);
                    continue;
                }
                break true;
            }
            let Some(needy) = self.servers.get_mut(server) else { break true };
            let before = needy.pool.counts();
            needy.pool.spend_permit(now);
            // At least a waiter has failed whose time is up, if none has got a connection.
            let after = needy.pool.counts();
            let has_changed = after != before;
            self.take_outputs_of(server);
            if after.total() > before.total() {
                self.note_turn(server);
            }
            if !has_changed {
                break self.neediest(&[]).is_some();
            }
        };
        self.end_call(is_sought);
    }

    /// Takes back what the pools were lent, and tells them whether there is more. Closes what those of a server have too many together.
    fn end_call(&mut self, is_sought: bool) {
        let mut usage = mem::take(&mut self.usage);
        usage.count(&self.servers);
        for slot in 0..self.servers.slots() {
            let Some(id) = self.servers.id_at(slot) else { continue };
            let member = self.member_of(id);
            while self.exceeds_size(member, usage.of_server(member)) && self.give_up_coldest_of(member) {
                usage.count(&self.servers);
            }
            let has_too_many = self.exceeds_size(member, usage.of_server(member));
            let has_more = self.left(member, &usage) > 0;
            if let Some(server) = self.servers.at(slot) {
                server.pool.end_of_call(has_more, is_sought || has_too_many);
            }
        }
        self.usage = usage;
    }

    /// Does what is due in the pools, one after the other: each is lent what those before have left. What one closes may
    /// be what one before it lacks, so this ends when nothing is due.
    pub(super) fn handle_timeout_within_budget(&mut self) {
        let now = self.now;
        let mut is_first_round = true;
        for _ in 0..=self.servers.slots() {
            let mut was_any_due = false;
            for slot in 0..self.servers.slots() {
                let Some((id, server)) = self.servers.id_at(slot).zip(self.servers.at(slot)) else { continue };
                if is_due(server, now) {
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

    /// Permits that no connection has, for a pool. Connections of servers that have left count until they are closed.
    fn free_permits(&self, pool: ServerId) -> u32 {
        self.free_of_client().min(self.free_of_server(pool))
    }

    fn free_of_client(&self) -> u32 {
        if self.options.max_connections == 0 {
            return u32::MAX;
        }
        let connections = self.servers.iter().map(|(_, server)| server.pool.counts().total());
        self.left_of_client(connections.fold(0, u32::saturating_add))
    }

    /// Permits that no connection has, for the pools of a server, by what was counted.
    fn left(&self, server: ServerId, usage: &Usage) -> u32 {
        self.left_of_client(usage.of_client()).min(self.left_of_server(server, usage.of_server(server)))
    }

    fn left_of_client(&self, used: u32) -> u32 {
        match self.options.max_connections {
            0 => u32::MAX,
            most => most.saturating_sub(used),
        }
    }

    /// The server whose turn it is, or that of the longest waiter that needs a permit; of several that came at once, the one with
    /// the fewest connections.
    fn neediest(&self, without: &[ServerId]) -> Option<Neediest> {
        let others = self.servers.iter().filter(|(server, _)| !without.contains(server));
        let needy = others.filter_map(|(server, it)| {
            let since = it.pool.wants_permit_since()?;
            Some(Neediest { server, last_turn: it.last_turn, since, connections: it.pool.counts().total() })
        });
        needy.min_by_key(|neediest| (neediest.last_turn, neediest.since, neediest.connections))
    }

    /// Closes the coldest available connection that another server has. Returns whether there was one.
    fn give_up_coldest(&mut self, needy: ServerId) -> bool {
        let donors = self.donors(needy);
        let coldest = self.coldest_of(|id, server| id != needy && donors.include(server.member(id)));
        coldest.map(|id| self.close_coldest(id)).is_some()
    }

    /// Closes the coldest available connection of a server's pools, which have too many together: maxPoolSize has become smaller
    /// . Returns whether there was one.
    fn give_up_coldest_of(&mut self, member: ServerId) -> bool {
        let coldest = self.coldest_of(|id, server| server.member(id) == member);
        coldest.map(|id| self.close_coldest(id)).is_some()
    }

    fn close_coldest(&mut self, id: ServerId) {
        let now = self.now;
        self.servers.get_mut(id).into_iter().for_each(|server| server.pool.give_up_coldest(now));
        self.take_outputs_of(id);
    }

    /// The pool with the connection that has been available longest, of those that `is_meant` takes.
    fn coldest_of(&self, is_meant: impl Fn(ServerId, &Server<C>) -> bool) -> Option<ServerId> {
        let meant = self.servers.iter().filter(|&(id, server)| is_meant(id, server));
        meant.filter_map(|(id, server)| Some((server.pool.coldest_since()?, id))).min_by_key(|it| it.0).map(|it| it.1)
    }

    /// Takes over the outputs of a pool that has created or closed connections, and no more.
    fn take_outputs_of(&mut self, id: ServerId) {
        while let Some(output) = self.servers.get_mut(id).and_then(|server| server.pool.poll_output()) {
            self.take_output(id, output);
        }
    }
}
