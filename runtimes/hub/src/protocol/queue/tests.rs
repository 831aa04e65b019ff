//! The queue at a moment that does not pass, unless a test says so.

mod sharing;

use std::ops::{Deref, DerefMut};

use super::*;

const LIMITS: QueueLimits = QueueLimits {
    running: 2,
    reserved: 1,
    running_per_user: 2,
    awaiting: 2,
    waiting: 5,
    waiting_per_user: 3,
    waiting_bytes: 100,
};

/// A queue, and what runs.
struct Hall {
    queue: Queue,
    now: Instant,
    running: Vec<Placed>,
}

impl Hall {
    fn new(limits: QueueLimits) -> Self {
        Self { queue: Queue::new(limits), now: Instant::ORIGIN, running: Vec::new() }
    }

    fn enter(&mut self, user: &Arc<str>, class: Class, bytes: usize) -> Entered {
        let entered = self.queue.enter(self.now, user, class, bytes);
        self.note(entered)
    }

    fn resume(&mut self, user: &Arc<str>, class: Class, bytes: usize) -> Entered {
        let entered = self.queue.resume(self.now, user, class, bytes);
        self.note(entered)
    }

    /// The first one of a class that runs waits for a server.
    fn park(&mut self, class: Class, bytes: usize) -> Result<(), Crowded> {
        let placed = self.take(class);
        self.queue.park(self.now, &placed, bytes)
    }

    /// The first one of a class that runs ends.
    fn leave(&mut self, class: Class) {
        let placed = self.take(class);
        self.queue.leave(self.now, &placed);
    }

    fn next_turn(&mut self) -> Option<Ticket> {
        let (ticket, placed) = self.queue.next_turn(self.now)?;
        self.running.push(placed);
        Some(ticket)
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now + core::time::Duration::from_millis(millis);
    }

    fn note(&mut self, entered: Entered) -> Entered {
        if let Entered::Runs(placed) = &entered {
            self.running.push(placed.clone());
        }
        entered
    }

    fn take(&mut self, class: Class) -> Placed {
        let place = self.running.iter().position(|placed| placed.class == class).unwrap();
        self.running.remove(place)
    }
}

impl Deref for Hall {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        &self.queue
    }
}

impl DerefMut for Hall {
    fn deref_mut(&mut self) -> &mut Queue {
        &mut self.queue
    }
}

fn users() -> [Arc<str>; 2] {
    ["greedy".into(), "modest".into()]
}

fn waits(entered: Entered) -> Ticket {
    match entered {
        Entered::Waits(ticket) => ticket,
        Entered::Runs(_) | Entered::Displaces { .. } | Entered::Full | Entered::TooLarge => panic!("{entered:?}"),
    }
}

#[test]
fn users_take_turns_however_many_of_one_wait_x_135() {
    let ([greedy, modest], mut queue) = (users(), Hall::new(LIMITS));
    assert!(matches!(queue.enter(&greedy, Class::Ordinary, 1), Entered::Runs(_)));
    let of_greedy = [(); 3].map(|()| waits(queue.enter(&greedy, Class::Ordinary, 1)));
    let of_modest = waits(queue.enter(&modest, Class::Ordinary, 1));

    let mut order = Vec::new();
    for _ in 0..4 {
        assert_eq!(queue.next_turn(), None, "there is no place");
        queue.pass(10);
        queue.leave(Class::Ordinary);
        order.extend(queue.next_turn());
    }

    assert_eq!(order, [of_modest, of_greedy[0], of_greedy[1], of_greedy[2]]);
}

#[test]
fn beyond_the_depth_the_longest_line_loses_its_first_one_x_135() {
    let ([greedy, modest], mut queue) = (users(), Hall::new(LIMITS));
    assert!(matches!(queue.enter(&greedy, Class::Ordinary, 1), Entered::Runs(_)));
    let of_greedy = [(); 3].map(|()| waits(queue.enter(&greedy, Class::Ordinary, 1)));

    let Entered::Displaces { refused, .. } = queue.enter(&greedy, Class::Ordinary, 1) else { panic!("of one user") };
    assert_eq!(refused, [of_greedy[0]]);
    for _ in 0..2 {
        waits(queue.enter(&modest, Class::Ordinary, 1));
    }
    let Entered::Displaces { ticket, refused, .. } = queue.enter(&modest, Class::Ordinary, 1) else { panic!("of all") };

    assert_eq!(refused, [of_greedy[1]], "not one of the shorter line");
    assert_eq!((queue.waiting().now(), queue.waiting_of("modest"), queue.waiting_of("greedy")), (5, 3, 2));
    assert!(matches!(queue.enter(&modest, Class::Ordinary, 1), Entered::Displaces { .. }));
    queue.give_up(&modest, ticket);
    assert_eq!(queue.waiting().now(), 4);
}

