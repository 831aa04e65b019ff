//! The servers, the network and the callers around a client: from one seed, they decide what happens next.
//!
//! Each seed draws its options and its troubles by swarm: most of them are off in most runs, so that those that are on meet
//! each other often.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use cmap_core::options::{Affinity, IdentityOrder, PoolOptions, QueueDepth, Reuse, WaitOrder};
use cmap_core::pool::Handle;
use cmap_core::random::Random;
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, WarmUpId};

use super::driver::{Driver, Report};
use super::machine::Machine;
use super::oracle::Broken;
use super::step::{ClientCase, Deployment, Establishment, Heard, Lookup, Purpose, Script, Step, Trouble};

/// The election that nobody loses any more.
pub(super) const LAST_ELECTION: u64 = u64::MAX;

const KEYS: u64 = 6;

/// How many identities a client may have had.
const IDENTITIES: u64 = 6;

/// How many services a load balancer has.
const SERVICES: u64 = 3;

/// The longest time that a lookup takes, in microseconds.
const LOOKUP: u64 = 5_000_000;

/// Later than everything.
const END: Instant = Instant::from_nanos(u64::MAX);

/// The world of one seed.
pub(super) struct World {
    random: Random,
    client: ClientCase,
    temper: Temper,
    members: Vec<Member>,
    checks: Vec<Checking>,
    primary: usize,
    election: u64,
    /// What comes, by time and the order in which it was found out.
    queue: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    found: u64,
    /// Check-outs that wait, each with the number of its caller.
    callers: Vec<(CheckOut, usize)>,
    /// Reports that are being read.
    reports: Vec<Report>,
    steps: Vec<(Instant, Step)>,
    until: Instant,
}

/// How likely things are, in this seed: of 1024.
#[derive(Debug)]
struct Temper {
    callers: usize,
    /// Upper bounds, in microseconds.
    hold: u64,
    think: u64,
    latency: u64,
    /// The least time between two checks of a server.
    check_pause: u64,
    limits: u64,
    cancels: u64,
    errors: u64,
    hang_ups: u64,
    deaths: u64,
    late_reports: u64,
    reads: u64,
    keys: u64,
    warm_ups: u64,
    /// Check-outs of identities; 0 = there are none.
    identities: u64,
    /// Logins of identities that are refused.
    refusals: u64,
    /// The time between two changes of identities and credentials, in microseconds; 0 = none.
    rotations: u64,
    /// The time between two troubles of the servers, in microseconds; 0 = none.
    troubles: u64,
    changes: bool,
    suspensions: bool,
}

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Up,
    /// Nobody listens.
    Down,
    /// It accepts, and does nothing.
    Hung,
    /// It hangs up new connections.
    Overloaded,
    /// It refuses all credentials.
    Unauthorized,
}

/// The state of a server's monitor.
#[derive(Clone, Copy, Debug, Default)]
struct Checking {
    /// A check is under way, or waits for its time: a request for another one is answered by it.
    is_due: bool,
    /// The end of the last one.
    checked: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(usize),
    GiveUp(CheckOut),
    EndWarmUp(WarmUpId),
    Return(Handle),
    Establish(usize, Handle),
    Check(Handle),
    Refresh(usize, Handle),
    Monitor(usize),
    Rotate,
    Resolve,
    Trouble,
}

impl World {
    pub(super) fn new(seed: u64, deployment: Option<Deployment>) -> Self {
        let mut random = Random::new(seed);
        let drawn = pick(&mut random, &Deployment::ALL);
        let deployment = deployment.unwrap_or(drawn);
        let client = client(&mut random, deployment, seed);
        let temper = Temper::draw(&mut random, deployment);
        let mut world = Self {
            members: vec![Member::Up; deployment.hosts().len()],
            checks: vec![Checking::default(); deployment.hosts().len()],
            random,
            client,
            temper,
            primary: 0,
            election: 1,
            queue: BinaryHeap::new(),
            found: 0,
            callers: Vec::new(),
            reports: Vec::new(),
            steps: Vec::new(),
            until: Instant::ORIGIN,
        };
        for caller in 0..world.temper.callers {
            world.later(world.temper.think, Event::Arrive(caller), Instant::ORIGIN);
        }
        if world.temper.rotations > 0 {
            world.later(world.temper.rotations, Event::Rotate, Instant::ORIGIN);
        }
        if world.temper.troubles > 0 {
            world.later(world.temper.troubles, Event::Trouble, Instant::ORIGIN);
        }
        world
    }

