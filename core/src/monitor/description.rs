//! The description of a server: its type, and the facts from its last hello or error.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::address::ServerAddress;
use crate::options::TagSet;
use crate::pool::Cause;
use crate::time::Instant;
use crate::topology_version::TopologyVersion;
use crate::wire_version::incompatibility;

/// A server as the client knows it. Every check makes a new one; an event reports it only if it [differs].
///
/// [differs]: Self::is_same
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerDescription {
    /// Its address.
    pub address: Arc<ServerAddress>,
    /// Its type.
    pub server_type: ServerType,
    /// The error that made it unknown, if one did.
    pub error: Option<Cause>,
    /// The weighted average of its round-trip times (SEL-1); `None` while it is unknown (SDAM-22).
    pub round_trip_time: Option<Duration>,
    /// The lowest of its last ten round-trip times; zero until two are known (MON-11).
    pub min_round_trip_time: Duration,
    /// The oldest and the newest version of the protocol that it speaks, if a hello said so.
    pub wire_versions: Option<(i32, i32)>,
    /// The address that it gives for itself.
    pub me: Option<String>,
    /// The members of its set that can become primary.
    pub hosts: Vec<String>,
    /// The members that cannot.
    pub passives: Vec<String>,
    /// The members that only vote.
    pub arbiters: Vec<String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// The name of its set.
    pub set_name: Option<String>,
    /// The version of its set's configuration.
    pub set_version: Option<i64>,
    /// The election that made it primary: an ObjectId.
    pub election_id: Option<[u8; 12]>,
    /// The member that it takes for the primary.
    pub primary: Option<String>,
    /// The time of its last write: milliseconds since 1970.
    pub last_write_date: Option<i64>,
    /// When the reply was read that says all this, on the clock of the client; `None` if there was none.
    pub last_update_time: Option<Instant>,
    /// For how long it keeps unused sessions.
    pub logical_session_timeout_minutes: Option<i64>,
    /// Its version of its topology.
    pub topology_version: Option<TopologyVersion>,
}

/// The type of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ServerType {
    /// Not checked yet, or an error blamed it since.
    Unknown,
    /// Not a member of a set or cluster.
    Standalone,
    /// A router of a sharded cluster.
    Mongos,
    /// A set's primary.
    RsPrimary,
    /// A set's secondary.
    RsSecondary,
    /// A set's arbiter, which has no data.
    RsArbiter,
    /// Another member of a set: hidden, starting up, recovering.
    RsOther,
    /// A member of a set that has no configuration yet.
    RsGhost,
    /// A load balancer, which is not a server itself (LB-3).
    LoadBalancer,
}

impl ServerDescription {
    /// A server of which only the type is known.
    pub fn new(address: Arc<ServerAddress>, server_type: ServerType) -> Self {
        Self {
            address,
            server_type,
            error: None,
            round_trip_time: None,
            min_round_trip_time: Duration::ZERO,
            wire_versions: None,
            me: None,
            hosts: Vec::new(),
            passives: Vec::new(),
            arbiters: Vec::new(),
            tags: BTreeMap::new(),
            set_name: None,
            set_version: None,
            election_id: None,
            primary: None,
            last_write_date: None,
            last_update_time: None,
            logical_session_timeout_minutes: None,
            topology_version: None,
        }
    }

    /// A server that `error` blames.
    pub fn unknown(address: Arc<ServerAddress>, error: Cause) -> Self {
        Self { error: Some(error), ..Self::new(address, ServerType::Unknown) }
    }

    /// Whether it has every tag of the set (SEL-30).
    pub(crate) fn has_tags(&self, set: &TagSet) -> bool {
        set.iter().all(|(name, value)| self.tags.get(name) == Some(value))
    }

    /// Whether both say the same of the server, apart from figures that every check changes (SDAM-17).
    pub fn is_same(&self, other: &Self) -> bool {
        // Each field is named, so that a new one cannot be forgotten.
        let Self {
            address,
            server_type,
            error,
            round_trip_time: _,
            min_round_trip_time: _,
            wire_versions,
            me,
            hosts,
            passives,
            arbiters,
            tags,
            set_name,
            set_version,
            election_id,
            primary,
            last_write_date: _,
            last_update_time: _,
            logical_session_timeout_minutes,
            topology_version,
        } = self;
        *server_type == other.server_type
            && *address == other.address
            && *topology_version == other.topology_version
            && *set_version == other.set_version
            && *election_id == other.election_id
            && *wire_versions == other.wire_versions
            && *logical_session_timeout_minutes == other.logical_session_timeout_minutes
            && *error == other.error
            && *me == other.me
            && *primary == other.primary
            && *set_name == other.set_name
            && *hosts == other.hosts
            && *passives == other.passives
            && *arbiters == other.arbiters
            && *tags == other.tags
    }

    /// Why this client cannot talk to the server, if their versions of the protocol do not overlap (SDAM-19).
    pub fn incompatibility(&self) -> Option<String> {
        self.wire_versions.and_then(incompatibility)
    }
}

impl ServerType {
    /// Whether the server has data, or leads to servers that have.
    pub fn is_data_bearing(self) -> bool {
        match self {
            Self::Standalone | Self::Mongos | Self::RsPrimary | Self::RsSecondary | Self::LoadBalancer => true,
            Self::Unknown | Self::RsArbiter | Self::RsOther | Self::RsGhost => false,
        }
    }

    /// The specification's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::Standalone => "Standalone",
            Self::Mongos => "Mongos",
            Self::RsPrimary => "RSPrimary",
            Self::RsSecondary => "RSSecondary",
            Self::RsArbiter => "RSArbiter",
            Self::RsOther => "RSOther",
            Self::RsGhost => "RSGhost",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

impl fmt::Display for ServerType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
