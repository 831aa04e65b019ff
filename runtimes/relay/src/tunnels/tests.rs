//! A stock in virtual time.

use super::*;

/// A stock, and the application that it dials.
struct World {
    tunnels: Tunnels,
    now: Instant,
    wanted: u16,
    dialled: Vec<SocketId>,
    left: Vec<SocketId>,
}

impl World {
    fn new(limits: &Limits, wanted: u16) -> Self {
        let now = Instant::from_millis(1_000);
        let mut world =
            Self { tunnels: Tunnels::new(limits, 7, now), now, wanted, dialled: Vec::new(), left: Vec::new() };
        world.drain();
        world
    }

    /// A world in which everything is parked that has to be.
    fn settled(limits: &Limits, wanted: u16) -> Self {
        let mut world = Self::new(limits, wanted);
        world.park_all();
        world
    }

    fn drain(&mut self) {
        while let Some(output) = self.tunnels.poll_output() {
            match output {
                TunnelOutput::Dial(socket) => self.dialled.push(socket),
                TunnelOutput::Leave(socket) => self.left.push(socket),
            }
        }
    }

    fn park_all(&mut self) {
        while !self.dialled.is_empty() {
            let socket = self.dialled.remove(0);
            self.tunnels.handle_parked(self.now, socket, self.wanted);
            self.drain();
        }
    }

    /// The time passes, and nothing is done before it is due.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.tunnels.poll_timeout().filter(|at| *at <= end) {
            assert!(at > self.now, "due at {at:?}, and it is {:?}", self.now);
            self.now = at;
            self.tunnels.handle_timeout(at);
            self.drain();
        }
        self.now = end;
        self.tunnels.handle_timeout(end);
        self.drain();
    }

    fn end(&mut self, socket: SocketId, end: SocketEnd) {
        self.tunnels.handle_end(self.now, socket, end);
        self.drain();
    }

    fn start(&mut self, socket: SocketId) {
        self.tunnels.handle_start(self.now, socket);
        self.drain();
    }

    fn demand(&mut self, number: u16) {
        self.tunnels.handle_demand(self.now, number);
        self.drain();
    }

    fn parked(&self) -> Vec<SocketId> {
        self.tunnels.parked.keys().copied().collect()
    }
}

#[test]
fn the_first_socket_asks_how_many_are_wanted_x_125() {
    let mut world = World::new(&Limits::default(), 4);
    assert_eq!(world.dialled.len(), 1);

    world.park_all();

    assert_eq!(world.tunnels.counts(), SocketCounts { parked: 4, ..SocketCounts::default() });
}

#[test]
fn a_started_socket_is_replaced_x_125() {
    let mut world = World::settled(&Limits::default(), 2);
    let started = world.parked()[0];

    world.start(started);

    assert_eq!(world.dialled.len(), 1);
    assert_eq!(world.tunnels.counts().in_use, 1);
}

#[test]
fn a_demand_is_met_once_however_often_it_is_said_x_125() {
    let mut world = World::settled(&Limits::default(), 2);

    world.demand(7);
    world.demand(7);
    assert_eq!(world.dialled.len(), 7);
    world.park_all();

    assert_eq!(world.tunnels.counts().parked, 9);
}

#[test]
fn an_application_that_wants_none_has_one_by_which_it_can_ask_x_125() {
    let world = World::settled(&Limits::default(), 0);

    assert_eq!(world.tunnels.counts().parked, 1);
}

#[test]
fn there_are_never_more_sockets_than_the_limit_x_125() {
    let limits = Limits { max_sockets: 3, ..Limits::default() };
    let mut world = World::settled(&limits, 2);
    let started = world.parked()[0];

    world.start(started);
    world.demand(100);
    world.park_all();
    assert_eq!(world.tunnels.total(), 3);
    assert!(world.tunnels.is_at_its_limit());

    world.end(started, SocketEnd::Over);
    assert_eq!(world.dialled.len(), 1);
}

#[test]
fn a_burst_is_dialled_in_parts_x_125() {
    let mut world = World::settled(&Limits::default(), 2);

    world.demand(200);

    assert_eq!(world.dialled.len(), DIALLED_TOGETHER);
}

