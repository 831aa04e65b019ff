//! The events of a monitor (MON-13): one check after another.

use alloc::sync::Arc;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::pool::Cause;

/// A check of a server began or ended. Names and fields are the specification's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum HeartbeatEvent {
    /// A check of the server began: before its socket is opened, or before each reply that is awaited.
    Started {
        /// The monitor's connection.
        connection: MonitorConnection,
        /// Whether the server answers only after a change, or after heartbeatFrequencyMS.
        awaited: bool,
    },
    /// The check succeeded.
    Succeeded {
        /// The monitor's connection.
        connection: MonitorConnection,
        /// The hello's round-trip time or, for an awaited reply, the time since the check began.
        duration: Duration,
        /// The hello's reply: a BSON document.
        reply: Arc<[u8]>,
        /// As when it began.
        awaited: bool,
    },
    /// The check failed, or was cancelled.
    Failed {
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
    /// The monitor's number for it, from 1.
    pub id: u64,
    /// The server's number for it, once a hello has named it.
    pub server_id: Option<i64>,
}

impl HeartbeatEvent {
    /// The specification's name of the event.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Started { .. } => "ServerHeartbeatStarted",
            Self::Succeeded { .. } => "ServerHeartbeatSucceeded",
            Self::Failed { .. } => "ServerHeartbeatFailed",
        }
    }
}
