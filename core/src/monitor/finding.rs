//! What a monitor and its server tell each other: the monitor reports findings, the server asks for calls.

use alloc::boxed::Box;

use serde::{Deserialize, Serialize};

use super::description::ServerDescription;
use crate::connection::Fault;
use crate::pool::Cause;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finding {
    /// The server answered: the description that `ServerDescription::of_reply` makes from its reply.
    Description(Box<ServerDescription>),
    /// The check failed.
    Failure {
        /// The side at fault.
        fault: Fault,
        /// The error.
        cause: Cause,
    },
}

/// A call of the monitor that its server asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// An application's error has made the server unknown: a check that fails now is not repeated at once (MON-9), and the
    /// round-trip times begin anew (SDAM-22).
    MarkUnknown,
    /// Check the server soon (MON-3).
    RequestCheck,
    /// Cancel the check that is under way (MON-12).
    CancelCheck,
}
