//! Whose turn it is to use an upstream connection.
//!
//! A limited number of commands runs at once, and the others wait: each customer (a user, or an address where there are no users) in a line of
//! its own, the first of each in turn. So one with a thousand connections does not push aside one that has a single one.
//!
//! Commands that let go of something (the next one of a transaction, its end, the end of a cursor) go before all others, and have a
//! few places of their own: a transaction holds locks upstream, and if commands that wait for these locks had all places, its commit
//! could never come.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

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
    /// Most of one customer's.
    pub waiting_per_customer: usize,
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
}

/// The queue.
#[derive(Clone, Debug)]
pub struct Queue {
    limits: QueueLimits,
    tickets: u64,
    running: u32,
    /// Those that let go, first in, first out.
    eager: VecDeque<Ticket>,
    /// Whether the turn before this one was one of theirs.
    eager_was_last: bool,
    lines: BTreeMap<Arc<str>, VecDeque<Ticket>>,
    /// The customers that have somebody in line, the next one first.
    turns: VecDeque<Arc<str>>,
    waiting: usize,
    most_waiting: usize,
}

impl Queue {
    /// Nobody runs, and nobody waits.
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            tickets: 0,
            running: 0,
            eager: VecDeque::new(),
            eager_was_last: false,
            lines: BTreeMap::new(),
            turns: VecDeque::new(),
            waiting: 0,
            most_waiting: 0,
        }
    }

    /// A command of `customer` comes.
    pub fn enter(&mut self, customer: &Arc<str>, class: Class) -> Entered {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        if self.waiting == 0 && self.has_place(class) || class == Class::LetsGo && self.has_place(class) {
            self.running += 1;
            return Entered::Runs(ticket);
        }
        match class {
            // These are bounded by what is open.
            Class::LetsGo => self.eager.push_back(ticket),
            Class::Ordinary => {
                if self.waiting >= self.limits.waiting {
                    return Entered::Full;
                }
                let line = self.lines.entry(Arc::clone(customer)).or_default();
                if line.len() >= self.limits.waiting_per_customer {
                    return Entered::Full;
                }
                if line.is_empty() {
                    self.turns.push_back(Arc::clone(customer));
                }
                line.push_back(ticket);
            }
        }
        self.waiting += 1;
        self.most_waiting = self.most_waiting.max(self.waiting);
        Entered::Waits(ticket)
    }

    /// A command that ran has ended.
    pub fn leave(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// A command that waited waits no more.
    pub fn give_up(&mut self, customer: &Arc<str>, ticket: Ticket) {
        let before = self.eager.len();
        self.eager.retain(|other| *other != ticket);
        let mut found = self.eager.len() < before;
        if let Some(line) = self.lines.get_mut(customer) {
            let before = line.len();
            line.retain(|other| *other != ticket);
            found |= line.len() < before;
            if line.is_empty() {
                self.lines.remove(customer);
                self.turns.retain(|other| other != customer);
            }
        }
        self.waiting -= usize::from(found);
    }

    /// The next one that runs now, if there is a place; call it until there is none.
    pub fn next_turn(&mut self) -> Option<Ticket> {
        // A place that both may have is theirs by turns, or transactions without end would keep everybody else out.
        let is_ordinary = self.has_place(Class::Ordinary) && !self.turns.is_empty() && self.eager_was_last;
        if !is_ordinary
            && self.has_place(Class::LetsGo)
            && let Some(ticket) = self.eager.pop_front()
        {
            self.eager_was_last = true;
            return Some(self.run(ticket));
        }
        if !self.has_place(Class::Ordinary) {
            return None;
        }
        self.eager_was_last = false;
        let customer = self.turns.pop_front()?;
        let line = self.lines.get_mut(&customer)?;
        let ticket = line.pop_front()?;
        match line.is_empty() {
            true => drop(self.lines.remove(&customer)),
            false => self.turns.push_back(customer),
        }
        Some(self.run(ticket))
    }

    /// How many run.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many of a customer's wait.
    pub fn waiting_of(&self, customer: &str) -> usize {
        self.lines.get(customer).map_or(0, VecDeque::len)
    }

    /// The most that have ever waited.
    pub fn most_waiting(&self) -> usize {
        self.most_waiting
    }

    /// Changes the limits. Commands that wait already stay in the queue.
    pub fn set_limits(&mut self, limits: QueueLimits) {
        self.limits = limits;
    }

    fn run(&mut self, ticket: Ticket) -> Ticket {
        self.running += 1;
        self.waiting -= 1;
        ticket
    }

    fn has_place(&self, class: Class) -> bool {
        let QueueLimits { running, reserved, .. } = self.limits;
        let places = match class {
            Class::LetsGo => running,
            // One at least.
            Class::Ordinary => running.saturating_sub(reserved).max(1),
        };
        self.running < places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QueueLimits = QueueLimits { running: 2, reserved: 1, waiting: 5, waiting_per_customer: 3 };

    fn customers() -> [Arc<str>; 2] {
        ["greedy".into(), "modest".into()]
    }

    fn waits(entered: Entered) -> Ticket {
        match entered {
            Entered::Waits(ticket) => ticket,
            Entered::Runs(_) | Entered::Full => panic!("{entered:?}"),
        }
    }

    #[test]
    fn customers_take_turns_however_many_of_one_wait_x_135() {
        let ([greedy, modest], mut queue) = (customers(), Queue::new(LIMITS));
        assert!(matches!(queue.enter(&greedy, Class::Ordinary), Entered::Runs(_)));
        let of_greedy = [(); 3].map(|()| waits(queue.enter(&greedy, Class::Ordinary)));
        let of_modest = waits(queue.enter(&modest, Class::Ordinary));

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
        let ([greedy, modest], mut queue) = (customers(), Queue::new(LIMITS));
        assert!(matches!(queue.enter(&greedy, Class::Ordinary), Entered::Runs(_)));
        for _ in 0..3 {
            waits(queue.enter(&greedy, Class::Ordinary));
        }

        assert_eq!(queue.enter(&greedy, Class::Ordinary), Entered::Full, "of one customer");
        let given_up = waits(queue.enter(&modest, Class::Ordinary));
        waits(queue.enter(&modest, Class::Ordinary));
        assert_eq!(queue.enter(&modest, Class::Ordinary), Entered::Full, "of all");
        queue.give_up(&modest, given_up);
        waits(queue.enter(&modest, Class::Ordinary));
        assert_eq!((queue.waiting(), queue.most_waiting(), queue.waiting_of("modest")), (5, 5, 2));
    }

    #[test]
    fn the_end_of_a_transaction_goes_before_those_who_may_wait_for_its_locks() {
        let ([greedy, modest], mut queue) = (customers(), Queue::new(LIMITS));
        assert!(matches!(queue.enter(&greedy, Class::Ordinary), Entered::Runs(_)));
        let ordinary = waits(queue.enter(&greedy, Class::Ordinary));

        assert!(matches!(queue.enter(&modest, Class::LetsGo), Entered::Runs(_)), "it has a place of its own");
        let second = waits(queue.enter(&modest, Class::LetsGo));

        queue.leave();
        assert_eq!((queue.next_turn(), queue.next_turn()), (Some(second), None));
        queue.leave();
        queue.leave();
        assert_eq!(queue.next_turn(), Some(ordinary));
    }

    #[test]
    fn those_who_let_go_do_not_keep_the_others_out_x_135() {
        let ([greedy, modest], mut queue) = (customers(), Queue::new(QueueLimits { reserved: 0, ..LIMITS }));
        for _ in 0..2 {
            queue.enter(&greedy, Class::LetsGo);
        }
        let eager = [(); 3].map(|()| waits(queue.enter(&greedy, Class::LetsGo)));
        let ordinary = waits(queue.enter(&modest, Class::Ordinary));

        let mut order = Vec::new();
        for _ in 0..4 {
            queue.leave();
            order.extend(queue.next_turn());
        }

        assert_eq!(order, [eager[0], ordinary, eager[1], eager[2]]);
    }

    #[test]
    fn one_who_gives_up_costs_no_other_the_turn() {
        let ([greedy, modest], mut queue) = (customers(), Queue::new(LIMITS));
        queue.enter(&greedy, Class::Ordinary);
        let first = waits(queue.enter(&greedy, Class::Ordinary));
        let other = waits(queue.enter(&modest, Class::Ordinary));

        queue.give_up(&greedy, first);
        queue.give_up(&greedy, first);
        queue.leave();

        assert_eq!((queue.next_turn(), queue.waiting()), (Some(other), 0));
    }
}
