//! What has to be believed of servers, and which of them a check-out may go to (SDAM-10, SDAM-14, TOP-27, TOP-31, SEL-2, SEL-19).

use std::time::Duration;

use cmap_core::server::ServerId;
use cmap_core::topology::CheckOut;

use super::super::ledger::Waiter;
use super::super::mark::{Mark, Marks};
use super::super::step::{ClientCase, Deployment, Purpose};
use super::{Broken, Oracle, law};

/// localThresholdMS.
const LOCAL_THRESHOLD: Duration = Duration::from_millis(15);

/// What is known of the servers. Behind a load balancer nobody asks them.
#[derive(Debug)]
pub(super) struct Beliefs {
    is_replica_set: bool,
    /// The servers of the topology.
    servers: Vec<(ServerId, Belief)>,
    /// The greatest election of a primary that was believed.
    greatest_election: Option<u64>,
    /// Check-outs that began in the pool at this place, and whose names are not known yet.
    unnamed: Vec<(CheckOut, usize)>,
    /// Which check-outs have begun where in this call. They are judged at its end: servers that leave with it are told one by one.
    begun: Vec<(ServerId, Waiter)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Belief {
    Unknown,
    Known { takes_writes: bool, round_trip_time: Duration },
}

impl Belief {
    /// How far it is, if it suits.
    fn distance(self, purpose: Purpose) -> Option<Duration> {
        match self {
            Self::Known { takes_writes, round_trip_time } if takes_writes || purpose == Purpose::Read => {
                Some(round_trip_time)
            }
            Self::Known { .. } | Self::Unknown => None,
        }
    }
}

impl Beliefs {
    pub(super) fn of(case: &ClientCase) -> Option<Self> {
        let is_replica_set = case.deployment.is_replica_set();
        (case.deployment != Deployment::LoadBalanced).then(|| Self {
            is_replica_set,
            servers: Vec::new(),
            greatest_election: None,
            unnamed: Vec::new(),
            begun: Vec::new(),
        })
    }

    pub(super) fn knows(&self, server: ServerId) -> bool {
        self.servers.iter().any(|(known, _)| *known == server)
    }

    pub(super) fn forget(&mut self, server: ServerId) {
        self.servers.retain(|(known, _)| *known != server);
    }

    /// The client is closed.
    pub(super) fn forget_all(&mut self) {
        self.servers.clear();
    }

    fn believe(&mut self, server: ServerId, belief: Belief) {
        let known = self.servers.iter_mut().find(|(known, _)| *known == server);
        known.into_iter().for_each(|(_, known)| *known = belief);
    }

    pub(super) fn disbelieve(&mut self, server: ServerId) {
        self.believe(server, Belief::Unknown);
    }

    fn answered(&mut self, server: ServerId, primary_of: Option<u64>, round_trip_time: Duration) {
        let takes_writes = !self.is_replica_set || primary_of.is_some();
        if let Some(election) = primary_of.filter(|_| self.is_replica_set) {
            if self.greatest_election.is_some_and(|greatest| election < greatest) {
                return self.disbelieve(server);
            }
            self.greatest_election = Some(election);
            let others = self.servers.iter_mut().map(|(_, belief)| belief);
            let primaries = others.filter(|belief| belief.distance(Purpose::Write).is_some());
            primaries.for_each(|primary| *primary = Belief::Unknown);
        }
        self.believe(server, Belief::Known { takes_writes, round_trip_time });
    }

    fn distance(&self, server: ServerId, purpose: Purpose) -> Option<Duration> {
        self.servers.iter().find(|(known, _)| *known == server).and_then(|(_, belief)| belief.distance(purpose))
    }

    /// Judges the choices of a call.
    pub(super) fn judge_choices(&mut self, marks: &mut Marks) -> Result<(), Broken> {
        while let Some((server, waiter)) = self.begun.pop() {
            if self.judge(server, &waiter)? {
                marks.meet(Mark::TooDistant);
            }
        }
        Ok(())
    }

    /// Judges one of them. Whether a server that would suit, too, is too far away.
    fn judge(&self, server: ServerId, waiter: &Waiter) -> Result<bool, Broken> {
        let (mut own, mut least, mut most) = (None, Duration::MAX, Duration::ZERO);
        for (known, belief) in &self.servers {
            if let Some(distance) = belief.distance(waiter.purpose) {
                (least, most) = (least.min(distance), most.max(distance));
                own = if *known == server { Some(distance) } else { own };
            }
        }
        law("a check-out begins at a server that suits it", own.is_some(), || format!("{waiter:?}, {self:?}"))?;
        let longest = least.saturating_add(LOCAL_THRESHOLD);
        let is_near = own.is_none_or(|own| own <= longest);
        law("a check-out begins at one of the nearest servers", is_near, || format!("{server:?}, {self:?}"))?;
        Ok(most > longest)
    }
}

impl Oracle {
    // What the driver does.

    /// A server has joined the topology.
    pub(in super::super) fn server_begun(&mut self, server: ServerId) {
        self.beliefs.iter_mut().for_each(|beliefs| beliefs.servers.push((server, Belief::Unknown)));
    }

    /// A server's monitor had an answer.
    pub(in super::super) fn heard_answer(
        &mut self,
        server: ServerId,
        primary_of: Option<u64>,
        round_trip_time: Duration,
    ) {
        if let Some(beliefs) = &mut self.beliefs {
            beliefs.answered(server, primary_of, round_trip_time);
        }
    }

    // What the machine does.

    /// A check-out has begun in a pool. The one who asked may have been told of it already, or hears of it next.
    pub(super) fn begun_in_pool(&mut self, check_out: CheckOut, place: usize) {
        match self.waiting.find(check_out) {
            Some(waiter) => {
                waiter.queued_at = Some(self.now);
                let begun = self.pools.server_of(place).map(|server| (server, *waiter));
                self.beliefs.iter_mut().for_each(|beliefs| beliefs.begun.extend(begun));
            }
            None => self.beliefs.iter_mut().for_each(|beliefs| beliefs.unnamed.push((check_out, place))),
        }
    }

    /// A check-out that waited for a server goes on by this name.
    pub(super) fn named(&mut self, check_out: CheckOut) {
        let Some(beliefs) = &mut self.beliefs else { return };
        if let Some(at) = beliefs.unnamed.iter().position(|(known, _)| *known == check_out) {
            let (_, place) = beliefs.unnamed.swap_remove(at);
            self.begun_in_pool(check_out, place);
        }
    }

    /// Judges whether the server of a connection still is what its check-out wants. Otherwise it had to go back, unless its time
    /// was up.
    pub(super) fn judge_server(&self, waiter: Waiter, place: usize) -> Result<(), Broken> {
        let (Some(beliefs), Some(server)) = (&self.beliefs, self.pools.server_of(place)) else { return Ok(()) };
        let suits = beliefs.distance(server, waiter.purpose).is_some() || waiter.end_of_selection() <= self.now;
        law("a check-out is served by a server that suits it", suits, || format!("{waiter:?}, {beliefs:?}"))
    }
}
