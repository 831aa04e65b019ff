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

use super::Topology;
use crate::server::{Server, ServerId};
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
        if !self.makes_room(id, neediest.server) {
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
        while let Some(Neediest { server, .. }) = self.neediest(&without) {
            if self.free_permits(server) == 0 && !self.give_up_coldest(server) {
                if self.shares_limits() {
                    without.push(server);
                    continue;
                }
                break;
            }
            let Some(needy) = self.servers.get_mut(server) else { break };
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
                break;
            }
        }
        let is_sought = self.neediest(&[]).is_some();
        for slot in 0..self.servers.slots() {
            let Some(id) = self.servers.id_at(slot) else { continue };
            let mut has_too_many = self.has_too_many(id);
            while has_too_many && self.give_up_coldest_of(id) {
                has_too_many = self.has_too_many(id);
            }
            let has_more = self.free_permits(id) > 0;
            if let Some(server) = self.servers.at(slot) {
                server.pool.end_of_call(has_more, is_sought || has_too_many);
            }
        }
    }

    /// Does what is due in the pools, one after the other: each is lent what those before have left. What one closes may
    /// be what one before it lacks, so this ends when nothing is due.
    pub(super) fn handle_timeout_within_budget(&mut self) {
        let now = self.now;
        let mut due: Vec<ServerId> = self.servers.ids();
        for _ in 0..=due.len() {
            for id in due {
                self.call_pool(id, |pool| pool.handle_timeout(now));
            }
            let is_due = |server: &Server<C>| server.pool.poll_timeout().is_some_and(|timeout| timeout.at <= now);
            due = self.servers.iter().filter(|(_, server)| is_due(server)).map(|(id, _)| id).collect();
            if due.is_empty() {
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
        self.options.max_connections.saturating_sub(connections.fold(0, u32::saturating_add))
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
        let coldest = self.coldest_of(|id, this| id != needy && this.makes_room(id, needy));
        coldest.map(|id| self.close_coldest(id)).is_some()
    }

    /// Closes the coldest available connection of the pools at this one's server, which have too many together: maxPoolSize has
    /// become smaller. Returns whether there was one.
    fn give_up_coldest_of(&mut self, pool: ServerId) -> bool {
        let coldest = self.coldest_of(|id, this| this.member_of(id) == this.member_of(pool));
        coldest.map(|id| self.close_coldest(id)).is_some()
    }

    fn close_coldest(&mut self, id: ServerId) {
        let now = self.now;
        self.servers.get_mut(id).into_iter().for_each(|server| server.pool.give_up_coldest(now));
        self.take_outputs_of(id);
    }

    /// The pool with the connection that has been available longest, of those that `is_meant` takes.
    fn coldest_of(&self, is_meant: impl Fn(ServerId, &Self) -> bool) -> Option<ServerId> {
        let meant = self.servers.iter().filter(|&(id, _)| is_meant(id, self));
        meant.filter_map(|(id, server)| Some((server.pool.coldest_since()?, id))).min_by_key(|it| it.0).map(|it| it.1)
    }

    /// Takes over the outputs of a pool that has created or closed connections, and no more.
    fn take_outputs_of(&mut self, id: ServerId) {
        while let Some(output) = self.servers.get_mut(id).and_then(|server| server.pool.poll_output()) {
            self.take_output(id, output);
        }
    }
}
