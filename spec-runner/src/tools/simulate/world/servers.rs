//! What happens at the servers, in DNS, and with identities and credentials.

use std::time::Duration;

use cmap_core::pool::Handle;
use cmap_core::time::Instant;

use super::super::driver::Driver;
use super::super::machine::Machine;
use super::super::oracle::Broken;
use super::super::step::{Deployment, Establishment, Heard, Lookup, Step};
use super::drawn::pick;
use super::{Event, IDENTITIES, KEYS, World};

/// How many services a load balancer has.
const SERVICES: u64 = 3;

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
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
pub(super) struct Checking {
    /// A check is under way, or waits for its time: a request for another one is answered by it.
    is_due: bool,
    /// The end of the last one.
    checked: Instant,
}

impl World {
    pub(super) fn establishment<M: Machine>(
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
    pub(super) fn rotate<M: Machine>(&mut self, driver: &mut Driver<M>, now: Instant) -> Result<(), Broken> {
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
    pub(super) fn lookup(&mut self) -> Lookup {
        let routers = match self.up_to(7) {
            0 => return Lookup::Failed,
            1 => 0,
            _ => u8::try_from(1 + self.up_to(14)).unwrap_or(1),
        };
        let time_to_live = Duration::from_secs(pick(&mut self.random, &[0, 60, 90]));
        Lookup::Found { routers, has_stranger: self.happens(128), time_to_live }
    }

    pub(super) fn check_server<M: Machine>(
        &mut self,
        driver: &mut Driver<M>,
        now: Instant,
        member: usize,
    ) -> Result<(), Broken> {
        let is_primary = self.client.deployment.is_replica_set() && member == self.primary;
        let finding = match self.member(member) {
            Member::Up | Member::Overloaded | Member::Unauthorized => {
                let is_slow = self.happens(self.temper.spikes);
                let round_trip_millis = if is_slow { pick(&mut self.random, &[2, 15, 16, 17, 40]) } else { 1 };
                Heard::Answer { primary_of: is_primary.then_some(self.election), round_trip_millis }
            }
            Member::Down => Heard::Failure,
            Member::Hung => Heard::Timeout,
        };
        if let Some(checking) = self.checks.get_mut(member) {
            *checking = Checking { is_due: false, checked: now };
        }
        self.step(driver, now, Step::Heard { member, finding })
    }

    pub(super) fn make_fault<M: Machine>(&mut self, driver: &mut Driver<M>, now: Instant) -> Result<(), Broken> {
        let member = usize::try_from(self.random.next_u64() % 8).unwrap_or_default() % self.members.len();
        let kinds = if self.temper.changes { 18 } else { 12 };
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
            9 | 12..16 if self.temper.changes => return self.resize(driver, now),
            10 if self.temper.changes => {
                let over = Duration::from_millis(self.up_to(500));
                return self.step(driver, now, Step::ReplaceConnections(over));
            }
            // The clock of half of the processes that are suspended has not counted it.
            11 if self.temper.suspensions && self.happens(512) => return self.step(driver, now, Step::Resume),
            11 if self.temper.suspensions => {
                let time = Duration::from_millis(self.up_to(120_000));
                return self.step(driver, now, Step::Suspend(time));
            }
            16 | 17 if self.temper.changes => {
                let max_wait_queue_depth = pick(&mut self.random, &[None, Some(1), Some(4)]);
                let max_new_connections_per_second = pick(&mut self.random, &[None, None, Some(200)]);
                return self.step(driver, now, Step::Limit { max_wait_queue_depth, max_new_connections_per_second });
            }
            _ => {
                let key = self.any_key();
                return self.step(driver, now, Step::EndAffinity(key));
            }
        }
        Ok(())
    }

    pub(super) fn resize<M: Machine>(&mut self, driver: &mut Driver<M>, now: Instant) -> Result<(), Broken> {
        let max_pool_size = u32::try_from(1 + self.up_to(7)).unwrap_or(1);
        let max_connecting = u32::try_from(1 + self.up_to(3)).unwrap_or(1);
        self.step(driver, now, Step::Resize { max_pool_size, max_connecting })
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

    pub(super) fn member(&self, member: usize) -> Member {
        self.members.get(member).copied().unwrap_or(Member::Up)
    }

    /// The client wants a server to be checked soon.
    pub(super) fn request_check(&mut self, member: usize, now: Instant) {
        let Some(checking) = self.checks.get_mut(member).filter(|checking| !checking.is_due) else { return };
        checking.is_due = true;
        let earliest = checking.checked + Duration::from_micros(self.temper.check_pause);
        self.later(self.temper.latency, Event::Monitor(member), now.max(earliest));
    }
}
