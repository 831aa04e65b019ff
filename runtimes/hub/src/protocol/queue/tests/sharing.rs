//! Who gets how much of the servers' time: by hand, and with clients that wait all the time, in virtual time.
//!
//! `CMAP_SIM_SEEDS` says how many seeds there are (2).

use core::time::Duration;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cmap_core::random::Random;

use super::*;
use crate::users::Group;

const PLACES: QueueLimits = QueueLimits {
    running: 20,
    reserved: 2,
    running_per_user: 14,
    awaiting: 14,
    waiting: 1_000,
    waiting_per_user: 500,
    waiting_bytes: 1_000_000,
};

/// Clients of one user, each of which sends a command, waits for its end, and rests.
struct Crowd {
    user: Arc<str>,
    clients: usize,
    takes: Duration,
    rests: Duration,
    /// What it has used, and how long each of its commands waited and ran.
    used: Duration,
    lasted: Vec<Duration>,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Sends { crowd: usize },
    Ends { crowd: usize, arrived: Instant, number: u64 },
}

impl Crowd {
    fn new(user: &str, clients: usize, takes: Duration, rests: Duration) -> Self {
        Self { user: user.into(), clients, takes, rests, used: Duration::ZERO, lasted: Vec::new() }
    }

    /// The 99th percentile of how long its commands lasted.
    fn slow(&mut self) -> Duration {
        self.lasted.sort_unstable();
        self.lasted[self.lasted.len() * 99 / 100]
    }
}

fn takes(crowds: &[Crowd]) -> Vec<Duration> {
    crowds.iter().map(|crowd| crowd.takes).collect()
}

/// Plays for so long. What is used counts from the beginning, since who has much at first has less afterwards; also of what still runs at the
/// end. How long commands last counts after the first tenth.
fn play(queue: &mut Queue, crowds: &mut [Crowd], time: Duration, seed: u64) {
    let mut random = Random::new(seed);
    // A tenth more or less.
    let mut about = |time: Duration| time.mul_f64(0.9 + 0.2 * random.up_to(1_000) as f64 / 1_000.0);
    let (end, from) = (Instant::ORIGIN + time, Instant::ORIGIN + time / 10);
    let (mut events, mut number) = (BinaryHeap::new(), 0);
    for (crowd, it) in crowds.iter().enumerate() {
        (0..it.clients).for_each(|_| events.push(Reverse((Instant::ORIGIN, Event::Sends { crowd }))));
    }
    let (mut waiting, mut running) = (std::collections::BTreeMap::new(), std::collections::BTreeMap::new());
    while let Some(Reverse((now, event))) = events.pop() {
        if now >= end {
            break;
        }
        let mut placed = Vec::new();
        match event {
            Event::Sends { crowd } => match queue.enter(now, &crowds[crowd].user, Class::Ordinary, 1) {
                Entered::Runs(place) => placed.push((crowd, now, place)),
                Entered::Waits(ticket) => _ = waiting.insert(ticket, (crowd, now)),
                other @ (Entered::Displaces { .. } | Entered::Full | Entered::TooLarge) => panic!("{other:?}"),
            },
            Event::Ends { crowd, arrived, number } => {
                let (_, place): (usize, Placed) = running.remove(&number).unwrap();
                queue.leave(now, &place);
                let Crowd { used, lasted, rests, .. } = &mut crowds[crowd];
                *used += now.saturating_since(place.since);
                if arrived >= from {
                    lasted.push(now.saturating_since(arrived));
                }
                events.push(Reverse((now + *rests, Event::Sends { crowd })));
            }
        }
        while let Some((ticket, place)) = queue.next_turn(now) {
            let (crowd, arrived) = waiting.remove(&ticket).unwrap();
            placed.push((crowd, arrived, place));
        }
        for (crowd, arrived, place) in placed {
            number += 1;
            running.insert(number, (crowd, place));
            events.push(Reverse((now + about(crowds[crowd].takes), Event::Ends { crowd, arrived, number })));
        }
    }
    for (crowd, place) in running.into_values() {
        crowds[crowd].used += end.saturating_since(place.since);
    }
}

const AGGREGATE: Duration = Duration::from_millis(1_500);
const INSERT: Duration = Duration::from_micros(500);

fn seeds() -> u64 {
    std::env::var("CMAP_SIM_SEEDS").map_or(2, |seeds| seeds.parse().unwrap())
}

#[test]
fn two_users_that_wait_all_the_time_share_the_servers_time_however_long_their_commands_take_x_135() {
    for seed in 0..seeds() {
        let mut crowds = [Crowd::new("a", 64, AGGREGATE, Duration::ZERO), Crowd::new("b", 16, INSERT, Duration::ZERO)];

        play(&mut Queue::new(PLACES), &mut crowds, Duration::from_secs(30), seed);

        let [a, b] = crowds.map(|crowd| crowd.used.as_secs_f64());
        println!("seed {seed}: {a:.1} s and {b:.1} s");
        assert!((a / b - 1.0).abs() < 0.1, "seed {seed}: {a} and {b}");
    }
}

