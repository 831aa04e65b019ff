//! What a pool leads to, as one flat struct.

use core::ffi::c_char;
use core::time::Duration;

use cmap_core::pool::{
    Action, CheckOutError, CheckOutErrorKind, ConnectionClosedReason, ConnectionId, Delivery, Event, Handle, ServiceId,
    WaitLimit, WarmUpErrorKind,
};
use cmap_core::topology::{SelectionErrorKind, WarmUpError};
use serde_json::{Map, Value};

use crate::ids::{CheckOut, Connection};
use crate::pool::{Delivered, State};

/// Something to do, or something that happened. What a kind does not mention is 0.
///
/// `size` is set by the caller, to sizeof(struct cmap_output), before each call. A later version of the struct may have more fields
/// at its end; a library fills those that are within the size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// The size of the struct, set by the caller.
    pub size: u32,
    /// One of the numbers CMAP_NOTHING, CMAP_CONNECT and so on.
    pub kind: u32,
    /// Why: one of the numbers CMAP_CLOSED_.., CMAP_FAILED_.. or CMAP_COLD_.., as the kind says.
    pub reason: u32,
    /// The server. 0 for a pool by itself.
    pub server: u32,
    /// The numbers CMAP_FLAG_.. that hold, added.
    pub flags: u32,
    /// The service behind a load balancer, where CMAP_FLAG_SERVICE says so.
    pub service: [u8; 12],
    /// The connection.
    pub connection: Connection,
    /// The check-out.
    pub check_out: CheckOut,
    /// The connection's number: from 1, in the order of creation, never reused. Of CMAP_WARMED_UP the number of the warm-up.
    pub number: u64,
    /// The connection's socket, as the driver gave it.
    pub socket: u64,
    /// A duration, in nanoseconds.
    pub nanos: u64,
    /// A text in UTF-8, never NULL; a zero follows it. It is lent until the next call of the pool.
    pub text: *const c_char,
    /// The bytes of the text, without the zero.
    pub text_length: usize,
}

/// There are no more outputs; or a call has delivered nothing at once.
pub const CMAP_NOTHING: u32 = 0;

/// Do: establish the connection (connect, TLS, hello, authenticate), within connectTimeoutMS. Then call cmap_pool_established or
/// cmap_pool_establish_failed; in load-balanced mode cmap_pool_hello before. Fields: connection, number; check_out: the one that
/// caused it and waits, if there is one.
pub const CMAP_CONNECT: u32 = 1;
/// Do: see, without waiting, whether the peer has hung up, and call cmap_pool_checked. Fields: connection, number, socket.
pub const CMAP_CHECK: u32 = 2;
/// Do: run a ping within `nanos`, and call cmap_pool_refreshed, or close the socket and call cmap_pool_refresh_failed. Fields:
/// connection, number, socket, nanos.
pub const CMAP_REFRESH: u32 = 3;
/// Do: hand the connection to the caller of the check-out. It comes back by cmap_pool_check_in. Fields: check_out, connection,
/// number, socket.
pub const CMAP_DELIVER: u32 = 4;
/// Do: tell the caller of the check-out that it gets no connection. Fields: check_out; reason: CMAP_FAILED_..; nanos: how long it
/// has waited; text; number: the connection that could not be established, if that is why; CMAP_FLAG_RETRYABLE.
pub const CMAP_FAIL: u32 = 5;
/// Do: close the socket, without waiting. Nothing has to be reported. Fields: connection, number, socket; reason: CMAP_CLOSED_...
pub const CMAP_CLOSE: u32 = 6;
/// Do: interrupt what goes on at the connection. An operation fails with a retryable error, and its connection is checked in; an
/// establishment or a refresh is given up, and its socket closed: later reports about it are ignored. Fields: connection, number.
pub const CMAP_INTERRUPT: u32 = 7;
/// Do: tell the caller of a warm-up that it has ended. Fields: number: that of the warm-up; reason: CMAP_WARM or CMAP_COLD_..;
/// text.
pub const CMAP_WARMED_UP: u32 = 8;

