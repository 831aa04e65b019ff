//! The events of a client: those of its pool, and those of its server and the monitor.

use std::sync::Arc;

pub use cmap_core::pool::Event as PoolEvent;
pub use cmap_core::server::{CommandEvent, ServerEvent};
pub use cmap_core::topology::{SelectionEvent, TopologyEvent};

use crate::watch::PossibleLeak;

/// Something that happened, in the past tense.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// In the pool or at one of its connections (CMAP-52, CMAP-53).
    Pool(PoolEvent),
    /// To the server, or in a check of it (MON-13, MON-14).
    Server(ServerEvent),
    /// To the topology of all servers (TOP-40 to TOP-42).
    Topology(TopologyEvent),
    /// To a command. Only where [`Builder::observe_commands`](crate::Builder::observe_commands) asks for it.
    Command(Arc<CommandEvent>),
    /// To the selection of a server (SEL-42); only if [asked for](crate::Builder::observe_selections).
    Selection(SelectionEvent),
    /// A connection has been used for longer than [`Builder::leak_detection_threshold`](crate::Builder::leak_detection_threshold).
    PossibleLeak(Arc<PossibleLeak>),
    /// The number of events that happened here and were not kept, because a handler is too slow. A subscription yields
    /// [`Notice::Lost`](crate::Notice::Lost) instead.
    Lost(u64),
}

impl Event {
    /// The specification's name of the event.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pool(event) => event.name(),
            Self::Server(event) => event.name(),
            Self::Topology(event) => event.name(),
            Self::Command(event) => event.name(),
            Self::Selection(event) => event.name(),
            Self::PossibleLeak(_) => "PossibleLeak",
            Self::Lost(_) => "EventsLost",
        }
    }
}
