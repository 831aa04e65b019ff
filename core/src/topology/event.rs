//! The events of a topology as a whole (MON-14, TOP-40 to TOP-42).

use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

use super::description::TopologyDescription;

/// Something that happened to a topology, in the past tense. Names and fields are the specification's.
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
}

impl TopologyEvent {
    /// The specification's name of the event.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TopologyOpening => "TopologyOpening",
            Self::TopologyDescriptionChanged { .. } => "TopologyDescriptionChanged",
            Self::TopologyClosed => "TopologyClosed",
        }
    }
}