    pub(super) fn client(&self) -> &ClientCase {
        &self.client
    }

    /// All that has happened.
    pub(super) fn into_script(self) -> Script {
        Script { client: self.client, steps: self.steps, until: self.until }
    }

    /// Lets this many steps happen, and then calms down.
    pub(super) fn run<M: Machine>(&mut self, driver: &mut Driver<M>, steps: usize) -> Result<(), Broken> {
        let result = self.take_steps(driver, steps);
        self.until = driver.now();
        result?;
        driver.reports.clear();
        driver.calm_down(LAST_ELECTION)
    }

    fn take_steps<M: Machine>(&mut self, driver: &mut Driver<M>, steps: usize) -> Result<(), Broken> {
        self.steps.reserve(steps);
        if self.temper.identities > 0 {
            for _ in 0..2 {
                self.step(driver, Instant::ORIGIN, Step::AddIdentity)?;
            }
        }
        while self.steps.len() < steps {
            self.read_reports(driver);
            let next = self.queue.peek().map_or(END, |Reverse((at, ..))| *at);
            if driver.handle_timeout_by(next)? {
                continue;
            }
            let Some(Reverse((at, _, event))) = self.queue.pop() else { break };
            // A process that was suspended reads everything that came meanwhile when it wakes.
            self.happen(driver, at.max(driver.now()), event)?;
        }
        Ok(())
    }

    fn happen<M: Machine>(&mut self, driver: &mut Driver<M>, now: Instant, event: Event) -> Result<(), Broken> {
        match event {
            Event::Arrive(caller) => self.arrive(driver, now, caller),
            Event::GiveUp(check_out) => match driver.place_waiting(check_out) {
                Some(nth) => {
                    self.end(check_out, now);
                    self.step(driver, now, Step::Cancel(nth))
                }
                None => Ok(()),
            },
            Event::EndWarmUp(warm_up) => match driver.place_warm_up(warm_up) {
                Some(nth) => self.step(driver, now, Step::CancelWarmUp(nth)),
                None => Ok(()),
            },
            Event::Return(connection) => match driver.place_in_use(connection) {
                Some(nth) => self.give_back(driver, now, nth),
                None => Ok(()),
            },
            Event::Establish(member, connection) => match driver.place_pending(connection) {
                Some(nth) => {
                    let end = self.establishment(driver, member, connection);
                    self.step(driver, now, Step::Establish { nth, end })
                }
                None => Ok(()),
            },
            Event::Check(connection) => match driver.place_checking(connection) {
                Some(nth) => {
                    let is_alive = !self.happens(self.temper.deaths);
                    self.step(driver, now, Step::Check { nth, is_alive })
                }
                None => Ok(()),
            },
            Event::Refresh(member, connection) => match driver.place_refreshing(connection) {
                Some(nth) => {
                    let is_alive = self.member(member) == Member::Up && !self.happens(self.temper.deaths);
                    self.step(driver, now, Step::Refresh { nth, is_alive })
                }
                None => Ok(()),
            },
            Event::Monitor(member) => self.check_server(driver, now, member),
            Event::Rotate => {
                self.later(self.temper.rotations, Event::Rotate, now);
                self.rotate(driver, now)
            }
            Event::Resolve => {
                let lookup = self.lookup();
                self.step(driver, now, Step::Resolve(lookup))
            }
            Event::Trouble => {
                self.later(self.temper.troubles, Event::Trouble, now);
                self.make_trouble(driver, now)
            }
        }
    }