#[test]
fn a_client_that_is_served_does_not_keep_those_outside_from_the_room_that_it_leaves_x_135() {
    let limits = QueueLimits { running: 1, reserved: 0, waiting: 1, waiting_per_user: 1, ..LIMITS };
    let ([user, _], mut queue) = (users(), Hall::new(limits));
    queue.enter(&user, Class::Ordinary, 1);
    let inside = waits(queue.enter(&user, Class::Ordinary, 1));

    let Entered::Displaces { ticket: outside, refused, .. } = queue.enter(&user, Class::Ordinary, 1) else { panic!() };

    queue.leave(Class::Ordinary);
    assert_eq!((refused, queue.next_turn()), (vec![inside], Some(outside)));
}

#[test]
fn drivers_are_asked_for_longer_pauses_while_more_are_refused_than_served_x_135() {
    let limits =
        QueueLimits { running: 1, reserved: 0, waiting: 100, waiting_per_user: 100, waiting_bytes: 1000, ..LIMITS };
    let ([user, _], mut queue) = (users(), Hall::new(limits));
    for _ in 0..101 {
        queue.enter(&user, Class::Ordinary, 1);
    }
    assert_eq!(queue.backoff_factor(), 1);

    for _ in 0..100 {
        queue.enter(&user, Class::Ordinary, 1);
    }
    assert_eq!(queue.backoff_factor(), 3);
    let (placed, now) = (queue.take(Class::Ordinary), queue.now);
    for _ in 0..200 {
        queue.queue.leave(now, &placed);
    }

    assert_eq!(queue.backoff_factor(), 1);
}

#[test]
fn where_nobody_waits_for_a_turn_the_new_one_is_refused() {
    let limits = QueueLimits { running: 1, reserved: 0, waiting: 0, waiting_per_user: 5, ..LIMITS };
    let ([user, _], mut queue) = (users(), Hall::new(limits));
    queue.enter(&user, Class::Ordinary, 1);

    assert_eq!(queue.enter(&user, Class::Ordinary, 1), Entered::Full);
}

#[test]
fn the_end_of_a_transaction_goes_before_those_who_may_wait_for_its_locks() {
    let ([greedy, modest], mut queue) = (users(), Hall::new(LIMITS));
    assert!(matches!(queue.enter(&greedy, Class::Ordinary, 1), Entered::Runs(_)));
    let ordinary = waits(queue.enter(&greedy, Class::Ordinary, 1));

    assert!(matches!(queue.enter(&modest, Class::LetsGo, 1), Entered::Runs(_)), "it has a place of its own");
    let second = waits(queue.enter(&modest, Class::LetsGo, 1));

    queue.leave(Class::LetsGo);
    assert_eq!((queue.next_turn(), queue.next_turn()), (Some(second), None));
    queue.leave(Class::LetsGo);
    assert_eq!(queue.next_turn(), None, "that place is not for others");
    queue.leave(Class::Ordinary);
    assert_eq!(queue.next_turn(), Some(ordinary));
}

#[test]
fn those_who_let_go_do_not_keep_the_others_out_x_135() {
    for reserved in [0, 1] {
        let ([greedy, modest], mut queue) = (users(), Hall::new(QueueLimits { reserved, ..LIMITS }));
        for _ in 0..2 {
            queue.enter(&greedy, Class::LetsGo, 1);
        }
        let eager = [(); 3].map(|()| waits(queue.enter(&greedy, Class::LetsGo, 1)));
        let ordinary = waits(queue.enter(&modest, Class::Ordinary, 1));

        let mut order = Vec::new();
        for ended in [Class::LetsGo, Class::LetsGo, Class::LetsGo, Class::Ordinary] {
            queue.leave(ended);
            order.extend(queue.next_turn());
        }

        assert_eq!(order, [eager[0], ordinary, eager[1], eager[2]], "{reserved} are kept for them");
    }
}

