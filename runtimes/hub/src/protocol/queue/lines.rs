//! Those who wait for their turn: a line for each user, and users by turns.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::Ticket;

/// A command in line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    pub(super) bytes: usize,
}

/// A line for each user.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    of_user: BTreeMap<Arc<str>, VecDeque<Waiter>>,
    /// The users that have somebody in line, the next one first.
    turns: VecDeque<Arc<str>>,
}

impl Lines {
    pub(super) fn push(&mut self, user: &Arc<str>, waiter: Waiter) {
        let line = self.of_user.entry(Arc::clone(user)).or_default();
        if line.is_empty() {
            self.turns.push_back(Arc::clone(user));
        }
        line.push_back(waiter);
    }

    /// The first one of the next user.
    pub(super) fn pop(&mut self) -> Option<Waiter> {
        let user = self.turns.pop_front()?;
        let line = self.of_user.get_mut(&user)?;
        let waiter = line.pop_front()?;
        match line.is_empty() {
            true => drop(self.of_user.remove(&user)),
            false => self.turns.push_back(user),
        }
        Some(waiter)
    }

    /// The first one of this user.
    pub(super) fn pop_of(&mut self, user: &Arc<str>) -> Option<Waiter> {
        let waiter = self.of_user.get_mut(user)?.pop_front();
        self.forget_if_empty(user);
        waiter
    }

    /// The user with the longest line. `user`, if no other one's is longer.
    pub(super) fn longest_or(&self, user: &Arc<str>) -> Arc<str> {
        let longest = self.of_user.iter().max_by_key(|(_, line)| line.len());
        match longest {
            Some((other, line)) if line.len() > self.len_of(user) => Arc::clone(other),
            Some(_) | None => Arc::clone(user),
        }
    }

    /// Takes it out of the line, if it is there.
    pub(super) fn remove(&mut self, user: &Arc<str>, ticket: Ticket) -> Option<Waiter> {
        let line = self.of_user.get_mut(user)?;
        let place = line.iter().position(|waiter| waiter.ticket == ticket)?;
        let waiter = line.remove(place);
        self.forget_if_empty(user);
        waiter
    }

    pub(super) fn len_of(&self, user: &str) -> usize {
        self.of_user.get(user).map_or(0, VecDeque::len)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    fn forget_if_empty(&mut self, user: &Arc<str>) {
        if self.of_user.get(user).is_some_and(VecDeque::is_empty) {
            self.of_user.remove(user);
            self.turns.retain(|other| other != user);
        }
    }
}