    fn step<M: Machine>(&mut self, driver: &mut Driver<M>, now: Instant, step: Step) -> Result<(), Broken> {
        self.steps.push((now, step));
        driver.play(now, step)
    }

    // Callers.

    fn arrive<M: Machine>(&mut self, driver: &mut Driver<M>, now: Instant, caller: usize) -> Result<(), Broken> {
        if self.happens(self.temper.warm_ups) {
            self.warm_up(driver, now)?;
        }
        let limit = self.happens(self.temper.limits).then(|| Duration::from_micros(1 + self.up_to(20_000)));
        let purpose = if self.happens(self.temper.reads) { Purpose::Read } else { Purpose::Write };
        let key = self.happens(self.temper.keys).then(|| self.up_to(KEYS));
        let identity = self.happens(self.temper.identities).then(|| self.any(IDENTITIES));
        self.step(driver, now, Step::CheckOut { purpose, limit, key, identity })?;
        // Its reports, which tell whether it has ended already, are read afterwards.
        if let Some(check_out) = driver.last_check_out() {
            self.callers.push((check_out, caller));
            if self.happens(self.temper.cancels) {
                self.later(self.temper.hold, Event::GiveUp(check_out), now);
            }
        }
        Ok(())
    }

    fn warm_up<M: Machine>(&mut self, driver: &mut Driver<M>, now: Instant) -> Result<(), Broken> {
        let connections = u32::try_from(self.up_to(5)).ok().filter(|connections| *connections > 0);
        self.step(driver, now, Step::WarmUp(connections))?;
        if let Some(warm_up) = driver.last_warm_up() {
            self.later(self.temper.hold + self.temper.latency, Event::EndWarmUp(warm_up), now);
        }
        Ok(())
    }

    fn give_back<M: Machine>(&mut self, driver: &mut Driver<M>, now: Instant, nth: usize) -> Result<(), Broken> {
        let is_usable = !self.happens(self.temper.errors);
        if self.happens(self.temper.hang_ups) {
            self.step(driver, now, Step::HangUp(nth))?;
        }
        if !is_usable {
            let troubles = [
                Trouble::Network,
                Trouble::Timeout,
                Trouble::NotWritablePrimary,
                Trouble::ShuttingDown,
                Trouble::Overload,
            ];
            let trouble = pick(&mut self.random, &troubles);
            self.step(driver, now, Step::OperationFailed { nth, trouble })?;
        }
        self.step(driver, now, Step::CheckIn { nth, is_usable })
    }

    /// A caller has its answer: it comes again.
    fn end(&mut self, check_out: CheckOut, now: Instant) {
        if let Some(caller) = self.take_caller(check_out) {
            self.later(self.temper.think, Event::Arrive(caller), now);
        }
    }

    // Servers.

    fn establishment<M: Machine>(
        &mut self,
        driver: &mut Driver<M>,
        member: usize,
        connection: Handle,
    ) -> Establishment {
        let is_up = self.member(member) == Member::Up;
        // Half of the servers have not heard of the new credential yet.
        let is_refused = is_up
            && (driver.oracle.is_outdated(connection) && self.happens(512)
                || driver.oracle.is_of_identity(connection) && self.happens(self.temper.refusals));
        match self.member(member) {
            Member::Up if is_refused => Establishment::Unauthorized,
            Member::Up if self.client.deployment == Deployment::LoadBalanced => {
                Establishment::DoneBy(u8::try_from(self.up_to(SERVICES - 1)).unwrap_or_default())
            }
            Member::Up => Establishment::Done,
            Member::Down => Establishment::Refused,
            Member::Hung => Establishment::TimedOut,
            Member::Overloaded => Establishment::HungUp,
            Member::Unauthorized => Establishment::Unauthorized,
        }
    }