#[test]
fn those_that_rest_are_not_held_up_by_one_that_waits_all_the_time_x_135() {
    // Also where that one may have all places.
    for (seed, running_per_user) in (0..seeds()).flat_map(|seed| [(seed, 14), (seed, 18)]) {
        let rest = Duration::from_millis(10);
        let mut crowds = [Crowd::new("a", 64, AGGREGATE, Duration::ZERO), Crowd::new("b", 4, INSERT, rest)];
        let limits = QueueLimits { running_per_user, ..PLACES };

        play(&mut Queue::new(limits), &mut crowds, Duration::from_secs(30), seed);

        let slow = crowds[1].slow();
        println!("seed {seed}, {running_per_user} places of one user: 99 of 100 within {slow:?}");
        assert!(slow < AGGREGATE, "seed {seed}, {running_per_user} places of one user: {slow:?}");
    }
}

#[test]
fn any_users_that_wait_all_the_time_share_the_servers_time_by_their_weights_x_135() {
    // Nobody is held back by a limit.
    let limits = QueueLimits { running_per_user: PLACES.running, ..PLACES };
    for seed in 0..seeds() {
        let mut random = Random::new(seed);
        let mut one_of = |from: &[u32]| from[usize::try_from(random.up_to(from.len() as u64 - 1)).unwrap()];
        let (mut queue, mut crowds, mut shares) = (Queue::new(limits), Vec::new(), Vec::new());
        for name in &["a", "b", "c", "d"][..one_of(&[2, 3, 4]) as usize] {
            let (weight, millis) = (one_of(&[1, 2, 3]), one_of(&[5, 50, 500, 1_500]));
            crowds.push(Crowd::new(name, 24, Duration::from_millis(millis.into()), Duration::ZERO));
            shares.push((Arc::from(*name), Share { weight, ..Share::default() }));
        }
        queue.set_shares(shares.clone());

        play(&mut queue, &mut crowds, Duration::from_secs(60), seed);

        let parts = crowds.iter().zip(&shares).map(|(it, (_, share))| it.used.as_secs_f64() / f64::from(share.weight));
        let parts: Vec<_> = parts.collect();
        let mean = parts.iter().sum::<f64>() / parts.len() as f64;
        let is_fair = parts.iter().all(|part| (part / mean - 1.0).abs() < 0.1);
        assert!(is_fair, "seed {seed}: {parts:?} of each weight, where commands take {:?}", takes(&crowds));
    }
}

#[test]
fn weights_count_and_a_group_has_the_part_of_one_x_135() {
    let group = Arc::new(Group { name: "g".into(), weight: 1, running: None, waiting: None, connections: None });
    let of_group = Share { group: Some(group), ..Share::default() };
    let heavy = Share { weight: 2, ..Share::default() };
    let mut queue = Queue::new(PLACES);
    queue.set_shares([("a".into(), heavy), ("b".into(), of_group.clone()), ("c".into(), of_group)]);
    let crowd = |user| Crowd::new(user, 30, Duration::from_millis(100), Duration::ZERO);
    let mut crowds = [crowd("a"), crowd("b"), crowd("c")];

    play(&mut queue, &mut crowds, Duration::from_secs(60), 1);

    let [a, b, c] = crowds.map(|crowd| crowd.used.as_secs_f64());
    let all = a + b + c;
    for (used, part) in [(a, 4.0), (b, 1.0), (c, 1.0)] {
        assert!((used / all * 6.0 - part).abs() < 0.1, "{a} {b} {c}");
    }
}

#[test]
fn one_user_has_so_many_places_at_most_and_as_many_more_for_ends_as_are_kept_x_135() {
    let limits = QueueLimits { running: 6, reserved: 1, running_per_user: 3, ..LIMITS };
    let ([greedy, modest], mut queue) = (users(), Hall::new(limits));
    (0..3).for_each(|_| assert!(matches!(queue.enter(&greedy, Class::Ordinary, 1), Entered::Runs(_))));

    waits(queue.enter(&greedy, Class::Ordinary, 1));
    assert!(matches!(queue.enter(&greedy, Class::LetsGo, 1), Entered::Runs(_)));
    waits(queue.enter(&greedy, Class::LetsGo, 1));

    assert_eq!(queue.next_turn(), None, "that is all");
    assert!(matches!(queue.enter(&modest, Class::Ordinary, 1), Entered::Runs(_)), "past those that may not");
    assert_eq!((queue.running_of("greedy"), queue.waiting_of("greedy")), (4, 2));
}

