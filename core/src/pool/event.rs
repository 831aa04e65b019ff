//! The eleven events of connection monitoring and pooling (CMAP-52, CMAP-53).
//!
//! The address that every official event carries is the pool's and is not repeated in each: the driver of a pool knows
//! its address. Beyond the specification the check-out events name their check-out, so that a start can be paired with
//! its end.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CheckOutError, CheckOutId, ConnectionId};
use crate::connection::EstablishError;
use crate::options::PoolOptions;
use crate::service_id::ServiceId;

/// Something that happened in a pool, in the past tense. Names and fields are the specification's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Event {
    /// The pool was created, paused.
    PoolCreated {
        /// The options; events show those that the user set.
        options: Box<PoolOptions>,
    },
    /// The pool went from paused to ready.
    PoolReady,
    /// The pool, or one service's part of it, was cleared.
    PoolCleared {
        /// The service, in load-balanced mode.
        service_id: Option<ServiceId>,
        /// Whether connections in use were interrupted too.
        interrupt_in_use_connections: bool,
    },
    /// The pool was closed.
    PoolClosed,
    /// A connection was created; nothing has been sent yet.
    ConnectionCreated {
        /// The connection.
        connection_id: ConnectionId,
    },
    /// A connection was established.
    ConnectionReady {
        /// The connection.
        connection_id: ConnectionId,
        /// Time since its creation.
        duration: Duration,
    },
    /// A connection left the pool.
    ConnectionClosed {
        /// The connection.
        connection_id: ConnectionId,
        /// Why.
        reason: ConnectionClosedReason,
        /// What failed, if establishing it did.
        error: Option<Arc<EstablishError>>,
    },
    /// A check-out began.
    ConnectionCheckOutStarted {
        /// The check-out.
        check_out: CheckOutId,
    },
    /// A check-out ended without a connection.
    ConnectionCheckOutFailed {
        /// The check-out.
        check_out: CheckOutId,
        /// Why, in the specification's words.
        reason: CheckOutFailedReason,
        /// Why, in detail.
        error: Arc<CheckOutError>,
        /// Time since its start.
        duration: Duration,
    },
    /// A check-out ended with a connection.
    ConnectionCheckedOut {
        /// The check-out.
        check_out: CheckOutId,
        /// The connection.
        connection_id: ConnectionId,
        /// Time since the check-out's start.
        duration: Duration,
    },
    /// A connection was checked in.
    ConnectionCheckedIn {
        /// The connection.
        connection_id: ConnectionId,
    },
}

/// Why a connection was closed (CMAP-53).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ConnectionClosedReason {
    /// The pool was cleared after the connection was created.
    Stale,
    /// It was available for longer than maxIdleTimeMS.
    Idle,
    /// Establishing or using it failed.
    Error,
    /// The pool was closed.
    PoolClosed,
    /// There were more connections than the limits allow, because these have become smaller, or one of another pool
    /// needed the room: another server's or another user's. Not the specification's.
    Surplus,
}

/// Why a check-out failed (CMAP-53).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CheckOutFailedReason {
    /// The pool was closed.
    PoolClosed,
    /// Its time was up.
    Timeout,
    /// The pool was paused or cleared, the connection could not be established, or the caller gave up.
    ConnectionError,
}

impl Event {
    /// The specification's name of the event, as its test files spell it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::PoolCreated { .. } => "ConnectionPoolCreated",
            Self::PoolReady => "ConnectionPoolReady",
            Self::PoolCleared { .. } => "ConnectionPoolCleared",
            Self::PoolClosed => "ConnectionPoolClosed",
            Self::ConnectionCreated { .. } => "ConnectionCreated",
            Self::ConnectionReady { .. } => "ConnectionReady",
            Self::ConnectionClosed { .. } => "ConnectionClosed",
            Self::ConnectionCheckOutStarted { .. } => "ConnectionCheckOutStarted",
            Self::ConnectionCheckOutFailed { .. } => "ConnectionCheckOutFailed",
            Self::ConnectionCheckedOut { .. } => "ConnectionCheckedOut",
            Self::ConnectionCheckedIn { .. } => "ConnectionCheckedIn",
        }
    }
}

impl fmt::Display for ConnectionClosedReason {
    /// As the specification's test files spell it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stale => "stale",
            Self::Idle => "idle",
            Self::Error => "error",
            Self::PoolClosed => "poolClosed",
            Self::Surplus => "surplus",
        })
    }
}

impl fmt::Display for CheckOutFailedReason {
    /// As the specification's test files spell it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PoolClosed => "poolClosed",
            Self::Timeout => "timeout",
            Self::ConnectionError => "connectionError",
        })
    }
}