#[test]
fn those_who_let_go_take_no_place_whose_turn_is_the_others_x_135() {
    let ([greedy, modest], mut queue) = (users(), Hall::new(LIMITS));
    for _ in 0..2 {
        queue.enter(&greedy, Class::LetsGo, 1);
    }
    let ordinary = waits(queue.enter(&modest, Class::Ordinary, 1));

    queue.leave(Class::LetsGo);
    let eager = waits(queue.enter(&greedy, Class::LetsGo, 1));

    let first = queue.next_turn();
    queue.leave(Class::LetsGo);
    let second = queue.next_turn();
    assert_eq!([first, second], [Some(eager), Some(ordinary)]);
}

#[test]
fn users_take_turns_at_letting_go_too_x_135() {
    let ([greedy, modest], mut queue) = (users(), Hall::new(LIMITS));
    for _ in 0..2 {
        queue.enter(&greedy, Class::LetsGo, 1);
    }
    let of_greedy = [(); 2].map(|()| waits(queue.enter(&greedy, Class::LetsGo, 1)));
    let of_modest = waits(queue.enter(&modest, Class::LetsGo, 1));
    assert_eq!(queue.waiting_of("greedy"), 2);

    let mut order = Vec::new();
    for _ in 0..3 {
        queue.pass(10);
        queue.leave(Class::LetsGo);
        order.extend(queue.next_turn());
    }

    assert_eq!(order, [of_modest, of_greedy[0], of_greedy[1]]);
}

#[test]
fn one_that_waits_for_a_server_leaves_its_place_to_others_and_counts_as_waiting_x_135() {
    let ([greedy, modest], mut queue) = (users(), Hall::new(LIMITS));
    assert!(matches!(queue.enter(&greedy, Class::Ordinary, 1), Entered::Runs(_)));

    queue.park(Class::Ordinary, 1).unwrap();

    assert!(matches!(queue.enter(&modest, Class::Ordinary, 1), Entered::Runs(_)), "the place is free");
    assert_eq!((queue.running().now(), queue.waiting().now(), queue.waiting_of("greedy")), (1, 1, 1));
    let resumed = waits(queue.resume(&greedy, Class::Ordinary, 1));
    queue.leave(Class::Ordinary);
    assert_eq!((queue.next_turn(), queue.waiting().now()), (Some(resumed), 0));
}

#[test]
fn those_that_wait_for_a_server_count_for_the_depth_and_have_their_turn_again_x_135() {
    let ([greedy, modest], mut queue) = (users(), Hall::new(QueueLimits { waiting: 3, ..LIMITS }));
    for _ in 0..3 {
        assert!(matches!(queue.enter(&greedy, Class::Ordinary, 1), Entered::Runs(_)));
        queue.park(Class::Ordinary, 1).unwrap();
    }
    assert!(matches!(queue.enter(&modest, Class::Ordinary, 1), Entered::Runs(_)), "a place that is free is given");

    assert_eq!(queue.enter(&modest, Class::Ordinary, 1), Entered::Full);
    waits(queue.resume(&greedy, Class::Ordinary, 1));
    queue.give_up_parked(&greedy, 1);
    assert_eq!(queue.waiting().now(), 2);
}

#[test]
fn those_that_wait_for_a_server_have_the_limits_of_those_that_wait_for_a_turn_x_135_x_141() {
    let limits = QueueLimits { waiting: 4, waiting_bytes: 100_000, ..LIMITS };
    let ([greedy, modest], mut queue) = (users(), Hall::new(limits));
    let mut park = |user: &Arc<str>, class, bytes| {
        assert!(matches!(queue.enter(user, class, bytes), Entered::Runs(_)), "a place is free");
        let parked = queue.park(class, bytes);
        assert_eq!(queue.running().now(), 0, "it is left, however that ends");
        parked
    };

    assert_eq!(park(&greedy, Class::Ordinary, 60_000), Ok(()));
    assert_eq!(park(&modest, Class::Ordinary, 60_000), Err(Crowded::TooLarge));
    assert_eq!([(); 3].map(|()| park(&greedy, Class::Ordinary, 1)), [Ok(()), Ok(()), Err(Crowded::Full)]);
    assert_eq!([(); 2].map(|()| park(&modest, Class::Ordinary, 1)), [Ok(()), Err(Crowded::Full)]);
    assert_eq!(park(&modest, Class::LetsGo, 60_000), Err(Crowded::TooLarge), "an insert of a transaction");
    assert_eq!(park(&modest, Class::LetsGo, 200), Ok(()), "the end of something");
}