#[test]
fn users_and_groups_may_have_limits_of_their_own_x_135() {
    let group = Arc::new(Group { name: "g".into(), weight: 1, running: Some(2), waiting: Some(2), connections: None });
    let ([greedy, modest], mut queue) = (users(), Hall::new(QueueLimits { running: 6, running_per_user: 6, ..LIMITS }));
    let of_greedy = Share { running: Some(1), waiting: Some(1), group: Some(Arc::clone(&group)), ..Share::default() };
    let of_modest = Share { group: Some(group), ..Share::default() };
    queue.set_shares([(Arc::clone(&greedy), of_greedy), (Arc::clone(&modest), of_modest)]);
    assert!(matches!(queue.enter(&greedy, Class::Ordinary, 1), Entered::Runs(_)));
    assert!(matches!(queue.enter(&modest, Class::Ordinary, 1), Entered::Runs(_)));

    let first = waits(queue.enter(&greedy, Class::Ordinary, 1));
    let Entered::Displaces { ticket, refused, .. } = queue.enter(&greedy, Class::Ordinary, 1) else {
        panic!("of its own")
    };
    assert_eq!(refused, [first]);
    let of_modest = waits(queue.enter(&modest, Class::Ordinary, 1));
    let Entered::Displaces { refused, .. } = queue.enter(&modest, Class::Ordinary, 1) else { panic!("of the group") };
    assert_eq!(refused, [of_modest]);

    queue.pass(1);
    queue.take(Class::Ordinary);
    assert_eq!(queue.next_turn(), None, "the group has all that it may have");
    let placed =
        Placed { user: greedy, group: queue.running[0].group.clone(), class: Class::Ordinary, since: Instant::ORIGIN };
    let now = queue.now;
    queue.queue.leave(now, &placed);
    assert_eq!(queue.next_turn(), Some(ticket));
}

#[test]
fn those_that_wait_for_documents_have_so_many_places_and_are_not_charged_x_135() {
    let limits = QueueLimits { running: 4, reserved: 1, running_per_user: 4, awaiting: 1, ..LIMITS };
    let ([greedy, modest], mut queue) = (users(), Hall::new(limits));
    assert!(matches!(queue.enter(&greedy, Class::Awaits, 1), Entered::Runs(_)));
    let second = waits(queue.enter(&greedy, Class::Awaits, 1));
    (0..2)
        .for_each(|_| assert!(matches!(queue.enter(&modest, Class::Ordinary, 1), Entered::Runs(_)), "a place is free"));
    let of_greedy = waits(queue.enter(&greedy, Class::Ordinary, 1));
    let of_modest = waits(queue.enter(&modest, Class::Ordinary, 1));

    queue.pass(1_000);
    queue.leave(Class::Ordinary);
    assert_eq!(queue.next_turn(), Some(of_greedy), "it has used nothing");
    queue.leave(Class::Ordinary);
    assert_eq!(queue.next_turn(), Some(of_modest), "the other one that waits for documents has to wait");
    queue.leave(Class::Awaits);
    assert_eq!(queue.next_turn(), Some(second));
}

#[test]
fn what_a_user_waits_for_leaves_places_to_its_other_commands_x_135() {
    let limits = QueueLimits { running: 9, reserved: 1, running_per_user: 4, awaiting: 8, ..LIMITS };
    let ([user, _], mut queue) = (users(), Hall::new(limits));
    (0..3).for_each(|_| assert!(matches!(queue.enter(&user, Class::Awaits, 1), Entered::Runs(_))));
    let fourth = waits(queue.enter(&user, Class::Awaits, 1));

    assert!(matches!(queue.enter(&user, Class::Ordinary, 1), Entered::Runs(_)), "past the one that waits");
    queue.leave(Class::Ordinary);
    assert_eq!(queue.next_turn(), None, "that place is not for those that wait for documents");
    queue.leave(Class::Awaits);
    assert_eq!(queue.next_turn(), Some(fourth));
}

#[test]
fn one_that_comes_back_has_saved_nothing_and_who_had_all_while_nobody_waited_owes_nothing_x_135() {
    let limits = QueueLimits { running: 3, reserved: 1, running_per_user: 3, ..LIMITS };
    let ([greedy, modest], mut queue) = (users(), Hall::new(limits));
    for _ in 0..100 {
        queue.enter(&greedy, Class::Ordinary, 1);
        queue.pass(1_000);
        queue.leave(Class::Ordinary);
    }
    (0..2).for_each(|_| _ = queue.enter(&modest, Class::Ordinary, 1));
    let of_greedy = waits(queue.enter(&greedy, Class::Ordinary, 1));
    let of_modest = waits(queue.enter(&modest, Class::Ordinary, 1));

    queue.pass(10);
    queue.leave(Class::Ordinary);
    assert_eq!(queue.next_turn(), Some(of_greedy), "from when somebody waits the other one has used more");

    // It goes on to wait while only the other one has turns.
    queue.pass(5_000);
    queue.leave(Class::Ordinary);
    assert_eq!(queue.next_turn(), Some(of_modest));
}
