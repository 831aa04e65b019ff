//! Outputs of a server: those of its pool, the results of selections, events, and calls of its monitor.

use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

use super::event::ServerEvent;
use super::selection::{SelectionError, SelectionId};
use crate::monitor::Call;
use crate::pool::{self, CheckOutId};
use crate::time::Instant;

/// One output, in the order in which things happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output<C> {
    /// An output of the pool.
    Pool(pool::Output<C>),
    /// A check-out that waited for the server goes on in the pool. Its result follows.
    Selected {
        /// The wait that is over.
        selection: SelectionId,
        /// The check-out that began when the wait ended.
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
    /// A call of the monitor to make: `Monitor::handle_call`.
    Monitor(Call),
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