#[test]
fn sockets_that_nobody_needs_leave_after_a_minute_x_128() {
    let mut world = World::settled(&Limits::default(), 2);
    world.demand(7);
    world.park_all();

    world.pass(SURPLUS_LASTS - Duration::from_secs(1));
    assert_eq!(world.left, []);
    world.pass(Duration::from_secs(1));

    assert_eq!(world.left.len(), 7);
    assert_eq!(world.tunnels.counts().parked, 2);
}

#[test]
fn a_demand_sends_none_away_that_was_parked_before_x_128() {
    let mut world = World::settled(&Limits::default(), 2);
    world.pass(Duration::from_secs(60));

    world.demand(7);
    world.park_all();
    let at_once = world.left.len();
    world.pass(Duration::from_secs(60));

    assert_eq!((at_once, world.left.len()), (0, 7));
}

#[test]
fn at_the_limit_an_old_socket_leaves_before_its_successor_comes_x_128() {
    let mut limits = Limits::default();
    (limits.max_sockets, limits.max_parked_time) = (2, Some(Duration::from_secs(600)));
    let mut world = World::settled(&limits, 2);

    world.pass(Duration::from_secs(600));
    let left = world.left.clone();
    for socket in left.clone() {
        world.end(socket, SocketEnd::Over);
    }

    assert_eq!((left.len(), world.dialled.len()), (1, 1));
}

#[test]
fn sockets_that_were_parked_before_a_failure_do_not_shorten_its_pauses_x_126() {
    let mut world = World::settled(&Limits::default(), 4);
    world.pass(Duration::from_secs(10));
    let socket = world.parked()[0];
    world.start(socket);
    let mut attempts = 0;

    let end = world.now + Duration::from_secs(60);
    while world.now < end {
        for socket in std::mem::take(&mut world.dialled) {
            attempts += 1;
            world.end(socket, SocketEnd::Failed);
        }
        world.pass(Duration::from_millis(100));
    }

    assert!(attempts <= 20, "{attempts} attempts in a minute");
}

#[test]
fn a_demand_that_cannot_be_met_is_forgotten_x_125() {
    let mut world = World::settled(&Limits::default(), 1);
    let [parked] = world.parked()[..] else { panic!("one is parked") };
    world.pass(PROVEN_AFTER);
    world.demand(5);
    for socket in std::mem::take(&mut world.dialled) {
        world.end(socket, SocketEnd::Failed);
    }

    world.pass(DEMAND_LASTS);
    for socket in std::mem::take(&mut world.dialled) {
        world.end(socket, SocketEnd::Failed);
    }
    world.pass(Duration::from_secs(60));

    assert_eq!(world.dialled, []);
    assert_eq!(world.parked(), [parked]);
}

#[test]
fn after_a_failure_one_is_dialled_at_a_time_after_pauses_x_126() {
    let mut world = World::settled(&Limits::default(), 5);
    for socket in world.parked() {
        world.end(socket, SocketEnd::Failed);
    }
    assert_eq!(world.dialled, []);

    world.pass(Duration::from_millis(200));
    let [first] = world.dialled[..] else { panic!("{:?}", world.dialled) };
    world.dialled.clear();
    world.end(first, SocketEnd::Failed);
    world.pass(Duration::from_millis(199));
    assert_eq!(world.dialled, []);
    world.pass(Duration::from_millis(201));
    assert_eq!(world.dialled.len(), 1);
    world.park_all();

    assert_eq!(world.tunnels.counts().parked, 5);
}

#[test]
fn an_application_that_parks_and_hangs_up_is_not_stormed_x_126() {
    let mut world = World::new(&Limits::default(), 1);
    let mut attempts = 0;
    let end = world.now + Duration::from_secs(60);

    while world.now < end {
        while let Some(socket) = world.dialled.pop() {
            attempts += 1;
            world.tunnels.handle_parked(world.now, socket, 1);
            world.end(socket, SocketEnd::Failed);
        }
        world.pass(Duration::from_millis(10));
    }

    assert!((8..=20).contains(&attempts), "{attempts} attempts in a minute");
}

