//! Check-outs from their start to the return of the connection, and the queue of those that wait.
//!
//! The queue is first in, first out (CMAP-14). A waiter may have caused a pending connection to be created; it is that
//! connection's *origin* and waits like the others, for whatever comes first. A permit goes to the first
//! waiter that has none, so the origins are always the front part of the queue: one key, `next_origin`, marks where they
//! end, and nothing is ever searched.
//!
//! An entry outlives the wait. Until the connection is checked in, it records the fate of the check-out, which a
//! cancellation that races the delivery needs to know.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::AffinityKey;
use super::error::WaitLimit;
use super::handle::{CheckOutId, IdentityId, PoolId};
use super::list::{Key, Linked, Links, List, NIL, WAITERS, ensure};
use super::timer::{Deadline, Deadlines, Timed};
use crate::time::Instant;

/// A caller's request for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CheckOutRequest {
    /// The caller's own deadline, whatever the pool's waitQueueTimeoutMS says (CMAP-33).
    pub deadline: Option<Instant>,
    /// Whose connection is wanted: what that means is up to the option `affinity`, without which it means nothing.
    pub affinity: Option<AffinityKey>,
    /// The identity that the connection has to have; `None` = the credential of the options. A topology obeys it; a
    /// pool has one credential, and does not look at it.
    pub identity: Option<IdentityId>,
}

/// The state in which a cancellation found its check-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cancellation {
    /// The check-out waited; now it is over.
    Cancelled,
    /// It has been delivered: the caller has the connection, or finds it in the outputs, and must check it in.
    Delivered,
    /// It had ended: it failed, was cancelled, or its connection was checked in.
    Finished,
}

/// All check-outs that have not ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WaitQueue {
    pool: PoolId,
    entries: Vec<Entry>,
    vacant: Key,
    /// The number of check-outs ever started.
    pub(super) last_sequence: u64,
    waiting: List<WAITERS>,
    /// The first waiter that is not an origin; all before it are.
    next_origin: Key,
    deadlines: Deadlines,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    sequence: u64,
    /// When the check-out began; from its delivery on, when that was.
    started_at: Instant,
    progress: Progress,
    /// The caller's own deadline.
    deadline: Option<Instant>,
    /// Its place among the deadlines.
    place: Key,
    links: Links,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Progress {
    /// Ended, or never begun: the entry is vacant.
    Finished,
    /// Neither waiting nor served: just started, or about to end.
    Started,
    /// In the queue; `pending` is the connection that was created for it and is not established yet.
    Waiting { pending: Option<Key> },
    /// In the list of the connection that its key has.
    Sticky { connection: Key },
    /// Its connection is in use.
    Delivered,
}

impl WaitQueue {
    pub(crate) fn new(pool: PoolId) -> Self {
        Self {
            pool,
            entries: Vec::new(),
            vacant: NIL,
            last_sequence: 0,
            waiting: List::EMPTY,
            next_origin: NIL,
            deadlines: Deadlines::default(),
        }
    }

    /// Opens a check-out that neither waits nor has a connection yet.
    #[inline]
    pub(crate) fn start(&mut self, now: Instant) -> CheckOutId {
        self.open(now, Progress::Started, self.next_key())
    }

    /// Opens a check-out that has its connection already, at the [next key](Self::next_key).
    #[inline(always)]
    pub(crate) fn start_delivered(&mut self, now: Instant, key: Key) -> CheckOutId {
        self.open(now, Progress::Delivered, key)
    }

    /// The key of the check-out that is opened next.
    #[inline(always)]
    pub(crate) fn next_key(&self) -> Key {
        if self.vacant == NIL { self.end() } else { self.vacant }
    }

    #[cold]
    fn end(&self) -> Key {
        #[expect(clippy::cast_possible_truncation, reason = "memory ends long before 2^32 waiters")]
        let end = self.entries.len() as Key;
        end
    }

    #[inline(always)]
    fn open(&mut self, started_at: Instant, progress: Progress, key: Key) -> CheckOutId {
        self.last_sequence = self.last_sequence.wrapping_add(1);
        let sequence = self.last_sequence;
        match self.entries.get_mut(key as usize) {
            Some(entry) => {
                self.vacant = core::mem::replace(&mut entry.links.next, NIL);
                entry.sequence = sequence;
                entry.started_at = started_at;
                entry.progress = progress;
            }
            None => self.add(sequence, started_at, progress),
        }
        CheckOutId { sequence, key, pool: self.pool }
    }

