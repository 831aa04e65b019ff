//! Whose turn it is to use an upstream connection.
//!
//! A limited number of commands runs at once, and the others wait: each user in a line of its own, the first of each in turn. So one
//! with a thousand connections does not push aside one that has a single one. Where nobody logs in, an address is a user.
//!
//! Commands that let go of something (the next one of a transaction, its end, the end of a cursor) go before all others, and have a
//! few places of their own: a transaction holds locks upstream, and if commands that wait for these locks had all places, its commit
//! could never come.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::gauge::Gauge;

/// One command's place, from its entrance to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// What a command may do about others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Too many wait.
    Full,
    /// Those that wait have too many bytes for another one of this size.
    TooLarge,
}

/// What a command that lets go may have without being counted: an end of something is never refused.
const SMALL: usize = 16 * 1024;

#[derive(Clone, Copy, Debug)]
struct Waiter {
    ticket: Ticket,
    bytes: usize,
}

/// The queue.
#[derive(Clone, Debug)]
pub struct Queue {
    limits: QueueLimits,
    tickets: u64,
    running: Gauge,
    /// Those that let go, first in, first out.
    eager: VecDeque<Waiter>,
    /// Whether the turn before this one was one of theirs.
    eager_was_last: bool,
    lines: BTreeMap<Arc<str>, VecDeque<Waiter>>,
    /// The users that have somebody in line, the next one first.
    turns: VecDeque<Arc<str>>,
    waiting: Gauge,
    bytes: Gauge,
}

impl Queue {
    /// Nobody runs, and nobody waits.
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            tickets: 0,
            running: Gauge::default(),
            eager: VecDeque::new(),
            eager_was_last: false,
            lines: BTreeMap::new(),
            turns: VecDeque::new(),
            waiting: Gauge::default(),
            bytes: Gauge::default(),
        }
    }

    /// A command of `user` comes, which has so many bytes.
    pub fn enter(&mut self, user: &Arc<str>, class: Class, bytes: usize) -> Entered {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        if self.waiting.now() == 0 && self.has_place(class) || class == Class::LetsGo && self.has_place(class) {
            self.running.raise(1);
            return Entered::Runs(ticket);
        }
        let is_end = class == Class::LetsGo && bytes <= SMALL;
        if !is_end && self.bytes.now().saturating_add(bytes) > self.limits.waiting_bytes {
            return Entered::TooLarge;
        }
        let waiter = Waiter { ticket, bytes };
        match class {
            // These are bounded by what is open.
            Class::LetsGo => self.eager.push_back(waiter),
            Class::Ordinary => {
                if self.waiting.now() >= self.limits.waiting {
                    return Entered::Full;
                }
                let line = self.lines.entry(Arc::clone(user)).or_default();
                if line.len() >= self.limits.waiting_per_user {
                    return Entered::Full;
                }
                if line.is_empty() {
                    self.turns.push_back(Arc::clone(user));
                }
                line.push_back(waiter);
            }
        }
        self.waiting.raise(1);
        self.bytes.raise(bytes);
        Entered::Waits(ticket)
    }

    /// A command that ran has ended.
    pub fn leave(&mut self) {
        self.running.lower(1);
    }

    /// A command that waited waits no more.
    pub fn give_up(&mut self, user: &Arc<str>, ticket: Ticket) {
        let mut found = remove(&mut self.eager, ticket);
        if let Some(line) = self.lines.get_mut(user) {
            found = found.or(remove(line, ticket));
            if line.is_empty() {
                self.lines.remove(user);
                self.turns.retain(|other| other != user);
            }
        }
        if let Some(waiter) = found {
            self.waiting.lower(1);
            self.bytes.lower(waiter.bytes);
        }
    }

    /// The next one that runs now, if there is a place; call it until there is none.
    pub fn next_turn(&mut self) -> Option<Ticket> {
        // A place that both may have is theirs by turns, or transactions without end would keep everybody else out.
        let is_ordinary = self.has_place(Class::Ordinary) && !self.turns.is_empty() && self.eager_was_last;
        if !is_ordinary
            && self.has_place(Class::LetsGo)
            && let Some(waiter) = self.eager.pop_front()
        {
            self.eager_was_last = true;
            return Some(self.run(waiter));
        }
        if !self.has_place(Class::Ordinary) {
            return None;
        }
        self.eager_was_last = false;
        let user = self.turns.pop_front()?;
        let line = self.lines.get_mut(&user)?;
        let waiter = line.pop_front()?;
        match line.is_empty() {
            true => drop(self.lines.remove(&user)),
            false => self.turns.push_back(user),
        }
        Some(self.run(waiter))
    }

    /// How many run, and ran.
    pub fn running(&mut self) -> &mut Gauge {
        &mut self.running
    }

    /// How many wait, and waited.
    pub fn waiting(&mut self) -> &mut Gauge {
        &mut self.waiting
    }

    /// How many bytes those have that wait, and had.
    pub fn waiting_bytes(&mut self) -> &mut Gauge {
        &mut self.bytes
    }

    /// How many of a user's wait.
    pub fn waiting_of(&self, user: &str) -> usize {
        self.lines.get(user).map_or(0, VecDeque::len)
    }

    /// Changes the limits. Commands that wait already stay in the queue.
    pub fn set_limits(&mut self, limits: QueueLimits) {
        self.limits = limits;
    }

    fn run(&mut self, waiter: Waiter) -> Ticket {
        self.running.raise(1);
        self.waiting.lower(1);
        self.bytes.lower(waiter.bytes);
        waiter.ticket
    }

    fn has_place(&self, class: Class) -> bool {
        let QueueLimits { running, reserved, .. } = self.limits;
        let places = match class {
            Class::LetsGo => running,
            // One at least.
            Class::Ordinary => running.saturating_sub(reserved).max(1),
        };
        self.running.now() < places as usize
    }
}

