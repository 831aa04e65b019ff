//! The operations of a test, and the threads that carry them out.

use cmap_core::options::{NewLimit, PoolLimits, QueueDepth};
use cmap_core::pool::WarmUpErrorKind;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{EventType, ExpectedError, FailPoint};
use crate::suites::place::Place;
use crate::suites::problem::{Problem, read};

/// One operation, and the thread that carries it out.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What to do.
    pub operation: Operation,
    /// The thread that does it, after all it was given before; `None` is the main thread (FMT-3).
    pub thread: Option<String>,
}

/// What a test can do.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Operation {
    /// Starts a thread.
    Start {
        /// Its name.
        target: String,
    },
    /// Lets time pass.
    Wait {
        /// How much, in milliseconds.
        ms: u32,
    },
    /// Waits until a thread has done all it was given, and takes over its error (FMT-4).
    WaitForThread {
        /// Its name.
        target: String,
    },
    /// Waits until a number of events of a type have happened since the test began (FMT-2).
    WaitForEvent {
        /// The type.
        event: EventType,
        /// How many.
        count: u32,
        /// How long at most, in milliseconds; X-20 says what holds without it.
        timeout: Option<u32>,
    },
    /// Checks a connection out.
    CheckOut {
        /// The name under which later operations know the connection.
        label: Option<String>,
        /// The request's own deadline, in milliseconds from its start (CMAP-33). Style "scenario".
        #[serde(rename = "timeoutMS")]
        timeout_ms: Option<u32>,
        /// The key whose connection is wanted. Style "scenario".
        affinity: Option<u64>,
        /// The user that it is for, of `server.users`; that of the options without it. Style "scenario".
        user: Option<String>,
        /// How this check-out must fail; its thread then goes on. Style "scenario".
        error: Option<ExpectedError>,
    },
    /// Checks a connection in.
    CheckIn {
        /// Its label.
        connection: String,
        /// How the operation on it had failed before. Style "scenario".
        error: Option<OperationError>,
    },
    /// Clears the pool.
    Clear {
        /// Whether connections in use are interrupted, too; `None` is as good as `false`.
        interrupt_in_use_connections: Option<bool>,
        /// The service whose part of the pool is cleared, by its name in `server.serviceIds`. Style "scenario".
        service: Option<String>,
    },
    /// Closes the pool.
    Close {},
    /// Makes the pool ready.
    Ready {},
    /// Gives the pool new limits; those left out stay. Style "scenario".
    Resize {
        /// `maxPoolSize`; 0 means no limit.
        max_pool_size: Option<u32>,
        /// `minPoolSize`.
        min_pool_size: Option<u32>,
        /// `maxConnecting`.
        max_connecting: Option<u32>,
        /// `maxWaitQueueDepth`; 0 means no limit.
        max_wait_queue_depth: Option<u32>,
        /// `maxNewConnectionsPerSecond`; 0 means no limit.
        max_new_connections_per_second: Option<u32>,
        /// The option that the error must name, if the limits contradict each other.
        refused: Option<String>,
    },
    /// Lets the pool forget the connection of a key. Style "scenario".
    EndAffinity {
        /// The key.
        key: u64,
    },
    /// Replaces the credential. Style "scenario".
    RenewCredential {
        /// By what; without it by the same one.
        to: Option<NewCredential>,
    },
    /// Retires all connections. Style "scenario".
    ReplaceConnections {
        /// Over how many milliseconds.
        #[serde(rename = "overMS")]
        over_ms: u32,
    },
    /// Waits until as many connections are established. Style "scenario".
    WarmUp {
        /// How many; minPoolSize without it.
        connections: Option<u32>,
        /// Why it ends early, if it does.
        error: Option<WarmUpFailure>,
    },
    /// The machine was suspended, and goes on. Style "scenario".
    Resume {},
    /// Cancels the check-out that a thread waits in. Style "scenario".
    Cancel {
        /// The thread.
        target: String,
    },
    /// The server closes a connection's socket. Style "scenario".
    HangUp {
        /// The connection.
        connection: ConnectionName,
        /// Whether the client sees it at once, instead of when it next uses the socket.
        #[serde(default)]
        noticed: bool,
    },
    /// Changes the network between client and server. Style "scenario".
    Network {
        /// How connecting and sending behave.
        mode: NetworkMode,
        /// How long a round trip takes, in milliseconds; without it that stays as it is.
        #[serde(rename = "latencyMS")]
        latency_ms: Option<u32>,
    },
    /// Sets, or ends, the server's fail point. Style "scenario".
    FailPoint {
        /// The command that does so.
        fail_point: FailPoint,
    },
    /// Compares the pool's figures at this moment with the given ones. Style "scenario".
    AssertCounts {
        /// All connections.
        total: Option<u32>,
        /// Connections that can be checked out at once.
        available: Option<u32>,
        /// Connections that are being established.
        pending: Option<u32>,
        /// Connections that are checked out.
        in_use: Option<u32>,
        /// Check-outs that wait.
        waiting: Option<u32>,
    },
}

impl Operation {
    /// The limits of `resize`, as the pool takes them; `None` for another operation.
    pub fn limits(&self) -> Option<PoolLimits> {
        let Self::Resize {
            max_pool_size,
            min_pool_size,
            max_connecting,
            max_wait_queue_depth,
            max_new_connections_per_second,
            refused: _,
        } = *self
        else {
            return None;
        };
        let mut limits = PoolLimits::default();
        (limits.sizes.max_pool_size, limits.sizes.min_pool_size) = (max_pool_size, min_pool_size);
        limits.sizes.max_connecting = max_connecting;
        limits.max_wait_queue_depth = match max_wait_queue_depth {
            None => NewLimit::AsItIs,
            Some(0) => NewLimit::Unlimited,
            Some(waiters) => NewLimit::At(QueueDepth::Waiters(waiters)),
        };
        limits.max_new_connections_per_second = match max_new_connections_per_second {
            None => NewLimit::AsItIs,
            Some(0) => NewLimit::Unlimited,
            Some(connections) => NewLimit::At(connections),
        };
        Some(limits)
    }
}

