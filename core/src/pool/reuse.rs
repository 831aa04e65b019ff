//! Which available connection serves next: the one returned last, or the one returned first.
//!
//! The list of available connections is in the order of their return whatever the choice, so maintenance still closes the
//! coldest.

use super::bonds::AffinityKey;
use super::list::{Key, NIL};
use super::output::{Action, Delivery, Output};
use super::{CheckOutId, CheckOutRequest, Pool};
use crate::options::Reuse;
use crate::time::Instant;

impl<C> Pool<C> {
    /// Whether another connection than the hottest serves an arrival, or it may have to be checked however short it was idle.
    pub(super) fn takes_another(&self) -> bool {
        self.limits.reuse != Reuse::LastIn || !self.suspects.is_empty()
    }

    /// Whether the hottest connection serves an arrival, unless some are under suspicion.
    #[inline(always)]
    pub(super) fn serves_hottest(&self) -> bool {
        matches!(self.limits.reuse, Reuse::LastIn) && self.affinity.is_none()
    }

    /// Whether another connection than the hottest may serve an arrival, or one beside it be checked for that.
    #[inline]
    pub(super) fn chooses(&self) -> bool {
        self.takes_another() || self.refresh.is_some()
    }

    /// The available connection that is next.
    pub(super) fn next_available(&self) -> Option<Key> {
        if self.affinity.is_some() { self.next_for_head() } else { self.next_by_reuse() }
    }

    /// The available connection that is next by the option `reuse`.
    #[inline(always)]
    fn next_by_reuse(&self) -> Option<Key> {
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

    /// The available connection for an arrival that may have a key, if it is known at once.
    #[inline(always)]
    pub(super) fn choose(&mut self, now: Instant, key: Option<AffinityKey>) -> Option<Key> {
        match &mut self.affinity {
            None => self.next_by_reuse(),
            // Holds may be over that have to be ended first.
            Some(affinity) if affinity.holds.until <= now => None,
            Some(affinity) => match key {
                Some(key) => {
                    let own = affinity.connection_of(key)?;
                    affinity.release(own, &self.connections);
                    Some(own)
                }
                // What is held is not for all.
                None if self.limits.hold_time().is_some() && !affinity.keys.is_empty() => None,
                None => {
                    affinity.holds.free = NIL;
                    self.next_by_reuse()
                }
            },
        }
    }

    /// As [`serve_arrival`](Self::serve_arrival) where the hottest connection is not the one to take.
    #[cold]
    pub(super) fn serve_arrival_by_choice(&mut self, check_out: Key, request: CheckOutRequest) -> Option<Delivery<C>> {
        if self.wait_queue.len() == 0
            && self.suspects.is_empty()
            && let Some(key) = self.choose(self.now, request.affinity)
            && self.can_deliver(key, self.now)
        {
            return self.take_for(key, check_out);
        }
        let id = self.wait_queue.id(check_out);
        if let Some(affinity) = &mut self.affinity {
            affinity.note_key(check_out, request.affinity);
        }
        self.enqueue(check_out, request.deadline);
        self.take_back_delivery(id)
    }

    /// The delivery to `id`, if it is the last output.
    fn take_back_delivery(&mut self, id: CheckOutId) -> Option<Delivery<C>> {
        self.take_back(|check_out| check_out == id)
    }

    /// The last output, if it is a delivery.
    pub(super) fn take_back_last_delivery(&mut self) -> Option<Delivery<C>> {
        self.take_back(|_| true)
    }

    fn take_back(&mut self, is_meant: impl Fn(CheckOutId) -> bool) -> Option<Delivery<C>> {
        match self.outputs.pop_back()? {
            Output::Action(Action::Deliver { check_out, connection, socket }) if is_meant(check_out) => {
                Some(Delivery { check_out, connection, socket })
            }
            other @ (Output::Action(_) | Output::Event(_)) => {
                self.outputs.push_back(other);
                None
            }
        }
    }
}
