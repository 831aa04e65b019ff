//! The description of a topology: its type, and its servers as the client knows them at one moment (TOP-8).
//!
//! Descriptions are never changed. Each accepted answer or error of a server makes a new one (TOP-15).

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::address::ServerAddress;
use crate::monitor::{ServerDescription, ServerType};
use crate::pool::Cause;

/// The type of a topology (TOP-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TopologyType {
    /// Not known yet.
    Unknown,
    /// One server, whatever it is (SDAM-18).
    Single,
    /// A set whose primary is not known.
    ReplicaSetNoPrimary,
    /// A set with its primary.
    ReplicaSetWithPrimary,
    /// A sharded cluster.
    Sharded,
    /// The servers behind a load balancer (LB-3).
    LoadBalanced,
}

/// A topology at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TopologyDescription {
    /// The type of the topology.
    pub topology_type: TopologyType,
    /// The set that was asked for, or was found.
    pub set_name: Option<String>,
    /// The greatest election of a primary so far (TOP-27).
    pub max_election_id: Option<[u8; 12]>,
    /// The greatest version of the set's configuration that a primary named so far (TOP-27).
    pub max_set_version: Option<i64>,
    /// The servers, in the order in which they were found; none before it opens and after it is closed.
    pub servers: Vec<Arc<ServerDescription>>,
    /// The last servers that were found not to belong to it, the latest last: unknown, with the reason as their error.
    pub removed: Vec<Arc<ServerDescription>>,
}

/// The most servers that have left and are remembered.
const MOST_REMOVED: usize = 8;

impl TopologyDescription {
    /// A topology of which nothing is known but its type and its servers.
    pub fn of_servers(topology_type: TopologyType, servers: Vec<Arc<ServerDescription>>) -> Self {
        Self {
            topology_type,
            set_name: None,
            max_election_id: None,
            max_set_version: None,
            servers,
            removed: Vec::new(),
        }
    }

    /// The description of the server at `address`, if it belongs to the topology.
    pub fn server(&self, address: &ServerAddress) -> Option<&Arc<ServerDescription>> {
        self.servers.iter().find(|server| *server.address == *address)
    }

    /// How long its servers keep unused sessions: the shortest time that a server with data names, `None` if one names
    /// none (TOP-39).
    pub fn logical_session_timeout_minutes(&self) -> Option<i64> {
        let with_data = self.servers.iter().filter(|server| server.server_type.is_data_bearing());
        with_data.map(|server| server.logical_session_timeout_minutes).min().flatten()
    }

    /// Whether this client speaks a version of the protocol that every server speaks (TOP-37).
    pub fn is_compatible(&self) -> bool {
        self.servers.iter().all(|server| server.incompatibility().is_none())
    }

    /// The first server that this client cannot talk to, and why (TOP-38).
    pub fn incompatibility(&self) -> Option<(&Arc<ServerAddress>, String)> {
        self.servers.iter().find_map(|server| Some((&server.address, server.incompatibility()?)))
    }

    /// Whether both say the same, apart from figures that every check changes.
    pub fn is_same(&self, other: &Self) -> bool {
        let Self { topology_type, set_name, max_election_id, max_set_version, servers, removed: _ } = self;
        *topology_type == other.topology_type
            && *set_name == other.set_name
            && *max_election_id == other.max_election_id
            && *max_set_version == other.max_set_version
            && servers.len() == other.servers.len()
            && servers.iter().zip(&other.servers).all(|(one, other)| Arc::ptr_eq(one, other) || one.is_same(other))
    }

    /// Removes the servers that `stays` does not want, and remembers why.
    pub(super) fn remove_unless(&mut self, stays: impl Fn(&ServerAddress) -> bool, why: &str) {
        let (staying, leaving): (Vec<_>, Vec<_>) =
            core::mem::take(&mut self.servers).into_iter().partition(|server| stays(&server.address));
        self.servers = staying;
        if leaving.is_empty() {
            return;
        }
        let (why, first) = (Cause::new(why), leaving.len().saturating_sub(MOST_REMOVED));
        for server in leaving.iter().skip(first) {
            self.removed.retain(|known| known.address != server.address);
            self.removed.push(Arc::new(ServerDescription::unknown(Arc::clone(&server.address), why.clone())));
        }
        let forgotten = self.removed.len().saturating_sub(MOST_REMOVED);
        self.removed.drain(..forgotten);
    }

    /// Adds servers of which nothing is known.
    pub(super) fn add<'a>(&mut self, added: impl IntoIterator<Item = &'a ServerAddress>) {
        for address in added {
            self.removed.retain(|known| *known.address != *address);
            self.servers.push(unknown(address));
        }
    }

    /// Whether operations may be sent to a server of this type, so that it has a pool (TOP-46): one that has data, or a known one in
    /// Single. While the type of the topology is not known, no server is known to have data.
    pub(super) fn may_use(&self, server_type: ServerType) -> bool {
        match self.topology_type {
            TopologyType::Unknown => false,
            TopologyType::Single => server_type != ServerType::Unknown,
            TopologyType::ReplicaSetNoPrimary
            | TopologyType::ReplicaSetWithPrimary
            | TopologyType::Sharded
            | TopologyType::LoadBalanced => server_type.is_data_bearing(),
        }
    }

    /// Whether a server is the primary.
    pub(super) fn has_primary(&self) -> bool {
        self.servers.iter().any(|server| server.server_type == ServerType::RsPrimary)
    }

    /// The addresses of its servers.
    pub(super) fn addresses(&self) -> BTreeSet<&ServerAddress> {
        self.servers.iter().map(|server| &*server.address).collect()
    }
}

/// A server of which nothing is known but its address.
pub(super) fn unknown(address: &ServerAddress) -> Arc<ServerDescription> {
    Arc::new(ServerDescription::new(Arc::new(address.clone()), ServerType::Unknown))
}

impl TopologyType {
    /// Whether it is a replica set.
    pub fn is_replica_set(self) -> bool {
        matches!(self, Self::ReplicaSetNoPrimary | Self::ReplicaSetWithPrimary)
    }

    /// The specification's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::Single => "Single",
            Self::ReplicaSetNoPrimary => "ReplicaSetNoPrimary",
            Self::ReplicaSetWithPrimary => "ReplicaSetWithPrimary",
            Self::Sharded => "Sharded",
            Self::LoadBalanced => "LoadBalanced",
        }
    }
}

impl fmt::Display for TopologyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
