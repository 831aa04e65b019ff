//! The laws of a seed list in DNS (DNS-12 to DNS-18, X-56).

use std::time::Duration;

use cmap_core::server::ServerId;
use cmap_core::time::Instant;

use super::super::mark::Mark;
use super::super::step::{ClientCase, Deployment, Lookup};
use super::{Broken, Oracle, law};

/// The least time between two lookups that succeed.
const LEAST_INTERVAL: Duration = Duration::from_secs(60);
/// heartbeatFrequencyMS, the time to the next lookup after one that failed.
const HEARTBEAT_FREQUENCY: Duration = Duration::from_secs(10);

/// What the oracle knows of lookups, and of the servers that follow from them.
#[derive(Debug)]
pub(super) struct SeedList {
    max_hosts: usize,
    is_asked: bool,
    /// When the next lookup is due.
    due: Instant,
    /// The members that are in the topology.
    servers: Vec<usize>,
    /// What they have to be after the answer.
    expected: Expected,
}

/// The servers after an answer.
#[derive(Debug, Default)]
struct Expected {
    /// They have to be there.
    staying: Vec<usize>,
    /// They may come.
    new: Vec<usize>,
    /// How many come.
    coming: usize,
}

impl SeedList {
    pub(super) fn of(case: &ClientCase) -> Option<Self> {
        (case.deployment == Deployment::SeedList).then(|| Self {
            max_hosts: case.srv_max_hosts.map_or(usize::MAX, usize::from),
            is_asked: false,
            due: Instant::ORIGIN + LEAST_INTERVAL,
            servers: Vec::new(),
            expected: Expected::default(),
        })
    }

    /// A lookup is not forgotten.
    pub(super) fn judge_delay(&self, now: Instant) -> Result<(), Broken> {
        let is_on_time = self.is_asked || now < self.due;
        law("a seed list is looked up when its time has come", is_on_time, || format!("{:?}", self.due))
    }

    /// What follows from an answer.
    fn expect(&mut self, now: Instant, lookup: Lookup) {
        let listed: Vec<usize> = match lookup {
            Lookup::Found { routers, .. } => (0..8).filter(|member| routers >> member & 1 == 1).collect(),
            Lookup::Failed => Vec::new(),
        };
        let counts = self.is_asked && !listed.is_empty();
        if self.is_asked {
            self.is_asked = false;
            self.due = now
                + match lookup {
                    Lookup::Found { time_to_live, .. } if counts => time_to_live.max(LEAST_INTERVAL),
                    Lookup::Found { .. } | Lookup::Failed => HEARTBEAT_FREQUENCY,
                };
        }
        if !counts {
            self.expected = Expected { staying: self.servers.clone(), ..Expected::default() };
            return;
        }
        let (staying, new) = listed.into_iter().partition::<Vec<_>, _>(|member| self.servers.contains(member));
        let coming = new.len().min(self.max_hosts.saturating_sub(staying.len()));
        self.expected = Expected { staying, new, coming };
    }

    /// Whether the servers are those that follow from the answer.
    fn is_followed(&self) -> bool {
        let Expected { staying, new, coming } = &self.expected;
        let came = self.servers.iter().filter(|member| new.contains(member)).count();
        staying.iter().all(|member| self.servers.contains(member))
            && came == *coming
            && self.servers.len() == staying.len() + came
    }
}

impl Oracle {
    // What the driver does.

    /// DNS has answered; the client is told now.
    pub(in super::super) fn looked_up(&mut self, now: Instant, lookup: Lookup) {
        let Some(seed_list) = &mut self.seed_list else { return };
        match lookup {
            Lookup::Failed | Lookup::Found { routers: 0, .. } => self.marks.meet(Mark::LookupUnusable),
            Lookup::Found { has_stranger: true, .. } => self.marks.meet(Mark::StrangerIgnored),
            Lookup::Found { .. } => {}
        }
        seed_list.expect(now, lookup);
        if seed_list.expected.coming > 0 {
            self.marks.meet(Mark::ServersJoined);
        }
        if seed_list.expected.staying.len() < seed_list.servers.len() {
            self.marks.meet(Mark::ServersLeft);
        }
    }

    // What the machine does.

    pub(super) fn asked_for_seed_list(&mut self, now: Instant) -> Result<(), Broken> {
        let Some(seed_list) = &mut self.seed_list else {
            return law("only a client whose servers stand in DNS looks them up", false, String::new);
        };
        let was_asked = std::mem::replace(&mut seed_list.is_asked, true);
        law("a seed list is looked up once at a time", !was_asked, || format!("{now:?}"))?;
        let due = seed_list.due;
        law("a seed list is not looked up before its time", now >= due, || format!("{now:?}, and not {due:?}"))
    }

    pub(in super::super) fn server_joined(&mut self, member: usize) {
        if let Some(seed_list) = &mut self.seed_list {
            seed_list.servers.push(member);
        }
    }

    pub(in super::super) fn server_left(&mut self, server: ServerId, member: usize) {
        self.beliefs.iter_mut().for_each(|beliefs| beliefs.forget(server));
        if let Some(seed_list) = &mut self.seed_list {
            seed_list.servers.retain(|known| *known != member);
        }
        let places: Vec<_> = self.pools.at_server(server).map(|(place, _)| place).collect();
        for place in places {
            self.pools.at(place).into_iter().for_each(|pool| pool.is_closed = true);
        }
    }

    // The law.

    /// Judges the servers after an answer.
    pub(in super::super) fn judge_servers(&self) -> Result<(), Broken> {
        let Some(seed_list) = &self.seed_list else { return Ok(()) };
        law("the servers are those that DNS has named last", seed_list.is_followed(), || format!("{seed_list:?}"))
    }
}
