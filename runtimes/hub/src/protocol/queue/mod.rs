//! Whose turn it is to use an upstream connection.
//!
//! A limited number of commands runs at once, and the others wait: each user in a line of its own. The next turn is that of the user who has
//! used least of the servers' time (`accounts`, `usage`). So one with a thousand connections does not push aside one that has a single one, and
//! one whose commands take seconds has no more of the servers than one whose commands take none. Turns end nothing that runs; so a user
//! has a number of places at most, which leaves some to others. Where nobody logs in, an address is a user.
//!
//! Commands that let go of something (the next one of a transaction, its end, the end of a cursor) go before all others, and have a
//! few places of their own: a transaction holds locks upstream, and if commands that wait for these locks had all places, its commit
//! could never come. Among themselves they wait in the same way. The other places they share with the others by turns, or clients that
//! let go without end would keep everybody else out.
//!
//! A getMore that waits for documents uses no time of a server, and is not charged for any. It has a connection all the same, so there are
//! fewer of them at once than there are places, and of one user's fewer than its places.
//!
//! A command for which there is no server gives its place to others meanwhile, and counts as one that waits. Where too many do, it is
//! refused: nobody else can be, since all of them may wait for the same server.
//!
//! When too many wait, the user with the longest line loses its first one, which has had its chance, and the new one is let in. If the
//! new one were refused instead, a client that is served would send its next command into the room that it has just left, and those
//! outside would stay there. Where those that wait have too many bytes, the user who has most of them loses its first ones in the same way, if
//! it has more than the new one's user would have; otherwise the new one is refused.

mod accounts;
#[cfg(test)]
mod tests;
mod usage;

use std::sync::Arc;

use cmap_core::time::Instant;

use self::accounts::{Accounts, Waiter};
use super::gauge::Gauge;
use crate::users::{Group, Share};

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
    /// It waits at its server for documents to come, as the getMore of a change stream does.
    Awaits,
}

/// A command that has a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Whose it is.
    pub user: Arc<str>,
    /// The group of that user, for which it counts, too.
    pub group: Option<Arc<Group>>,
    /// What it may do about others.
    pub class: Class,
    /// Since when it has the place.
    pub since: Instant,
}

/// The limits of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Most commands that run at once.
    pub running: u32,
    /// How many of them are kept for those that let go.
    pub reserved: u32,
    /// Most commands of one user that run at once, not counting as many as are reserved for those that release connections.
    pub running_per_user: u32,
    /// Most of those that run which wait for documents.
    pub awaiting: u32,
    /// Most commands that wait.
    pub waiting: usize,
    /// Most of one user's.
    pub waiting_per_user: usize,
    /// Most bytes that those that wait have together.
    pub waiting_bytes: usize,
}

