//! The error of an operation: what happened, how often it was tried, and why no more.

use std::fmt;

use cmap_core::batch::{BatchError, WriteResult};
use cmap_core::retry::{GiveUp, Labels, Retry};
use cmap_core::session::TransactionError;
use thiserror::Error;

use super::cursor::CursorError;
use super::{CheckOutError, CommandError, CommandErrorKind, RuntimeGone};
use crate::readable_debug::readable_debug;

/// An operation failed, and was not tried again.
#[derive(Error)]
#[non_exhaustive]
pub struct OperationError {
    /// Why. Of several attempts, the error that says most.
    pub kind: OperationErrorKind,
    /// How often it was tried again.
    pub retries: u32,
    /// Why it was not tried again once more.
    pub gave_up: GiveUp,
    labels: Labels,
    /// What its batches have done before it failed.
    written: Option<Box<WriteResult>>,
}

/// Why an operation failed.
#[derive(Error)]
#[non_exhaustive]
pub enum OperationErrorKind {
    /// There was no connection to a server that suited.
    #[error(transparent)]
    CheckOut(#[from] CheckOutError),
    /// The command failed on its connection.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The command cannot be written as a document; nothing was sent.
    #[error("the command cannot be written as a document: {0}")]
    Unwritable(Box<bson::error::Error>),
    /// A session was asked for, and the server has none (SES-1); nothing was sent.
    #[error("the server has no sessions; run the operation without one")]
    NoSessions,
    /// The session was started by another client; nothing was sent.
    #[error("the session belongs to another client; start one with the client that runs the operation")]
    ForeignSession,
    /// A write with `w: 0`, or another command without a reply, was run in a session (SES-10); nothing was sent.
    #[error("a write with w: 0 cannot be run in a session; set another write concern, or run it without a session")]
    UnacknowledgedInSession,
    /// A write concern has both `w: 0` and `j: true`; nothing was sent.
    #[error("the write concern asks for no reply (w: 0) and for the journal (j: true); remove one of them")]
    UnacknowledgedJournal,
    /// The client was closed while the operation rested before its next attempt; nothing had been sent.
    #[error("the client was closed before the operation was tried again")]
    Closed,
    /// The reply has no cursor, or the cursor cannot go on.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// What was asked of the session's transaction makes no sense; nothing was sent.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// A transaction was repeated until its time was up (TXN-9). Its source is the error of the last attempt, whose labels it has.
    #[error("the transaction could not be committed in its time; allow more time, or let fewer transactions meet")]
    TransactionTimeout(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection was asked for, and the session's transaction keeps it (LB-15). The operation was carried out.
    #[error("the session keeps the connection of its transaction; run further operations in the session")]
    ConnectionOfSession,
    /// Items of a sequence cannot be sent; batches before them were carried out, as [`written`](OperationError::written) says.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Items of a sequence failed, or write concerns were not satisfied; all that is not named was carried out, up to the first error
    /// of an ordered write.
    #[error("{0}")]
    Writes(Box<WriteResult>),
    /// The server is too old for a snapshot session; nothing was sent.
    #[error("Snapshot reads require MongoDB 5.0 or later; use a session without `snapshot`")]
    NoSnapshots,
}

readable_debug!(OperationError, OperationErrorKind);

impl OperationError {
    pub(crate) fn new((kind, labels): (OperationErrorKind, Labels), retries: u32, gave_up: GiveUp) -> Self {
        Self { kind, retries, gave_up, labels, written: None }
    }

    pub(crate) fn unwritable(error: Box<bson::error::Error>) -> Self {
        Self::new((OperationErrorKind::Unwritable(error), Labels::default()), 0, GiveUp::NotRetryable)
    }

    pub(crate) fn foreign_session() -> Self {
        Self::not_sent(OperationErrorKind::ForeignSession)
    }

    pub(crate) fn not_sent(kind: OperationErrorKind) -> Self {
        Self::new((kind, Labels::default()), 0, GiveUp::NotRetryable)
    }

    /// Items failed, or write concerns: `first` is what the first batch with such errors ended in.
    pub(crate) fn of_writes(result: WriteResult, first: Option<Self>) -> Self {
        let (labels, retries, gave_up) = match first {
            Some(first) => (first.labels, first.retries, first.gave_up),
            None => (Labels::default(), 0, GiveUp::NotRetryable),
        };
        Self::new((OperationErrorKind::Writes(Box::new(result)), labels), retries, gave_up)
    }

    /// Batches have done this before.
    pub(crate) fn after(mut self, written: WriteResult) -> Self {
        if written.has_written() || !written.is_complete() {
            self.written = Some(Box::new(written));
        }
        self
    }

    /// What the operation has done as far as is known, and which of its items have failed: `None` if that is nothing, or if it has no
    /// [sequence](crate::Operation::sequence) (BW-14).
    pub fn written(&self) -> Option<&WriteResult> {
        if let OperationErrorKind::Writes(result) = &self.kind { Some(result) } else { self.written.as_deref() }
    }

    /// The client was closed before the attempt that would have been the next.
    pub(crate) fn closed(retry: &Retry) -> Self {
        let retries = retry.retries().saturating_sub(1);
        Self::new((OperationErrorKind::Closed, Labels::default()), retries, GiveUp::NotRetryable)
    }

    /// The client was closed before the first attempt.
    pub(crate) fn closed_before_it_began() -> Self {
        Self::new((OperationErrorKind::Closed, Labels::default()), 0, GiveUp::NotRetryable)
    }

    /// The runtime has dropped the task of the operation.
    pub(crate) fn runtime_gone() -> Self {
        let kind = CheckOutError::RuntimeGone(RuntimeGone).into();
        Self::new((kind, Labels::default()), 0, GiveUp::NotRetryable)
    }

    pub(crate) fn transaction(error: TransactionError) -> Self {
        Self::new((error.into(), Labels::default()), 0, GiveUp::NotRetryable)
    }

    pub(crate) fn transaction_timeout(last: Box<dyn std::error::Error + Send + Sync>, labels: Labels) -> Self {
        Self::new((OperationErrorKind::TransactionTimeout(last), labels), 0, GiveUp::NoTimeLeft)
    }

    pub(crate) fn connection_of_session() -> Self {
        Self::new((OperationErrorKind::ConnectionOfSession, Labels::default()), 0, GiveUp::NotRetryable)
    }

    /// The error before an attempt that did not take place: it was refused, or the client was closed.
    pub(crate) fn of_earlier(earlier: Option<(OperationErrorKind, Labels)>, retry: &Retry) -> Self {
        let error = earlier.unwrap_or((OperationErrorKind::NoSessions, Labels::default()));
        Self::new(error, retry.retries().saturating_sub(1), GiveUp::NotRetryable)
    }

    /// Whether time was up, on either side (CSOT-15).
    pub fn is_timeout(&self) -> bool {
        match &self.kind {
            OperationErrorKind::CheckOut(error) => error.is_timeout(),
            OperationErrorKind::Command(error) => error.is_timeout(),
            OperationErrorKind::Cursor(error) => error.is_timeout(),
            OperationErrorKind::Writes(result) => result.is_timeout(),
            OperationErrorKind::TransactionTimeout(_) => true,
            OperationErrorKind::Batch(_)
            | OperationErrorKind::Unwritable(_)
            | OperationErrorKind::NoSessions
            | OperationErrorKind::ForeignSession
            | OperationErrorKind::UnacknowledgedInSession
            | OperationErrorKind::UnacknowledgedJournal
            | OperationErrorKind::Closed
            | OperationErrorKind::Transaction(_)
            | OperationErrorKind::ConnectionOfSession
            | OperationErrorKind::NoSnapshots => false,
        }
    }

    /// Whether the error has `label`, from the server or from the client (RTY-5).
    pub fn has_label(&self, label: &str) -> bool {
        match &self.kind {
            _ if self.labels.has_named(label) => true,
            OperationErrorKind::Command(error) => error.has_label(label),
            OperationErrorKind::Writes(result) => result.has_label(label),
            OperationErrorKind::CheckOut(_)
            | OperationErrorKind::Batch(_)
            | OperationErrorKind::Unwritable(_)
            | OperationErrorKind::NoSessions
            | OperationErrorKind::ForeignSession
            | OperationErrorKind::UnacknowledgedInSession
            | OperationErrorKind::UnacknowledgedJournal
            | OperationErrorKind::Closed
            | OperationErrorKind::Cursor(_)
            | OperationErrorKind::Transaction(_)
            | OperationErrorKind::TransactionTimeout(_)
            | OperationErrorKind::ConnectionOfSession
            | OperationErrorKind::NoSnapshots => false,
        }
    }

    /// Whether there was no connection, so that nothing was sent in the last attempt.
    pub(crate) fn is_of_check_out(&self) -> bool {
        matches!(self.kind, OperationErrorKind::CheckOut(_))
    }

    /// Whether the server knows nothing of the transaction.
    pub(crate) fn is_no_such_transaction(&self) -> bool {
        const NO_SUCH_TRANSACTION: Option<i32> = Some(251);
        let OperationErrorKind::Command(error) = &self.kind else { return false };
        matches!(&error.kind, CommandErrorKind::Server(refusal) if refusal.code == NO_SUCH_TRANSACTION)
    }

    /// Whether the server took longer than `maxTimeMS` allowed it.
    pub(crate) fn is_max_time_expired(&self) -> bool {
        const MAX_TIME_MS_EXPIRED: Option<i32> = Some(50);
        let OperationErrorKind::Command(error) = &self.kind else { return false };
        let code = if let CommandErrorKind::Server(refusal) = &error.kind {
            refusal.code
        } else if let CommandErrorKind::Writes(failure) = &error.kind {
            failure.write_concern.as_ref().and_then(|concern| concern.code)
        } else {
            None
        };
        code == MAX_TIME_MS_EXPIRED
    }
}

impl From<CursorError> for OperationError {
    fn from(error: CursorError) -> Self {
        Self::new((error.into(), Labels::default()), 0, GiveUp::NotRetryable)
    }
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        match (self.gave_up, self.retries) {
            (GiveUp::RunsOnce(reason), _) => write!(f, "; it was not tried again, because {reason}"),
            (GiveUp::NoTimeLeft, 0) => f.write_str("; there was no time to try again"),
            (_, 0) => Ok(()),
            (_, 1) => f.write_str("; it was tried twice"),
            (_, retries) => write!(f, "; it was tried {} times", retries + 1),
        }
    }
}
