//! Whose turn it is to use an upstream connection.
//!
//! A limited number of commands runs at once, and the others wait: each user in a line of its own, the first of each in turn. So one
//! with a thousand connections does not push aside one that has a single one. Where nobody logs in, an address is a user.
//!
//! Commands that let go of something (the next one of a transaction, its end, the end of a cursor) go before all others, and have a
//! few places of their own: a transaction holds locks upstream, and if commands that wait for these locks had all places, its commit
//! could never come. Among themselves they wait in the same way. The other places they share with the others by turns, or clients that
//! let go without end would keep everybody else out.
//!
//! A command for which there is no server gives its place to others meanwhile, and counts as one that waits. Where too many do, it is
//! refused: nobody else can be, since all of them may wait for the same server.
//!
//! When too many wait, the user with the longest line loses its first one, which has had its chance, and the new one is let in. If the
//! new one were refused instead, a client that is served would send its next command into the room that it has just left, and those
//! outside would stay there. Where those that wait have too many bytes, the new one is refused.

mod lines;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::lines::{Lines, Waiter};
use super::gauge::Gauge;

/// One command's place, from its entrance to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    number: u64,
    class: Class,
}

/// What a command may do about others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// It waits for its turn.
    Ordinary,
    /// It lets go of what others may wait for.
    LetsGo,
}

/// The limits of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Most commands that run at once.
    pub running: u32,
    /// How many of them are kept for those that let go.
    pub reserved: u32,
    /// Most commands that wait.
    pub waiting: usize,
    /// Most of one user's.
    pub waiting_per_user: usize,
    /// Most bytes that those that wait have together.
    pub waiting_bytes: usize,
}

/// How a command was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// It runs.
    Runs(Ticket),
    /// It waits, until [`Queue::next_turn`] names it.
    Waits(Ticket),
    /// It waits, and another one waits no more, because too many do.
    Displaces {
        /// This one.
        ticket: Ticket,
        /// The other one.
        refused: Ticket,
    },
    /// Too many wait, and none of them for a turn that could be this one's.
    Full,
    /// Those that wait have too many bytes for another one of this size.
    TooLarge,
}

/// Too many wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crowded {
    /// Too many.
    Full,
    /// With too many bytes.
    TooLarge,
}

/// The queue.
#[derive(Clone, Debug)]
pub struct Queue {
    limits: QueueLimits,
    tickets: u64,
    running: Gauge,
    /// How many of them are ordinary: those that let go may have all places, and must not take the others' share with them.
    ordinary_running: usize,
    /// Those that let go.
    eager: Lines,
    /// Whether the turn before this one was one of theirs.
    eager_was_last: bool,
    ordinary: Lines,
    /// How many of each user have had their turn, and wait for a server.
    parked: BTreeMap<Arc<str>, usize>,
    waiting: Gauge,
    bytes: Gauge,
    /// How many more were refused than served lately, each of them counted twice.
    excess: usize,
}

/// What a command that lets go may have, whatever the bytes of those that wait: the end of something is never refused.
const SMALL: usize = 16 * 1024;

/// The longest pause that drivers are asked for, in units of the shortest.
const MOST_BACKOFF: usize = 50;

/// After how many refusals too many the pause is a unit longer: as many as may wait, and at least so many.
const LEAST_STEP: usize = 100;

impl Ticket {
    /// What its command may do about others.
    pub fn class(self) -> Class {
        self.class
    }
}