/// How a command was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entered {
    /// It runs.
    Runs(Placed),
    /// It waits, until [`Queue::next_turn`] names it.
    Waits(Ticket),
    /// It waits, and others wait no more.
    Displaces {
        /// This one.
        ticket: Ticket,
        /// The others.
        refused: Vec<Ticket>,
        /// Why.
        why: Crowded,
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
    accounts: Accounts,
    running: Gauge,
    /// How many of them are ordinary: those that let go may have all places, and must not take the others' share with them.
    ordinary_running: usize,
    /// How many of these wait for documents.
    awaiting: usize,
    /// Whether ordinary commands have no turns.
    is_paused: bool,
    /// Whether the turn before this one was that of one that lets go.
    eager_was_last: bool,
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

/// Those that want a place which is not kept for those that let go.
const ORDINARY: [Class; 2] = [Class::Ordinary, Class::Awaits];

/// Three quarters of `places`, at least one: the last quarter is kept free for other commands.
pub(crate) fn but_a_quarter(places: u32) -> u32 {
    (places - (places / 4).max(1).min(places)).max(1)
}

impl Class {
    /// All of them, in their order.
    pub(super) const ALL: [Self; 3] = [Self::Ordinary, Self::LetsGo, Self::Awaits];

    /// Whether it wants a place which is not kept for those that let go.
    fn is_ordinary(self) -> bool {
        self != Self::LetsGo
    }

    /// Whether its time counts as time at the servers.
    fn is_charged(self) -> bool {
        self != Self::Awaits
    }
}

impl Queue {
    /// Nobody runs, and nobody waits.
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            tickets: 0,
            accounts: Accounts::default(),
            running: Gauge::default(),
            ordinary_running: 0,
            awaiting: 0,
            is_paused: false,
            eager_was_last: false,
            waiting: Gauge::default(),
            bytes: Gauge::default(),
            excess: 0,
        }
    }

    /// A command of `user` comes, which has so many bytes.
    pub fn enter(&mut self, now: Instant, user: &Arc<str>, class: Class, bytes: usize) -> Entered {
        if self.is_open_to(user, class) {
            return Entered::Runs(self.run(now, user, class));
        }
        if self.is_too_large(class, bytes) {
            self.count_refusal();
            let refused = self.make_room(user, bytes);
            if refused.is_empty() {
                return Entered::TooLarge;
            }
            return Entered::Displaces {
                ticket: self.line_up(now, user, class, bytes),
                refused,
                why: Crowded::TooLarge,
            };
        }
        // Those that let go are bounded by what is open.
        if class == Class::LetsGo {
            return Entered::Waits(self.line_up(now, user, class, bytes));
        }
        let longest = if self.accounts.is_full(user, &self.limits) {
            Arc::clone(user)
        } else if self.accounts.is_group_full(user) {
            self.accounts.longest_or(user, true)
        } else if self.waiting.now() >= self.limits.waiting {
            self.accounts.longest_or(user, false)
        } else {
            return Entered::Waits(self.line_up(now, user, class, bytes));
        };
        self.count_refusal();
        let Some(refused) = self.accounts.pop_ordinary_of(&longest) else { return Entered::Full };
        self.count_gone(refused.bytes);
        let refused = vec![refused.ticket];
        Entered::Displaces { ticket: self.line_up(now, user, class, bytes), refused, why: Crowded::Full }
    }

    /// A command that runs waits for a server, and leaves its place to others until [`resume`](Self::resume).
    ///
    /// # Errors
    /// Too many wait already. Its place is left all the same.
    pub fn park(&mut self, now: Instant, placed: &Placed, bytes: usize) -> Result<(), Crowded> {
        self.leave(now, placed);
        let Placed { user, class, .. } = placed;
        // It came in without waiting, so nobody has counted it yet.
        let is_full = self.accounts.is_full(user, &self.limits)
            || self.accounts.is_group_full(user)
            || self.waiting.now() >= self.limits.waiting;
        let crowded = if self.is_too_large(*class, bytes) {
            Some(Crowded::TooLarge)
        } else {
            (class.is_ordinary() && is_full).then_some(Crowded::Full)
        };
        if let Some(crowded) = crowded {
            self.count_refusal();
            return Err(crowded);
        }
        self.accounts.park(user);
        self.count_waiting(bytes);
        Ok(())
    }

    /// One that was parked wants a place again. It has been let in before, so it is never one too many.
    pub fn resume(&mut self, now: Instant, user: &Arc<str>, class: Class, bytes: usize) -> Entered {
        self.give_up_parked(user, bytes);
        if self.is_open_to(user, class) {
            return Entered::Runs(self.run(now, user, class));
        }
        Entered::Waits(self.line_up(now, user, class, bytes))
    }

    /// One that was parked waits no more.
    pub fn give_up_parked(&mut self, user: &str, bytes: usize) {
        if self.accounts.unpark(user) {
            self.count_gone(bytes);
        }
    }

    /// A command that ran has ended.
    pub fn leave(&mut self, now: Instant, placed: &Placed) {
        self.accounts.end(now, placed);
        self.running.lower(1);
        self.ordinary_running = self.ordinary_running.saturating_sub(usize::from(placed.class.is_ordinary()));
        self.awaiting = self.awaiting.saturating_sub(usize::from(placed.class == Class::Awaits));
        self.excess = self.excess.saturating_sub(1);
    }

    /// How long a pause to ask drivers for, in units of the shortest: the longer, the more were refused than served. A refusal is work, too,
    /// and without this the retries of those who are refused leave no time for the others.
    pub fn backoff_factor(&self) -> u32 {
        u32::try_from(1 + self.excess / self.backoff_step()).unwrap_or(u32::MAX)
    }

    /// A command that waited waits no more.
    pub fn give_up(&mut self, user: &str, ticket: Ticket) {
        if let Some(waiter) = self.accounts.remove(user, ticket) {
            self.count_gone(waiter.bytes);
        }
    }

    /// The next one that runs now, if there is a place; call it until there is none.
    pub fn next_turn(&mut self, now: Instant) -> Option<(Ticket, Placed)> {
        let is_ordinary = self.eager_was_last && self.is_awaited_by_others();
        if !is_ordinary
            && self.has_place(Class::LetsGo)
            && let Some((user, waiter)) = self.accounts.pop(now, &[Class::LetsGo], &self.limits)
        {
            self.eager_was_last = true;
            return Some(self.call(now, &user, waiter));
        }
        if !self.has_place(Class::Ordinary) {
            return None;
        }
        self.eager_was_last = false;
        let (user, waiter) = self.accounts.pop(now, self.ordinary(), &self.limits)?;
        Some(self.call(now, &user, waiter))
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
        self.accounts.waiting_of(user)
    }

    /// How many of a user's run.
    pub fn running_of(&self, user: &str) -> usize {
        self.accounts.running_of(user)
    }

    /// Gives ordinary commands no turns any more, or gives them again. Those that let go have theirs: what is open can end.
    pub fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Whether ordinary commands have no turns.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Whether one of a user's that waits has no place only because the user, or its group, has as many as it may.
    pub fn is_at_limit(&mut self, user: &Arc<str>, ticket: Ticket) -> bool {
        self.has_place(ticket.class) && !self.accounts.may_run(user, ticket.class, &self.limits)
    }

    /// Changes the limits. Commands that wait already stay in the queue.
    pub fn set_limits(&mut self, limits: QueueLimits) {
        self.limits = limits;
    }

    /// Changes what users may have of whom something is said; others have what the limits give each.
    pub fn set_shares(&mut self, shares: impl IntoIterator<Item = (Arc<str>, Share)>) {
        self.accounts.set_shares(shares.into_iter().collect());
    }

    /// Takes out of their lines what has to go for another one of `user` with so many bytes: of those users who have more waiting than this one
    /// would have, the oldest of the one with most. None, if that is not enough.
    fn make_room(&mut self, user: &str, bytes: usize) -> Vec<Ticket> {
        let own = self.accounts.bytes_of(user).saturating_add(bytes);
        let excess = self.bytes.now().saturating_add(bytes).saturating_sub(self.limits.waiting_bytes);
        let mut refused = Vec::new();
        if self.accounts.bytes_beyond(own) < excess {
            return refused;
        }
        while self.bytes.now().saturating_add(bytes) > self.limits.waiting_bytes
            && let Some(heaviest) = self.accounts.heaviest()
            && let Some(waiter) = self.accounts.pop_ordinary_of(&heaviest)
        {
            self.count_gone(waiter.bytes);
            refused.push(waiter.ticket);
        }
        refused
    }

    fn line_up(&mut self, now: Instant, user: &Arc<str>, class: Class, bytes: usize) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket { number: self.tickets, class };
        self.accounts.push(now, user, Waiter { ticket, bytes });
        self.count_waiting(bytes);
        ticket
    }

    /// One that waited has its turn.
    fn call(&mut self, now: Instant, user: &Arc<str>, Waiter { ticket, bytes }: Waiter) -> (Ticket, Placed) {
        self.count_gone(bytes);
        (ticket, self.run(now, user, ticket.class))
    }

    fn run(&mut self, now: Instant, user: &Arc<str>, class: Class) -> Placed {
        self.running.raise(1);
        self.ordinary_running += usize::from(class.is_ordinary());
        self.awaiting += usize::from(class == Class::Awaits);
        let group = self.accounts.begin(now, user, class);
        Placed { user: Arc::clone(user), group, class, since: now }
    }

    /// Whether there is a place at once, with nobody before it.
    fn is_open_to(&mut self, user: &Arc<str>, class: Class) -> bool {
        // Between the end of a command and the next turn the place is not theirs alone who let go.
        self.has_place(class)
            && self.accounts.may_run(user, class, &self.limits)
            && !self.accounts.has_next(&[Class::LetsGo], &self.limits)
            && !self.is_awaited_by_others()
    }

    /// Whether ordinary commands wait that could have a place.
    fn is_awaited_by_others(&self) -> bool {
        self.has_place(Class::Ordinary) && self.accounts.has_next(self.ordinary(), &self.limits)
    }

    /// Those that can have a place which is not kept for those that let go.
    fn ordinary(&self) -> &'static [Class] {
        if self.has_place(Class::Awaits) { &ORDINARY } else { &[Class::Ordinary] }
    }

    fn has_place(&self, class: Class) -> bool {
        let QueueLimits { running, reserved, awaiting, .. } = self.limits;
        // One at least.
        let has_ordinary = !self.is_paused && self.ordinary_running < running.saturating_sub(reserved).max(1) as usize;
        let has_share = match class {
            Class::LetsGo => true,
            Class::Ordinary => has_ordinary,
            Class::Awaits => has_ordinary && self.awaiting < awaiting.max(1) as usize,
        };
        has_share && self.running.now() < running as usize
    }

    /// Whether those that wait would have too many bytes with it.
    fn is_too_large(&self, class: Class, bytes: usize) -> bool {
        let is_end = class == Class::LetsGo && bytes <= SMALL;
        !is_end && self.bytes.now().saturating_add(bytes) > self.limits.waiting_bytes
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