/// ConnectionPoolCreated. Field: text: the options that were set, as JSON.
pub const CMAP_EVENT_POOL_CREATED: u32 = 101;
/// ConnectionPoolReady.
pub const CMAP_EVENT_POOL_READY: u32 = 102;
/// ConnectionPoolCleared. Fields: service with CMAP_FLAG_SERVICE; CMAP_FLAG_INTERRUPT.
pub const CMAP_EVENT_POOL_CLEARED: u32 = 103;
/// ConnectionPoolClosed.
pub const CMAP_EVENT_POOL_CLOSED: u32 = 104;
/// ConnectionCreated. Field: number.
pub const CMAP_EVENT_CONNECTION_CREATED: u32 = 105;
/// ConnectionReady. Fields: number; nanos: since its creation.
pub const CMAP_EVENT_CONNECTION_READY: u32 = 106;
/// ConnectionClosed. Fields: number; reason: CMAP_CLOSED_..; text: what failed, if establishing it did.
pub const CMAP_EVENT_CONNECTION_CLOSED: u32 = 107;
/// ConnectionCheckOutStarted. Field: check_out.
pub const CMAP_EVENT_CHECK_OUT_STARTED: u32 = 108;
/// ConnectionCheckOutFailed. Fields: check_out; reason: CMAP_FAILED_..; nanos: since its start; text.
pub const CMAP_EVENT_CHECK_OUT_FAILED: u32 = 109;
/// ConnectionCheckedOut. Fields: check_out; number; nanos: since the check-out's start.
pub const CMAP_EVENT_CHECKED_OUT: u32 = 110;
/// ConnectionCheckedIn. Field: number.
pub const CMAP_EVENT_CHECKED_IN: u32 = 111;

/// A connection was closed because the pool was cleared after its creation: "stale".
pub const CMAP_CLOSED_STALE: u32 = 1;
/// A connection was closed because it was available for longer than maxIdleTimeMS, or its life was over: "idle".
pub const CMAP_CLOSED_IDLE: u32 = 2;
/// A connection was closed because establishing or using it failed: "error".
pub const CMAP_CLOSED_ERROR: u32 = 3;
/// A connection was closed because the pool was: "poolClosed".
pub const CMAP_CLOSED_POOL_CLOSED: u32 = 4;
/// A connection was closed because there are more than the limits allow since they became smaller.
pub const CMAP_CLOSED_SURPLUS: u32 = 5;

/// A check-out failed because the pool is closed; in events "poolClosed".
pub const CMAP_FAILED_POOL_CLOSED: u32 = 1;
/// A check-out failed because the pool is paused, or was cleared while it waited; in events "connectionError".
pub const CMAP_FAILED_POOL_CLEARED: u32 = 2;
/// A check-out failed after waitQueueTimeoutMS; in events "timeout".
pub const CMAP_FAILED_WAIT_QUEUE_TIMEOUT: u32 = 3;
/// A check-out failed at its own deadline; in events "timeout".
pub const CMAP_FAILED_DEADLINE: u32 = 4;
/// A check-out failed because the connection for it could not be established; in events "connectionError".
pub const CMAP_FAILED_ESTABLISH: u32 = 5;
/// A check-out was given up; in events "connectionError".
pub const CMAP_FAILED_CANCELLED: u32 = 6;
/// A check-out failed because as many waited as maxWaitQueueDepth allows; in events "connectionError".
pub const CMAP_FAILED_WAIT_QUEUE_FULL: u32 = 7;

/// A warm-up has as many connections as it asked for.
pub const CMAP_WARM: u32 = 0;
/// A warm-up ended because the pool is closed.
pub const CMAP_COLD_POOL_CLOSED: u32 = 1;
/// A warm-up ended because the pool is paused, or was cleared.
pub const CMAP_COLD_POOL_CLEARED: u32 = 2;
/// A warm-up ended because a connection could not be established.
pub const CMAP_COLD_ESTABLISH: u32 = 3;
/// A warm-up asks for more connections than maxPoolSize allows.
pub const CMAP_COLD_MAX_POOL_SIZE: u32 = 4;

/// The field `service` is set.
pub const CMAP_FLAG_SERVICE: u32 = 1;
/// Connections in use are interrupted.
pub const CMAP_FLAG_INTERRUPT: u32 = 2;
/// The operation may be tried again.
pub const CMAP_FLAG_RETRYABLE: u32 = 4;

