//! Affinity in the reference: a key keeps the connection that it had last.

use cmap_core::options::Affinity;
use cmap_core::pool::TimeoutReason;

use super::{Connection, Due, Id, Output, Reference, Reuse, State, Waiter};
use crate::model::transition::Key;

impl Reference {
    /// An arrival whose key has a connection takes it, or waits for it. All others join the queue.
    pub(super) fn arrive(&mut self, waiter: Waiter) -> Due {
        if self.serve_key(waiter) {
            return Due::Queue;
        }
        self.waiters.push(waiter);
        Due::Arrival
    }

    fn serve_key(&mut self, waiter: Waiter) -> bool {
        let Some(own) = waiter.key.and_then(|key| self.of_key(key)).cloned() else { return false };
        if own.state == State::Available {
            if let Some(reason) = self.perished(&own) {
                self.close(own.id, reason, None, true);
                return false;
            }
            if !self.needs_check(&own) {
                self.deliver(waiter, own.id);
                return true;
            }
            self.change(own.id, |c| (c.state, c.suspect) = (State::Checking, false));
            self.outputs.push(Output::Check(own.id));
        } else if self.options.affinity == Some(Affinity::Prefer) || !self.may_come_back(&own) {
            return false;
        }
        self.sticky.push(Waiter { wants: Some(own.id), ..waiter });
        true
    }

    /// Whether an arrival takes a connection at once, however many wait.
    pub(super) fn can_serve_at_once(&mut self, waiter: Waiter) -> bool {
        if let Some(own) = waiter.key.and_then(|key| self.of_key(key)).cloned() {
            let is_there = own.state == State::Available && self.perished(&own).is_none();
            if is_there {
                return !self.needs_check(&own);
            }
            let may_come = own.state != State::Available && self.may_come_back(&own);
            if may_come && self.options.affinity != Some(Affinity::Prefer) {
                return false;
            }
        }
        if !self.waiters.is_empty() {
            return false;
        }
        // One that must not be used any more is closed as it is found.
        while let Some(next) = self.next_for(Waiter { key: None, ..waiter }) {
            match self.perished(&next) {
                Some(reason) => self.close(next.id, reason, None, true),
                None => return !self.needs_check(&next),
            }
        }
        false
    }

    fn of_key(&self, key: Key) -> Option<&Connection> {
        self.connections.iter().find(|c| c.keys.contains(&key))
    }

    fn may_come_back(&self, connection: &Connection) -> bool {
        !self.is_stale(connection) && !connection.interrupted && !connection.hung_up
    }

    /// A connection is available: the first who waits for it gets it.
    pub(super) fn serve_sticky(&mut self, id: Id) {
        let is_available = self.get(id).is_some_and(|c| c.state == State::Available);
        let first = self.sticky.iter().copied().find(|waiter| waiter.wants == Some(id));
        if let Some(first) = first.filter(|_| is_available) {
            self.deliver(first, id);
        }
    }

    pub(super) fn bind(&mut self, key: Option<Key>, id: Id) {
        let is_bound = key.is_some_and(|key| self.get(id).is_some_and(|c| c.keys.contains(&key)));
        if let (Some(key), false, true) = (key, is_bound, self.options.affinity.is_some()) {
            self.forget_key(key);
            self.connections.iter_mut().filter(|c| c.id == id).for_each(|c| c.keys.push(key));
        }
    }

    pub(super) fn end_affinity(&mut self, key: Key) {
        if self.options.affinity.is_some() {
            self.forget_key(key);
            self.settle(Due::Queue);
        }
    }

    fn forget_key(&mut self, key: Key) {
        self.connections.iter_mut().for_each(|c| c.keys.retain(|&bound| bound != key));
    }

    /// Those who wait for this connection wait for any, at the end of the queue.
    pub(super) fn send_to_queue(&mut self, id: Id) {
        let (sent, rest) = self.sticky.iter().partition(|waiter| waiter.wants == Some(id));
        self.sticky = rest;
        let sent: Vec<Waiter> = sent;
        for waiter in sent {
            self.waiters.push(Waiter { wants: None, ..waiter });
        }
    }

    /// The same for all connections, in the order of their slots.
    pub(super) fn end_sticky_waits(&mut self) {
        let mut connections: Vec<_> = self.connections.iter().map(|c| (c.slot, c.id)).collect();
        connections.sort_unstable();
        for (_, id) in connections {
            self.send_to_queue(id);
        }
    }

    /// Connections that are checked for the queue: nobody waits for them alone.
    pub(super) fn checks(&self) -> usize {
        let is_claimed = |id| self.sticky.iter().any(|waiter| waiter.wants == Some(id));
        self.connections.iter().filter(|c| c.state == State::Checking && !is_claimed(c.id)).count()
    }

    fn hold_time(&self) -> Option<u64> {
        match self.options.affinity {
            Some(Affinity::Hold { time, .. }) => Some(time.as_nanos() as u64),
            _ => None,
        }
    }

    /// Whether an available connection waits for its keys.
    pub(crate) fn is_held(&self, connection: &Connection) -> bool {
        connection.state == State::Available && !connection.keys.is_empty() && self.hold_time().is_some()
    }

    /// The available connection for a waiter: that of its key, or the least shared one for a key.
    pub(super) fn next_for(&self, waiter: Waiter) -> Option<Connection> {
        let own = waiter.key.and_then(|key| self.of_key(key)).filter(|own| own.state == State::Available);
        if let (Some(own), true) = (own, self.options.affinity.is_some()) {
            return Some(own.clone());
        }
        let free = self.ids(|c| c.state == State::Available && !self.is_held(c));
        let last = free.len().checked_sub(1)?;
        if waiter.key.is_some() && self.options.affinity.is_some() {
            let shared = |&&id: &&Id| self.get(id).map_or(0, |c| c.keys.len());
            return free.iter().rev().min_by_key(shared).and_then(|&id| self.get(id)).cloned();
        }
        let id = match self.options.reuse {
            Reuse::Lifo => free[last],
            Reuse::Fifo => free[0],
        };
        self.get(id).cloned()
    }

    /// Lends a held connection to the head of the queue, when nothing else can serve it.
    pub(super) fn lend(&mut self) -> bool {
        let Some(Affinity::Hold { lend: true, .. }) = self.options.affinity else { return false };
        let lacks_one = self.waiters.len() > self.count(State::Pending) + self.checks();
        let held = self.connections.iter().rfind(|c| self.is_held(c)).cloned();
        let (true, Some(head), Some(held)) = (lacks_one, self.waiters.first().copied(), held) else { return false };
        if let Some(reason) = self.perished(&held) {
            self.close(held.id, reason, None, true);
        } else if self.needs_check(&held) {
            self.change(held.id, |c| (c.state, c.suspect) = (State::Checking, false));
            self.outputs.push(Output::Check(held.id));
        } else {
            self.lent += 1;
            self.deliver_unbound(head, held.id);
        }
        true
    }

    pub(super) fn end_holds(&mut self) {
        let Some(time) = self.hold_time() else { return };
        let over: Vec<_> = self.ids(|c| self.is_held(c) && c.since + time <= self.now);
        self.connections.iter_mut().filter(|c| over.contains(&c.id)).for_each(|c| c.keys.clear());
        if !over.is_empty() {
            self.settle(Due::Queue);
        }
    }

    pub(super) fn hold_end(&self) -> Option<(u64, TimeoutReason)> {
        let time = self.hold_time()?;
        let first = self.connections.iter().find(|c| self.is_held(c))?;
        Some(((first.since + time).max(self.now), TimeoutReason::Hold))
    }
}
