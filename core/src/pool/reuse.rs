//! Which available connection serves next: the one returned last, the one returned first, or any.
//!
//! The list of available connections is in the order of their return whatever the choice, so maintenance still closes the
//! coldest.

use super::bonds::AffinityKey;
use super::list::{Key, NIL};
use super::output::{Action, Delivery, Output};
use super::{CheckOutId, CheckOutRequest, Pool};
use crate::options::Reuse;
use crate::random::Random;
use crate::time::Instant;

/// Slots that are drawn to find an available connection by chance.
const DRAWS: u32 = 4;

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
    pub(super) fn next_available(&mut self) -> Option<Key> {
        if self.affinity.is_some() { self.next_for_head() } else { self.next_by_reuse() }
    }

    /// The available connection that is next by the option `reuse`.
    pub(super) fn next_by_reuse(&mut self) -> Option<Key> {
        let drawn = self.first_choice()?;
        if self.connections.is_available(drawn) { Some(drawn) } else { self.draw_again() }
    }

    /// The same, but by chance it may be a slot without an available connection. Then [another one](Self::draw_again) is drawn.
    #[inline(always)]
    fn first_choice(&mut self) -> Option<Key> {
        let available = &self.connections.available;
        match self.limits.reuse {
            Reuse::LastIn => available.back(),
            Reuse::FirstIn => available.front(),
            Reuse::Random if available.len() > 1 => Some(self.draw_slot()),
            Reuse::Random => available.front(),
        }
    }

    #[inline(always)]
    fn draw_slot(&mut self) -> Key {
        #[expect(clippy::cast_possible_truncation, reason = "maxPoolSize has 32 bits")]
        let slots = self.connections.slots.len() as u32;
        self.random.below(slots)
    }

    /// Each available connection that is not held is as likely as the others.
    fn draw_again(&mut self) -> Option<Key> {
        self.draw_free(DRAWS - 1)
    }

    /// One of the available connections that are not held, by chance: a slot is drawn up to so many times. Where most slots have
    /// none of them, one is drawn of these alone, and has to be searched for.
    fn draw_free(&mut self, draws: u32) -> Option<Key> {
        let free = self.free();
        if free <= 1 {
            return self.hottest_free();
        }
        for _ in 0..draws {
            let drawn = self.draw_slot();
            if self.connections.is_available(drawn) && !self.is_kept(drawn) {
                return Some(drawn);
            }
        }
        let place = self.random.below(free);
        self.connections.coldest_first(|key| !self.is_kept(key)).nth(place as usize)
    }

    /// As [`next_by_reuse`](Self::next_by_reuse) where connections are held, which are not for all.
    pub(super) fn next_free(&mut self) -> Option<Key> {
        match self.limits.reuse {
            Reuse::LastIn => self.hottest_free(),
            Reuse::FirstIn => self.connections.coldest_first(|key| !self.is_kept(key)).next(),
            Reuse::Random => self.draw_free(DRAWS),
        }
    }

    /// The available connection for an arrival that may have a key, if it is known at once. By chance it may be a slot without an
    /// available connection; [another one](Self::choose_again) is chosen in its place.
    #[inline(always)]
    pub(super) fn choose(&mut self, now: Instant, key: Option<AffinityKey>) -> Option<Key> {
        match &mut self.affinity {
            None => self.first_choice(),
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
                    self.first_choice()
                }
            },
        }
    }

    /// What is chosen in place of a slot without an available connection. Otherwise the choices since `random` count for nothing: who
    /// asks again gets the same.
    #[cold]
    pub(super) fn choose_again(&mut self, chosen: Key, key: Option<AffinityKey>, random: &Random) -> Option<Key> {
        let was_drawn = self.limits.reuse == Reuse::Random && (self.affinity.is_none() || key.is_none());
        let drawn = if was_drawn && !self.connections.is_available(chosen) { self.draw_again() } else { None };
        if drawn.is_none() {
            self.random = random.clone();
        }
        drawn
    }

    /// The connection for an arrival, if one can be delivered as it is.
    fn choose_deliverable(&mut self, key: Option<AffinityKey>) -> Option<Key> {
        let random = self.random.clone();
        let mut chosen = self.choose(self.now, key)?;
        while !self.can_deliver(chosen, self.now) {
            chosen = self.choose_again(chosen, key, &random)?;
        }
        Some(chosen)
    }

    /// As [`serve_arrival`](Self::serve_arrival) where the hottest connection is not the one to take.
    #[cold]
    pub(super) fn serve_arrival_by_choice(&mut self, check_out: Key, request: CheckOutRequest) -> Option<Delivery<C>> {
        if self.wait_queue.len() == 0
            && self.suspects.is_empty()
            && let Some(key) = self.choose_deliverable(request.affinity)
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

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::address::ServerAddress;
    use crate::options::PoolOptions;
    use crate::pool::{Condition, Handle};

    const NOW: Instant = Instant::ORIGIN;

    /// A pool with so many connections in use.
    fn exhausted(connections: u32) -> (Pool<()>, Vec<Handle>) {
        let options = PoolOptions {
            max_pool_size: Some(connections),
            max_connecting: Some(connections),
            reuse: Some(Reuse::Random),
            ..PoolOptions::default()
        };
        let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, NOW).unwrap();
        pool.observe(false);
        pool.ready(NOW);
        for _ in 0..connections {
            let _ = pool.check_out(NOW, CheckOutRequest::default());
        }
        let mut in_use = Vec::new();
        while let Some(output) = pool.poll_output() {
            match output {
                Output::Action(Action::Connect { connection }) => pool.handle_established(NOW, connection, ()).unwrap(),
                Output::Action(Action::Deliver { connection, .. }) => in_use.push(connection),
                Output::Action(_) | Output::Event(_) => {}
            }
        }
        (pool, in_use)
    }

    /// How often each of the last `available` of so many connections is taken, of 1,000 times each.
    fn taken(connections: u32, available: usize) -> Vec<u32> {
        let (mut pool, mut in_use) = exhausted(connections);
        let back = in_use.split_off(connections as usize - available);
        for &connection in &back {
            let _ = pool.check_in(NOW, connection, (), Condition::Usable).unwrap();
        }
        let mut taken = alloc::vec![0; available];
        for _ in 0..1000 * available {
            let connection = pool.check_out(NOW, CheckOutRequest::default()).1.unwrap().connection;
            taken[back.iter().position(|&own| own == connection).unwrap()] += 1;
            let _ = pool.check_in(NOW, connection, (), Condition::Usable).unwrap();
        }
        taken
    }

    #[test]
    fn each_available_connection_is_taken_as_often() {
        assert!(taken(8, 8).iter().all(|&times| (850..1150).contains(&times)));
    }

    #[test]
    fn each_is_taken_as_often_where_most_connections_are_in_use() {
        assert!(taken(100, 3).iter().all(|&times| (850..1150).contains(&times)));
    }
}