    /// An identity comes or goes, or a credential is replaced.
    fn rotate<M: Machine>(&mut self, driver: &mut Driver<M>, now: Instant) -> Result<(), Broken> {
        let may_add = self.temper.identities > 0 && (driver.identities() as u64) < IDENTITIES;
        let step = match self.up_to(7) {
            0 if may_add => Step::AddIdentity,
            1 if driver.identities() > 0 => Step::RemoveIdentity(self.any(IDENTITIES)),
            _ => {
                let identity = (driver.identities() > 0 && self.happens(512)).then(|| self.any(IDENTITIES));
                Step::RenewCredential { identity, is_proven: !self.happens(128) }
            }
        };
        self.step(driver, now, step)
    }

    /// What DNS says: most records change from time to time, and one in eight lookups fails, or finds nothing.
    fn lookup(&mut self) -> Lookup {
        let routers = match self.up_to(7) {
            0 => return Lookup::Failed,
            1 => 0,
            _ => u8::try_from(1 + self.up_to(14)).unwrap_or(1),
        };
        let time_to_live = Duration::from_secs(pick(&mut self.random, &[0, 60, 90]));
        Lookup::Found { routers, has_stranger: self.happens(128), time_to_live }
    }

    fn check_server<M: Machine>(&mut self, driver: &mut Driver<M>, now: Instant, member: usize) -> Result<(), Broken> {
        let is_primary = self.client.deployment.is_replica_set() && member == self.primary;
        let finding = match self.member(member) {
            Member::Up | Member::Overloaded | Member::Unauthorized => {
                Heard::Answer { primary_of: is_primary.then_some(self.election) }
            }
            Member::Down => Heard::Failure,
            Member::Hung => Heard::Timeout,
        };
        if let Some(checking) = self.checks.get_mut(member) {
            *checking = Checking { is_due: false, checked: now };
        }
        self.step(driver, now, Step::Heard { member, finding })
    }

    fn make_trouble<M: Machine>(&mut self, driver: &mut Driver<M>, now: Instant) -> Result<(), Broken> {
        let member = usize::try_from(self.random.next_u64() % 8).unwrap_or_default() % self.members.len();
        let kinds = if self.temper.changes { 16 } else { 12 };
        match self.random.next_u64() % kinds {
            0..=3 => self.turn(member, Member::Up, now),
            4 => self.turn(member, Member::Down, now),
            5 => self.turn(member, Member::Hung, now),
            6 => self.turn(member, Member::Overloaded, now),
            7 => self.turn(member, Member::Unauthorized, now),
            8 => {
                // An election: the winner tells at once, the loser when it is asked.
                self.primary = member;
                self.election += 1;
                self.later(self.temper.latency, Event::Monitor(member), now);
            }
            9 | 12..16 if self.temper.changes => {
                let max_pool_size = u32::try_from(1 + self.up_to(7)).unwrap_or(1);
                let max_connecting = u32::try_from(1 + self.up_to(3)).unwrap_or(1);
                return self.step(driver, now, Step::Resize { max_pool_size, max_connecting });
            }
            10 if self.temper.changes => {
                let over = Duration::from_millis(self.up_to(500));
                return self.step(driver, now, Step::RetireAll(over));
            }
            11 if self.temper.suspensions => {
                let time = Duration::from_millis(self.up_to(120_000));
                return self.step(driver, now, Step::Suspend(time));
            }
            _ => {
                let key = self.any_key();
                return self.step(driver, now, Step::EndAffinity(key));
            }
        }
        Ok(())
    }

    fn turn(&mut self, member: usize, state: Member, now: Instant) {
        if let Some(known) = self.members.get_mut(member) {
            *known = state;
        }
        self.later(10_000, Event::Monitor(member), now);
    }

    fn any_key(&mut self) -> u64 {
        self.up_to(KEYS)
    }

    fn member(&self, member: usize) -> Member {
        self.members.get(member).copied().unwrap_or(Member::Up)
    }

    // What the client does.

