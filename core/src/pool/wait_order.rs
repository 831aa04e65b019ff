//! Waiting by deadline: the earliest deadline of a request is served first.
//!
//! The queue stays one list whose front part are the origins. What is added is an ordered set of the waiters, in which an
//! arrival finds its place in O(log n). Those that have left it are taken out of the set when an arrival comes upon
//! them, and all at once when they are the greater part: leaving costs nothing that way.
//!
//! An arrival before an origin takes over the pending connection of the last origin, which is the one that can wait longest.

use super::Pool;
use super::list::Key;
use super::timer::Deadline;
use super::wait_queue::WaitQueue;
use crate::time::Instant;

/// The set is cleaned when it holds more than this beside the waiters, and as many as them.
const LEFT: usize = 64;

impl<C> Pool<C> {
    /// Puts a check-out into the queue by its deadline.
    #[cold]
    pub(super) fn enqueue_by_deadline(&mut self, check_out: Key, deadline: Option<Instant>) {
        let timeout = self.limits.wait_queue_timeout;
        if let Some(connection) = self.wait_queue.enqueue_by_deadline(check_out, deadline, timeout) {
            self.change_origin(connection, check_out);
        }
    }
}

impl WaitQueue {
    /// Puts a started check-out into the queue in its place: until `deadline`, and for at most `timeout` nanoseconds.
    /// Returns the pending connection that it takes over.
    fn enqueue_by_deadline(&mut self, key: Key, deadline: Option<Instant>, timeout: u64) -> Option<Key> {
        self.begin_wait(key, deadline);
        let next = self.place_by_deadline(key);
        let last_origin = next.filter(|&next| self.pending(next).is_some()).and_then(|_| self.last_origin());
        match next {
            Some(next) => self.insert_before(next, key),
            None => self.push_back(key),
        }
        let taken_over = last_origin.and_then(|origin| Some((origin, self.pending(origin)?)));
        match taken_over {
            Some((origin, connection)) => {
                self.pass_origin(origin, key, Some(connection));
                // only its own deadline bounds the wait of an origin.
                self.schedule(key, u64::MAX);
                self.bound(origin, timeout);
            }
            None => self.schedule(key, timeout),
        }
        taken_over.map(|(_, connection)| connection)
    }

    /// Notes the waiter among those in the order of their deadlines; returns the one that comes next.
    fn place_by_deadline(&mut self, key: Key) -> Option<Key> {
        let mut waiters = self.by_deadline.take()?;
        if waiters.len() > 2 * self.len() as usize + LEFT {
            waiters.retain(|waiter| self.waits(waiter));
        }
        let (sequence, deadline) = self.own_deadline(key);
        // Without a deadline it comes last.
        let waiter = Deadline { at: deadline.unwrap_or(Instant::END), sequence, key };
        let next = loop {
            match waiters.range(waiter..).next().copied() {
                Some(next) if !self.waits(&next) => waiters.remove(&next),
                next => break next,
            };
        };
        waiters.insert(waiter);
        self.by_deadline = Some(waiters);
        next.map(|next| next.key)
    }
}
