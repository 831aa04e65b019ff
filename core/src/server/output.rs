//! What comes out of a server: the outputs of its pool, what became of selections, events, and calls of its monitor.

use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

use super::event::ServerEvent;
use super::selection::{SelectionError, SelectionId};
use crate::pool::{self, CheckOutId};
use crate::time::Instant;

/// One output, in the order in which things happened.
///
/// `M` is what concerns the monitor: of a [`Server`](super::Server) alone, a call to make of it; of an `Endpoint`, which
/// makes these calls itself, something to do with one of the monitor's sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output<C, M = MonitorCall> {
    /// Of the pool.
    Pool(pool::Output<C>),
    /// A check-out that waited for the server goes on in the pool. What becomes of it follows.
    Selected {
        /// The wait that is over.
        selection: SelectionId,
        /// The check-out that began with its end.
        check_out: CheckOutId,
    },
    /// A check-out that waited for the server failed.
    SelectionFailed {
        /// The wait that is over.
        selection: SelectionId,
        /// Why.
        error: Arc<SelectionError>,
    },
    /// Something that happened to the server or its monitor.
    Event(ServerEvent),
    /// Something for the monitor.
    Monitor(M),
}

/// A call of the server's monitor, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MonitorCall {
    /// An application's error has made the server unknown.
    MarkUnknown,
    /// Check the server soon (MON-3).
    RequestCheck,
    /// Break off the check that is under way (MON-12).
    CancelCheck,
}

/// When to call `handle_timeout`, and why. Earlier is harmless, later delays what is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Timeout {
    /// When.
    pub at: Instant,
    /// Why.
    pub reason: TimeoutReason,
}

/// Why a server has to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TimeoutReason {
    /// When outputs wait to be drained: at once.
    Outputs,
    /// When the pool has to be called.
    Pool(pool::TimeoutReason),
    /// When a check-out has waited long enough for the server.
    Selection,
    /// When the monitor's next check, or its next measurement, begins.
    Heartbeat,
    /// When the server has had its time to answer the monitor.
    MonitorRead,
}

impl Timeout {
    /// The earlier of two.
    pub(super) fn earlier(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(if one.at <= other.at { one } else { other }),
            (one, other) => one.or(other),
        }
    }
}