    fn read_reports<M: Machine>(&mut self, driver: &mut Driver<M>) {
        let now = driver.now();
        std::mem::swap(&mut self.reports, &mut driver.reports);
        let mut reports = std::mem::take(&mut self.reports);
        for report in reports.drain(..) {
            match report {
                Report::Connect { member, connection } => {
                    let time = if self.member(member) == Member::Hung { 10_000_000 } else { 4 * self.temper.latency };
                    self.later(time, Event::Establish(member, connection), now);
                }
                Report::Check(connection) => self.later(0, Event::Check(connection), now),
                Report::Refresh { member, connection } => {
                    self.later(self.temper.latency, Event::Refresh(member, connection), now);
                }
                Report::Delivered { check_out, connection } => {
                    self.later(self.temper.hold, Event::Return(connection), now);
                    self.end_later(check_out, now);
                }
                Report::Ended(check_out) => self.end(check_out, now),
                Report::Renamed { from, to } => {
                    if let Some(caller) = self.take_caller(from) {
                        self.callers.push((to, caller));
                    }
                }
                // Most drivers give it up at once; some hear of it when the work is done.
                Report::Interrupted(connection) => {
                    if !self.happens(self.temper.late_reports) {
                        self.later(0, Event::Return(connection), now);
                    }
                }
                Report::CheckServer(member) => self.request_check(member, now),
                Report::Resolve => self.later(LOOKUP, Event::Resolve, now),
            }
        }
        self.reports = reports;
    }

    fn take_caller(&mut self, check_out: CheckOut) -> Option<usize> {
        let place = self.callers.iter().rposition(|(known, _)| *known == check_out)?;
        Some(self.callers.swap_remove(place).1)
    }

    fn request_check(&mut self, member: usize, now: Instant) {
        let Some(checking) = self.checks.get_mut(member).filter(|checking| !checking.is_due) else { return };
        checking.is_due = true;
        let earliest = checking.checked + Duration::from_micros(self.temper.check_pause);
        self.later(self.temper.latency, Event::Monitor(member), now.max(earliest));
    }

    /// The caller comes again after it has returned its connection.
    fn end_later(&mut self, check_out: CheckOut, now: Instant) {
        if let Some(caller) = self.take_caller(check_out) {
            self.later(self.temper.hold + self.temper.think, Event::Arrive(caller), now);
        }
    }

    // Chance.

    /// `event` within this many microseconds.
    fn later(&mut self, micros: u64, event: Event, now: Instant) {
        self.found += 1;
        let after = Duration::from_nanos(self.random.up_to(micros * 1000));
        self.queue.push(Reverse((now + after, self.found, event)));
    }

    fn up_to(&mut self, bound: u64) -> u64 {
        self.random.up_to(bound)
    }

    /// A place among so many.
    fn any(&mut self, of: u64) -> usize {
        usize::try_from(self.up_to(of - 1)).unwrap_or_default()
    }

    fn happens(&mut self, of_1024: u64) -> bool {
        of_1024 > 0 && self.random.next_u64() % 1024 < of_1024
    }
}

impl Temper {
    fn draw(random: &mut Random, deployment: Deployment) -> Self {
        let temper = Self {
            callers: usize::try_from(1 + random.up_to(15)).unwrap_or(1),
            hold: pick(random, &[0, 100, 2_000, 50_000]),
            think: pick(random, &[0, 100, 2_000, 50_000]),
            latency: pick(random, &[10, 500, 5_000, 100_000]),
            check_pause: pick(random, &[5_000, 100_000, 500_000, 500_000]),
            limits: pick(random, &[0, 0, 200, 1024]),
            cancels: pick(random, &[0, 0, 100, 800]),
            errors: pick(random, &[0, 0, 10, 200]),
            hang_ups: pick(random, &[0, 0, 10, 200]),
            deaths: pick(random, &[0, 100, 600]),
            late_reports: pick(random, &[0, 512]),
            reads: pick(random, &[0, 0, 512, 1024]),
            keys: pick(random, &[0, 512, 900]),
            warm_ups: pick(random, &[0, 0, 20, 200]),
            troubles: pick(random, &[0, 1_000_000, 100_000, 10_000]),
            changes: random.up_to(2) == 0,
            suspensions: random.up_to(2) == 0,
            identities: pick(random, &[0, 0, 300, 900]),
            refusals: pick(random, &[0, 0, 100]),
            rotations: pick(random, &[0, 0, 1_000_000, 30_000]),
        };
        match deployment {
            // DNS is looked up once in a minute: callers take their time.
            Deployment::SeedList => Self { think: pick(random, &[2_000_000, 20_000_000]), ..temper },
            Deployment::Standalone | Deployment::ReplicaSet | Deployment::Sharded | Deployment::LoadBalanced => temper,
        }
    }
}

