//! How many bytes of its clients the hub holds, and who may hold more.
//!
//! One budget counts them all: messages that are being read, commands that wait or run, and replies that are not taken yet. A message counts
//! by its whole length before its body is read, since messages that were read as far as the budget goes would wait for each other for ever. It
//! is granted while anything of the budget is free, or large ones would wait behind small ones for ever; so the hub may hold a message more
//! than its budget.
//!
//! Who waits for a grant is not read from, which holds up that client and nobody else. No user is granted more of the budget than its part, so
//! that the rest is for others; the next grant is that of the user who holds least.
//! Replies grow out of commands that are small. So while those that are not taken fill the budget, or their user's part, the next command
//! of that user waits with its turn, however small it is. Messages that are read and commands that wait do not count for that: they are what
//! waits, and would wait for each other for ever. So the hub may hold as much of them as of replies, and the replies to what runs.
//!
//! While somebody waits, one that makes no progress gives way: the largest one of the user who holds most. What is small is not counted,
//! and its bytes wait for nothing.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use cmap_core::time::Instant;

use super::gauge::Gauge;

/// What a connection may hold uncounted: an ordinary command and its reply.
pub const UNCOUNTED: usize = 64 * 1024;

/// In how long who holds bytes has to move [`PROGRESS`] of them, where others wait for some.
const STRETCH: Duration = Duration::from_secs(10);

/// How many bytes that are: 64 KiB a second.
const PROGRESS: usize = 640 * 1024;

/// Who holds bytes: a connection, by its number.
pub type Holder = i64;

/// The limits, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Of all users.
    pub budget: usize,
    /// Of one user.
    pub per_user: usize,
}

/// All that is held.
#[derive(Clone, Debug)]
pub struct Memory {
    limits: MemoryLimits,
    held: Gauge,
    untaken: usize,
    of_user: BTreeMap<Arc<str>, OfUser>,
    holders: BTreeMap<Holder, Held>,
    asks: u64,
    waiting: usize,
}

/// What all connections of a user hold.
#[derive(Clone, Copy, Debug, Default)]
struct OfUser {
    bytes: usize,
    /// Those of them with a reply that is not taken.
    untaken: usize,
}

#[derive(Clone, Debug)]
struct Held {
    user: Arc<str>,
    bytes: usize,
    /// As many, if it holds a reply that is not taken; otherwise none.
    untaken: usize,
    ask: Option<Ask>,
    /// Since when its progress is watched, and how much there was since then. `None` while it is not the client that is waited for.
    moves: Option<(Instant, usize)>,
}

#[derive(Clone, Copy, Debug)]
struct Ask {
    bytes: usize,
    number: u64,
}

impl Memory {
    /// Nothing is held.
    pub fn new(limits: MemoryLimits) -> Self {
        let (of_user, holders) = (BTreeMap::new(), BTreeMap::new());
        Self { limits, held: Gauge::default(), untaken: 0, of_user, holders, asks: 0, waiting: 0 }
    }

    /// A client has begun a message, with which its connection holds so many bytes, and nothing of what came before. Whether it may be read on;
    /// otherwise it waits until [`next_grant`](Self::next_grant) names it, which may be at once.
    pub fn ask(&mut self, now: Instant, holder: Holder, user: &Arc<str>, bytes: usize) -> bool {
        let has_held = self.holders.get(&holder).is_some_and(|held| held.bytes > 0);
        // Otherwise it could wait for room that it takes itself.
        self.set(holder, user, 0);
        // Those that wait would have been granted what was free before, if they could be. What it has just given back is theirs first.
        let is_behind = has_held && self.waiting > 0;
        if self.has_room(user) && !is_behind {
            self.set(holder, user, bytes);
            self.watch(now, holder);
            return true;
        }
        self.asks += 1;
        let ask = Ask { bytes, number: self.asks };
        self.holder(holder, user).ask = Some(ask);
        self.waiting += 1;
        false
    }

