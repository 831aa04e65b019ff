//! Which available connection serves next: that of the waiter's key, or by the option `reuse` the one returned last or first.
//!
//! The list of available connections is in the order of their return whatever the choice, so maintenance still closes the
//! coldest.

use super::Pool;
use super::list::Key;
use crate::options::Reuse;

impl<C> Pool<C> {
    /// Whether the hottest connection serves an arrival, unless some are under suspicion.
    #[inline(always)]
    pub(super) fn serves_hottest(&self) -> bool {
        matches!(self.limits.reuse, Reuse::LastIn) && self.affinity.is_none()
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
            Reuse::LastIn => self.connections.available.back(),
            Reuse::FirstIn => self.connections.available.front(),
        }
    }

    /// The available connection that is next by the option `reuse`, of those that are not held for their keys.
    pub(super) fn next_free(&self) -> Option<Key> {
        match self.limits.reuse {
            Reuse::LastIn => self.hottest_free(),
            Reuse::FirstIn => self.connections.coldest_first(|key| !self.is_kept(key)).next(),
        }
    }

    /// The hottest connection that any waiter may take, if it needs no check. Where colder ones come first and a check runs
    /// for each waiter, it must not lie idle: one that was just established has its origin no more.
    pub(super) fn proven_at_once(&self) -> Option<Key> {
        let hottest = self.hottest_free()?;
        self.is_usable(hottest).then_some(hottest)
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
