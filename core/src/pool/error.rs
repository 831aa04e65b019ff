//! Errors of the pool, by blame: why a check-out failed, and what a caller did wrong.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::output::CheckOutFailedReason;
use super::{ConnectionId, Counts, HeldBy, InUseBy, WaitBound};
use crate::ErrorChain;
use crate::address::ServerAddress;
use crate::connection::{EstablishError, RETRYABLE_ERROR, SYSTEM_OVERLOADED_ERROR};
use crate::error_text::{presentable, readable_debug};

/// A check-out ended without a connection: why, where, after how long, and what the pool looked like at that moment.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CheckOutError {
    /// Why.
    pub kind: CheckOutErrorKind,
    /// The pool's address.
    pub address: Arc<ServerAddress>,
    /// The pool's connections and waiters when the check-out failed.
    pub counts: Counts,
    /// Time since the check-out started.
    pub waited: Duration,
    /// Connections in use by purpose, in load-balanced mode: cursors and transactions keep theirs there (LB-16).
    pub in_use_by: Option<InUseBy>,
    /// maxPoolSize; 0 = unlimited.
    pub max_pool_size: u32,
    /// Why the pool created connections one at a time and after pauses, if it did: the failure of an overloaded server.
    pub backed_off_by: Option<Cause>,
    /// How long the pool has been paused, if it is.
    pub paused_for: Option<Duration>,
    /// The connection that could not be established, if that was why.
    pub connection: Option<ConnectionId>,
    /// Which limit kept it waiting, if its time was up.
    pub bound_by: Option<WaitBound>,
    /// Who holds the connections, the longest use first. Empty unless an adapter watches holders.
    pub held_by: Arc<[HeldBy]>,
    /// Check-outs of the pool whose time was up, this one included.
    pub timeouts: u64,
}

readable_debug!(CheckOutError);

/// Why a check-out failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum CheckOutErrorKind {
    /// The pool is closed (CMAP-29). Only a new client helps.
    PoolClosed,
    /// The pool is paused, or was cleared while the check-out waited (CMAP-28, CMAP-39). It may be tried again.
    PoolCleared {
        /// What cleared the pool.
        cause: Cause,
    },
    /// Its time was up (CMAP-30).
    Timeout(WaitLimit),
    /// The connection that was being established for it failed (CMAP-31).
    Establish(Arc<EstablishError>),
    /// The caller gave up.
    Cancelled,
    /// As many check-outs waited already as the option maxWaitQueueDepth allows. It may be tried again, after a
    /// pause.
    WaitQueueFull {
        /// How many check-outs may wait.
        max_wait_queue_depth: u32,
    },
}

/// Which limit on waiting a check-out reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitLimit {
    /// The pool's waitQueueTimeoutMS (CMAP-5).
    WaitQueueTimeout,
    /// The request's own deadline (CMAP-33).
    Deadline,
}

/// The reason for which a pool was cleared, as text that can be kept, shared and recorded.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(transparent)]
#[error("{0}")]
pub struct Cause(Arc<str>);

impl CheckOutError {
    /// The specification's message, exactly (X-4, CMAP-55, LB-16). `Display` adds the particulars.
    pub fn message(&self) -> String {
        match &self.kind {
            CheckOutErrorKind::PoolClosed => "Attempted to check out a connection from closed connection pool".into(),
            CheckOutErrorKind::PoolCleared { cause } => alloc::format!(
                "Connection pool for {} was cleared because another operation failed with: {cause}",
                self.address
            ),
            CheckOutErrorKind::Timeout(_) => match self.in_use_by {
                None => "Timed out while checking out a connection from connection pool".into(),
                Some(InUseBy { cursors, transactions, others }) => alloc::format!(
                    "Timeout waiting for connection from the connection pool. maxPoolSize: {}, connections in use by \
                     cursors: {cursors}, connections in use by transactions: {transactions}, connections in use by other \
                     operations: {others}",
                    self.max_pool_size
                ),
            },
            CheckOutErrorKind::Establish(_) => "Failed to establish a connection for the check-out".into(),
            CheckOutErrorKind::Cancelled => "The check-out was cancelled".into(),
            CheckOutErrorKind::WaitQueueFull { max_wait_queue_depth } => alloc::format!(
                "Too many check-outs wait for a connection already: maxWaitQueueDepth allows {max_wait_queue_depth}"
            ),
        }
    }

