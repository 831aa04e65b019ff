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
//! Floors yield: they are populated with permits that nobody waits for.

use alloc::vec::Vec;

use super::Topology;
use crate::server::{Server, ServerId};
use crate::time::Instant;

/// A server of which a waiter needs a permit.
struct Neediest {
    server: ServerId,
    /// Since when the waiter waits.
    since: Instant,
    /// Connections that the server has.
    connections: u32,
}

impl<C> Topology<C> {
    /// Whether all pools together have a limit.
    #[inline]
    pub(super) fn has_budget(&self) -> bool {
        self.options.max_connections > 0
    }

    /// Lends a server's pool what is free, for the next call.
    pub(super) fn lend_permits(&mut self, server: ServerId) {
        if self.has_budget() {
            let free = self.free_permits();
            if let Some(server) = self.servers.get_mut(server) {
                server.pool.lend_permits(free);
            }
        }
    }

    /// Lets a server give up the connection that is about to come back, if a waiter of another one has the better claim.
    pub(super) fn yield_if_due(&mut self, id: ServerId) {
        let Some(neediest) = self.neediest().filter(|neediest| neediest.server != id) else { return };
        if let Some(server) = self.servers.get_mut(id)
            && server.pool.waits_since().is_some_and(|since| neediest.since < since)
            && neediest.connections < server.pool.counts().total()
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
        while let Some(Neediest { server, .. }) = self.neediest() {
            if self.free_permits() == 0 && !self.give_up_coldest(server) {
                break;
            }
            let Some(needy) = self.servers.get_mut(server) else { break };
            let before = needy.pool.counts();
            needy.pool.spend_permit(now);
            // At least a waiter has failed whose time is up, if none has got a connection.
            let has_changed = needy.pool.counts() != before;
            self.take_outputs_of(server);
            if !has_changed {
                break;
            }
        }
        let (has_more, is_sought) = (self.free_permits() > 0, self.neediest().is_some());
        self.servers.iter_mut().for_each(|(_, server)| server.pool.end_of_call(has_more, is_sought));
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

    /// Permits that no connection has. Connections of servers that have left count until they are closed.
    fn free_permits(&self) -> u32 {
        let connections = self.servers.iter().map(|(_, server)| server.pool.counts().total());
        self.options.max_connections.saturating_sub(connections.fold(0, u32::saturating_add))
    }

    /// The server of the longest waiter that needs a permit; of several that came at once, the one with the fewest
    /// connections.
    fn neediest(&self) -> Option<Neediest> {
        let needy = self.servers.iter().filter_map(|(server, it)| {
            let since = it.pool.wants_permit_since()?;
            Some(Neediest { server, since, connections: it.pool.counts().total() })
        });
        needy.min_by_key(|neediest| (neediest.since, neediest.connections))
    }

    /// Closes the coldest available connection that another server has. Returns whether there was one.
    fn give_up_coldest(&mut self, needy: ServerId) -> bool {
        let others = self.servers.iter().filter(|&(id, _)| id != needy);
        let coldest = others.filter_map(|(id, server)| Some((server.pool.coldest_since()?, id))).min_by_key(|it| it.0);
        let Some((_, id)) = coldest else { return false };
        let now = self.now;
        if let Some(server) = self.servers.get_mut(id) {
            server.pool.give_up_coldest(now);
        }
        self.take_outputs_of(id);
        true
    }

    /// Takes over the outputs of a pool that has created or closed connections, and no more.
    fn take_outputs_of(&mut self, id: ServerId) {
        while let Some(output) = self.servers.get_mut(id).and_then(|server| server.pool.poll_output()) {
            self.take_output(id, output);
        }
    }
}
