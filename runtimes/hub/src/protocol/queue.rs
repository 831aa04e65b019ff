//! Whose turn it is to use an upstream connection.
//!
//! A limited number of commands runs at once, and the others wait: each customer (a user, or an address where there are no users) in a line of
//! its own, the first of each in turn. So one with a thousand connections does not push aside one that has a single one.
//!
//! Commands that let go of something (the next one of a transaction, its end, the end of a cursor) go before all others, and have a
//! few places of their own: a transaction holds locks upstream, and if commands that wait for these locks had all places, its commit
//! could never come. Among themselves they wait in the same way.
//!
//! A command for which there is no server gives its place to others meanwhile, and counts as one that waits.
//!
//! When too many wait, the customer with the longest line loses its first one, which has had its chance, and the new one is let in. If the
//! new one were refused instead, a client that is served would send its next command into the room that it has just left, and those
//! outside would stay there.

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
    /// It waits, and another one waits no more, because too many do.
    Displaces {
        /// This one.
        ticket: Ticket,
        /// The other one.
        refused: Ticket,
    },
    /// Too many wait, and none of them for a turn that could be this one's.
    Full,
}

/// The queue.
#[derive(Clone, Debug)]
pub struct Queue {
    limits: QueueLimits,
    tickets: u64,
    running: u32,
    /// Those that let go.
    eager: Lines,
    /// Whether the turn before this one was one of theirs.
    eager_was_last: bool,
    ordinary: Lines,
    /// How many of each customer have had their turn, and wait for a server.
    parked: BTreeMap<Arc<str>, usize>,
    waiting: usize,
    most_waiting: usize,
    /// How many more were refused than served lately, each of them counted twice.
    excess: usize,
}

/// The longest pause that drivers are asked for, in units of the shortest.
const MOST_BACKOFF: usize = 50;

/// After how many refusals too many the pause is a unit longer: as many as may wait, and at least so many.
const LEAST_STEP: usize = 100;

/// A line for each customer.
#[derive(Clone, Debug, Default)]
struct Lines {
    of_customer: BTreeMap<Arc<str>, VecDeque<Ticket>>,
    /// The customers that have somebody in line, the next one first.
    turns: VecDeque<Arc<str>>,
}

