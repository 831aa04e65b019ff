//! When the SRV records are looked up again, and what an answer says, so that a client finds the routers that join a sharded
//! cluster.
//!
//! An answer that cannot be used changes nothing, and is no error for anybody (DNS-15, DNS-16). Only a topology that is
//! unknown or sharded is polled (DNS-12). TXT records are never asked for again.
//!
//! An answer is one update of the topology: servers that are no longer listed go with their pools, new ones are checked,
//! and the others are not touched (DNS-17, DNS-19).

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::HostError;
use super::records::{SrvRecord, choose, trusted};
use super::resolve::{PolledSeedList, SeedList};
use crate::address::ServerAddress;
use crate::pool::Cause;
use crate::random::Random;
use crate::time::Instant;
use crate::topology::{Output, Topology, TopologyDescription, TopologyEvent, TopologyType};

/// The least time from an answer to the next request, however short its time to live is (DNS-13).
pub const LEAST_INTERVAL: Duration = Duration::from_secs(60);

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
struct Scan {
    /// The hosts that are trusted; or why there is none.
    hosts: Result<Vec<ServerAddress>, Cause>,
    /// The number of records with hosts that are not trusted, and what is wrong with the first of them.
    ignored: Option<(usize, HostError)>,
}

impl SrvPolling {
    /// Polling for a client with this heartbeatFrequencyMS. The first answer came at `now`.
    pub(in crate::topology) fn new(polled: PolledSeedList, heartbeat_frequency: Duration, now: Instant) -> Self {
        let PolledSeedList { seed_list, time_to_live } = polled;
        Self { seed_list, heartbeat_frequency, phase: Phase::Waiting(now + time_to_live.max(LEAST_INTERVAL)) }
    }

    /// When the next request is due, if one is.
    fn next_request(&self, topology_type: TopologyType) -> Option<Instant> {
        match self.phase {
            Phase::Waiting(until) if is_polled(topology_type) => Some(until),
            Phase::Waiting(_) | Phase::Asking => None,
        }
    }

    /// Begins a request that is due at `now`. Returns the name whose SRV records are wanted.
    fn begin_request(&mut self, now: Instant, topology_type: TopologyType) -> Option<String> {
        self.next_request(topology_type).filter(|due| *due <= now)?;
        self.phase = Phase::Asking;
        Some(self.seed_list.srv_name())
    }

    /// The answer came at `now`. `None` if it was not asked for, or comes when the topology is not polled any more.
    fn end_request(
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

    /// `topology` with what is `listed` as its servers. Those that are still listed stay. New ones are added, or as many of them as
    /// srvMaxHosts leaves room for (DNS-17, DNS-18). `None` if nothing changes.
    fn follow(
        &self,
        listed: Vec<ServerAddress>,
        topology: &TopologyDescription,
        random: &mut Random,
    ) -> Option<TopologyDescription> {
        let servers = topology.addresses();
        let remaining: BTreeSet<&ServerAddress> = servers.intersection(&listed.iter().collect()).copied().collect();
        let new: Vec<ServerAddress> = listed.iter().filter(|host| !servers.contains(host)).cloned().collect();
        let room = self.seed_list.max_hosts.map_or(usize::MAX, |most| most.saturating_sub(remaining.len()));
        let added = choose(new, room, random);
        if added.is_empty() && remaining.len() == servers.len() {
            return None;
        }
        let mut changed = topology.clone();
        changed.remove_unless(|address| remaining.contains(address), "DNS does not list it any more");
        changed.add(&added);
        Some(changed)
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

impl<C> Topology<C> {
    /// The records that [`Output::ResolveSrv`] wants were looked up, or could not be. An answer that was not asked for, or
    /// comes when the topology is a replica set, a single server, or closed, is ignored.
    pub fn handle_srv(&mut self, now: Instant, answer: Result<Vec<SrvRecord>, Cause>) {
        self.advance(now);
        let topology_type = self.description.topology_type;
        let polling = self.polling.as_mut();
        let Some(scan) = polling.and_then(|polling| polling.end_request(self.now, topology_type, answer)) else {
            return;
        };
        if let Some((count, error)) = scan.ignored {
            self.emit(TopologyEvent::SrvRecordsIgnored { count, cause: Cause::of(&error) });
        }
        match scan.hosts {
            Ok(hosts) => {
                let polling = self.polling.as_ref();
                let changed = polling.and_then(|polling| polling.follow(hosts, &self.description, &mut self.random));
                changed.into_iter().for_each(|topology| self.replace_topology(topology, None, &[]));
            }
            Err(cause) => self.emit(TopologyEvent::SrvPollingFailed { cause }),
        }
    }

    /// Asks for the SRV records, if that is due.
    pub(in crate::topology) fn ask_for_srv_if_due(&mut self) {
        let (now, topology_type) = (self.now, self.description.topology_type);
        if let Some(name) = self.polling.as_mut().and_then(|polling| polling.begin_request(now, topology_type)) {
            self.outputs.push_back(Output::ResolveSrv { name });
        }
    }

    /// When the SRV records are to be asked for.
    pub(in crate::topology) fn next_srv_request(&self) -> Option<Instant> {
        self.polling.as_ref()?.next_request(self.description.topology_type)
    }
}

/// A replica set, a single server and a load balancer are not polled (DNS-12, X-55).
fn is_polled(topology_type: TopologyType) -> bool {
    matches!(topology_type, TopologyType::Unknown | TopologyType::Sharded)
}
