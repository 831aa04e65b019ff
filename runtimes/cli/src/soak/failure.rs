//! What an operation can fail by, and its kind, by which failures are counted.

use core::fmt;

use cmap_core::pool::CheckOutErrorKind;
use cmap_core::topology::SelectionErrorKind;
use cmap_runtime::{CheckOutError, CommandError, CommandErrorKind};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why an operation failed.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// It got no connection.
    #[error(transparent)]
    CheckOut(#[from] CheckOutError),
    /// A command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The reply is not the command's.
    #[error("the reply is not what the command asks for")]
    WrongReply,
}

/// The kind of a [`Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// A check-out: the pool was cleared.
    PoolCleared,
    /// A check-out: its time was up in the wait queue.
    WaitTimeout,
    /// A check-out: the connection that was established for it failed.
    Establish,
    /// A check-out: the server was not usable in time.
    SelectionTimeout,
    /// A check-out: the pool or the client was closed.
    Closed,
    /// A check-out: it was cancelled elsewhere.
    Cancelled,
    /// A check-out: the server is of the wrong version.
    Incompatible,
    /// A command: the connection was lost.
    Network,
    /// A command: no reply in time.
    Timeout,
    /// A command: interrupted, since the monitor timed out.
    Interrupted,
    /// A command: refused by the server, with this code.
    Refused(Option<i32>),
    /// A command: not sent.
    NotSent,
    /// A command: the server broke the protocol.
    Protocol,
    /// A command: cut off by the client's close.
    CutOff,
    /// The reply to another command.
    WrongReply,
    /// The runtime has ended.
    RuntimeGone,
    /// One that this program does not know.
    Unknown,
}

impl Failure {
    /// Its kind.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::CheckOut(error) => of_check_out(error),
            Self::Command(error) => of_command(&error.kind),
            Self::WrongReply => Kind::WrongReply,
        }
    }
}

/// What a server does in a soak that makes operations fail, though the client does nothing wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Surroundings {
    /// Nothing: the server is ours, and it stays.
    #[default]
    Calm,
    /// It may be slow: it is not ours, and what else it does is not known.
    Slow,
    /// It is killed and started again.
    Killed,
}

impl Kind {
    /// Whether it is expected where tasks compete, in these `surroundings`. All others are mistakes.
    pub(crate) fn is_expected(self, surroundings: Surroundings) -> bool {
        match self {
            Self::WaitTimeout => true,
            // A server that is too slow for its monitor becomes unknown: its pool is cleared, its connections are interrupted.
            Self::PoolCleared | Self::Establish | Self::SelectionTimeout | Self::Timeout | Self::Interrupted => {
                surroundings != Surroundings::Calm
            }
            Self::Network => surroundings == Surroundings::Killed,
            Self::Closed
            | Self::Cancelled
            | Self::Incompatible
            | Self::Refused(_)
            | Self::NotSent
            | Self::Protocol
            | Self::CutOff
            | Self::WrongReply
            | Self::RuntimeGone
            | Self::Unknown => false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::PoolCleared => "check-out: pool cleared",
            Self::WaitTimeout => "check-out: timed out",
            Self::Establish => "check-out: connection not established",
            Self::SelectionTimeout => "check-out: server not usable in time",
            Self::Closed => "check-out: client closed",
            Self::Cancelled => "check-out: cancelled",
            Self::Incompatible => "check-out: server incompatible",
            Self::Network => "command: connection lost",
            Self::Timeout => "command: timed out",
            Self::Interrupted => "command: interrupted",
            Self::Refused(Some(code)) => return write!(f, "command: refused with {code}"),
            Self::Refused(None) => "command: refused",
            Self::NotSent => "command: not sent",
            Self::Protocol => "command: protocol broken",
            Self::CutOff => "command: client closed",
            Self::WrongReply => "command: wrong reply",
            Self::RuntimeGone => "runtime gone",
            Self::Unknown => "unknown",
        };
        f.write_str(text)
    }
}

fn of_check_out(error: &CheckOutError) -> Kind {
    match error {
        CheckOutError::Pool(error) => match &error.kind {
            CheckOutErrorKind::PoolCleared { .. } => Kind::PoolCleared,
            CheckOutErrorKind::Timeout(_) => Kind::WaitTimeout,
            CheckOutErrorKind::Establish(_) => Kind::Establish,
            CheckOutErrorKind::PoolClosed => Kind::Closed,
            CheckOutErrorKind::Cancelled => Kind::Cancelled,
            CheckOutErrorKind::WaitQueueFull { .. } | _ => Kind::Unknown,
        },
        CheckOutError::Selection(error) => match &error.kind {
            SelectionErrorKind::Timeout => Kind::SelectionTimeout,
            SelectionErrorKind::Incompatible(_) => Kind::Incompatible,
            SelectionErrorKind::Closed => Kind::Closed,
            SelectionErrorKind::ServerLeft | SelectionErrorKind::Forked | _ => Kind::Unknown,
        },
        CheckOutError::RuntimeGone(_) => Kind::RuntimeGone,
        CheckOutError::NoAffinity | _ => Kind::Unknown,
    }
}

fn of_command(kind: &CommandErrorKind) -> Kind {
    match kind {
        CommandErrorKind::Server(error) => Kind::Refused(error.code),
        CommandErrorKind::Network(_) => Kind::Network,
        CommandErrorKind::Timeout(_) | CommandErrorKind::NoTimeLeft { .. } => Kind::Timeout,
        CommandErrorKind::Interrupted(_) => Kind::Interrupted,
        CommandErrorKind::NotSent(_) => Kind::NotSent,
        CommandErrorKind::Protocol(_) => Kind::Protocol,
        CommandErrorKind::Closed => Kind::CutOff,
        CommandErrorKind::RuntimeGone(_) => Kind::RuntimeGone,
        CommandErrorKind::Writes(_) | CommandErrorKind::Unwritable(_) | _ => Kind::Unknown,
    }
}