impl Queue {
    /// Nobody runs, and nobody waits.
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            tickets: 0,
            running: 0,
            eager: Lines::default(),
            eager_was_last: false,
            ordinary: Lines::default(),
            parked: BTreeMap::new(),
            waiting: 0,
            most_waiting: 0,
            excess: 0,
        }
    }

    /// A command of `customer` comes.
    pub fn enter(&mut self, customer: &Arc<str>, class: Class) -> Entered {
        let QueueLimits { waiting, waiting_per_customer, .. } = self.limits;
        // Those that let go are bounded by what is open.
        if class == Class::LetsGo || self.is_open_to(class) {
            return self.admit(customer, class);
        }
        let longest = if self.ordinary_of(customer) >= waiting_per_customer {
            Arc::clone(customer)
        } else if self.waiting >= waiting {
            self.ordinary.longest_or(customer)
        } else {
            return self.admit(customer, class);
        };
        self.excess = (self.excess + 2).min(MOST_BACKOFF * self.backoff_step());
        let Some(refused) = self.ordinary.pop_of(&longest) else { return Entered::Full };
        self.waiting -= 1;
        Entered::Displaces { ticket: self.line_up(customer, class), refused }
    }

    /// A command of `customer` that runs waits for a server, and leaves its place to others until [`resume`](Self::resume).
    pub fn park(&mut self, customer: &Arc<str>) {
        self.leave();
        *self.parked.entry(Arc::clone(customer)).or_default() += 1;
        self.count_waiting();
    }

    /// One that was parked wants a place again. It has been let in before, so it is never one too many.
    pub fn resume(&mut self, customer: &Arc<str>, class: Class) -> Entered {
        self.give_up_parked(customer);
        self.admit(customer, class)
    }

    /// One that was parked waits no more.
    pub fn give_up_parked(&mut self, customer: &Arc<str>) {
        let Some(count) = self.parked.get_mut(customer) else { return };
        *count -= 1;
        if *count == 0 {
            self.parked.remove(customer);
        }
        self.waiting -= 1;
    }

    fn admit(&mut self, customer: &Arc<str>, class: Class) -> Entered {
        if self.is_open_to(class) {
            self.running += 1;
            return Entered::Runs(self.next_ticket());
        }
        Entered::Waits(self.line_up(customer, class))
    }

    fn line_up(&mut self, customer: &Arc<str>, class: Class) -> Ticket {
        let ticket = self.next_ticket();
        match class {
            Class::LetsGo => self.eager.push(customer, ticket),
            Class::Ordinary => self.ordinary.push(customer, ticket),
        }
        self.count_waiting();
        ticket
    }

    fn next_ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// Whether there is a place at once, with nobody before it.
    fn is_open_to(&self, class: Class) -> bool {
        let is_in_line = !self.ordinary.is_empty() || !self.eager.is_empty();
        self.has_place(class) && (class == Class::LetsGo || !is_in_line)
    }

    fn count_waiting(&mut self) {
        self.waiting += 1;
        self.most_waiting = self.most_waiting.max(self.waiting);
    }

    /// A command that ran has ended.
    pub fn leave(&mut self) {
        self.running = self.running.saturating_sub(1);
        self.excess = self.excess.saturating_sub(1);
    }

    /// How long a pause to ask drivers for, in units of the shortest: the longer, the more were refused than served. A refusal is work, too,
    /// and without this the retries of those who are refused leave no time for the others.
    pub fn backoff_factor(&self) -> u32 {
        u32::try_from(1 + self.excess / self.backoff_step()).unwrap_or(u32::MAX)
    }

    fn backoff_step(&self) -> usize {
        self.limits.waiting.max(LEAST_STEP)
    }

    /// A command that waited waits no more.
    pub fn give_up(&mut self, customer: &Arc<str>, ticket: Ticket) {
        let found = self.eager.remove(customer, ticket) || self.ordinary.remove(customer, ticket);
        self.waiting -= usize::from(found);
    }

    /// The next one that runs now, if there is a place; call it until there is none.
    pub fn next_turn(&mut self) -> Option<Ticket> {
        // A place that both may have is theirs by turns, or transactions without end would keep everybody else out.
        let is_ordinary = self.has_place(Class::Ordinary) && !self.ordinary.is_empty() && self.eager_was_last;
        if !is_ordinary
            && self.has_place(Class::LetsGo)
            && let Some(ticket) = self.eager.pop()
        {
            self.eager_was_last = true;
            return Some(self.run(ticket));
        }
        if !self.has_place(Class::Ordinary) {
            return None;
        }
        self.eager_was_last = false;
        let ticket = self.ordinary.pop()?;
        Some(self.run(ticket))
    }

    /// How many run.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// How many wait, for their turn or for a server.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many of a customer's wait.
    pub fn waiting_of(&self, customer: &str) -> usize {
        self.eager.len_of(customer) + self.ordinary_of(customer)
    }

    /// Without those that let go.
    fn ordinary_of(&self, customer: &str) -> usize {
        self.ordinary.len_of(customer) + self.parked.get(customer).copied().unwrap_or_default()
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

impl Lines {
    fn push(&mut self, customer: &Arc<str>, ticket: Ticket) {
        let line = self.of_customer.entry(Arc::clone(customer)).or_default();
        if line.is_empty() {
            self.turns.push_back(Arc::clone(customer));
        }
        line.push_back(ticket);
    }

    /// The first one of the next customer.
    fn pop(&mut self) -> Option<Ticket> {
        let customer = self.turns.pop_front()?;
        let line = self.of_customer.get_mut(&customer)?;
        let ticket = line.pop_front()?;
        match line.is_empty() {
            true => drop(self.of_customer.remove(&customer)),
            false => self.turns.push_back(customer),
        }
        Some(ticket)
    }

    /// The first one of this customer.
    fn pop_of(&mut self, customer: &Arc<str>) -> Option<Ticket> {
        let ticket = self.of_customer.get_mut(customer)?.pop_front();
        self.forget_if_empty(customer);
        ticket
    }

    /// The customer with the longest line. `customer`, if no other one's is longer.
    fn longest_or(&self, customer: &Arc<str>) -> Arc<str> {
        let longest = self.of_customer.iter().max_by_key(|(_, line)| line.len());
        match longest {
            Some((other, line)) if line.len() > self.len_of(customer) => Arc::clone(other),
            Some(_) | None => Arc::clone(customer),
        }
    }

    /// Whether it was there.
    fn remove(&mut self, customer: &Arc<str>, ticket: Ticket) -> bool {
        let Some(line) = self.of_customer.get_mut(customer) else { return false };
        let before = line.len();
        line.retain(|other| *other != ticket);
        let is_found = line.len() < before;
        self.forget_if_empty(customer);
        is_found
    }

    fn forget_if_empty(&mut self, customer: &Arc<str>) {
        if self.of_customer.get(customer).is_some_and(VecDeque::is_empty) {
            self.of_customer.remove(customer);
            self.turns.retain(|other| other != customer);
        }
    }

    fn len_of(&self, customer: &str) -> usize {
        self.of_customer.get(customer).map_or(0, VecDeque::len)
    }

    fn is_empty(&self) -> bool {
        self.turns.is_empty()
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
            Entered::Runs(_) | Entered::Displaces { .. } | Entered::Full => panic!("{entered:?}"),
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
    fn beyond_the_depth_the_longest_line_loses_its_first_one_x_135() {
        let ([greedy, modest], mut queue) = (customers(), Queue::new(LIMITS));
        assert!(matches!(queue.enter(&greedy, Class::Ordinary), Entered::Runs(_)));
        let of_greedy = [(); 3].map(|()| waits(queue.enter(&greedy, Class::Ordinary)));

        let Entered::Displaces { refused, .. } = queue.enter(&greedy, Class::Ordinary) else {
            panic!("of one customer")
        };
        assert_eq!(refused, of_greedy[0]);
        for _ in 0..2 {
            waits(queue.enter(&modest, Class::Ordinary));
        }
        let Entered::Displaces { ticket, refused } = queue.enter(&modest, Class::Ordinary) else { panic!("of all") };

        assert_eq!(refused, of_greedy[1], "not one of the shorter line");
        assert_eq!((queue.waiting(), queue.waiting_of("modest"), queue.waiting_of("greedy")), (5, 3, 2));
        assert!(matches!(queue.enter(&modest, Class::Ordinary), Entered::Displaces { .. }));
        queue.give_up(&modest, ticket);
        assert_eq!(queue.waiting(), 4);
    }

    #[test]
    fn a_client_that_is_served_does_not_keep_those_outside_from_the_room_that_it_leaves_x_135() {
        let limits = QueueLimits { running: 1, reserved: 0, waiting: 1, waiting_per_customer: 1 };
        let ([customer, _], mut queue) = (customers(), Queue::new(limits));
        queue.enter(&customer, Class::Ordinary);
        let inside = waits(queue.enter(&customer, Class::Ordinary));

        let Entered::Displaces { ticket: outside, refused } = queue.enter(&customer, Class::Ordinary) else { panic!() };

        queue.leave();
        assert_eq!((refused, queue.next_turn()), (inside, Some(outside)));
    }

    #[test]
    fn drivers_are_asked_for_longer_pauses_while_more_are_refused_than_served_x_135() {
        let limits = QueueLimits { running: 1, reserved: 0, waiting: 100, waiting_per_customer: 100 };
        let ([customer, _], mut queue) = (customers(), Queue::new(limits));
        for _ in 0..101 {
            queue.enter(&customer, Class::Ordinary);
        }
        assert_eq!(queue.backoff_factor(), 1);

        for _ in 0..100 {
            queue.enter(&customer, Class::Ordinary);
        }
        assert_eq!(queue.backoff_factor(), 3);
        for _ in 0..200 {
            queue.leave();
        }

        assert_eq!(queue.backoff_factor(), 1);
    }

    #[test]
    fn where_nobody_waits_for_a_turn_the_new_one_is_refused() {
        let limits = QueueLimits { running: 1, reserved: 0, waiting: 0, waiting_per_customer: 5 };
        let ([customer, _], mut queue) = (customers(), Queue::new(limits));
        queue.enter(&customer, Class::Ordinary);

        assert_eq!(queue.enter(&customer, Class::Ordinary), Entered::Full);
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
    fn customers_take_turns_at_letting_go_too_x_135() {
        let ([greedy, modest], mut queue) = (customers(), Queue::new(LIMITS));
        for _ in 0..2 {
            queue.enter(&greedy, Class::LetsGo);
        }
        let of_greedy = [(); 2].map(|()| waits(queue.enter(&greedy, Class::LetsGo)));
        let of_modest = waits(queue.enter(&modest, Class::LetsGo));
        assert_eq!(queue.waiting_of("greedy"), 2);

        let mut order = Vec::new();
        for _ in 0..3 {
            queue.leave();
            order.extend(queue.next_turn());
        }

        assert_eq!(order, [of_greedy[0], of_modest, of_greedy[1]]);
    }

    #[test]
    fn one_that_waits_for_a_server_leaves_its_place_to_others_and_counts_as_waiting_x_135() {
        let ([greedy, modest], mut queue) = (customers(), Queue::new(LIMITS));
        assert!(matches!(queue.enter(&greedy, Class::Ordinary), Entered::Runs(_)));

        queue.park(&greedy);

        assert!(matches!(queue.enter(&modest, Class::Ordinary), Entered::Runs(_)), "the place is free");
        assert_eq!((queue.running(), queue.waiting(), queue.waiting_of("greedy")), (1, 1, 1));
        let resumed = waits(queue.resume(&greedy, Class::Ordinary));
        queue.leave();
        assert_eq!((queue.next_turn(), queue.waiting()), (Some(resumed), 0));
    }

    #[test]
    fn those_that_wait_for_a_server_count_for_the_depth_and_are_not_refused_themselves_x_135() {
        let ([greedy, modest], mut queue) = (customers(), Queue::new(QueueLimits { waiting: 3, ..LIMITS }));
        for _ in 0..3 {
            assert!(matches!(queue.enter(&greedy, Class::Ordinary), Entered::Runs(_)));
            queue.park(&greedy);
        }
        assert!(matches!(queue.enter(&modest, Class::Ordinary), Entered::Runs(_)), "a place that is free is given");

        assert_eq!(queue.enter(&modest, Class::Ordinary), Entered::Full);
        waits(queue.resume(&greedy, Class::Ordinary));
        queue.give_up_parked(&greedy);
        assert_eq!(queue.waiting(), 2);
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