#[test]
fn an_application_that_starts_and_hangs_up_is_not_stormed_x_126() {
    let mut world = World::new(&Limits::default(), 1);
    let mut attempts = 0;
    let end = world.now + Duration::from_secs(60);

    while world.now < end {
        while let Some(socket) = world.dialled.pop() {
            attempts += 1;
            assert!(attempts < 1_000, "there are no pauses");
            world.tunnels.handle_parked(world.now, socket, 1);
            world.start(socket);
            world.end(socket, SocketEnd::Failed);
        }
        world.pass(Duration::from_millis(10));
    }

    // After each pause one, and the one that takes its place when it is started.
    assert!((8..=40).contains(&attempts), "{attempts} attempts in a minute");
}

#[test]
fn a_connection_that_held_for_long_is_no_failure_x_126() {
    let mut world = World::settled(&Limits::default(), 1);
    let [socket] = world.parked()[..] else { panic!("one is parked") };
    world.start(socket);
    world.park_all();
    world.pass(PROVEN_AFTER);

    world.end(socket, SocketEnd::Failed);

    assert!(!world.tunnels.backoff.is_on());
}

#[test]
fn a_socket_that_held_for_long_is_replaced_at_once_x_126() {
    let mut world = World::settled(&Limits::default(), 1);
    let [socket] = world.parked()[..] else { panic!("one is parked") };
    world.pass(PROVEN_AFTER);

    world.end(socket, SocketEnd::Failed);

    assert_eq!(world.dialled.len(), 1);
}

#[test]
fn the_only_socket_that_held_for_long_ends_the_pauses_from_before_it_x_126() {
    let mut world = World::new(&Limits::default(), 1);
    let first = world.dialled.pop().unwrap();
    world.end(first, SocketEnd::Failed);
    world.pass(Duration::from_secs(1));
    world.park_all();
    let [socket] = world.parked()[..] else { panic!("one is parked") };
    assert!(world.tunnels.backoff.is_on());

    // Nothing else is due meanwhile.
    world.now = world.now + PROVEN_AFTER;
    assert!(world.tunnels.poll_timeout().is_none_or(|at| at > world.now));
    world.end(socket, SocketEnd::Failed);

    assert!(!world.tunnels.backoff.is_on());
}

#[test]
fn nothing_is_dialled_before_a_refusal_allows_it_x_126() {
    let mut world = World::new(&Limits::default(), 1);
    let socket = world.dialled.pop().unwrap();

    world.end(socket, SocketEnd::Refused { retry_after: Duration::from_secs(30) });

    world.pass(Duration::from_secs(30) - Duration::from_millis(1));
    assert_eq!(world.dialled, []);
    world.pass(Duration::from_secs(3) + Duration::from_millis(1));
    assert_eq!(world.dialled.len(), 1);
}

#[test]
fn an_old_socket_leaves_when_its_successor_is_parked_x_128() {
    let mut world = World::settled(&Limits::default(), 1);
    let [old] = world.parked()[..] else { panic!("one is parked") };

    world.pass(Duration::from_secs(30 * 60));
    assert_eq!((world.dialled.len(), world.left.len()), (1, 0));
    world.park_all();

    assert_eq!(world.left, [old]);
    world.end(old, SocketEnd::Over);
    assert_eq!(world.tunnels.counts(), SocketCounts { parked: 1, ..SocketCounts::default() });
}

#[test]
fn an_old_socket_stays_while_its_successor_is_refused_x_128() {
    let mut world = World::settled(&Limits::default(), 1);
    world.pass(Duration::from_secs(30 * 60));
    let successor = world.dialled.pop().unwrap();

    world.end(successor, SocketEnd::Refused { retry_after: Duration::from_secs(60) });

    assert_eq!(world.left, []);
    assert_eq!(world.tunnels.counts().parked, 1);
}

#[test]
fn those_in_use_stay_when_the_others_leave_x_129() {
    let mut world = World::settled(&Limits::default(), 2);
    let used = world.parked()[0];
    world.start(used);

    world.tunnels.leave(world.now);
    world.drain();
    assert_eq!(world.left.len(), 2);
    for socket in world.left.clone() {
        world.end(socket, SocketEnd::Over);
    }
    world.pass(Duration::from_secs(60));
    assert_eq!(world.tunnels.counts(), SocketCounts { in_use: 1, ..SocketCounts::default() });
    assert!(!world.tunnels.has_ended());

    world.end(used, SocketEnd::Over);
    assert!(world.tunnels.has_ended());
}