impl Output {
    /// One of a kind, with nothing in it.
    fn of(kind: u32) -> Self {
        Self {
            size: 0,
            kind,
            reason: 0,
            server: 0,
            flags: 0,
            service: [0; 12],
            connection: Connection::default(),
            check_out: CheckOut::default(),
            number: 0,
            socket: 0,
            nanos: 0,
            text: c"".as_ptr(),
            text_length: 0,
        }
    }

    /// None.
    pub(crate) fn nothing() -> Self {
        Self::of(CMAP_NOTHING)
    }

    /// The connection that a call has delivered, or none.
    pub(crate) fn delivered(delivered: Delivered) -> Self {
        delivered.map_or_else(Self::nothing, |Delivery { check_out, connection, socket }| Self {
            check_out: check_out.into(),
            socket,
            ..Self::at(CMAP_DELIVER, connection)
        })
    }

    /// One about a connection that outputs tell of by its handle.
    fn at(kind: u32, connection: Handle) -> Self {
        Self { connection: connection.into(), number: connection.id().get(), ..Self::of(kind) }
    }

    /// One about a connection that outputs tell of by its number.
    fn numbered(kind: u32, connection: ConnectionId) -> Self {
        Self { number: connection.get(), ..Self::of(kind) }
    }

    fn with_text(self, state: &mut State, text: String) -> Self {
        let (text, text_length) = state.lend(text.into_bytes());
        Self { text, text_length, ..self }
    }

    fn with_service(self, service: Option<ServiceId>) -> Self {
        match service {
            Some(ServiceId(service)) => Self { service, flags: self.flags | CMAP_FLAG_SERVICE, ..self },
            None => self,
        }
    }

    pub(crate) fn of_action(state: &mut State, action: Action<u64>) -> Self {
        match action {
            Action::Connect { connection } => {
                let origin = state.pool().ok().and_then(|pool| pool.origin_of(connection));
                Self {
                    check_out: origin.map_or_else(CheckOut::default, Into::into),
                    ..Self::at(CMAP_CONNECT, connection)
                }
            }
            Action::Check { connection } => {
                // A connection that was closed since has no socket to look at.
                let Some(&mut socket) = state.machine.socket(connection) else { return Self::nothing() };
                Self { socket, ..Self::at(CMAP_CHECK, connection) }
            }
            Action::Refresh { connection, socket, timeout } => {
                Self { socket, nanos: nanos(timeout), ..Self::at(CMAP_REFRESH, connection) }
            }
            Action::Deliver { check_out, connection, socket } => {
                Self::delivered(Some(Delivery { check_out, connection, socket }))
            }
            Action::Fail { check_out, error } => {
                let number = error.connection.map_or(0, ConnectionId::get);
                let flags = if error.is_retryable() { CMAP_FLAG_RETRYABLE } else { 0 };
                let failed = Self { check_out: check_out.into(), number, flags, ..Self::of(CMAP_FAIL) };
                Self { nanos: nanos(error.waited), ..failed.failed(state, &error) }
            }
            Action::Close { connection, socket, reason } => {
                Self { socket, reason: closed_reason(reason), ..Self::at(CMAP_CLOSE, connection) }
            }
            Action::Interrupt { connection } => Self::at(CMAP_INTERRUPT, connection),
            // The topology takes it, and tells of its own.
            Action::WarmedUp { .. } => Self::nothing(),
        }
    }

