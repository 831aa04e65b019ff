//! The events of server discovery and monitoring for one server (MON-13, MON-14).
//!
//! As with the pool's events, the address is not repeated in each: the driver of a server knows its address.

use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

use super::topology::TopologyDescription;
use crate::monitor::{HeartbeatEvent, ServerDescription};

/// Something that happened to a server or its monitor, in the past tense. Names and fields are the specification's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ServerEvent {
    /// The topology was opened, because the client began.
    TopologyOpening,
    /// The topology's description changed.
    TopologyDescriptionChanged {
        /// Before.
        previous: Arc<TopologyDescription>,
        /// Now.
        new: Arc<TopologyDescription>,
    },
    /// The topology was closed, because the client ended.
    TopologyClosed,
    /// The server joined the topology.
    ServerOpening,
    /// The server's description changed.
    ServerDescriptionChanged {
        /// Before.
        previous: Arc<ServerDescription>,
        /// Now.
        new: Arc<ServerDescription>,
    },
    /// The server left the topology.
    ServerClosed,
    /// A check of the server began or ended.
    Heartbeat(HeartbeatEvent),
}

impl ServerEvent {
    /// The specification's name of the event.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TopologyOpening => "TopologyOpening",
            Self::TopologyDescriptionChanged { .. } => "TopologyDescriptionChanged",
            Self::TopologyClosed => "TopologyClosed",
            Self::ServerOpening => "ServerOpening",
            Self::ServerDescriptionChanged { .. } => "ServerDescriptionChanged",
            Self::ServerClosed => "ServerClosed",
            Self::Heartbeat(event) => event.name(),
        }
    }
}
