//! The topology of one server: its type, the descriptions in its events, and which servers do not belong to it.
//!
//! A client of one address has a topology, too: it begins as its options say and takes the type that its server turns
//! out to have. A server that does not match the options is treated as unknown, so no operation uses its data. A type
//! that was only found does not bind: if a server that called itself a member of one set turns out to be something
//! else, the topology is derived anew.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::server_options::ServerOptions;
use crate::monitor::{ServerDescription, ServerType};
use crate::pool::Cause;

/// The type of a topology.
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
    /// Its type.
    pub topology_type: TopologyType,
    /// The set that was asked for, or was found.
    pub set_name: Option<String>,
    /// Its servers; none before it opens and after it is closed.
    pub servers: Vec<Arc<ServerDescription>>,
}

impl TopologyDescription {
    /// A topology without servers.
    pub(super) fn empty() -> Self {
        Self { topology_type: TopologyType::Unknown, set_name: None, servers: Vec::new() }
    }

    /// The topology that a client with these options begins with.
    pub(super) fn initial(options: &ServerOptions, load_balanced: bool, server: Arc<ServerDescription>) -> Self {
        let topology_type = match &options.replica_set {
            _ if load_balanced => TopologyType::LoadBalanced,
            _ if options.direct_connection => TopologyType::Single,
            Some(_) => TopologyType::ReplicaSetNoPrimary,
            None => TopologyType::Unknown,
        };
        Self { topology_type, set_name: options.replica_set.clone(), servers: alloc::vec![server] }
    }

    /// The description to keep of a server that describes itself so: an unknown one, if it does not match `options`.
    pub(super) fn admit(server: ServerDescription, options: &ServerOptions) -> ServerDescription {
        match objection(&server, options) {
            None => server,
            Some(text) => ServerDescription::unknown(Arc::clone(&server.address), Cause::new(&text)),
        }
    }

    /// This topology with its server replaced by one that is [admitted](Self::admit). If it does not belong here, the
    /// topology is derived anew.
    pub(super) fn with(&self, server: Arc<ServerDescription>) -> Self {
        let (topology_type, set_name) = match self.has_room_for(&server) {
            true => (self.topology_type, self.set_name.clone()),
            false => (TopologyType::Unknown, None),
        };
        let topology_type = match (topology_type, server.server_type) {
            (TopologyType::Unknown, ServerType::Standalone) => TopologyType::Single,
            (TopologyType::Unknown, ServerType::Mongos) => TopologyType::Sharded,
            (TopologyType::Unknown | TopologyType::ReplicaSetNoPrimary, ServerType::RsPrimary) => {
                TopologyType::ReplicaSetWithPrimary
            }
            (TopologyType::Unknown, ServerType::RsSecondary | ServerType::RsArbiter | ServerType::RsOther) => {
                TopologyType::ReplicaSetNoPrimary
            }
            (TopologyType::ReplicaSetWithPrimary, other) if other != ServerType::RsPrimary => {
                TopologyType::ReplicaSetNoPrimary
            }
            (same, _) => same,
        };
        let is_set = matches!(topology_type, TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary);
        let set_name = set_name.or_else(|| server.set_name.clone().filter(|_| is_set));
        Self { topology_type, set_name, servers: alloc::vec![server] }
    }

    /// How long its servers keep unused sessions: the shortest time that a server with data names, `None` if one names
    /// none.
    pub fn logical_session_timeout_minutes(&self) -> Option<i64> {
        let with_data = self.servers.iter().filter(|server| server.server_type.is_data_bearing());
        with_data.map(|server| server.logical_session_timeout_minutes).min().flatten()
    }

    /// Whether this client speaks a version of the protocol that every server speaks (SDAM-19).
    pub fn is_compatible(&self) -> bool {
        self.servers.iter().all(|server| server.incompatibility().is_none())
    }

    /// Whether operations may be sent to a server of `server_type` (SDAM-2).
    pub(super) fn may_use(&self, server_type: ServerType) -> bool {
        match self.topology_type {
            TopologyType::Single => server_type != ServerType::Unknown,
            TopologyType::Unknown
            | TopologyType::ReplicaSetNoPrimary
            | TopologyType::ReplicaSetWithPrimary
            | TopologyType::Sharded
            | TopologyType::LoadBalanced => server_type.is_data_bearing(),
        }
    }

    /// Whether `server` matches the topology found so far.
    fn has_room_for(&self, server: &ServerDescription) -> bool {
        match (self.topology_type, server.server_type) {
            (_, ServerType::Unknown) => true,
            (TopologyType::Unknown | TopologyType::Single | TopologyType::LoadBalanced, _) => true,
            (TopologyType::Sharded, is) => is == ServerType::Mongos,
            (TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary, ServerType::RsGhost) => true,
            (TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary, is) => {
                is.is_member() && (self.set_name.is_none() || self.set_name == server.set_name)
            }
        }
    }
}

/// Why `server` does not match `options`, if it does not. A ghost always matches, because its set is not known yet.
fn objection(server: &ServerDescription, options: &ServerOptions) -> Option<String> {
    let (is, wanted) = (server.server_type, options.replica_set.as_ref()?);
    if matches!(is, ServerType::Unknown | ServerType::RsGhost) || server.set_name.as_ref() == Some(wanted) {
        return None;
    }
    if !is.is_member() && !options.direct_connection {
        return Some(alloc::format!(
            "the server is a {is} and does not belong to the set {wanted:?}: correct replicaSet or the host"
        ));
    }
    let found = server.set_name.as_deref().map_or_else(|| "no set".into(), |found| alloc::format!("the set {found:?}"));
    Some(alloc::format!("the server belongs to {found}, not to {wanted:?}: correct replicaSet or the host"))
}

impl TopologyType {
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
