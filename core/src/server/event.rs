//! The events of server discovery and monitoring for one server (MON-13, MON-14).
//!
//! As with the pool's events, the address is not repeated in each: whoever drains a server knows whose it is.

use alloc::sync::Arc;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::description::ServerDescription;
use super::topology::TopologyDescription;
use crate::pool::Cause;

/// Something that happened to a server or its monitor, in the past tense. Names and fields are the specification's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ServerEvent {
    /// The client begins.
    TopologyOpening,
    /// The topology is another one.
    TopologyDescriptionChanged {
        /// Before.
        previous: Arc<TopologyDescription>,
        /// Now.
        new: Arc<TopologyDescription>,
    },
    /// The client has ended.
    TopologyClosed,
    /// The server became one of the topology's.
    ServerOpening,
    /// More or other things are known of the server.
    ServerDescriptionChanged {
        /// Before.
        previous: Arc<ServerDescription>,
        /// Now.
        new: Arc<ServerDescription>,
    },
    /// The server is none of the topology's any more.
    ServerClosed,
    /// A check of the server began: before its socket is opened, or before each reply that is awaited.
    HeartbeatStarted {
        /// The monitor's connection.
        connection: MonitorConnection,
        /// Whether the server answers only when something changed, or after heartbeatFrequencyMS.
        awaited: bool,
    },
    /// The check succeeded.
    HeartbeatSucceeded {
        /// The monitor's connection.
        connection: MonitorConnection,
        /// The hello's round-trip time or, of an awaited reply, the time since the check began.
        duration: Duration,
        /// The hello's reply: a BSON document.
        reply: Arc<[u8]>,
        /// As when it began.
        awaited: bool,
    },
    /// The check failed, or was broken off.
    HeartbeatFailed {
        /// The monitor's connection.
        connection: MonitorConnection,
        /// The time since the check began.
        duration: Duration,
        /// Why.
        failure: Cause,
        /// As when it began.
        awaited: bool,
    },
}

/// A connection of a monitor, as events and logs name it. These numbers are not the pool's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorConnection {
    /// The monitor's number of it, from 1.
    pub id: u64,
    /// The server's number of it, once a hello has told it.
    pub server_id: Option<i64>,
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
            Self::HeartbeatStarted { .. } => "ServerHeartbeatStarted",
            Self::HeartbeatSucceeded { .. } => "ServerHeartbeatSucceeded",
            Self::HeartbeatFailed { .. } => "ServerHeartbeatFailed",
        }
    }
}