impl Queue {
    /// Nobody runs, and nobody waits.
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            tickets: 0,
            running: Gauge::default(),
            ordinary_running: 0,
            eager: Lines::default(),
            eager_was_last: false,
            ordinary: Lines::default(),
            parked: BTreeMap::new(),
            waiting: Gauge::default(),
            bytes: Gauge::default(),
            excess: 0,
        }
    }

    /// A command of `user` comes, which has so many bytes.
    pub fn enter(&mut self, user: &Arc<str>, class: Class, bytes: usize) -> Entered {
        if self.is_open_to(class) {
            return self.admit(user, class, bytes);
        }
        if self.is_too_large(class, bytes) {
            self.count_refusal();
            return Entered::TooLarge;
        }
        // Those that let go are bounded by what is open.
        if class == Class::LetsGo {
            return self.admit(user, class, bytes);
        }
        let longest = if self.ordinary_of(user) >= self.limits.waiting_per_user {
            Arc::clone(user)
        } else if self.waiting.now() >= self.limits.waiting {
            self.ordinary.longest_or(user)
        } else {
            return self.admit(user, class, bytes);
        };
        self.count_refusal();
        let Some(refused) = self.ordinary.pop_of(&longest) else { return Entered::Full };
        self.count_gone(refused.bytes);
        Entered::Displaces { ticket: self.line_up(user, class, bytes), refused: refused.ticket }
    }

    /// A command of `user` that runs waits for a server, and leaves its place to others until [`resume`](Self::resume).
    ///
    /// # Errors
    /// Too many wait already. Its place is left all the same.
    pub fn park(&mut self, user: &Arc<str>, class: Class, bytes: usize) -> Result<(), Crowded> {
        self.leave(class);
        // It came in without waiting, so nobody has counted it yet.
        let is_full =
            self.ordinary_of(user) >= self.limits.waiting_per_user || self.waiting.now() >= self.limits.waiting;
        let crowded = if self.is_too_large(class, bytes) {
            Some(Crowded::TooLarge)
        } else {
            (class == Class::Ordinary && is_full).then_some(Crowded::Full)
        };
        if let Some(crowded) = crowded {
            self.count_refusal();
            return Err(crowded);
        }
        *self.parked.entry(Arc::clone(user)).or_default() += 1;
        self.count_waiting(bytes);
        Ok(())
    }

    /// One that was parked wants a place again. It has been let in before, so it is never one too many.
    pub fn resume(&mut self, user: &Arc<str>, class: Class, bytes: usize) -> Entered {
        self.give_up_parked(user, bytes);
        self.admit(user, class, bytes)
    }

    /// One that was parked waits no more.
    pub fn give_up_parked(&mut self, user: &Arc<str>, bytes: usize) {
        let Some(count) = self.parked.get_mut(user) else { return };
        *count -= 1;
        if *count == 0 {
            self.parked.remove(user);
        }
        self.count_gone(bytes);
    }

    /// A command that ran has ended.
    pub fn leave(&mut self, class: Class) {
        self.running.lower(1);
        if class == Class::Ordinary {
            self.ordinary_running = self.ordinary_running.saturating_sub(1);
        }
        self.excess = self.excess.saturating_sub(1);
    }

    /// How long a pause to ask drivers for, in units of the shortest: the longer, the more were refused than served. A refusal is work, too,
    /// and without this the retries of those who are refused leave no time for the others.
    pub fn backoff_factor(&self) -> u32 {
        u32::try_from(1 + self.excess / self.backoff_step()).unwrap_or(u32::MAX)
    }

    /// A command that waited waits no more.
    pub fn give_up(&mut self, user: &Arc<str>, ticket: Ticket) {
        let found = self.eager.remove(user, ticket).or_else(|| self.ordinary.remove(user, ticket));
        if let Some(waiter) = found {
            self.count_gone(waiter.bytes);
        }
    }

    /// The next one that runs now, if there is a place; call it until there is none.
    pub fn next_turn(&mut self) -> Option<Ticket> {
        let is_ordinary = self.is_awaited_by_others() && self.eager_was_last;
        if !is_ordinary
            && self.has_place(Class::LetsGo)
            && let Some(waiter) = self.eager.pop()
        {
            self.eager_was_last = true;
            return Some(self.run(waiter));
        }
        if !self.has_place(Class::Ordinary) {
            return None;
        }
        self.eager_was_last = false;
        let waiter = self.ordinary.pop()?;
        Some(self.run(waiter))
    }

    /// How many run, and ran.
    pub fn running(&mut self) -> &mut Gauge {
        &mut self.running
    }

    /// How many wait, and waited, for their turn or for a server.
    pub fn waiting(&mut self) -> &mut Gauge {
        &mut self.waiting
    }

    /// How many bytes those have that wait, and had.
    pub fn waiting_bytes(&mut self) -> &mut Gauge {
        &mut self.bytes
    }

    /// How many of a user's wait.
    pub fn waiting_of(&self, user: &str) -> usize {
        self.eager.len_of(user) + self.ordinary_of(user)
    }

    /// Changes the limits. Commands that wait already stay in the queue.
    pub fn set_limits(&mut self, limits: QueueLimits) {
        self.limits = limits;
    }

    fn admit(&mut self, user: &Arc<str>, class: Class, bytes: usize) -> Entered {
        if self.is_open_to(class) {
            let ticket = self.next_ticket(class);
            self.count_running(ticket);
            return Entered::Runs(ticket);
        }
        Entered::Waits(self.line_up(user, class, bytes))
    }

    fn line_up(&mut self, user: &Arc<str>, class: Class, bytes: usize) -> Ticket {
        let ticket = self.next_ticket(class);
        let waiter = Waiter { ticket, bytes };
        match class {
            Class::LetsGo => self.eager.push(user, waiter),
            Class::Ordinary => self.ordinary.push(user, waiter),
        }
        self.count_waiting(bytes);
        ticket
    }

    fn next_ticket(&mut self, class: Class) -> Ticket {
        self.tickets += 1;
        Ticket { number: self.tickets, class }
    }

    fn run(&mut self, waiter: Waiter) -> Ticket {
        self.count_running(waiter.ticket);
        self.count_gone(waiter.bytes);
        waiter.ticket
    }

    fn count_running(&mut self, ticket: Ticket) {
        self.running.raise(1);
        self.ordinary_running += usize::from(ticket.class == Class::Ordinary);
    }

    /// Whether there is a place at once, with nobody before it.
    fn is_open_to(&self, class: Class) -> bool {
        let is_first = match class {
            // Between the end of a command and the next turn the place is not theirs alone.
            Class::LetsGo => !self.is_awaited_by_others(),
            Class::Ordinary => self.ordinary.is_empty(),
        };
        self.has_place(class) && self.eager.is_empty() && is_first
    }

    /// Whether ordinary commands wait that could have a place.
    fn is_awaited_by_others(&self) -> bool {
        !self.ordinary.is_empty() && self.has_place(Class::Ordinary)
    }

    fn has_place(&self, class: Class) -> bool {
        let QueueLimits { running, reserved, .. } = self.limits;
        let has_share = match class {
            Class::LetsGo => true,
            // One at least.
            Class::Ordinary => self.ordinary_running < running.saturating_sub(reserved).max(1) as usize,
        };
        has_share && self.running.now() < running as usize
    }

    /// Whether those that wait would have too many bytes with it.
    fn is_too_large(&self, class: Class, bytes: usize) -> bool {
        let is_end = class == Class::LetsGo && bytes <= SMALL;
        !is_end && self.bytes.now().saturating_add(bytes) > self.limits.waiting_bytes
    }

    /// Without those that let go and wait for their turn.
    fn ordinary_of(&self, user: &str) -> usize {
        self.ordinary.len_of(user) + self.parked.get(user).copied().unwrap_or_default()
    }

    fn count_waiting(&mut self, bytes: usize) {
        self.waiting.raise(1);
        self.bytes.raise(bytes);
    }

    /// One that waited waits no more.
    fn count_gone(&mut self, bytes: usize) {
        self.waiting.lower(1);
        self.bytes.lower(bytes);
    }

    fn count_refusal(&mut self) {
        self.excess = (self.excess + 2).min(MOST_BACKOFF * self.backoff_step());
    }

    fn backoff_step(&self) -> usize {
        self.limits.waiting.max(LEAST_STEP)
    }
}