    /// A connection holds so many bytes, and its client is not waited for.
    pub fn set(&mut self, holder: Holder, user: &Arc<str>, bytes: usize) {
        self.change(holder, user, bytes, 0);
    }

    /// A connection holds so many bytes, with a reply that its client has to take.
    pub fn offer(&mut self, holder: Holder, user: &Arc<str>, bytes: usize) {
        self.change(holder, user, bytes, bytes);
    }

    fn change(&mut self, holder: Holder, user: &Arc<str>, bytes: usize, untaken: usize) {
        self.give_up(holder);
        let held = self.holder(holder, user);
        held.moves = None;
        let before = std::mem::replace(&mut held.bytes, bytes);
        let untaken_before = std::mem::replace(&mut held.untaken, untaken);
        let user = Arc::clone(&held.user);
        self.held.lower(before);
        self.held.raise(bytes);
        self.untaken = self.untaken.saturating_sub(untaken_before).saturating_add(untaken);
        let of_user = self.of_user.entry(Arc::clone(&user)).or_default();
        of_user.bytes = of_user.bytes.saturating_sub(before).saturating_add(bytes);
        of_user.untaken = of_user.untaken.saturating_sub(untaken_before).saturating_add(untaken);
        if of_user.bytes == 0 {
            self.of_user.remove(&user);
        }
        if bytes == 0 {
            self.holders.remove(&holder);
        }
    }

    /// A connection's client is waited for from now on: to send the rest of a message, or to take a reply.
    pub fn watch(&mut self, now: Instant, holder: Holder) {
        self.holders.get_mut(&holder).into_iter().for_each(|held| held.moves = Some((now, 0)));
    }

    /// A client has sent or taken so many bytes.
    pub fn note_progress(&mut self, now: Instant, holder: Holder, bytes: usize) {
        let Some((since, moved)) = self.holders.get_mut(&holder).and_then(|held| held.moves.as_mut()) else { return };
        *moved = moved.saturating_add(bytes);
        if *moved >= PROGRESS {
            (*since, *moved) = (now, 0);
        }
    }

    /// The next one whose message may be read on; call it until there is none.
    pub fn next_grant(&mut self, now: Instant) -> Option<Holder> {
        if self.waiting == 0 || self.held.now() >= self.limits.budget {
            return None;
        }
        let asks = self.holders.iter().filter_map(|(holder, held)| Some((*holder, held, held.ask?)));
        let asks = asks.filter(|(_, held, _)| self.has_room(&held.user));
        let of_user = |held: &Held| self.bytes_of(&held.user);
        let (holder, held, ask) = asks.min_by_key(|(_, held, ask)| (of_user(held), ask.number))?;
        let user = Arc::clone(&held.user);
        self.set(holder, &user, ask.bytes);
        self.watch(now, holder);
        Some(holder)
    }

    /// Whether replies that are not taken leave room for one more to this user.
    pub fn has_room_for_reply(&self, user: &str) -> bool {
        self.untaken < self.limits.budget && self.of_user(user).untaken < self.limits.per_user
    }

    /// How many bytes are held with replies that are not taken.
    pub fn untaken(&self) -> usize {
        self.untaken
    }

    /// A command waits with its turn until there is room for its reply.
    pub fn begin_wait(&mut self) {
        self.waiting += 1;
    }

    /// It waits no more.
    pub fn end_wait(&mut self) {
        self.waiting -= 1;
    }

    /// The one that gives way, if somebody waits and it makes no progress: it is to be ended.
    pub fn slow(&self, now: Instant) -> Option<Holder> {
        if self.waiting == 0 {
            return None;
        }
        let of_user = |held: &Held| self.bytes_of(&held.user);
        let slow = self.holders.iter().filter(|(_, held)| {
            held.moves.is_some_and(|(since, _)| held.bytes > 0 && now.saturating_since(since) >= STRETCH)
        });
        slow.max_by_key(|(_, held)| (of_user(held), held.bytes)).map(|(holder, _)| *holder)
    }

