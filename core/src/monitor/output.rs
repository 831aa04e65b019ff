//! What comes out of a monitor: something to do with its sockets, events, and what the checks found.

use alloc::boxed::Box;

use serde::{Deserialize, Serialize};

use crate::connection::Fault;
use crate::pool::Cause;
use crate::server::{ServerDescription, ServerEvent};

/// One output, in the order in which things happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// Something to do.
    Action(Action),
    /// Something that happened.
    Event(ServerEvent),
    /// What a check found; for the [`Server`](crate::server::Server).
    Found(Finding),
}

/// Something that the driver of a monitor has to do. Exhaustive on purpose, as the pool's actions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Open this socket: TCP or Unix, and TLS. Report the end by `handle_connected` or `handle_failed`. The monitor itself
    /// sees to the time.
    Connect(Socket),
    /// Send what `write_to` gives for this socket.
    Send(Socket),
    /// Close this socket, or give up opening it, without blocking. Each one that was to be opened is closed by this, once,
    /// whatever was reported of it; what is reported later is ignored.
    Close(Socket),
}

/// A socket of a monitor. A number is never used twice by one monitor, and is no number of the pool's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Socket {
    /// What it is for.
    pub role: Role,
    /// From 1, in the order in which they are opened.
    pub number: u64,
}

/// What a socket of a monitor is for. There is one for each at a time, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Checks.
    Check,
    /// Measuring round-trip times while the other awaits replies (MON-10).
    RoundTrip,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finding {
    /// The server answered.
    Description(Box<ServerDescription>),
    /// The check failed.
    Failure {
        /// Whose fault it was.
        fault: Fault,
        /// What happened.
        cause: Cause,
    },
}
