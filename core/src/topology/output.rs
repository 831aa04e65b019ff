//! Outputs of a topology: those of its pools, the results of selections, events, and calls of monitors.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::event::TopologyEvent;
use super::selection::SelectionError;
use super::selection_event::SelectionEvent;
use super::waiting::SelectionId;
use super::warm_up::{WarmUpError, WarmUpId};
use crate::address::ServerAddress;
use crate::monitor::Call;
use crate::pool::{self, CheckOutId};
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

impl Timeout {
    /// The earlier of the two.
    pub(super) fn earlier(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(if one.at <= other.at { one } else { other }),
            (one, other) => one.or(other),
        }
    }
}