    /// Changes the limits. What is held stays.
    pub fn set_limits(&mut self, limits: MemoryLimits) {
        self.limits = limits;
    }

    /// How many bytes are held, and were.
    pub fn held(&mut self) -> &mut Gauge {
        &mut self.held
    }

    /// How many wait: for a grant, or for room for a reply.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    fn has_room(&self, user: &str) -> bool {
        self.held.now() < self.limits.budget && self.bytes_of(user) < self.limits.per_user
    }

    fn bytes_of(&self, user: &str) -> usize {
        self.of_user(user).bytes
    }

    fn of_user(&self, user: &str) -> OfUser {
        self.of_user.get(user).copied().unwrap_or_default()
    }

    fn holder(&mut self, holder: Holder, user: &Arc<str>) -> &mut Held {
        let new = || Held { user: Arc::clone(user), bytes: 0, untaken: 0, ask: None, moves: None };
        self.holders.entry(holder).or_insert_with(new)
    }

    fn give_up(&mut self, holder: Holder) {
        let asked = self.holders.get_mut(&holder).and_then(|held| held.ask.take());
        self.waiting -= usize::from(asked.is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBI: usize = 1 << 20;
    const LIMITS: MemoryLimits = MemoryLimits { budget: 100 * MEBI, per_user: 100 * MEBI };

    fn at(seconds: u64) -> Instant {
        Instant::ORIGIN + Duration::from_secs(seconds)
    }

    fn users() -> [Arc<str>; 2] {
        ["greedy".into(), "modest".into()]
    }

    #[test]
    fn a_message_is_granted_while_anything_is_free_and_then_waits_for_what_others_give_back_x_141() {
        let ([greedy, modest], mut memory) = (users(), Memory::new(LIMITS));

        let granted = [1, 2, 3, 4].map(|holder| memory.ask(at(0), holder, &greedy, 48 * MEBI));
        assert_eq!(granted, [true, true, true, false]);
        assert!(!memory.ask(at(0), 5, &modest, MEBI));
        assert_eq!((memory.held().now(), memory.waiting(), memory.next_grant(at(0))), (144 * MEBI, 2, None));

        memory.set(1, &greedy, 0);
        assert_eq!(memory.next_grant(at(1)), Some(5), "that of the user who holds least, though it came later");
        assert_eq!(memory.next_grant(at(1)), Some(4));
        for (holder, user) in [(2, &greedy), (3, &greedy), (4, &greedy), (5, &modest)] {
            memory.set(holder, user, 0);
        }
        assert_eq!((memory.held().now(), memory.of_user.len(), memory.holders.len(), memory.waiting()), (0, 0, 0, 0));
    }

    #[test]
    fn one_that_begins_its_next_message_gives_back_what_the_last_one_took_x_141() {
        let ([greedy, modest], mut memory) = (users(), Memory::new(LIMITS));
        for holder in 1..=3 {
            assert!(memory.ask(at(0), holder, &greedy, 48 * MEBI));
            memory.set(holder, &greedy, 48 * MEBI);
        }

        for holder in 1..=3 {
            let is_granted = memory.ask(at(1), holder, &greedy, 48 * MEBI);
            assert!(is_granted || memory.next_grant(at(1)) == Some(holder), "{holder}");
        }

        assert!(!memory.ask(at(2), 4, &modest, 48 * MEBI));
        assert!(!memory.ask(at(2), 1, &greedy, 48 * MEBI), "it waits behind the one that was there");
        assert_eq!((memory.next_grant(at(2)), memory.next_grant(at(2))), (Some(4), None));
        memory.set(4, &modest, 0);
        assert_eq!((memory.next_grant(at(3)), memory.waiting()), (Some(1), 0));

        memory.offer(1, &greedy, 120 * MEBI);
        memory.ask(at(4), 1, &greedy, MEBI);
        assert_eq!(memory.untaken(), 0, "its reply was taken");
    }

    #[test]
    fn who_makes_no_progress_gives_way_if_somebody_waits_x_141() {
        let ([greedy, modest], mut memory) = (users(), Memory::new(LIMITS));
        assert!(memory.ask(at(0), 1, &greedy, 40 * MEBI) && memory.ask(at(0), 2, &greedy, 48 * MEBI));
        assert!(memory.ask(at(0), 3, &modest, 40 * MEBI));
        assert_eq!(memory.slow(at(60)), None, "nobody waits");
        assert!(!memory.ask(at(60), 4, &modest, 12 * MEBI));

        memory.note_progress(at(60), 2, PROGRESS);

        assert_eq!(memory.slow(at(60)), Some(1), "the larger one has gone on");
        memory.set(1, &greedy, 0);
        assert_eq!(memory.next_grant(at(60)), Some(4));
        assert!(!memory.ask(at(60), 5, &greedy, MEBI));
        assert_eq!(memory.slow(at(69)), Some(3));
        memory.set(3, &modest, 10 * MEBI);
        assert_eq!(memory.slow(at(69)), None, "its command runs");
        assert_eq!(memory.slow(at(70)), Some(2));
    }

    #[test]
    fn replies_that_are_not_taken_leave_no_room_for_others_and_give_way_x_141() {
        let limits = MemoryLimits { per_user: 50 * MEBI, ..LIMITS };
        let ([greedy, modest], mut memory) = (users(), Memory::new(limits));
        for (holder, bytes) in [(1, 16 * MEBI), (2, 40 * MEBI)] {
            assert!(memory.has_room_for_reply(&greedy));
            memory.offer(holder, &greedy, bytes);
            memory.watch(at(0), holder);
        }
        assert!(!memory.has_room_for_reply(&greedy), "it has its part");
        assert!(memory.has_room_for_reply(&modest));
        memory.offer(3, &modest, 48 * MEBI);
        assert!(!memory.has_room_for_reply(&modest), "the budget is full");
        assert_eq!(memory.slow(at(10)), None, "nobody waits");

        memory.begin_wait();

        assert_eq!(memory.slow(at(9)), None);
        assert_eq!(memory.slow(at(10)), Some(2));
        memory.set(2, &greedy, 0);
        assert!(memory.has_room_for_reply(&greedy) && memory.has_room_for_reply(&modest));
        memory.end_wait();
        assert_eq!((memory.slow(at(10)), memory.waiting()), (None, 0));
    }

    #[test]
    fn messages_and_commands_leave_room_for_the_replies_that_they_wait_for_x_141() {
        let ([greedy, _], mut memory) = (users(), Memory::new(LIMITS));

        for holder in 1..=3 {
            assert!(memory.ask(at(0), holder, &greedy, 48 * MEBI));
        }

        assert!(memory.has_room_for_reply(&greedy));
    }

    #[test]
    fn one_that_goes_while_it_waits_leaves_no_trace() {
        let ([greedy, modest], mut memory) = (users(), Memory::new(MemoryLimits { budget: MEBI, ..LIMITS }));
        assert!(memory.ask(at(0), 1, &greedy, 2 * MEBI));
        assert!(!memory.ask(at(0), 2, &modest, MEBI));

        memory.set(2, &modest, 0);

        assert_eq!((memory.waiting(), memory.holders.len(), memory.held().now()), (0, 1, 2 * MEBI));
    }

    #[test]
    fn one_user_leaves_a_part_of_the_budget_to_the_others_x_141() {
        let ([greedy, modest], mut memory) = (users(), Memory::new(MemoryLimits { per_user: 50 * MEBI, ..LIMITS }));
        assert!(memory.ask(at(0), 1, &greedy, 48 * MEBI) && memory.ask(at(0), 2, &greedy, 20 * MEBI));

        assert!(!memory.ask(at(0), 3, &greedy, MEBI));
        assert!(memory.ask(at(0), 4, &modest, MEBI), "past the one that has its part");

        memory.set(1, &greedy, 0);
        assert_eq!((memory.next_grant(at(0)), memory.next_grant(at(0))), (Some(3), None));
    }
}
