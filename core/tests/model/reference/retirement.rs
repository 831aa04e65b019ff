//! Retirement in the reference: lives, and when those that are over may end.

use super::{Connection, Due, Id, PoolState, Reason, Reference, State, TimeoutReason};

impl Reference {
    pub(super) fn replace_connections(&mut self, over: u64) {
        if self.state == PoolState::Closed {
            return;
        }
        let mut established = self.ids(|c| c.state != State::Pending);
        established.sort_by_key(|&id| self.get(id).map(|c| c.slot));
        let step = over / (established.len() as u64).max(1);
        for (number, id) in (1..).zip(established) {
            let at = self.now + step * number;
            self.life_of(id, |c| c.ends_at = c.ends_at.min(at));
        }
        self.settle(Due::Spare);
    }

    /// A quarter of the longest life is chance. With an old credential it is over as it begins.
    pub(super) fn begin_life(&mut self, id: Id) {
        let longest = self.options.max_lifetime;
        if longest > 0 {
            let ends_at = self.now + longest - self.random.up_to(longest / 4);
            self.life_of(id, |c| c.ends_at = ends_at);
        }
        if id <= self.outdated_until {
            let now = self.now;
            self.life_of(id, |c| c.ends_at = now);
        }
    }

    /// Counts a use; whether it was the last one.
    pub(super) fn is_over_after_use(&mut self, id: Id) -> bool {
        let (now, most) = (self.now, self.options.max_uses);
        self.life_of(id, |c| {
            c.uses += 1;
            if most > 0 && c.uses >= most {
                c.ends_at = c.ends_at.min(now);
            }
        });
        self.get(id).is_some_and(|c| c.ends_at <= now)
    }

    /// Closes available connections whose life is over, the longest over first, as long as minPoolSize others stay.
    pub(super) fn retire(&mut self) {
        if self.state != PoolState::Ready {
            return;
        }
        let mut over: Vec<_> = self.connections.iter().filter(|c| self.waits_for_its_end(c)).cloned().collect();
        over.sort_by_key(|c| (c.ends_at, c.slot));
        for connection in over {
            if self.may_retire() {
                let reason = self.perished(&connection).unwrap_or(Reason::Idle);
                self.close(connection.id, reason, None, true);
            }
        }
    }

    pub(crate) fn may_retire(&self) -> bool {
        let (pending, total) = (self.count(State::Pending), self.connections.len());
        let least = if self.options.maintenance.is_some() { self.min_pool_size() } else { 0 };
        let max = self.options.max_pool_size as usize;
        total - pending > least || (pending == 0 && max > 0 && total >= max)
    }

    pub(crate) fn wants_replacement(&self) -> bool {
        self.connections.iter().any(|c| self.waits_for_its_end(c))
    }

    pub(super) fn next_end(&self) -> Option<(u64, TimeoutReason)> {
        if self.state != PoolState::Ready {
            return None;
        }
        let is_due = |c: &&Connection| {
            c.ends_at != u64::MAX && (c.ends_at > self.now || (self.waits_for_its_end(c) && self.may_retire()))
        };
        let first = self.connections.iter().filter(is_due).map(|c| c.ends_at).min()?;
        Some((first.max(self.now), TimeoutReason::Retire))
    }

    fn waits_for_its_end(&self, connection: &Connection) -> bool {
        connection.state == State::Available && connection.ends_at <= self.now
    }

    fn life_of(&mut self, id: Id, change: impl FnOnce(&mut Connection)) {
        if let Some(connection) = self.connections.iter_mut().find(|c| c.id == id) {
            change(connection);
        }
    }
}