    #[cold]
    fn add(&mut self, sequence: u64, started_at: Instant, progress: Progress) {
        let links = Links::UNLINKED;
        self.entries.push(Entry { sequence, started_at, progress, deadline: None, place: NIL, links });
    }

    /// Puts a started check-out at the end of the queue: until `deadline`, and for at most `timeout` nanoseconds.
    #[inline(always)]
    pub(crate) fn enqueue(&mut self, key: Key, deadline: Option<Instant>, timeout: u64) {
        self.waiting.push_back(&mut self.entries, key);
        if self.next_origin == NIL {
            self.next_origin = key;
        }
        self.begin_wait(key, Progress::Waiting { pending: None }, deadline, timeout);
    }

    #[inline(always)]
    fn begin_wait(&mut self, key: Key, progress: Progress, deadline: Option<Instant>, timeout: u64) {
        let entry = &mut self.entries[key as usize];
        entry.progress = progress;
        entry.deadline = deadline;
        entry.place = NIL;
        self.schedule(key, timeout);
    }

    /// The last of the origins, which are the front part of the queue.
    pub(super) fn last_origin(&self) -> Option<Key> {
        match self.next_origin {
            NIL => self.waiting.back(),
            next => self.waiting.previous(&self.entries, next),
        }
    }

    /// The last origin is none any more: its pending connection is `heir`'s, who stands before it, or the same without one.
    pub(super) fn pass_origin(&mut self, from: Key, heir: Key, pending: Option<Key>) {
        self.set_pending(from, None);
        self.set_pending(heir, pending);
        self.next_origin = from;
    }

    /// Bounds the wait of one that has become an origin, or is none any more, by another time.
    pub(super) fn bound(&mut self, key: Key, timeout: u64) {
        self.deadlines.remove(&mut self.entries, key);
        self.schedule(key, timeout);
    }

    /// When a waiter's time is up, as things are.
    pub(super) fn due_at(&self, key: Key) -> Option<Instant> {
        self.deadlines.at(self.entries[key as usize].place)
    }

    /// A waiter's own deadline.
    pub(super) fn own_deadline(&self, key: Key) -> Option<Instant> {
        self.entries[key as usize].deadline
    }

    /// The first waiter that is not an origin.
    pub(crate) fn next_origin(&self) -> Option<Key> {
        (self.next_origin != NIL).then_some(self.next_origin)
    }

    /// Makes the first waiter that is not an origin the origin of the connection `pending`. From now on only its own
    /// deadline bounds its wait (CMAP-5, X-16).
    pub(crate) fn make_origin(&mut self, key: Key, pending: Key) {
        debug_assert_eq!(self.next_origin, key, "origins are the front part of the queue");
        self.next_origin = self.waiting.next(&self.entries, key).unwrap_or(NIL);
        self.set_pending(key, Some(pending));
        self.bound(key, u64::MAX);
    }

    /// The pending connection of a waiter that is an origin.
    pub(crate) fn pending(&self, key: Key) -> Option<Key> {
        let Progress::Waiting { pending } = self.entries[key as usize].progress else { return None };
        pending
    }

    /// Replaces the connection of an origin.
    pub(crate) fn set_pending(&mut self, key: Key, pending: Option<Key>) {
        self.entries[key as usize].progress = Progress::Waiting { pending };
    }

    /// The head of the queue.
    pub(crate) fn front(&self) -> Option<Key> {
        self.waiting.front()
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.waiting.len()
    }

    /// A check-out that does not wait has its connection.
    #[inline]
    pub(crate) fn deliver(&mut self, key: Key) -> CheckOutId {
        let entry = &mut self.entries[key as usize];
        entry.progress = Progress::Delivered;
        CheckOutId { sequence: entry.sequence, key, pool: self.pool }
    }

    /// A check-out that does not wait has ended.
    #[inline]
    pub(crate) fn finish(&mut self, key: Key) {
        let entry = &mut self.entries[key as usize];
        entry.progress = Progress::Finished;
        entry.links.next = self.vacant;
        self.vacant = key;
    }

    /// Whether the check-out at `key` is this one.
    #[inline(always)]
    pub(crate) fn is_at(&self, id: CheckOutId, key: Key) -> bool {
        let entry = self.entries.get(key as usize);
        id.key == key && id.pool == self.pool && entry.is_some_and(|entry| entry.sequence == id.sequence)
    }

