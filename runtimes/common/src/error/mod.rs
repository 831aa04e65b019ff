//! Errors by operation: making a client, checking out a connection, running a command.
//!
//! Each error says in one sentence what happened, where, why, and what to do next. Its source, if it has one, is what the
//! sentence leaves out. `Debug` is the same for people, because `main` prints it. [`Error`] is any of them, for code that does
//! not distinguish them.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the errors of clients, check-outs and commands, and any of them |
//! | `operation` | the error of an operation, with its retries |
//! | `cursor` | why a cursor cannot be made or go on |
//! | `questions` | what code asks of an error |

mod cursor;
mod operation;
mod questions;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{CommandError as NotSent, EstablishError, Fault, ProtocolError, RETRYABLE_ERROR};
use cmap_core::options::{ConnectionStringError, CredentialError};
use cmap_core::pool::{self, CheckOutErrorKind, ConnectionId};
use cmap_core::topology::seed_list::SeedListError;
use cmap_core::topology::{self, SelectionError, SelectionErrorKind};
use cmap_core::wire::{ServerError, WriteFailure};
use thiserror::Error;

pub use self::cursor::CursorError;
pub use self::operation::{OperationError, OperationErrorKind};
use crate::document::ParseError;
use crate::readable_debug::readable_debug;
pub use crate::runtime::RuntimeGone;
use crate::time::TimeLimit;
#[cfg(feature = "__rustls")]
use crate::tls::TlsConfigError;

