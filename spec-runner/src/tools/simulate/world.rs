//! The servers, the network and the callers around a client: from one seed, they decide what happens next.
//!
//! `drawn` is what the seed draws before that, `servers` is what happens at the servers, in DNS and with credentials.

mod drawn;
mod servers;

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use cmap_core::pool::Handle;
use cmap_core::random::Random;
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, WarmUpId};

use self::drawn::{Temper, calm_client, client, pick};
use self::servers::{Checking, Member};
use super::driver::{Driver, Report};
use super::machine::Machine;
use super::oracle::Broken;
use super::step::{ClientCase, Deployment, FaultKind, Purpose, Script, Step};

/// The election that nobody loses any more.
pub(super) const LAST_ELECTION: u64 = u64::MAX;

const KEYS: u64 = 6;

/// How many identities a client may have had.
const IDENTITIES: u64 = 6;

/// The longest time that a lookup takes, in microseconds.
const LOOKUP: u64 = 5_000_000;

/// Later than everything.
const END: Instant = Instant::from_nanos(u64::MAX);

/// Whether a world has troubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weather {
    /// Those that its seed draws.
    Drawn,
    /// None.
    Calm,
}

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
    queue: BinaryHeap<Coming>,
    found: u64,
    /// Check-outs that wait, each with the number of its caller.
    callers: Vec<(CheckOut, usize)>,
    /// Reports that are being read.
    reports: Vec<Report>,
    steps: Vec<(Instant, Step)>,
    until: Instant,
}

/// What comes at a time, the earliest first in a heap.
struct Coming {
    at: Instant,
    /// Its place in the order in which it was found out, which no other has.
    found: u64,
    event: Event,
}

impl PartialEq for Coming {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Coming {}

impl PartialOrd for Coming {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Coming {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.found).cmp(&(self.at, self.found))
    }
}

#[derive(Clone, Copy, Debug)]
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
    FaultKind,
}

impl World {
    pub(super) fn new(seed: u64, deployment: Option<Deployment>, weather: Weather) -> Self {
        let mut random = Random::new(seed);
        let drawn = pick(&mut random, &Deployment::ALL);
        let deployment = deployment.unwrap_or(drawn);
        let (client, temper) = match weather {
            Weather::Drawn => (client(&mut random, deployment, seed), Temper::draw(&mut random, deployment)),
            Weather::Calm => (calm_client(&mut random, deployment, seed), Temper::calm(&mut random)),
        };
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
        if world.temper.faults > 0 {
            world.later(world.temper.faults, Event::FaultKind, Instant::ORIGIN);
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
            let next = self.queue.peek().map_or(END, |coming| coming.at);
            if driver.handle_timeout_by(next)? {
                continue;
            }
            let Some(Coming { at, event, .. }) = self.queue.pop() else { break };
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
                    // That limits change during a ping is rare otherwise.
                    if self.temper.changes && self.happens(300) {
                        self.resize(driver, now)?;
                    }
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
            Event::FaultKind => {
                self.later(self.temper.faults, Event::FaultKind, now);
                self.make_fault(driver, now)
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
            let faults = [
                FaultKind::Network,
                FaultKind::Timeout,
                FaultKind::NotWritablePrimary,
                FaultKind::ShuttingDown,
                FaultKind::Overload,
            ];
            let fault = pick(&mut self.random, &faults);
            self.step(driver, now, Step::OperationFailed { nth, fault })?;
        }
        self.step(driver, now, Step::CheckIn { nth, is_usable })
    }

    /// A caller has its answer: it comes again.
    fn end(&mut self, check_out: CheckOut, now: Instant) {
        if let Some(caller) = self.take_caller(check_out) {
            self.later(self.temper.think, Event::Arrive(caller), now);
        }
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
        self.queue.push(Coming { at: now + after, found: self.found, event });
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
