//! When the pool has to be called next, and why.
//!
//! Check-outs with a deadline are kept here, in a heap that knows every member's place (so that one leaves from the middle in
//! O(log n)). The other reasons follow from the state of the pool: maintenance, a pause before the next connection, an unused
//! host, the end of a connection's life.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Pool;
use super::list::{Key, NIL};
use super::settle::Due;
use crate::time::Instant;

/// When to call `handle_timeout`, and why. Calling earlier is harmless; calling later delays what is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Timeout {
    /// When.
    pub at: Instant,
    /// Why.
    pub reason: TimeoutReason,
}

impl<C> Pool<C> {
    /// Time has passed: fails check-outs whose time is up (CMAP-15), ends holds, creates the connections that a backoff or the
    /// limit of new ones held back, retires and refreshes connections, closes what a host has that nobody uses, runs
    /// maintenance if it is due (CMAP-47), and goes on with warm-ups.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        self.end_holds();
        self.expire_host();
        self.settle(Due::Time);
        if self.begin_maintenance() {
            self.settle(Due::Permit);
        }
    }

    /// Fails the check-outs whose time is up.
    #[cold]
    pub(super) fn fail_overdue(&mut self) {
        let bound = self.wait_bound();
        while let Some((key, limit)) = self.wait_queue.overdue(self.now) {
            self.fail_at_its_time(key, limit, self.wait_bound_of(key, bound));
        }
        if self.affinity.is_some() {
            // Those behind them in the queue may want connections that they did not.
            self.serve_from_available();
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), and why; `None` if nothing depends on time.
    ///
    /// Any call can change the answer. While outputs are queued it is "now"; after `handle_timeout(now)` and a drain it
    /// is later than `now`.
    #[must_use = "without it the driver does not know when to come back"]
    #[inline]
    pub fn poll_timeout(&self) -> Option<Timeout> {
        if !self.is_drained() {
            return Some(Timeout { at: self.now, reason: TimeoutReason::Outputs });
        }
        if self.is_at_rest() {
            return self.host_timeout();
        }
        let check_out = self.wait_queue.next_deadline().map(|at| Timeout { at, reason: TimeoutReason::CheckOut });
        // The first of those at the same time.
        [
            check_out,
            self.maintenance_timeout(),
            self.host_timeout(),
            self.creation_timeout(),
            self.retirement_timeout(),
            self.hold_timeout(),
            self.refresh_timeout(),
            self.warm_up_timeout(),
        ]
        .into_iter()
        .flatten()
        .min_by_key(|timeout| timeout.at)
    }

    /// Whether there is no connection, nobody who waits, and nothing to populate: then time changes nothing but whether the host is used.
    /// Many pools of identities are so.
    #[inline]
    fn is_at_rest(&self) -> bool {
        self.connections.total() == 0 && self.waiting() == 0 && self.min_pool_size() == 0 && !self.is_warming()
    }
}

/// Why the pool has to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TimeoutReason {
    /// When outputs wait to be drained: at once.
    Outputs,
    /// When the time of a check-out that waits is up (CMAP-15).
    CheckOut,
    /// When stale connections are available after a clear: at once (CMAP-43).
    PruneStale,
    /// When the connection that was available longest reaches maxIdleTimeMS (CMAP-47).
    PruneIdle,
    /// When it is time to see whether the host was used.
    HostTimeout,
    /// When connections are missing to minPoolSize (CMAP-44).
    Populate,
    /// When the pause ends that follows the refusal of an overloaded server, and a waiter needs a connection.
    Backoff,
    /// When the limit of new connections per second allows another one, and a waiter needs it.
    CreationRate,
    /// When the life of a connection ends.
    Retire,
    /// When a connection is held no more for its keys.
    Hold,
    /// When it is time to see whether a connection has been idle for long enough to be refreshed.
    Refresh,
    /// When a warm-up may go on.
    WarmUp,
}

/// A member of [`Deadlines`] that remembers its place there.
pub(crate) trait Timed {
    fn place(&mut self) -> &mut Key;
}

/// The deadlines of waiting check-outs, the earliest first; at the same time, the older check-out first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Deadlines {
    heap: Vec<Deadline>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) sequence: u64,
    pub(crate) key: Key,
}

