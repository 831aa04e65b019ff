//! The events of one server (MON-13, MON-14). The address is not repeated in each: it comes with them.

use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::monitor::{HeartbeatEvent, ServerDescription};

/// Something that happened to a server or its monitor, in the past tense. Names and fields are the specification's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ServerEvent {
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
            Self::ServerOpening => "ServerOpening",
            Self::ServerDescriptionChanged { .. } => "ServerDescriptionChanged",
            Self::ServerClosed => "ServerClosed",
            Self::Heartbeat(event) => event.name(),
        }
    }
}