    pub(crate) fn id(&self, key: Key) -> CheckOutId {
        CheckOutId { sequence: self.entries[key as usize].sequence, key, pool: self.pool }
    }

    /// When a check-out began; once its [use has begun](Self::begin_use), when that was.
    pub(crate) fn started_at(&self, key: Key) -> Instant {
        self.entries[key as usize].started_at
    }

    /// The use of a connection that was delivered begins.
    #[inline]
    pub(crate) fn begin_use(&mut self, key: Key, now: Instant) {
        self.entries[key as usize].started_at = now;
    }

    /// Those in the queue, its head first.
    pub(super) fn waiters(&self) -> impl Iterator<Item = Key> {
        self.members(&self.waiting)
    }

    /// Those in a list, its front first.
    pub(super) fn members<'a>(&'a self, list: &'a List<WAITERS>) -> impl Iterator<Item = Key> + 'a {
        list.iter(&self.entries)
    }

    /// What cancelling `id` would find now.
    pub(crate) fn progress(&self, id: CheckOutId) -> Cancellation {
        let known = self.entries.get(id.key as usize).filter(|_| self.is_at(id, id.key));
        match known.map_or(Progress::Finished, |entry| entry.progress) {
            Progress::Started | Progress::Waiting { .. } | Progress::Sticky { .. } => Cancellation::Cancelled,
            Progress::Delivered => Cancellation::Delivered,
            Progress::Finished => Cancellation::Finished,
        }
    }

