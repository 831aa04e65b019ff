//! Which available connection serves next: the one returned last, the one returned first, or any.
//!
//! The list of available connections is in the order of their return whatever the choice, so maintenance still closes the
//! coldest.

use super::bonds::AffinityKey;
use super::list::Key;
use super::output::{Action, Delivery, Output};
use super::{CheckOutId, CheckOutRequest, Pool};
use crate::options::Reuse;
use crate::time::Instant;

impl<C> Pool<C> {
    /// Whether another connection than the hottest serves an arrival, or it may have to be checked however short it was idle.
    pub(super) fn takes_another(&self) -> bool {
        self.limits.reuse != Reuse::LastIn || !self.suspects.is_empty()
    }

    /// Whether another connection than the hottest may serve an arrival, or one beside it be checked for that.
    #[inline]
    pub(super) fn chooses(&self) -> bool {
        self.takes_another() || self.refresh.is_some()
    }

    /// The available connection that is next.
    pub(super) fn next_available(&mut self) -> Option<Key> {
        if self.affinity.is_some() { self.next_for_head() } else { self.next_by_reuse() }
    }

    /// The available connection that is next by the option `reuse`.
    #[inline(always)]
    pub(super) fn next_by_reuse(&mut self) -> Option<Key> {
        let available = &self.connections.available;
        match self.limits.reuse {
            Reuse::LastIn => available.back(),
            Reuse::FirstIn => available.front(),
            Reuse::Random => self.next_at_random(),
        }
    }

    fn next_at_random(&mut self) -> Option<Key> {
        let last = self.connections.available.len().checked_sub(1)?;
        let place = self.place_by_reuse(last);
        self.connections.available_at(place)
    }

    /// The available connection for an arrival that may have a key, and for how long it has been so, if it is known at once and
    /// can be delivered at `now` as it is; it is held no more. Otherwise nothing has changed: who asks again gets the same.
    #[inline(always)]
    pub(super) fn choose_at_once(&mut self, now: Instant, key: Option<AffinityKey>) -> Option<(Key, u64)> {
        let random = self.random.clone();
        let chosen = match &mut self.affinity {
            None => self.next_by_reuse()?,
            Some(affinity) => match key {
                Some(key) => affinity.connection_of(key)?,
                None if affinity.held.is_empty() => self.next_by_reuse()?,
                // What is held is not for all.
                None => return None,
            },
        };
        match self.idle_time_if_deliverable(chosen, now) {
            Some(idle_time) if !self.holds() || self.end_hold_at_once(chosen, now) => Some((chosen, idle_time)),
            Some(_) | None => {
                self.random = random;
                None
            }
        }
    }

    /// The place of the connection to take, by the option `reuse`, among those from the coldest to the one at `last`.
    #[inline]
    pub(super) fn place_by_reuse(&mut self, last: u32) -> u32 {
        match self.limits.reuse {
            Reuse::LastIn => last,
            Reuse::FirstIn => 0,
            Reuse::Random if last == 0 => 0,
            Reuse::Random => u32::try_from(self.random.up_to(last.into())).unwrap_or(last),
        }
    }

    /// As [`serve_arrival`](Self::serve_arrival) where the hottest connection is not the one to take.
    #[cold]
    pub(super) fn serve_arrival_by_choice(&mut self, check_out: Key, request: CheckOutRequest) -> Option<Delivery<C>> {
        if self.wait_queue.len() == 0
            && self.suspects.is_empty()
            && let Some((key, _)) = self.choose_at_once(self.now, request.affinity)
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
