//! When the SRV records are looked up again, and what an answer says, so that a client finds the routers that join a sharded
//! cluster.
//!
//! An answer that cannot be used changes nothing, and is no error for anybody (DNS-15, DNS-16). Only a topology that is
//! unknown or sharded is polled (DNS-12). TXT records are never asked for again. `topology/rescan.rs` carries out what is
//! decided here.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::HostError;
use super::hosts::{choose, trusted};
use super::records::SrvRecord;
use super::resolve::SeedList;
use crate::address::ServerAddress;
use crate::pool::Cause;
use crate::random::Random;
use crate::time::Instant;
use crate::topology::TopologyType;

/// The least time from an answer to the next request, however short its time to live is (DNS-13).
pub const LEAST_INTERVAL: Duration = Duration::from_secs(60);

/// A seed list whose records have been looked up, for [`TopologyOptions::polled_seed_list`].
///
/// [`TopologyOptions::polled_seed_list`]: crate::topology::TopologyOptions::polled_seed_list
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PolledSeedList {
    /// The seed list.
    pub seed_list: SeedList,
    /// How long the records may be kept: [`Resolved::time_to_live`](super::Resolved::time_to_live).
    pub time_to_live: Duration,
}

impl PolledSeedList {
    /// `seed_list`, whose records may be kept for `time_to_live`.
    pub fn new(seed_list: SeedList, time_to_live: Duration) -> Self {
        Self { seed_list, time_to_live }
    }
}

/// The polling of one topology.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::topology) struct SrvPolling {
    seed_list: SeedList,
    heartbeat_frequency: Duration,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    /// The next request is due then.
    Waiting(Instant),
    /// A request is under way.
    Asking,
}

/// What an answer says.
pub(in crate::topology) struct Scan {
    /// The hosts that are trusted; or why there is none.
    pub(in crate::topology) hosts: Result<Vec<ServerAddress>, Cause>,
    /// The number of records with hosts that are not trusted, and what is wrong with the first of them.
    pub(in crate::topology) ignored: Option<(usize, HostError)>,
}

/// What follows from an answer for the servers of the topology.
pub(in crate::topology) struct Change {
    /// Servers that are new.
    pub(in crate::topology) added: Vec<ServerAddress>,
    /// Servers that are no longer listed.
    pub(in crate::topology) removed: BTreeSet<ServerAddress>,
}

impl SrvPolling {
    /// Polling for a client with this heartbeatFrequencyMS. The first answer came at `now`.
    pub(in crate::topology) fn new(polled: PolledSeedList, heartbeat_frequency: Duration, now: Instant) -> Self {
        let PolledSeedList { seed_list, time_to_live } = polled;
        Self { seed_list, heartbeat_frequency, phase: Phase::Waiting(now + time_to_live.max(LEAST_INTERVAL)) }
    }

    /// When the next request is due, if one is.
    pub(in crate::topology) fn next_request(&self, topology_type: TopologyType) -> Option<Instant> {
        match self.phase {
            Phase::Waiting(until) if is_polled(topology_type) => Some(until),
            Phase::Waiting(_) | Phase::Asking => None,
        }
    }

    /// Begins a request that is due at `now`. Returns the name whose SRV records are wanted.
    pub(in crate::topology) fn begin_request(&mut self, now: Instant, topology_type: TopologyType) -> Option<String> {
        self.next_request(topology_type).filter(|due| *due <= now)?;
        self.phase = Phase::Asking;
        Some(self.seed_list.srv_name())
    }

    /// The answer came at `now`. `None` if it was not asked for, or comes when the topology is not polled any more.
    pub(in crate::topology) fn end_request(
        &mut self,
        now: Instant,
        topology_type: TopologyType,
        answer: Result<Vec<SrvRecord>, Cause>,
    ) -> Option<Scan> {
        if self.phase != Phase::Asking {
            return None;
        }
        let (scan, time_to_live) = match answer {
            Ok(records) => self.scan(&records),
            Err(cause) => (Scan { hosts: Err(cause), ignored: None }, Duration::ZERO),
        };
        // Counted from the end of the scan. After a failure the shortest interval does not apply.
        let interval = if scan.hosts.is_ok() { time_to_live.max(LEAST_INTERVAL) } else { self.heartbeat_frequency };
        self.phase = Phase::Waiting(now + interval);
        is_polled(topology_type).then_some(scan)
    }

    /// Nobody answers the request that is under way: the process was forked.
    pub(in crate::topology) fn abandon_request(&mut self, now: Instant) {
        if self.phase == Phase::Asking {
            self.phase = Phase::Waiting(now);
        }
    }

    /// Servers that are still listed stay. New ones are added, or as many of them as srvMaxHosts leaves room for (DNS-17,
    /// DNS-18). `None` if nothing changes.
    pub(in crate::topology) fn change(
        &self,
        listed: Vec<ServerAddress>,
        servers: &BTreeSet<&ServerAddress>,
        random: &mut Random,
    ) -> Option<Change> {
        let remaining: BTreeSet<&ServerAddress> = listed.iter().collect();
        let removed: BTreeSet<ServerAddress> = servers.difference(&remaining).copied().cloned().collect();
        let new: Vec<ServerAddress> = listed.into_iter().filter(|host| !servers.contains(host)).collect();
        let staying = servers.len() - removed.len();
        let room = self.seed_list.max_hosts.map_or(usize::MAX, |most| most.saturating_sub(staying));
        let added = choose(new, room, random);
        (!added.is_empty() || !removed.is_empty()).then_some(Change { added, removed })
    }

    /// The trusted hosts of `records`, and the time until the first record is out of date.
    fn scan(&self, records: &[SrvRecord]) -> (Scan, Duration) {
        let (mut hosts, mut ignored) = (Vec::new(), None);
        for record in records {
            match trusted(record, self.seed_list.domain()) {
                Ok(host) => hosts.push(host),
                Err(error) => ignored.get_or_insert((0, error)).0 += 1,
            }
        }
        let hosts = match hosts.is_empty() {
            true => Err(Cause::new("no record has a host that can be used")),
            false => Ok(ServerAddress::distinct(hosts)),
        };
        let time_to_live = records.iter().map(|record| record.time_to_live).min();
        (Scan { hosts, ignored }, time_to_live.unwrap_or_default())
    }
}

/// A replica set, a single server and a load balancer are not polled (DNS-12, X-55).
fn is_polled(topology_type: TopologyType) -> bool {
    matches!(topology_type, TopologyType::Unknown | TopologyType::Sharded)
}