/// Any error of a client.
#[derive(Error)]
#[non_exhaustive]
pub enum Error {
    /// Making a client failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A check-out failed.
    #[error(transparent)]
    CheckOut(#[from] CheckOutError),
    /// A command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// An operation failed.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// A reply is not what was expected.
    #[error(transparent)]
    Parse(#[from] ParseError),
}

/// Why no client was made. The caller has to correct its input.
#[derive(Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection string or the options cannot be used.
    #[error(transparent)]
    Options(#[from] ConnectionStringError),
    /// DNS has no servers for a `mongodb+srv` connection string, or none that can be used.
    #[error(transparent)]
    SeedList(#[from] SeedListError),
    /// The files or texts for TLS cannot be used.
    #[cfg(feature = "__rustls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// An option asks for a feature that this version does not have.
    #[error("{option} is not supported yet: {remedy}")]
    Unsupported {
        /// The option, or the feature that the hosts ask for.
        option: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// The options ask for what this build was made without.
    #[error(
        "the options ask for {what}, and this build has none: enable the feature `{feature}` of the cmap crate that you use"
    )]
    NotBuiltIn {
        /// What is missing.
        what: &'static str,
        /// The feature that has it.
        feature: &'static str,
    },
    /// The system has no random bits, of which the id of a session is made.
    #[error("the system gives no random bits, of which the id of a session is made; see why its source of them fails")]
    NoRandomBits,
    /// There is no runtime to live in.
    #[error(transparent)]
    RuntimeGone(#[from] RuntimeGone),
}

/// Why the credential was not replaced. The old one is still used.
#[derive(Error)]
#[non_exhaustive]
pub enum RotationError {
    /// The credential is incomplete or contradicts itself.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// This build, or this version, cannot log in by the credential's mechanism.
    #[error(transparent)]
    Mechanism(#[from] ClientError),
    /// A connection with the new credential could not be established.
    #[error("{error} ({address}); the client goes on with the old credential: correct the new one, and set it again")]
    Refused {
        /// The server that was asked.
        address: Arc<ServerAddress>,
        /// What failed.
        error: EstablishError,
    },
    /// No server answered to which it could have been proven.
    #[error(
        "no server could be asked within {patience:?}; the client goes on with the old credential: set the new one again \
         when a server is there"
    )]
    NoServer {
        /// How long one was waited for.
        patience: Duration,
    },
    /// The client was closed.
    #[error("the client was closed; make a new one with the new credential")]
    Closed,
    /// The client's runtime has ended.
    #[error(transparent)]
    RuntimeGone(#[from] RuntimeGone),
}

/// Why a warm-up has not reached its goal.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum WarmUpError {
    /// No server was there to warm up, or one of them lacks connections: which, how many, and why.
    #[error(transparent)]
    Unreached(#[from] topology::WarmUpError),
    /// The client's runtime has ended.
    #[error(transparent)]
    RuntimeGone(#[from] RuntimeGone),
}

/// Why a check-out got no connection.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum CheckOutError {
    /// The pool had no connection to give: why, where, after how long, and the state of the pool.
    #[error(transparent)]
    Pool(#[from] Arc<pool::CheckOutError>),
    /// No server suited, for as long as serverSelectionTimeoutMS allows: what was wanted, what is known, after how long.
    #[error(transparent)]
    Selection(#[from] Arc<SelectionError>),
    /// The check-out was for the connection of a key, and no key has one.
    #[error(
        "a check-out with an affinity needs the option affinity, which is not set: set `affinity` in the pool options"
    )]
    NoAffinity,
    /// The client's runtime has ended.
    #[error(transparent)]
    RuntimeGone(#[from] RuntimeGone),
}

/// A command failed: why, on which connection of which server.
#[derive(Error)]
#[error("{kind} ({address}, connection {connection_id})")]
#[non_exhaustive]
pub struct CommandError {
    /// Why.
    pub kind: CommandErrorKind,
    /// The server.
    pub address: Arc<ServerAddress>,
    /// The connection's number in events.
    pub connection_id: ConnectionId,
}

/// Why a command failed. After all but [`NotSent`](Self::NotSent), [`NoTimeLeft`](Self::NoTimeLeft),
/// [`Unwritable`](Self::Unwritable), [`Server`](Self::Server) and [`Writes`](Self::Writes) the connection is broken, and
/// closed when it comes back.
#[derive(Error)]
#[non_exhaustive]
pub enum CommandErrorKind {
    /// The server refused the command, in its own words.
    #[error("the server refused the command: {0}")]
    Server(Box<ServerError>),
    /// Single writes failed, or the write concern was not satisfied; the rest of the command was carried out.
    #[error("{0}")]
    Writes(Box<WriteFailure>),
    /// Reading or writing failed, or the server hung up. Whether the command was carried out is unknown.
    #[error(
        "the connection was lost: {0}; the command may have been carried out: check out another connection, and repeat only \
         what may be done twice"
    )]
    Network(io::Error),
    /// There was no reply in time. Whether the command was carried out is unknown.
    #[error(
        "no reply within {0}; the command may have been carried out: allow more time, and repeat only what may be done twice"
    )]
    Timeout(TimeLimit),
    /// The time left for the operation is too short for a round trip to the server; nothing was sent (CSOT-10).
    #[error("nothing was sent: a round trip takes {round_trip:?}, and the time for it was {left}; allow more time")]
    NoTimeLeft {
        /// The time that was left.
        left: TimeLimit,
        /// The shortest recent round trip.
        round_trip: Duration,
    },
    /// The server's monitor ran into a timeout, so its connections were interrupted (CMAP-41). Try again.
    #[error("Connection to {0} interrupted due to server monitor timeout")]
    Interrupted(Arc<ServerAddress>),
    /// The command cannot be sent; nothing was.
    #[error("the command was not sent: {0}")]
    NotSent(NotSent),
    /// The command cannot be written as a document; nothing was sent.
    #[error("the command cannot be written as a document: {0}")]
    Unwritable(Box<bson::error::Error>),
    /// The data received is not a reply to the command.
    #[error("the server broke the protocol: {0}")]
    Protocol(ProtocolError),
    /// The server wanted another login on the open connection (code 391), which failed (OIDC-1). The command was not carried out.
    #[error("the server wanted another login (391): {0}")]
    Reauthentication(Box<EstablishError>),
    /// The client was closed, and the time it gave its connections is over.
    #[error("the client was closed before the reply came")]
    Closed,
    /// The client's runtime has ended.
    #[error(transparent)]
    RuntimeGone(#[from] RuntimeGone),
}

impl CommandErrorKind {
    /// The side at fault, where the command had been sent and the server has not refused it.
    pub(crate) fn fault(&self) -> Option<Fault> {
        match self {
            Self::Network(_) => Some(Fault::Network),
            Self::Timeout(_) => Some(Fault::Timeout),
            Self::Protocol(_) => Some(Fault::Other),
            Self::Server(_)
            | Self::Writes(_)
            | Self::NoTimeLeft { .. }
            | Self::Interrupted(_)
            | Self::NotSent(_)
            | Self::Unwritable(_)
            | Self::Reauthentication(_)
            | Self::Closed
            | Self::RuntimeGone(_) => None,
        }
    }
}

readable_debug!(Error, ClientError, RotationError, WarmUpError, CheckOutError, CommandError, CommandErrorKind);

impl CheckOutError {
    /// Whether time was up: the wait queue's, server selection's, or the caller's own (CSOT-15).
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Pool(error) => matches!(error.kind, CheckOutErrorKind::Timeout(_)),
            Self::Selection(error) => error.kind == SelectionErrorKind::Timeout,
            Self::NoAffinity | Self::RuntimeGone(_) => false,
        }
    }

    /// Whether the error carries this label: `SystemOverloadedError` or `RetryableError` after the refusal of an overloaded server
    /// (CMAP-50) and where too many waited, or one that a server has put on a refused login.
    pub fn has_label(&self, label: &str) -> bool {
        match self {
            Self::Pool(error) => error.has_label(label),
            Self::Selection(error) => error.has_label(label),
            Self::NoAffinity | Self::RuntimeGone(_) => false,
        }
    }

    /// Whether a retry makes sense: after a clear (CMAP-55), after the refusal of an overloaded server (CMAP-50), and where too many
    /// waited.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Pool(error) => error.is_retryable(),
            Self::Selection(error) => error.has_label(RETRYABLE_ERROR),
            Self::NoAffinity | Self::RuntimeGone(_) => false,
        }
    }
}

