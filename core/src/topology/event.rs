//! The events of a topology as a whole (MON-14, TOP-40 to TOP-42), and those that are only for the log.

use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

use super::description::TopologyDescription;
use crate::pool::Cause;

/// Something that happened to a topology, in the past tense. Names and fields are the specification's, apart from those of which it only
/// says that they should be logged: the lack of servers, and what is wrong with SRV records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TopologyEvent {
    /// The topology was opened, because the client began.
    TopologyOpening,
    /// The topology's description changed.
    TopologyDescriptionChanged {
        /// Before.
        previous: Arc<TopologyDescription>,
        /// Now.
        new: Arc<TopologyDescription>,
    },
    /// The topology was closed, because the client was.
    TopologyClosed,
    /// The topology has no servers: none was named, or the last one has left, because it is not of the kind that the others
    /// are, or not of the wanted set. No check-out is served any more, unless DNS names other servers (TOP-36). Told even if no
    /// events are [observed](super::Topology::observe).
    ServersMissing,
    /// The SRV records were looked up again, and some of them were left out, because their hosts are not trusted (DNS-15).
    SrvRecordsIgnored {
        /// The number of these records.
        count: usize,
        /// What is wrong with the first of them.
        cause: Cause,
    },
    /// The SRV records could not be looked up again, or none of them can be used: the servers stay as they are (DNS-16).
    SrvPollingFailed {
        /// Why.
        cause: Cause,
    },
}

impl TopologyEvent {
    /// The specification's name of the event.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TopologyOpening => "TopologyOpening",
            Self::TopologyDescriptionChanged { .. } => "TopologyDescriptionChanged",
            Self::TopologyClosed => "TopologyClosed",
            Self::ServersMissing => "ServersMissing",
            Self::SrvRecordsIgnored { .. } => "SrvRecordsIgnored",
            Self::SrvPollingFailed { .. } => "SrvPollingFailed",
        }
    }
}
