//! Outputs of the pool: actions for the driver and events for its listeners, in one order.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CheckOutError, CheckOutId, ConnectionId, Handle, Pool, WarmUpError, WarmUpId};
use crate::connection::EstablishError;
use crate::options::PoolOptions;
use crate::service_id::ServiceId;

impl<C> Pool<C> {
    /// The next action or event; `None` when there is nothing more to do.
    #[must_use = "an action that is not carried out is lost"]
    #[inline]
    pub fn poll_output(&mut self) -> Option<Output<C>> {
        /// The capacity that the queue keeps; the memory of a burst is given back.
        const KEPT: usize = 1024;
        if self.outputs.is_empty() {
            if self.outputs.capacity() > 2 * KEPT {
                self.outputs.shrink_to(KEPT);
            }
            return None;
        }
        self.outputs.pop_front()
    }

    /// Whether all outputs have been drained.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.outputs.is_empty()
    }

    /// Whether events are produced at all. On at first; a pool without listeners saves their cost.
    pub fn observe(&mut self, on: bool) {
        self.observed = on;
        self.renew_attention();
    }
}

/// One output. Actions and events come in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output<C> {
    /// Something to do.
    Action(Action<C>),
    /// Something that happened.
    Event(Event),
}

/// A connection for the caller that asked for it. It comes back by `check_in`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Delivery<C> {
    /// The check-out that it is for.
    pub check_out: CheckOutId,
    /// The connection.
    pub connection: Handle,
    /// Its socket.
    pub socket: C,
}

/// The immediate result of a check-in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a delivered connection has to be handed over"]
pub enum CheckedIn<C> {
    /// Nothing, apart from the queued outputs.
    Done,
    /// The connection is the next waiter's: hand it over, as for [`Action::Deliver`].
    Delivered(Delivery<C>),
}

impl<C> CheckedIn<C> {
    /// The delivery, if there is one.
    pub fn delivery(self) -> Option<Delivery<C>> {
        match self {
            Self::Done => None,
            Self::Delivered(delivery) => Some(delivery),
        }
    }
}

impl<C> From<Delivery<C>> for Output<C> {
    fn from(Delivery { check_out, connection, socket }: Delivery<C>) -> Self {
        Self::Action(Action::Deliver { check_out, connection, socket })
    }
}

/// An instruction to the driver of the pool. Exhaustive on purpose: an action that a driver does not know would be
/// lost, so a new one has to break its build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action<C> {
    /// Establish a connection (CMAP-23): connect, TLS, hello, authenticate. Report the service id of a load-balanced
    /// hello by `handle_hello`, the end by `handle_established` or `handle_establish_failed`. The driver bounds the
    /// time it may take, by connectTimeoutMS; and that of each command after the hello, if no check-out
    /// waits for it ([`Pool::origin_of`](super::Pool::origin_of), CSOT-13).
    Connect {
        /// The connection.
        connection: Handle,
    },
    /// See, without waiting, whether the peer of an available connection has hung up ([`Pool::socket`] lends it), and
    /// answer by `handle_checked`.
    ///
    /// [`Pool::socket`]: super::Pool::socket
    Check {
        /// The connection.
        connection: Handle,
    },
    /// Ask the server for a sign of life on a connection that has been idle for long: run a `ping` within the
    /// time given. Report the end by `handle_refreshed` or `handle_refresh_failed`; close
    /// the socket of one that failed.
    Refresh {
        /// The connection.
        connection: Handle,
        /// Its socket.
        socket: C,
        /// The longest time that it may take.
        timeout: Duration,
    },
    /// Hand the connection to the caller that asked for it. It comes back by `check_in`.
    Deliver {
        /// The check-out that it is for.
        check_out: CheckOutId,
        /// The connection.
        connection: Handle,
        /// Its socket.
        socket: C,
    },
    /// Tell the caller that asked that it gets no connection.
    Fail {
        /// The check-out.
        check_out: CheckOutId,
        /// Why.
        error: Arc<CheckOutError>,
    },
    /// Close the socket, without blocking (CMAP-24). Nothing has to be reported.
    Close {
        /// The connection, which the pool has already forgotten.
        connection: Handle,
        /// Its socket.
        socket: C,
        /// Why.
        reason: ConnectionClosedReason,
    },
    /// Interrupt the connection (CMAP-40 to CMAP-42). An operation fails with a retryable error and its connection is
    /// checked in. An establishment or a refresh is given up; the pool has already forgotten it, and ignores later reports about it.
    Interrupt {
        /// The connection.
        connection: Handle,
    },
    /// Tell the caller that asked for it that a warm-up has ended.
    WarmedUp {
        /// The warm-up.
        warm_up: WarmUpId,
        /// Whether as many connections are established as it asked for, and otherwise why not.
        result: Result<(), Arc<WarmUpError>>,
    },
}

/// Something that happened in a pool, in the past tense (CMAP-52, CMAP-53). Names and fields are the specification's.
///
/// The address that every official event carries is the pool's and is not repeated in each: the driver of a pool knows
/// its address. Beyond the specification the check-out events name their check-out, so that a start can be paired with
/// its end.
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
    pub(super) fn failed_check_out(check_out: CheckOutId, error: Arc<CheckOutError>) -> Self {
        Self::ConnectionCheckOutFailed { check_out, reason: error.reason(), duration: error.waited, error }
    }

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