    /// The specification's name of the error's type, if it has one.
    pub fn type_name(&self) -> &'static str {
        match &self.kind {
            CheckOutErrorKind::PoolClosed => "PoolClosedError",
            CheckOutErrorKind::PoolCleared { .. } => "PoolClearedError",
            CheckOutErrorKind::Timeout(_) => "WaitQueueTimeoutError",
            CheckOutErrorKind::Establish(_) => "EstablishError",
            CheckOutErrorKind::Cancelled => "CancelledError",
            CheckOutErrorKind::WaitQueueFull { .. } => "WaitQueueFullError",
        }
    }

    /// The reason that the event gives (CMAP-53).
    pub fn reason(&self) -> CheckOutFailedReason {
        match &self.kind {
            CheckOutErrorKind::PoolClosed => CheckOutFailedReason::PoolClosed,
            CheckOutErrorKind::Timeout(_) => CheckOutFailedReason::Timeout,
            CheckOutErrorKind::PoolCleared { .. }
            | CheckOutErrorKind::Establish(_)
            | CheckOutErrorKind::Cancelled
            | CheckOutErrorKind::WaitQueueFull { .. } => CheckOutFailedReason::ConnectionError,
        }
    }

    /// Whether the operation may be tried again: after a clear (CMAP-55), after an overloaded server's refusal
    /// (CMAP-50), and where too many waited.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, CheckOutErrorKind::PoolCleared { .. }) || self.has_label(RETRYABLE_ERROR)
    }

    /// Whether the error carries this label: that of a connection that could not be established, or both labels of an
    /// overload where too many waited.
    pub fn has_label(&self, label: &str) -> bool {
        match &self.kind {
            CheckOutErrorKind::WaitQueueFull { .. } => [SYSTEM_OVERLOADED_ERROR, RETRYABLE_ERROR].contains(&label),
            CheckOutErrorKind::Establish(error) => error.has_label(label),
            CheckOutErrorKind::PoolClosed
            | CheckOutErrorKind::PoolCleared { .. }
            | CheckOutErrorKind::Timeout(_)
            | CheckOutErrorKind::Cancelled => false,
        }
    }

    /// What to do about it, by what stood in the way.
    fn advice(&self) -> Option<&'static str> {
        match &self.kind {
            CheckOutErrorKind::PoolClosed => Some("make a new client"),
            CheckOutErrorKind::PoolCleared { .. } => Some("try again"),
            CheckOutErrorKind::Timeout(WaitLimit::Deadline) if self.waited.is_zero() => {
                Some("its time was up before it began: allow more for the whole operation")
            }
            CheckOutErrorKind::Timeout(_) if self.counts.available > 0 && self.is_bound_by_size() => Some(
                "connections are there, but held for their keys or being refreshed: let a hold lend, shorten it, or raise maxPoolSize",
            ),
            CheckOutErrorKind::Timeout(limit) => {
                let of_bound = self.bound_by.and_then(WaitBound::advice);
                Some(of_bound.unwrap_or_else(|| self.advice_on_waiting(*limit)))
            }
            CheckOutErrorKind::WaitQueueFull { .. } => {
                Some("try again after a pause, or raise maxPoolSize or maxWaitQueueDepth")
            }
            CheckOutErrorKind::Establish(_) | CheckOutErrorKind::Cancelled => None,
        }
    }

    fn is_bound_by_size(&self) -> bool {
        matches!(self.bound_by, Some(WaitBound::MaxPoolSize { .. }))
    }

    fn advice_on_waiting(&self, limit: WaitLimit) -> &'static str {
        let Counts { pending, in_use, .. } = self.counts;
        let all_are_in_use = self.max_pool_size > 0 && in_use >= self.max_pool_size;
        match limit {
            WaitLimit::WaitQueueTimeout if all_are_in_use => {
                "look for connections that are kept too long, or raise maxPoolSize or waitQueueTimeoutMS"
            }
            WaitLimit::Deadline if all_are_in_use => {
                "look for connections that are kept too long, raise maxPoolSize or allow more time"
            }
            _ if pending > 0 => {
                "connections were still being established: see why the server takes so long, keep some ready by \
                 minPoolSize, or allow more time"
            }
            WaitLimit::WaitQueueTimeout => "too many waited at once for the time allowed: raise waitQueueTimeoutMS",
            WaitLimit::Deadline => "too many waited at once for the time allowed: allow more time",
        }
    }
}

