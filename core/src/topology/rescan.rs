//! The SRV records of a `mongodb+srv` connection string, looked up again and again: the topology asks, and the servers
//! follow the answer (DNS-12 to DNS-19).
//!
//! An answer is one update of the topology: servers that are no longer listed go with their pools, new ones are checked,
//! and the others are not touched (DNS-17, DNS-19). [`seed_list`](super::seed_list) says when to ask and what an answer
//! means.

use alloc::vec::Vec;

use super::seed_list::{Change, SrvPolling, SrvRecord};
use super::{Output, Topology, TopologyDescription, TopologyEvent};
use crate::address::ServerAddress;
use crate::pool::Cause;
use crate::time::Instant;

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
            Ok(hosts) => self.follow_seed_list(hosts),
            Err(cause) => self.emit(TopologyEvent::SrvPollingFailed { cause }),
        }
    }

    /// Begins to poll the seed list in DNS that the seeds came from, if they did.
    pub(super) fn begin_polling(&mut self) {
        let heartbeat_frequency = self.options.heartbeat_frequency;
        let polled = self.options.polled_seed_list.clone();
        self.polling = polled.map(|polled| SrvPolling::new(polled, heartbeat_frequency, self.now));
    }

    /// Asks for the SRV records, if that is due.
    pub(super) fn ask_for_srv_if_due(&mut self) {
        let (now, topology_type) = (self.now, self.description.topology_type);
        if let Some(name) = self.polling.as_mut().and_then(|polling| polling.begin_request(now, topology_type)) {
            self.outputs.push_back(Output::ResolveSrv { name });
        }
    }

    /// When the SRV records are to be asked for.
    pub(super) fn next_srv_request(&self) -> Option<Instant> {
        self.polling.as_ref()?.next_request(self.description.topology_type)
    }

    /// Makes `listed` the servers, as far as srvMaxHosts has room for them.
    fn follow_seed_list(&mut self, listed: Vec<ServerAddress>) {
        let servers = self.description.addresses();
        let polling = self.polling.as_ref();
        let Some(change) = polling.and_then(|polling| polling.change(listed, &servers, &mut self.random)) else {
            return;
        };
        let topology = self.description.with(change);
        let left = self.join_and_leave(&topology);
        self.describe(topology);
        self.end_servers(left);
        self.serve_waiters();
        self.refuse_if_incompatible();
    }
}

impl TopologyDescription {
    /// This topology after `change`. New servers are unknown.
    fn with(&self, change: Change) -> Self {
        let mut topology = self.clone();
        topology.remove_unless(|address| !change.removed.contains(address), "DNS does not list it any more");
        topology.add(&change.added);
        topology
    }
}