impl CommandError {
    /// Whether a command that may safely run twice can be retried on another connection.
    pub fn is_retryable(&self) -> bool {
        match &self.kind {
            CommandErrorKind::Interrupted(_) | CommandErrorKind::Network(_) => true,
            CommandErrorKind::Server(_) | CommandErrorKind::Writes(_) => self.has_label(RETRYABLE_ERROR),
            CommandErrorKind::Reauthentication(_)
            | CommandErrorKind::Timeout(_)
            | CommandErrorKind::NoTimeLeft { .. }
            | CommandErrorKind::NotSent(_)
            | CommandErrorKind::Unwritable(_)
            | CommandErrorKind::Protocol(_)
            | CommandErrorKind::Closed
            | CommandErrorKind::RuntimeGone(_) => false,
        }
    }

    /// Whether time was up, on either side (CSOT-15).
    pub fn is_timeout(&self) -> bool {
        match &self.kind {
            CommandErrorKind::Timeout(_) | CommandErrorKind::NoTimeLeft { .. } => true,
            CommandErrorKind::Server(error) => error.is_timeout(),
            CommandErrorKind::Writes(failure) => failure.is_timeout(),
            CommandErrorKind::Reauthentication(error) => error.fault == Fault::Timeout,
            CommandErrorKind::Network(_)
            | CommandErrorKind::Interrupted(_)
            | CommandErrorKind::NotSent(_)
            | CommandErrorKind::Unwritable(_)
            | CommandErrorKind::Protocol(_)
            | CommandErrorKind::Closed
            | CommandErrorKind::RuntimeGone(_) => false,
        }
    }

    /// Whether the server put `label` on its error.
    pub fn has_label(&self, label: &str) -> bool {
        match &self.kind {
            CommandErrorKind::Server(error) => error.labels.iter().any(|own| own == label),
            CommandErrorKind::Writes(failure) => failure.has_label(label),
            CommandErrorKind::Reauthentication(error) => error.has_label(label),
            CommandErrorKind::Network(_)
            | CommandErrorKind::Timeout(_)
            | CommandErrorKind::NoTimeLeft { .. }
            | CommandErrorKind::Interrupted(_)
            | CommandErrorKind::NotSent(_)
            | CommandErrorKind::Unwritable(_)
            | CommandErrorKind::Protocol(_)
            | CommandErrorKind::Closed
            | CommandErrorKind::RuntimeGone(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_out_says_what_was_left_and_that_the_command_may_have_been_carried_out() {
        let left = TimeLimit::Operation(Duration::from_millis(100));

        assert_eq!(
            CommandErrorKind::Timeout(left).to_string(),
            "no reply within 100ms (left of timeoutMS); the command may have been carried out: allow more time, and repeat \
             only what may be done twice"
        );
    }

    #[test]
    fn an_error_is_small_enough_to_be_returned_by_value() {
        // From 128 bytes on, clippy warns every user whose function returns it (`result_large_err`).
        assert!(size_of::<Error>() < 128);
        assert!(size_of::<CommandError>() < 128);
    }
}
