//! Refresh in the reference: when connections are due, and how they come back.

use cmap_core::pool::TimeoutReason;

use super::{ApiMisuse, Connection, Due, Id, Named, Output, PoolState, Reason, Reference, State};

impl Reference {
    pub(super) fn refreshed(&mut self, connection: Named) -> Result<(), ApiMisuse> {
        let Some(id) = self.find(connection, &[State::Refreshing], ApiMisuse::NotRefreshing)? else {
            self.close_late(connection);
            return Ok(());
        };
        let connection = self.get(id).expect("it was found").clone();
        let reason = match self.state {
            PoolState::Closed => Some(Reason::PoolClosed),
            _ => self.perished(&connection).or_else(|| self.superfluous()),
        };
        match reason {
            Some(reason) => self.close(id, reason, None, true),
            None => {
                // It stays in its place: in front of those that were used later.
                let since = connection.since;
                let mut connection = self.take(id);
                connection.state = State::Available;
                let later = |c: &Connection| c.state == State::Available && c.since > since;
                let place = self.connections.iter().position(later).unwrap_or(self.connections.len());
                self.connections.insert(place, connection);
                self.note_sign_of_life(id);
                self.serve_sticky(id);
            }
        }
        self.settle(Due::Spare);
        Ok(())
    }

    pub(super) fn refresh_failed(&mut self, connection: Named) -> Result<(), ApiMisuse> {
        if let Some(id) = self.find(connection, &[State::Refreshing], ApiMisuse::NotRefreshing)? {
            let is_closed = self.state == PoolState::Closed;
            self.close(id, if is_closed { Reason::PoolClosed } else { Reason::Error }, None, false);
            self.settle(Due::Queue);
        }
        Ok(())
    }

    /// It was established, or has answered.
    pub(super) fn note_sign_of_life(&mut self, id: Id) {
        let (now, requirement) = (self.now, self.options.refresh_requirement);
        self.connections.iter_mut().filter(|c| c.id == id).for_each(|c| {
            (c.refreshed_at, c.look_at) = (now, now + requirement);
        });
    }

    pub(super) fn refresh_due(&mut self) {
        while let Some(first) = self.first_look().filter(|first| first.look_at <= self.now) {
            let requirement = self.options.refresh_requirement;
            let is_idle = first.state == State::Available;
            let due = if is_idle { first.since.max(first.refreshed_at) } else { self.now } + requirement;
            if due > first.look_at {
                self.connections.iter_mut().filter(|c| c.id == first.id).for_each(|c| c.look_at = due);
            } else if let Some(reason) = self.perished(&first) {
                self.close(first.id, reason, None, true);
            } else {
                // It goes on being idle.
                let mut connection = self.take(first.id);
                (connection.state, connection.suspect) = (State::Refreshing, false);
                self.connections.push(connection);
                self.outputs.push(Output::Refresh(first.id));
            }
        }
    }

    pub(super) fn next_look(&self) -> Option<(u64, TimeoutReason)> {
        self.first_look().map(|first| (first.look_at.max(self.now), TimeoutReason::Refresh))
    }

    /// Pings take permits that are free, and give way to populations no sooner than they end.
    pub(super) fn has_permit_to_spare(&self) -> bool {
        self.count(State::Pending) + self.count(State::Refreshing) < self.options.max_connecting as usize
    }

    /// The connection to look at next, if one could be refreshed now.
    fn first_look(&self) -> Option<Connection> {
        let may_refresh = self.options.refresh_requirement > 0
            && self.state == PoolState::Ready
            && self.waiters.is_empty()
            && self.has_permit_to_spare();
        let watched = |c: &&Connection| !matches!(c.state, State::Pending | State::Refreshing);
        let first = self.connections.iter().filter(watched).min_by_key(|c| (c.look_at, c.slot));
        first.filter(|_| may_refresh).cloned()
    }

    fn take(&mut self, id: Id) -> Connection {
        let place = self.connections.iter().position(|c| c.id == id).expect("only living connections change");
        self.connections.remove(place)
    }
}