fn remove(line: &mut VecDeque<Waiter>, ticket: Ticket) -> Option<Waiter> {
    let place = line.iter().position(|waiter| waiter.ticket == ticket)?;
    line.remove(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QueueLimits =
        QueueLimits { running: 2, reserved: 1, waiting: 5, waiting_per_user: 3, waiting_bytes: 100 };

    fn users() -> [Arc<str>; 2] {
        ["greedy".into(), "modest".into()]
    }

    fn waits(entered: Entered) -> Ticket {
        match entered {
            Entered::Waits(ticket) => ticket,
            Entered::Runs(_) | Entered::Full | Entered::TooLarge => panic!("{entered:?}"),
        }
    }

    #[test]
    fn users_take_turns_however_many_of_one_wait_x_135() {
        let ([greedy, modest], mut queue) = (users(), Queue::new(LIMITS));
        assert!(matches!(queue.enter(&greedy, Class::Ordinary, 1), Entered::Runs(_)));
        let of_greedy = [(); 3].map(|()| waits(queue.enter(&greedy, Class::Ordinary, 1)));
        let of_modest = waits(queue.enter(&modest, Class::Ordinary, 1));

        let mut order = Vec::new();
        for _ in 0..4 {
            assert_eq!(queue.next_turn(), None, "there is no place");
            queue.leave();
            order.extend(queue.next_turn());
        }

        assert_eq!(order, [of_greedy[0], of_modest, of_greedy[1], of_greedy[2]]);
    }

    #[test]
    fn what_is_beyond_the_depth_is_refused() {
        let ([greedy, modest], mut queue) = (users(), Queue::new(LIMITS));
        assert!(matches!(queue.enter(&greedy, Class::Ordinary, 1), Entered::Runs(_)));
        for _ in 0..3 {
            waits(queue.enter(&greedy, Class::Ordinary, 1));
        }

        assert_eq!(queue.enter(&greedy, Class::Ordinary, 1), Entered::Full, "of one user");
        let given_up = waits(queue.enter(&modest, Class::Ordinary, 1));
        waits(queue.enter(&modest, Class::Ordinary, 1));
        assert_eq!(queue.enter(&modest, Class::Ordinary, 1), Entered::Full, "of all");
        queue.give_up(&modest, given_up);
        waits(queue.enter(&modest, Class::Ordinary, 1));
        assert_eq!((queue.waiting().now(), queue.waiting().most(), queue.waiting_of("modest")), (5, 5, 2));
    }

    #[test]
    fn the_end_of_a_transaction_goes_before_those_who_may_wait_for_its_locks() {
        let ([greedy, modest], mut queue) = (users(), Queue::new(LIMITS));
        assert!(matches!(queue.enter(&greedy, Class::Ordinary, 1), Entered::Runs(_)));
        let ordinary = waits(queue.enter(&greedy, Class::Ordinary, 1));

        assert!(matches!(queue.enter(&modest, Class::LetsGo, 1), Entered::Runs(_)), "it has a place of its own");
        let second = waits(queue.enter(&modest, Class::LetsGo, 1));

        queue.leave();
        assert_eq!((queue.next_turn(), queue.next_turn()), (Some(second), None));
        queue.leave();
        queue.leave();
        assert_eq!(queue.next_turn(), Some(ordinary));
    }

    #[test]
    fn those_who_let_go_do_not_keep_the_others_out_x_135() {
        let ([greedy, modest], mut queue) = (users(), Queue::new(QueueLimits { reserved: 0, ..LIMITS }));
        for _ in 0..2 {
            queue.enter(&greedy, Class::LetsGo, 1);
        }
        let eager = [(); 3].map(|()| waits(queue.enter(&greedy, Class::LetsGo, 1)));
        let ordinary = waits(queue.enter(&modest, Class::Ordinary, 1));

        let mut order = Vec::new();
        for _ in 0..4 {
            queue.leave();
            order.extend(queue.next_turn());
        }

        assert_eq!(order, [eager[0], ordinary, eager[1], eager[2]]);
    }

    #[test]
    fn one_who_gives_up_costs_no_other_the_turn() {
        let ([greedy, modest], mut queue) = (users(), Queue::new(LIMITS));
        queue.enter(&greedy, Class::Ordinary, 1);
        let first = waits(queue.enter(&greedy, Class::Ordinary, 1));
        let other = waits(queue.enter(&modest, Class::Ordinary, 1));

        queue.give_up(&greedy, first);
        queue.give_up(&greedy, first);
        queue.leave();

        assert_eq!((queue.next_turn(), queue.waiting().now()), (Some(other), 0));
    }

    #[test]
    fn what_waits_has_so_many_bytes_at_most_and_ends_of_something_are_taken_all_the_same_x_141() {
        let ([greedy, modest], mut queue) = (users(), Queue::new(QueueLimits { waiting_bytes: 100_000, ..LIMITS }));
        assert!(matches!(queue.enter(&greedy, Class::LetsGo, 1_000_000), Entered::Runs(_)), "it does not wait");
        assert!(matches!(queue.enter(&greedy, Class::LetsGo, 1), Entered::Runs(_)));
        let first = waits(queue.enter(&greedy, Class::Ordinary, 60_000));

        assert_eq!(queue.enter(&modest, Class::Ordinary, 50_000), Entered::TooLarge);
        assert_eq!(queue.enter(&modest, Class::LetsGo, 50_000), Entered::TooLarge, "an insert of a transaction");
        waits(queue.enter(&modest, Class::Ordinary, 40_000));
        let end = waits(queue.enter(&modest, Class::LetsGo, 200));
        assert_eq!((queue.waiting_bytes().now(), queue.waiting_bytes().most()), (100_200, 100_200));

        queue.leave();
        assert_eq!(queue.next_turn(), Some(end));
        queue.give_up(&greedy, first);
        assert_eq!(queue.waiting_bytes().now(), 40_000);
        waits(queue.enter(&greedy, Class::Ordinary, 60_000));
    }
}