/// A client with options by swarm.
fn client(random: &mut Random, deployment: Deployment, seed: u64) -> ClientCase {
    fn some<T>(random: &mut Random, of: u64, value: T) -> Option<T> {
        (random.up_to(of - 1) == 0).then_some(value)
    }
    let number = |random: &mut Random, bound| u32::try_from(random.up_to(bound)).unwrap_or_default();
    let max_pool_size = number(random, 9);
    // So short that the last of sixteen callers is served within X-116's five seconds, though each before it holds for as long.
    let time = Duration::from_millis(pick(random, &[20, 300]));
    let affinities = [
        Affinity::Prefer,
        Affinity::Require,
        Affinity::Hold { time, lend: false },
        Affinity::Hold { time, lend: true },
    ];
    let affinity = pick(random, &affinities);
    let affinity = some(random, 3, affinity);
    let lends = matches!(affinity, Some(Affinity::Hold { lend: true, .. }));
    let depth = number(random, 10);
    let mut pool = PoolOptions::default();
    pool.max_pool_size = Some(max_pool_size);
    pool.min_pool_size = some(random, 3, if max_pool_size == 0 { 2 } else { max_pool_size / 2 });
    pool.max_connecting = Some(1 + number(random, 3));
    pool.max_idle_time = some(random, 3, Duration::from_millis(100));
    pool.wait_queue_timeout = some(random, 4, Duration::from_millis(30));
    pool.check_after_idle = some(random, 2, Duration::from_millis(1));
    pool.host_timeout = some(random, 6, Duration::from_millis(500));
    pool.backoff = Some(random.up_to(1) == 0);
    pool.max_wait_queue_depth = some(random, 6, QueueDepth::Waiters(1 + depth));
    pool.wait_order = some(random, 4, WaitOrder::Deadline).filter(|_| !lends);
    pool.reuse = match random.up_to(5) {
        0 => Some(Reuse::FirstIn),
        1 => Some(Reuse::Random),
        _ => None,
    };
    pool.max_new_connections_per_second = some(random, 6, 200);
    pool.max_lifetime = some(random, 5, Duration::from_millis(300));
    pool.max_uses = some(random, 5, 20);
    pool.affinity = affinity;
    let requirement = Duration::from_millis(pick(random, &[2, 30]));
    pool.refresh_requirement = some(random, 3, requirement);
    pool.seed = seed;
    pool.identity_order = pick(random, &[IdentityOrder::Arrival, IdentityOrder::Turns]);
    let max_connections = if random.up_to(5) == 0 { 2 + number(random, 6) } else { 0 };
    let lateness = pick(random, &[0, 0, 50, 5_000]);
    let is_in_dns = deployment == Deployment::SeedList;
    let srv_max_hosts = if is_in_dns { pick(random, &[None, None, Some(2)]) } else { None };
    ClientCase { deployment, pool, max_connections, srv_max_hosts, lateness: Duration::from_micros(lateness) }
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    let last = from.len() as u64 - 1;
    from[usize::try_from(random.up_to(last)).unwrap_or_default()]
}
