//! Which available connection serves next: that of the waiter's key, or by the option `reuse` the one returned last or first.
//!
//! The list of available connections is in the order of their return whatever the choice, so maintenance still closes the
//! least recently used.

use super::Pool;
use super::list::Key;
use crate::options::Reuse;

impl<C> Pool<C> {
    /// Whether the most recently used connection serves an arrival, unless some are under suspicion.
    #[inline(always)]
    pub(super) fn serves_most_recent(&self) -> bool {
        matches!(self.limits.reuse, Reuse::Lifo) && self.affinity.is_none()
    }

    /// The available connection for the head of the queue, after closing those that perished (CMAP-26).
    pub(super) fn next_usable(&mut self) -> Option<Key> {
        while let Some(key) = self.next_available() {
            match self.perished(key) {
                None => return Some(key),
                Some(reason) => self.close_connection(key, reason),
            }
        }
        None
    }

    /// The available connection for the head of the queue.
    pub(super) fn next_available(&self) -> Option<Key> {
        if self.affinity.is_some() {
            return self.next_for_head();
        }
        match self.limits.reuse {
            Reuse::Lifo => self.connections.available.back(),
            Reuse::Fifo => self.connections.available.front(),
        }
    }

    /// The available connection that is next by the option `reuse`, of those that are not held for their keys.
    pub(super) fn next_free(&self) -> Option<Key> {
        match self.limits.reuse {
            Reuse::Lifo => self.most_recent_free(),
            Reuse::Fifo => self.connections.least_recent_first(|key| !self.is_kept(key)).next(),
        }
    }

    /// The most recently used connection that any waiter may take, if it needs no check. Where less recently used ones come first and a
    /// check runs for each waiter, it must not lie idle: one that was just established has its origin no more.
    pub(super) fn proven_at_once(&self) -> Option<Key> {
        let most_recent = self.most_recent_free()?;
        self.is_usable(most_recent).then_some(most_recent)
    }

    /// Whether an available connection can be delivered as it is.
    pub(super) fn is_usable(&self, key: Key) -> bool {
        self.perished(key).is_none() && !self.needs_check(key)
    }

    /// Whether an available connection has shown no sign of life for so long that it has to be checked first.
    pub(super) fn needs_check(&self, key: Key) -> bool {
        self.unproven_time(key) > self.limits.check_after_idle || self.is_suspect(key)
    }
}