    /// The earliest deadline of a waiter.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|deadline| deadline.at)
    }

    /// A waiter whose time is up at `now`, and the limit it reached.
    pub(crate) fn overdue(&self, now: Instant) -> Option<(Key, WaitLimit)> {
        let first = self.deadlines.first().filter(|deadline| deadline.at <= now)?;
        let own = self.entries[first.key as usize].deadline;
        let limit = if own == Some(first.at) { WaitLimit::Deadline } else { WaitLimit::WaitQueueTimeout };
        Some((first.key, limit))
    }

    /// Frees all waiters of their deadlines, because all are about to leave: one by one, each would cost O(log n).
    pub(crate) fn lift_deadlines(&mut self) {
        self.deadlines.clear(&mut self.entries);
    }

    /// Takes a check-out out of the queue, if it is there.
    #[inline(always)]
    pub(crate) fn leave(&mut self, key: Key) {
        let entry = &mut self.entries[key as usize];
        if let Progress::Waiting { .. } = entry.progress {
            entry.progress = Progress::Started;
            entry.deadline = None;
            if self.next_origin == key {
                self.next_origin = entry.links.next;
            }
            self.waiting.remove_inline(&mut self.entries, key);
            self.deadlines.remove(&mut self.entries, key);
        }
    }

    /// Puts a started check-out at the end of those that wait for one connection.
    pub(super) fn enqueue_for(
        &mut self,
        connection: Key,
        waiters: &mut List<WAITERS>,
        key: Key,
        deadline: Option<Instant>,
        timeout: u64,
    ) {
        waiters.push_back(&mut self.entries, key);
        self.begin_wait(key, Progress::Sticky { connection }, deadline, timeout);
    }

    /// The connection that a check-out waits for, if it is one alone.
    pub(super) fn awaited(&self, key: Key) -> Option<Key> {
        let Progress::Sticky { connection } = self.entries[key as usize].progress else { return None };
        Some(connection)
    }

    /// Takes a check-out out of the list of those that wait for one connection.
    pub(super) fn leave_list(&mut self, waiters: &mut List<WAITERS>, key: Key) {
        waiters.remove(&mut self.entries, key);
        self.deadlines.remove(&mut self.entries, key);
        self.entries[key as usize].progress = Progress::Started;
    }

    /// Check-outs that wait for one connection alone.
    pub(super) fn sticky(&self) -> usize {
        self.count(|progress| matches!(progress, Progress::Sticky { .. }))
    }

    /// How many wait for this connection alone, if the list of them is consistent.
    pub(super) fn check_list(&self, waiters: &List<WAITERS>, connection: Key) -> Result<usize, &'static str> {
        let waiters = waiters.check(&self.entries)?;
        let are_right = waiters.iter().all(|&key| self.awaited(key) == Some(connection));
        ensure(are_right, "a check-out waits for another connection than it says")?;
        Ok(waiters.len())
    }

    /// Notes the earlier of the waiter's own deadline and the end of `timeout` since its start.
    #[inline(always)]
    fn schedule(&mut self, key: Key, timeout: u64) {
        let Entry { sequence, started_at, deadline, .. } = self.entries[key as usize];
        let limit = (timeout != u64::MAX).then(|| started_at.after(timeout));
        let earlier = match (limit, deadline) {
            (Some(limit), Some(deadline)) => Some(limit.min(deadline)),
            (limit, deadline) => limit.or(deadline),
        };
        if let Some(at) = earlier {
            self.deadlines.insert(&mut self.entries, Deadline { at, sequence, key });
        }
    }

    /// Whether all of this is consistent; `pending` says which connection has a check-out as its origin.
    pub(crate) fn check(&self, origin_of: impl Fn(Key) -> Option<Key>) -> Result<(), &'static str> {
        let waiting = self.waiting.check(&self.entries)?;
        let in_queue = self.count(|progress| matches!(progress, Progress::Waiting { .. }));
        ensure(in_queue == waiting.len(), "a check-out waits outside the queue")?;
        let mut origins = true;
        for &key in &waiting {
            let Progress::Waiting { pending } = self.entries[key as usize].progress else {
                return Err("the queue holds one that does not wait");
            };
            if origins && pending.is_none() {
                origins = false;
                let is_next = self.next_origin == key;
                ensure(is_next, "the next origin is not the first waiter without a pending connection")?;
            }
            ensure(origins == pending.is_some(), "an origin waits behind one that is none")?;
            let is_known = pending.is_none_or(|pending| origin_of(pending) == Some(key));
            ensure(is_known, "a pending connection does not know its origin")?;
        }
        ensure(!origins || self.next_origin == NIL, "the next origin does not wait")?;
        ensure(self.deadlines.is_ordered(), "deadlines are out of order")?;
        for (place, deadline) in self.deadlines.iter() {
            let is_waiters = self.entries.get(deadline.key as usize).is_some_and(|entry| {
                let waits = matches!(entry.progress, Progress::Waiting { .. } | Progress::Sticky { .. });
                waits && entry.place as usize == place
            });
            ensure(is_waiters, "a deadline belongs to no waiter")?;
        }
        let placed = self.entries.iter().filter(|entry| entry.place != NIL).count();
        ensure(placed == self.deadlines.iter().count(), "a waiter has a deadline that is not kept")?;
        let are_older = self.entries.iter().all(|entry| entry.sequence <= self.last_sequence);
        ensure(are_older, "a check-out is newer than the last one")?;
        let mut vacant = self.vacant;
        for _ in 0..self.count(|progress| *progress == Progress::Finished) {
            match self.entries.get(vacant as usize) {
                Some(entry) if entry.progress == Progress::Finished => vacant = entry.links.next,
                _ => return Err("an occupied check-out counts as vacant, or a vacant one is lost"),
            }
        }
        ensure(vacant == NIL, "a vacant check-out is chained twice")
    }

    pub(crate) fn is_origin(&self, key: Key, pending: Key) -> bool {
        self.entries
            .get(key as usize)
            .is_some_and(|entry| entry.progress == Progress::Waiting { pending: Some(pending) })
    }

    pub(crate) fn is_delivered(&self, key: Key) -> bool {
        self.entries.get(key as usize).is_some_and(|entry| entry.progress == Progress::Delivered)
    }

    /// Check-outs that were delivered and whose connection has not come back.
    pub(crate) fn delivered(&self) -> usize {
        self.count(|progress| *progress == Progress::Delivered)
    }

    fn count(&self, is_meant: impl Fn(&Progress) -> bool) -> usize {
        self.entries.iter().filter(|entry| is_meant(&entry.progress)).count()
    }
}

impl CheckOutRequest {
    /// A request that gives up at `deadline`.
    pub fn until(deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..Self::default() }
    }

    /// Asks for the connection that `key` had last.
    #[must_use]
    pub fn affinity(self, key: AffinityKey) -> Self {
        Self { affinity: Some(key), ..self }
    }

    /// Asks for a connection that is logged in as this identity.
    #[must_use]
    pub fn identity(self, identity: IdentityId) -> Self {
        Self { identity: Some(identity), ..self }
    }
}

impl Linked<WAITERS> for Entry {
    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl Timed for Entry {
    fn place(&mut self) -> &mut Key {
        &mut self.place
    }
}