impl Deadlines {
    #[inline]
    pub(crate) fn first(&self) -> Option<Deadline> {
        self.heap.first().copied()
    }

    /// The time of the deadline at this place; none is at `NIL`.
    pub(crate) fn at(&self, place: Key) -> Option<Instant> {
        Some(self.heap.get(place as usize)?.at)
    }

    #[inline(always)]
    pub(crate) fn insert<T: Timed>(&mut self, arena: &mut [T], deadline: Deadline) {
        let place = self.heap.len();
        self.heap.push(deadline);
        match place {
            0 => *arena[deadline.key as usize].place() = 0,
            place => self.rise(arena, place, deadline),
        }
    }

    /// Removes the deadline of a member, if it has one.
    #[inline(always)]
    pub(crate) fn remove<T: Timed>(&mut self, arena: &mut [T], key: Key) {
        let place = core::mem::replace(arena[key as usize].place(), NIL);
        if place == NIL {
            return;
        }
        // Often it is alone.
        if place as usize + 1 == self.heap.len() {
            self.heap.pop();
        } else {
            self.take_out_of_the_middle(arena, place as usize);
        }
    }

    fn take_out_of_the_middle<T: Timed>(&mut self, arena: &mut [T], place: usize) {
        let removed = self.heap.swap_remove(place);
        if let Some(&moved) = self.heap.get(place) {
            if moved < removed {
                self.rise(arena, place, moved);
            } else {
                self.sink(arena, place, moved);
            }
        }
    }

    pub(crate) fn clear<T: Timed>(&mut self, arena: &mut [T]) {
        for deadline in self.heap.drain(..) {
            *arena[deadline.key as usize].place() = NIL;
        }
    }

    /// Moves `deadline` from `place` towards the front, past all that are later.
    fn rise<T: Timed>(&mut self, arena: &mut [T], mut place: usize, deadline: Deadline) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent] < deadline {
                break;
            }
            self.put(arena, place, self.heap[parent]);
            place = parent;
        }
        self.put(arena, place, deadline);
    }

    /// Moves `deadline` from `place` towards the back, past all that are earlier.
    fn sink<T: Timed>(&mut self, arena: &mut [T], mut place: usize, deadline: Deadline) {
        loop {
            let left = 2 * place + 1;
            let Some(&first) = self.heap.get(left) else { break };
            let (child, earlier) = match self.heap.get(left + 1) {
                Some(&second) if second < first => (left + 1, second),
                _ => (left, first),
            };
            if deadline < earlier {
                break;
            }
            self.put(arena, place, earlier);
            place = child;
        }
        self.put(arena, place, deadline);
    }

    #[expect(clippy::cast_possible_truncation, reason = "places are fewer than keys, which have 32 bits")]
    fn put<T: Timed>(&mut self, arena: &mut [T], place: usize, deadline: Deadline) {
        self.heap[place] = deadline;
        *arena[deadline.key as usize].place() = place as Key;
    }

    /// Every deadline with its place, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Deadline)> {
        self.heap.iter().enumerate()
    }

    pub(crate) fn is_ordered(&self) -> bool {
        (1..self.heap.len()).all(|place| self.heap[(place - 1) / 2] < self.heap[place])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Timed for Key {
        fn place(&mut self) -> &mut Key {
            self
        }
    }

    #[test]
    fn deadlines_leave_in_order_of_time_then_of_age() {
        let mut places = [NIL; 6];
        let mut deadlines = Deadlines::default();
        for (key, at) in [(0, 30), (1, 10), (2, 20), (3, 10), (4, 40), (5, 20)] {
            let deadline = Deadline { at: Instant::from_millis(at), sequence: u64::from(key), key };
            deadlines.insert(&mut places, deadline);
        }
        deadlines.remove(&mut places, 0);

        let mut order = Vec::new();
        while let Some(first) = deadlines.first() {
            assert!(deadlines.is_ordered());
            order.push(first.key);
            deadlines.remove(&mut places, first.key);
        }
        assert_eq!(order, [1, 3, 2, 5, 4]);
    }
}