/// How a test names a connection.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected a connection's label, or its number, from 1")]
pub enum ConnectionName {
    /// By the label of its check-out.
    Label(String),
    /// By its number in events.
    Id(u32),
}

/// What takes the place of a pool's credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NewCredential {
    /// Nothing: connections do not log in any more.
    Nobody,
    /// One that the server refuses, so nothing changes.
    Refused,
}

/// How an operation on a checked-out connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OperationError {
    /// The socket failed; the connection cannot be used again.
    Network,
    /// The reply did not come in time; it may still come.
    Timeout,
    /// The server refused; the connection is fine.
    Other,
}

/// What the network does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NetworkMode {
    /// It works.
    Up,
    /// New connections are refused.
    Refuse,
    /// Nothing arrives any more, and neither side notices.
    Hang,
    /// Connections are reset.
    Reset,
}

/// A word of style "scenario" that an operation uses.
pub(super) enum Extension {
    /// The operation itself.
    Operation,
    /// One of its fields.
    Field(&'static str),
}

impl Step {
    /// Reads the step that stands at `place`.
    pub(super) fn read(place: &Place, value: Value) -> Result<Self, Problem> {
        let mut fields: Map<String, Value> = read(place, value)?;
        let thread = fields.remove("thread").map(|thread| read(&place.key("thread"), thread)).transpose()?;
        let name: String = match fields.remove("name") {
            Some(name) => read(&place.key("name"), name)?,
            None => return Err(Problem::at(place, "missing field `name`")),
        };
        // With its name in front, and not among its fields, serde can say which of the fields is wrong.
        let operation: Operation = read(place, Value::Object(Map::from_iter([(name, fields.into())])))
            .map_err(|problem| problem.reworded("unknown value", "unknown operation", place))?;
        Ok(Self { operation, thread })
    }
}

/// Why a warm-up ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WarmUpFailure {
    /// A connection could not be established.
    Establish,
    /// The pool was cleared, or is paused.
    PoolCleared,
    /// The pool is closed.
    PoolClosed,
    /// maxPoolSize is smaller.
    MaxPoolSize,
}

impl WarmUpFailure {
    /// The failure that an error tells of; none if files have no name for it.
    pub fn of(error: &WarmUpErrorKind) -> Option<Self> {
        match error {
            WarmUpErrorKind::Establish(_) => Some(Self::Establish),
            WarmUpErrorKind::PoolCleared { .. } => Some(Self::PoolCleared),
            WarmUpErrorKind::PoolClosed => Some(Self::PoolClosed),
            WarmUpErrorKind::BeyondMaxPoolSize { .. } => Some(Self::MaxPoolSize),
            WarmUpErrorKind::GivenUp | _ => None,
        }
    }
}

impl Operation {
    /// As files spell it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Start { .. } => "start",
            Self::Wait { .. } => "wait",
            Self::WaitForThread { .. } => "waitForThread",
            Self::WaitForEvent { .. } => "waitForEvent",
            Self::CheckOut { .. } => "checkOut",
            Self::CheckIn { .. } => "checkIn",
            Self::Clear { .. } => "clear",
            Self::Close {} => "close",
            Self::Ready {} => "ready",
            Self::Resize { .. } => "resize",
            Self::EndAffinity { .. } => "endAffinity",
            Self::RenewCredential { .. } => "renewCredential",
            Self::ReplaceConnections { .. } => "replaceConnections",
            Self::WarmUp { .. } => "warmUp",
            Self::Resume {} => "resume",
            Self::Cancel { .. } => "cancel",
            Self::HangUp { .. } => "hangUp",
            Self::Network { .. } => "network",
            Self::FailPoint { .. } => "failPoint",
            Self::AssertCounts { .. } => "assertCounts",
        }
    }

    /// Where it leaves the official format, if it does.
    pub(super) fn extension(&self) -> Option<Extension> {
        match self {
            Self::CheckOut { timeout_ms: Some(_), .. } => Some(Extension::Field("timeoutMS")),
            Self::CheckOut { affinity: Some(_), .. } => Some(Extension::Field("affinity")),
            Self::CheckOut { user: Some(_), .. } => Some(Extension::Field("user")),
            Self::CheckOut { error: Some(_), .. } | Self::CheckIn { error: Some(_), .. } => {
                Some(Extension::Field("error"))
            }
            Self::Clear { service: Some(_), .. } => Some(Extension::Field("service")),
            Self::Resize { .. }
            | Self::EndAffinity { .. }
            | Self::RenewCredential { .. }
            | Self::ReplaceConnections { .. }
            | Self::WarmUp { .. }
            | Self::Resume {}
            | Self::Cancel { .. }
            | Self::HangUp { .. }
            | Self::Network { .. }
            | Self::FailPoint { .. }
            | Self::AssertCounts { .. } => Some(Extension::Operation),
            Self::Start { .. }
            | Self::Wait { .. }
            | Self::WaitForThread { .. }
            | Self::WaitForEvent { .. }
            | Self::CheckOut { .. }
            | Self::CheckIn { .. }
            | Self::Clear { .. }
            | Self::Close {}
            | Self::Ready {} => None,
        }
    }
}