impl fmt::Display for CheckOutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            CheckOutErrorKind::Establish(error) => write!(f, "{error}")?,
            CheckOutErrorKind::PoolClosed
            | CheckOutErrorKind::PoolCleared { .. }
            | CheckOutErrorKind::Timeout(_)
            | CheckOutErrorKind::Cancelled
            | CheckOutErrorKind::WaitQueueFull { .. } => f.write_str(&self.message())?,
        }
        write!(f, " ({}, after {:?}; {}", self.address, self.waited, self.counts)?;
        match self.max_pool_size {
            0 => f.write_str(")")?,
            max => write!(f, ", maxPoolSize {max})")?,
        }
        if let (CheckOutErrorKind::PoolCleared { .. }, Some(paused_for)) =
            (&self.kind, self.paused_for.filter(|time| !time.is_zero()))
        {
            write!(f, "; the pool has been paused for {paused_for:?}")?;
        }
        if let (CheckOutErrorKind::Timeout(_), Some(bound)) = (&self.kind, self.bound_by) {
            bound.write(f, &self.held_by)?;
            if self.timeouts > 1 {
                write!(f, "; the pool's time-out number {}", self.timeouts)?;
            }
        }
        if let (CheckOutErrorKind::Timeout(_), Some(cause)) = (&self.kind, &self.backed_off_by) {
            return write!(f, "; the server took no more connections, and the pool tries again after pauses: {cause}");
        }
        match self.advice() {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for CheckOutError {}

impl Cause {
    /// A cause in the words of `text`, control characters escaped, and cut at 8 KiB.
    pub fn new(text: &str) -> Self {
        Self(Arc::from(&*presentable(text)))
    }

    /// An error as a cause, its sources included, control characters escaped, and cut at 8 KiB.
    pub fn of(error: &dyn core::error::Error) -> Self {
        Self::new(&alloc::format!("{}", ErrorChain(error)))
    }
}

/// A call made no sense: its arguments, or its moment, were wrong.
///
/// Only the calling code can cause it, never data from a network. The state of the pool is as before; the remedy is to
/// correct the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ApiMisuse {
    /// The handle was issued by another pool (CMAP-35).
    #[error("the connection belongs to another pool: give it back to the pool that delivered it")]
    ForeignConnection,
    /// The connection is not in use: it was checked in before, or never delivered.
    #[error("the connection is not in use: check in each connection once, after its delivery")]
    NotInUse,
    /// The connection is not being established.
    #[error("the connection is not being established: report each establishment once")]
    NotPending,
    /// The pool did not ask whether the connection is alive.
    #[error("the connection is not being checked: answer each Check once")]
    NotChecking,
    /// The driver was not given the connection to refresh it, or has reported its end.
    #[error("the connection is not being refreshed: report the end of each Refresh once")]
    NotRefreshing,
    /// The whole pool was to be cleared in load-balanced mode (LB-8).
    #[error("a load-balanced pool is cleared service by service: name the service")]
    ClearWithoutService,
    /// One service was to be cleared outside load-balanced mode (LB-8).
    #[error("this pool is not load-balanced: clear it without naming a service")]
    ClearWithService,
    /// A service id was reported outside load-balanced mode, or twice for one connection.
    #[error("a service id belongs to the first hello of a connection in load-balanced mode, and nowhere else")]
    UnexpectedService,
    /// In load-balanced mode a connection was established, but its service id was not reported (LB-6, LB-7).
    #[error("report the service id of the hello before the connection is established")]
    ServiceUnknown,
    /// The owner tried to make a monitored server's pool ready or to clear it.
    #[error("the monitor's checks make this pool ready and clear it: report what happened instead")]
    Monitored,
    /// The connection is in use, but by another check-out: this one has given it back already, or never had it.
    #[error("another check-out uses the connection: check in each connection once, after its delivery")]
    OtherUse,
    /// A call that takes the connection's socket was made without it.
    #[error("the call takes the connection's socket: hand it over")]
    SocketMissing,
}

/// A call with a socket was refused: the mistake, and the socket back.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{misuse}")]
pub struct Refused<C> {
    /// The mistake.
    pub misuse: ApiMisuse,
    /// What the caller handed over: close it or keep it.
    pub socket: C,
}

/// A warm-up ended without as many connections as it asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WarmUpError {
    /// Why.
    pub kind: WarmUpErrorKind,
    /// The pool's address.
    pub address: Arc<ServerAddress>,
    /// How many connections were established when it ended.
    pub established: u32,
    /// How many it asked for.
    pub wanted: u32,
}

/// Why a warm-up ended early.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum WarmUpErrorKind {
    /// maxPoolSize is smaller than what it asked for.
    #[error("The warm-up asks for more connections than maxPoolSize ({max_pool_size}) allows")]
    BeyondMaxPoolSize {
        /// maxPoolSize.
        max_pool_size: u32,
    },
    /// A connection could not be established.
    #[error("The warm-up ended because a connection could not be established")]
    Establish(Arc<EstablishError>),
    /// The pool is paused, or was cleared meanwhile.
    #[error("The warm-up ended because the pool is paused or was cleared")]
    PoolCleared {
        /// What cleared the pool.
        cause: Cause,
    },
    /// The pool is closed.
    #[error("The warm-up ended because the pool is closed")]
    PoolClosed,
    /// The caller gave up, because its time was up.
    #[error("The warm-up took longer than it was allowed to")]
    GivenUp,
}

impl WarmUpErrorKind {
    fn advice(&self) -> &'static str {
        match self {
            Self::BeyondMaxPoolSize { .. } => "ask for fewer, or raise maxPoolSize",
            Self::Establish(_) => "see to its cause, and warm up again",
            Self::PoolCleared { .. } => "warm up again as soon as the server answers",
            Self::PoolClosed => "make a new client",
            Self::GivenUp => "allow more time, or see why the server takes so long",
        }
    }
}

impl fmt::Display for WarmUpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, address, established, wanted } = self;
        write!(f, "{kind} ({address}; {established} of {wanted} connections are established); {}", kind.advice())
    }
}

impl core::error::Error for WarmUpError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match &self.kind {
            WarmUpErrorKind::Establish(error) => Some(&**error),
            WarmUpErrorKind::PoolCleared { cause } => Some(cause),
            WarmUpErrorKind::BeyondMaxPoolSize { .. } | WarmUpErrorKind::PoolClosed | WarmUpErrorKind::GivenUp => None,
        }
    }
}