    pub(crate) fn of_event(state: &mut State, event: Event) -> Self {
        match event {
            Event::PoolCreated { options } => {
                let set: Map<String, Value> =
                    options.set_by_user().map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
                Self::of(CMAP_EVENT_POOL_CREATED).with_text(state, Value::Object(set).to_string())
            }
            Event::PoolReady => Self::of(CMAP_EVENT_POOL_READY),
            Event::PoolCleared { service_id, interrupt_in_use_connections } => {
                let flags = if interrupt_in_use_connections { CMAP_FLAG_INTERRUPT } else { 0 };
                Self { flags, ..Self::of(CMAP_EVENT_POOL_CLEARED) }.with_service(service_id)
            }
            Event::PoolClosed => Self::of(CMAP_EVENT_POOL_CLOSED),
            Event::ConnectionCreated { connection_id } => Self::numbered(CMAP_EVENT_CONNECTION_CREATED, connection_id),
            Event::ConnectionReady { connection_id, duration } => {
                Self { nanos: nanos(duration), ..Self::numbered(CMAP_EVENT_CONNECTION_READY, connection_id) }
            }
            Event::ConnectionClosed { connection_id, reason, error } => {
                let closed = Self::numbered(CMAP_EVENT_CONNECTION_CLOSED, connection_id);
                let closed = Self { reason: closed_reason(reason), ..closed };
                error.map_or(closed, |error| closed.with_text(state, error.to_string()))
            }
            Event::ConnectionCheckOutStarted { check_out } => {
                Self { check_out: check_out.into(), ..Self::of(CMAP_EVENT_CHECK_OUT_STARTED) }
            }
            Event::ConnectionCheckOutFailed { check_out, error, duration, .. } => {
                let failed = Self { check_out: check_out.into(), ..Self::of(CMAP_EVENT_CHECK_OUT_FAILED) };
                Self { nanos: nanos(duration), ..failed.failed(state, &error) }
            }
            Event::ConnectionCheckedOut { check_out, connection_id, duration } => Self {
                check_out: check_out.into(),
                nanos: nanos(duration),
                ..Self::numbered(CMAP_EVENT_CHECKED_OUT, connection_id)
            },
            Event::ConnectionCheckedIn { connection_id } => Self::numbered(CMAP_EVENT_CHECKED_IN, connection_id),
            // An event that this ABI has no number for.
            _ => Self::nothing(),
        }
    }

    /// The end of a warm-up with this number.
    pub(crate) fn of_warm_up<T>(state: &mut State, number: u64, result: Result<T, WarmUpError>) -> Self {
        let ended = Self { number, ..Self::of(CMAP_WARMED_UP) };
        let Err(error) = result else { return ended };
        let reason = match &error {
            WarmUpError::Pool(error) => match &error.kind {
                WarmUpErrorKind::PoolCleared { .. } => CMAP_COLD_POOL_CLEARED,
                WarmUpErrorKind::Establish(_) => CMAP_COLD_ESTABLISH,
                WarmUpErrorKind::BeyondMaxPoolSize { .. } => CMAP_COLD_MAX_POOL_SIZE,
                WarmUpErrorKind::PoolClosed | WarmUpErrorKind::GivenUp | _ => CMAP_COLD_POOL_CLOSED,
            },
            WarmUpError::Selection(error) if error.kind == SelectionErrorKind::Closed => CMAP_COLD_POOL_CLOSED,
            // The process was forked.
            WarmUpError::Selection(_) | _ => CMAP_COLD_POOL_CLEARED,
        };
        Self { reason, ..ended }.with_text(state, error.to_string())
    }

    fn failed(self, state: &mut State, error: &CheckOutError) -> Self {
        Self { reason: failed_reason(&error.kind), ..self }.with_text(state, error.to_string())
    }
}

fn closed_reason(reason: ConnectionClosedReason) -> u32 {
    match reason {
        ConnectionClosedReason::Stale => CMAP_CLOSED_STALE,
        ConnectionClosedReason::Idle => CMAP_CLOSED_IDLE,
        ConnectionClosedReason::Error => CMAP_CLOSED_ERROR,
        ConnectionClosedReason::PoolClosed => CMAP_CLOSED_POOL_CLOSED,
        ConnectionClosedReason::Surplus => CMAP_CLOSED_SURPLUS,
    }
}

fn failed_reason(kind: &CheckOutErrorKind) -> u32 {
    match kind {
        CheckOutErrorKind::PoolClosed => CMAP_FAILED_POOL_CLOSED,
        CheckOutErrorKind::PoolCleared { .. } => CMAP_FAILED_POOL_CLEARED,
        CheckOutErrorKind::Timeout(WaitLimit::WaitQueueTimeout) => CMAP_FAILED_WAIT_QUEUE_TIMEOUT,
        CheckOutErrorKind::Timeout(WaitLimit::Deadline) => CMAP_FAILED_DEADLINE,
        CheckOutErrorKind::Establish(_) => CMAP_FAILED_ESTABLISH,
        CheckOutErrorKind::WaitQueueFull { .. } => CMAP_FAILED_WAIT_QUEUE_FULL,
        CheckOutErrorKind::Cancelled | _ => CMAP_FAILED_CANCELLED,
    }
}

/// A duration in nanoseconds; the longest there is if it is longer.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
