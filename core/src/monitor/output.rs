//! Outputs of a monitor: actions for its sockets, events, and the findings of checks.

use serde::{Deserialize, Serialize};

use super::event::HeartbeatEvent;
use super::finding::Finding;
use crate::time::Instant;

/// One output, in the order in which things happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// Something to do.
    Action(Action),
    /// An event, for the topology's `handle_heartbeat`.
    Event(HeartbeatEvent),
    /// The result of a check, for the topology's `handle_check`: a description is made by `ServerDescription::of_reply`.
    Found(Finding),
}

/// An instruction to the driver of a monitor. Exhaustive on purpose, as the pool's actions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Open this socket: TCP or Unix, and TLS. Report the end by `handle_connected` or `handle_failed`. The monitor
    /// itself keeps the time limit.
    Connect(Socket),
    /// Send the bytes that `write_to` gives for this socket.
    Send(Socket),
    /// Close this socket, or give up opening it, without blocking. Each socket that was to be opened is closed by this
    /// action, once, whatever was reported of it; later reports are ignored.
    Close(Socket),
}

/// A socket of a monitor. One monitor never uses a number twice. The numbers are not those of the pool's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Socket {
    /// Its purpose.
    pub role: Role,
    /// From 1, in the order in which they are opened.
    pub number: u64,
}

/// The purpose of a socket of a monitor. There is at most one for each at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Checks.
    Check,
    /// Measuring round-trip times while the other awaits replies (MON-10).
    RoundTrip,
}

/// When to call `handle_timeout`, and why. Calling earlier is harmless; calling later delays what is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Timeout {
    /// When to call.
    pub at: Instant,
    /// Why the monitor has to be called then.
    pub reason: TimeoutReason,
}

/// Why a monitor has to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TimeoutReason {
    /// When outputs wait to be drained: at once.
    Outputs,
    /// When the next check, or the next measurement, begins.
    Heartbeat,
    /// When the server's time to answer is over.
    Read,
}
