//! Looking up the SRV records again, so that a client finds the routers that join a sharded cluster.
//!
//! The machine has no transport: it says when to ask ([`Output::ResolveSrv`]), takes the answer, and says which servers came and
//! went. An answer that cannot be used changes nothing, and is no error for anybody (DNS-15, DNS-16). Only a topology that is
//! unknown or sharded is polled (DNS-12). TXT records are never asked for again.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::hosts::{choose, distinct, trusted};
use super::records::SrvRecord;
use super::resolve::SeedList;
use crate::address::ServerAddress;
use crate::pool::Cause;
use crate::random::Random;
use crate::time::Instant;
use crate::topology::TopologyType;

/// The least time from one answer to the next request (DNS-13).
pub const LEAST_INTERVAL: Duration = Duration::from_secs(60);

/// Looks up SRV records again and again.
///
/// **The driving rule.** Call any method; then drain [`poll_output`](Self::poll_output) until it returns `None`; then ask
/// [`poll_timeout`](Self::poll_timeout) when to come back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SrvPolling {
    seed_list: SeedList,
    heartbeat_frequency: Duration,
    phase: Phase,
    /// Whether the topology is of a type that is polled.
    is_polled: bool,
    random: Random,
    now: Instant,
    outputs: VecDeque<Output>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    /// The next request is due then.
    Waiting(Instant),
    /// A request is under way.
    Asking,
}

/// What polling leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Output {
    /// Look up the SRV records of this name, then call [`SrvPolling::handle_srv`].
    ResolveSrv {
        /// The name.
        name: String,
    },
    /// The list of servers has changed. Apply both parts in one step (DNS-19): servers that stay are left alone.
    Changed {
        /// Servers that are new.
        added: Vec<ServerAddress>,
        /// Servers that are no longer listed.
        removed: Vec<ServerAddress>,
    },
    /// For the log: a record was ignored, because its host is not trusted (DNS-15).
    Ignored {
        /// Why, in words.
        reason: String,
    },
    /// For the log: the answer changed nothing, because it has no host that can be used (DNS-16).
    Failed {
        /// Why.
        cause: Cause,
    },
}

impl SrvPolling {
    /// Polling of `seed_list` for a client whose topology is of a type that is not known yet. Its first answer came at `now`
    /// and may be kept for `time_to_live`; `heartbeat_frequency` is the client's heartbeatFrequencyMS.
    pub fn new(
        seed_list: SeedList,
        heartbeat_frequency: Duration,
        time_to_live: Duration,
        random: Random,
        now: Instant,
    ) -> Self {
        Self {
            seed_list,
            heartbeat_frequency,
            phase: Phase::Waiting(now + time_to_live.max(LEAST_INTERVAL)),
            is_polled: true,
            random,
            now,
            outputs: VecDeque::new(),
        }
    }

    /// The topology has this type now. A replica set, a single server and a load balancer are not polled (DNS-12).
    pub fn handle_topology_type(&mut self, now: Instant, topology_type: TopologyType) {
        self.advance(now);
        self.is_polled = matches!(topology_type, TopologyType::Unknown | TopologyType::Sharded);
        self.ask_if_due();
    }

    /// Time has passed: asks for the records, if that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        self.ask_if_due();
    }

    /// The records were looked up, or could not be. `servers` are those of the topology at present. An answer that was not asked
    /// for, or comes when the topology is no longer polled, is ignored.
    pub fn handle_srv<'a>(
        &mut self,
        now: Instant,
        answer: Result<Vec<SrvRecord>, Cause>,
        servers: impl IntoIterator<Item = &'a ServerAddress>,
    ) {
        self.advance(now);
        if self.phase != Phase::Asking {
            return;
        }
        // Counted from the end of the scan. After a failure the floor does not apply.
        self.phase = Phase::Waiting(self.now + self.heartbeat_frequency);
        if !self.is_polled {
            return;
        }
        match answer.map(|records| (self.verified(&records), records)) {
            Ok((hosts, records)) if !hosts.is_empty() => {
                let time_to_live = records.iter().map(|record| record.time_to_live).min().unwrap_or_default();
                self.phase = Phase::Waiting(self.now + time_to_live.max(LEAST_INTERVAL));
                self.change(hosts, &servers.into_iter().collect::<Vec<_>>());
            }
            Ok(_) => {
                self.outputs.push_back(Output::Failed { cause: Cause::new("no record has a host that can be used") });
            }
            Err(cause) => self.outputs.push_back(Output::Failed { cause }),
        }
    }

    /// The next output; `None` when there is nothing more to do.
    #[must_use = "an action that is not carried out is lost"]
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); `None` if nothing depends on time.
    #[must_use = "without it the driver does not know when to come back"]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.outputs.is_empty() {
            return Some(self.now);
        }
        match self.phase {
            Phase::Waiting(until) if self.is_polled => Some(until),
            Phase::Waiting(_) | Phase::Asking => None,
        }
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    fn ask_if_due(&mut self) {
        if let Phase::Waiting(until) = self.phase
            && self.is_polled
            && until <= self.now
        {
            self.phase = Phase::Asking;
            self.outputs.push_back(Output::ResolveSrv { name: self.seed_list.srv_name() });
        }
    }

    /// The hosts that can be trusted. The others are ignored, each with a word for the log (DNS-15).
    fn verified(&mut self, records: &[SrvRecord]) -> Vec<ServerAddress> {
        let mut hosts = Vec::new();
        for record in records {
            match trusted(record, self.seed_list.domain()) {
                Ok(host) => hosts.push(host),
                Err(error) => self.outputs.push_back(Output::Ignored { reason: alloc::format!("{error}") }),
            }
        }
        distinct(hosts)
    }

    /// Servers that are still listed stay. New ones are added, or as many of them as srvMaxHosts leaves room for (DNS-17,
    /// DNS-18).
    fn change(&mut self, listed: Vec<ServerAddress>, servers: &[&ServerAddress]) {
        let removed = servers.iter().filter(|server| !listed.contains(server));
        let removed: Vec<ServerAddress> = removed.map(|server| (*server).clone()).collect();
        let new: Vec<ServerAddress> = listed.into_iter().filter(|host| !servers.contains(&host)).collect();
        let staying = servers.len() - removed.len();
        let room = self.seed_list.max_hosts.map_or(usize::MAX, |most| most.saturating_sub(staying));
        let added = choose(new, room, &mut self.random);
        if !added.is_empty() || !removed.is_empty() {
            self.outputs.push_back(Output::Changed { added, removed });
        }
    }
}