#[test]
fn a_pause_holds_up_all_but_those_who_let_go_x_135() {
    let ([greedy, modest], mut queue) = (users(), Hall::new(LIMITS));
    assert!(matches!(queue.enter(&greedy, Class::Ordinary, 1), Entered::Runs(_)));
    let first = waits(queue.enter(&greedy, Class::Ordinary, 1));

    queue.set_paused(true);
    queue.leave(Class::Ordinary);
    let second = waits(queue.enter(&modest, Class::Ordinary, 1));

    assert_eq!((queue.next_turn(), queue.running().now()), (None, 0));
    assert!(matches!(queue.enter(&greedy, Class::LetsGo, 1), Entered::Runs(_)));
    queue.leave(Class::LetsGo);
    queue.set_paused(false);
    let turn = queue.next_turn();
    queue.leave(Class::Ordinary);
    assert_eq!([turn, queue.next_turn()], [Some(first), Some(second)]);
}

#[test]
fn one_who_gives_up_costs_no_other_the_turn() {
    let ([greedy, modest], mut queue) = (users(), Hall::new(LIMITS));
    queue.enter(&greedy, Class::Ordinary, 1);
    let first = waits(queue.enter(&greedy, Class::Ordinary, 1));
    let other = waits(queue.enter(&modest, Class::Ordinary, 1));

    queue.give_up(&greedy, first);
    queue.give_up(&greedy, first);
    queue.leave(Class::Ordinary);

    assert_eq!((queue.next_turn(), queue.waiting().now()), (Some(other), 0));
}

#[test]
fn what_waits_has_so_many_bytes_at_most_and_ends_of_something_are_taken_all_the_same_x_141() {
    let ([greedy, modest], mut queue) = (users(), Hall::new(QueueLimits { waiting_bytes: 100_000, ..LIMITS }));
    assert!(matches!(queue.enter(&greedy, Class::LetsGo, 1_000_000), Entered::Runs(_)), "it does not wait");
    assert!(matches!(queue.enter(&greedy, Class::LetsGo, 1), Entered::Runs(_)));
    let first = waits(queue.enter(&greedy, Class::Ordinary, 60_000));

    assert_eq!(queue.enter(&modest, Class::Ordinary, 70_000), Entered::TooLarge);
    assert_eq!(queue.enter(&modest, Class::LetsGo, 60_000), Entered::TooLarge, "an insert of a transaction");
    waits(queue.enter(&modest, Class::Ordinary, 40_000));
    let end = waits(queue.enter(&modest, Class::LetsGo, 200));
    assert_eq!((queue.waiting_bytes().now(), queue.waiting_bytes().most()), (100_200, 100_200));

    queue.leave(Class::LetsGo);
    assert_eq!(queue.next_turn(), Some(end));
    queue.give_up(&greedy, first);
    assert_eq!(queue.waiting_bytes().now(), 40_000);
    waits(queue.enter(&greedy, Class::Ordinary, 60_000));
}

#[test]
fn the_user_whose_commands_have_most_bytes_gives_way_to_one_who_has_fewer_x_141() {
    let ([greedy, modest], mut queue) = (users(), Hall::new(QueueLimits { waiting_bytes: 100_000, ..LIMITS }));
    queue.enter(&greedy, Class::Ordinary, 1);
    let of_greedy = [(); 3].map(|()| waits(queue.enter(&greedy, Class::Ordinary, 33_000)));

    let entered = queue.enter(&modest, Class::Ordinary, 44_000);

    let Entered::Displaces { refused, why: Crowded::TooLarge, .. } = entered else { panic!("{entered:?}") };
    assert_eq!((refused, queue.waiting_bytes().now()), (of_greedy[..2].to_vec(), 77_000));
    assert_eq!(queue.enter(&modest, Class::Ordinary, 44_000), Entered::TooLarge, "it has most itself");
}
