//! Outputs of a topology: those of its pools, the results of selections, calls of monitors, and its events (MON-14, TOP-40 to TOP-42).
//! Some events are only for the log: among them what happens while servers are selected (SEL-41, SEL-42).
//!
//! A check-out leads to two or more events of selections, so they are made only as far as somebody asks for them. A check-out that
//! goes back to wait for a server begins a new selection; that it waits is one event.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::description::TopologyDescription;
use super::selection::{Operation, SelectionError, ServerSelector};
use super::waiting::SelectionId;
use super::warm_up::{WarmUpError, WarmUpId};
use crate::address::ServerAddress;
use crate::monitor::Call;
use crate::pool::{self, Cause, CheckOutId};
use crate::server::{ServerEvent, ServerId};
use crate::time::Instant;

/// One output, in the order in which things happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output<C> {
    /// An output of a server's pool.
    Pool {
        /// The server.
        server: ServerId,
        /// The output.
        output: pool::Output<C>,
    },
    /// A check-out that waited for a server goes on in a pool. Its result follows.
    Selected {
        /// The wait that is over.
        selection: SelectionId,
        /// The check-out that began when the wait ended.
        check_out: CheckOutId,
    },
    /// A check-out's server failed it before it was served: it waits for a server again. There is no other result of
    /// `check_out`.
    Reselecting {
        /// The check-out that is over.
        check_out: CheckOutId,
        /// The wait that has begun.
        selection: SelectionId,
    },
    /// A check-out that waited for a server failed.
    SelectionFailed {
        /// The wait that is over.
        selection: SelectionId,
        /// Why.
        error: Arc<SelectionError>,
    },
    /// A warm-up has ended.
    WarmedUp {
        /// The warm-up.
        warm_up: WarmUpId,
        /// The servers that suited, if each of them has what was asked for, and otherwise why not.
        result: Result<Vec<ServerAddress>, WarmUpError>,
    },
    /// Something that happened to the selection of a server.
    Selection(SelectionEvent),
    /// Look up the SRV records of this name, where that delays nothing else (DNS-14); then call
    /// [`Topology::handle_srv`](super::Topology::handle_srv). The next request follows no earlier than the answer.
    ResolveSrv {
        /// The name.
        name: String,
    },
    /// Something that happened to the topology.
    Topology(TopologyEvent),
    /// Something that happened to a server or its monitor.
    Server {
        /// The server.
        server: ServerId,
        /// The event.
        event: ServerEvent,
    },
    /// Something to do with a server's monitor.
    Monitor {
        /// The server.
        server: ServerId,
        /// What.
        call: MonitorCall,
    },
}

/// What to do with a server's monitor. Exhaustive on purpose, as the pool's actions are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MonitorCall {
    /// The server joined the topology: begin to check it. A load balancer has no monitor (LB-3), but its connections
    /// need an address.
    Begin {
        /// Its address.
        address: Arc<ServerAddress>,
        /// Whether it is checked.
        is_checked: bool,
    },
    /// Make this call of the monitor: `Monitor::handle_call`.
    Call(Call),
    /// The server left the topology: close the monitor. Its connections that are in use may still come back.
    End,
    /// The last connection of a server that left has come back: its id is not used any more.
    Forget,
}

/// When to call `handle_timeout`, and why. Calling earlier is harmless; calling later delays what is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Timeout {
    /// When.
    pub at: Instant,
    /// Why.
    pub reason: TimeoutReason,
}

/// Why a topology has to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TimeoutReason {
    /// When outputs wait to be drained: at once.
    Outputs,
    /// When a server's pool has to be called.
    Pool(ServerId, pool::TimeoutReason),
    /// When a check-out has waited long enough for a server.
    Selection,
    /// When the SRV records of the connection string are looked up again (DNS-13).
    SrvPolling,
}

impl<C> Output<C> {
    /// The output without its socket.
    pub fn snapshot(&self) -> Output<()> {
        match *self {
            Self::Pool { server, ref output } => Output::Pool { server, output: output.snapshot() },
            Self::Selected { selection, check_out } => Output::Selected { selection, check_out },
            Self::Reselecting { check_out, selection } => Output::Reselecting { check_out, selection },
            Self::SelectionFailed { selection, ref error } => {
                Output::SelectionFailed { selection, error: Arc::clone(error) }
            }
            Self::WarmedUp { warm_up, ref result } => Output::WarmedUp { warm_up, result: result.clone() },
            Self::ResolveSrv { ref name } => Output::ResolveSrv { name: name.clone() },
            Self::Selection(ref event) => Output::Selection(event.clone()),
            Self::Topology(ref event) => Output::Topology(event.clone()),
            Self::Server { server, ref event } => Output::Server { server, event: event.clone() },
            Self::Monitor { server, ref call } => Output::Monitor { server, call: call.clone() },
        }
    }
}

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

/// Which events of selections are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SelectionDetail {
    /// None.
    #[default]
    None,
    /// Those of selections that wait.
    Waiting,
    /// All: two for each check-out at least.
    All,
}

/// Something that happened to the selection of a server, in the past tense.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SelectionEvent {
    /// What happened.
    pub kind: SelectionEventKind,
    /// What was wanted.
    pub selector: ServerSelector,
    /// What the server is selected for, if the caller said so.
    pub operation: Option<Arc<Operation>>,
    /// What was known of the servers.
    pub topology: Arc<TopologyDescription>,
}

/// The kinds of [`SelectionEvent`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SelectionEventKind {
    /// A selection began.
    Started,
    /// A server was selected.
    Succeeded {
        /// Its address.
        server: Arc<ServerAddress>,
    },
    /// No server was selected.
    Failed {
        /// Why.
        error: Arc<SelectionError>,
    },
    /// No server is suitable yet.
    Waiting {
        /// The time until the selection fails; `None` if there is no limit.
        remaining: Option<Duration>,
    },
}

impl SelectionEvent {
    /// The name of the event.
    pub fn name(&self) -> &'static str {
        match self.kind {
            SelectionEventKind::Started => "ServerSelectionStarted",
            SelectionEventKind::Succeeded { .. } => "ServerSelectionSucceeded",
            SelectionEventKind::Failed { .. } => "ServerSelectionFailed",
            SelectionEventKind::Waiting { .. } => "ServerSelectionWaiting",
        }
    }
}
