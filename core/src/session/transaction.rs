//! The transaction of a session: the state it is in, what goes along with its commands, and what its errors mean.
//!
//! | state | an operation | start | commit | abort |
//! |---|---|---|---|---|
//! | none | is no part of it | starting | refused | refused |
//! | starting | is its first: in progress | refused | committed, nothing is sent | aborted, nothing is sent |
//! | in progress | is part of it | refused | committed, is sent | aborted, is sent |
//! | committed | is no part of it: none | starting | is sent again, if it was sent | refused |
//! | aborted | is no part of it: none | starting | refused | refused |
//!
//! The state changes when a command is sent, whatever becomes of it (TXN-1). Only a first command that an overloaded server
//! refused, or that never left the client, is the first again (TXN-8).
//!
//! A transaction on a sharded cluster is pinned to the mongos of its first command, and behind a load balancer to its connection
//! (PIN-4, LB-15). The pin is lifted by an abort, by TransientTransactionError, by a commit that ends in
//! UnknownTransactionCommitResult, by a new transaction and by an operation outside of one (PIN-5).

use alloc::borrow::ToOwned;
use core::time::Duration;

use bson::{RawDocument, RawDocumentBuf, Timestamp, cstr};
use thiserror::Error;

use super::transaction_options::TransactionOptions;
use crate::address::ServerAddress;
use crate::connection::Fault;
use crate::options::W;
use crate::retry::{ErrorLabel, Failure, FailureKind, Labels};
use crate::server::write_concern_document;

/// `wtimeout` of a repeated commit that sets none (TXN-7).
const WRITE_CONCERN_TIMEOUT: Duration = Duration::from_secs(10);

/// The code of an operation that took longer than `maxTimeMS`.
const MAX_TIME_MS_EXPIRED: i32 = 50;

/// The longest `recoveryToken` that is kept and sent: the name of a shard takes few bytes.
const MAX_RECOVERY_TOKEN: usize = 4096;

/// Codes of write concerns that no time will satisfy: UnknownReplWriteConcern and UnsatisfiableWriteConcern (TXN-5).
const UNSATISFIABLE: [i32; 2] = [79, 100];

/// How far a transaction is (TXN-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionState {
    /// There is none.
    #[default]
    None,
    /// No command of it was sent.
    Starting,
    /// A command of it was sent.
    InProgress,
    /// It was committed, as far as is known.
    Committed,
    /// It was aborted.
    Aborted,
}

/// A command of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionCommand {
    /// One that reads or writes.
    Operation,
    /// `commitTransaction`.
    Commit,
    /// `abortTransaction`.
    Abort,
}

/// Whether the end of a transaction has to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Ending {
    /// It has to be sent.
    Send,
    /// No command of the transaction was sent, so that the server knows nothing of it (TXN-8).
    Nothing,
}

/// What was asked of a transaction makes no sense in its state, or for any transaction. Nothing was sent, and the state stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// Commit or abort without a transaction.
    #[error("no transaction started; call start_transaction first")]
    NotStarted,
    /// Start during a transaction.
    #[error("transaction already in progress; commit or abort it first")]
    InProgress,
    /// Commit after abort.
    #[error("Cannot call commitTransaction after calling abortTransaction; start another transaction")]
    CommitAfterAbort,
    /// Abort after commit.
    #[error("Cannot call abortTransaction after calling commitTransaction; start another transaction")]
    AbortAfterCommit,
    /// Abort after abort.
    #[error("Cannot call abortTransaction twice; start another transaction")]
    AbortAfterAbort,
    /// The write concern is `w: 0`.
    #[error("transactions do not support unacknowledged write concerns; set a write concern other than w: 0")]
    Unacknowledged,
    /// A snapshot session has no transactions.
    #[error("Transactions are not supported in snapshot sessions; start a session without `snapshot`")]
    InSnapshotSession,
    /// A read with another read preference (TXN-3).
    #[error("read preference in a transaction must be primary; select the server by the primary or as writable")]
    ReadPreference,
    /// A command with a read concern of its own (TXN-2).
    #[error("Cannot set read concern after starting a transaction; set it when the transaction starts")]
    ReadConcern,
    /// An operation with a limit of time of its own, where `with_transaction` has one (CSOT-27).
    #[error(
        "operations in with_transaction have what is left of its limit; leave out their own, or give with_transaction none"
    )]
    OwnLimit,
    /// A command with a write concern of its own.
    #[error("Cannot set write concern after starting a transaction; set it when the transaction starts")]
    WriteConcern,
}

/// The transaction of one session, or its last one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transaction {
    state: TransactionState,
    /// Whether a command of it was sent before its end.
    was_sent: bool,
    options: TransactionOptions,
    pinned_to: Option<ServerAddress>,
    recovery_token: Option<RawDocumentBuf>,
    /// Whether a commit was sent that may have taken effect (TXN-7).
    may_be_committed: bool,
    /// The number of commands that were begun in the session's transactions.
    begun: u64,
}

/// A command of a transaction that was begun. One that was not sent, or that an overloaded server refused, is
/// [taken back](Transaction::take_back).
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a command that was not sent has to be taken back"]
pub struct BegunCommand {
    number: u64,
    is_first: bool,
    pins: bool,
}

impl BegunCommand {
    /// Whether the command starts the transaction at the server.
    pub fn is_first(&self) -> bool {
        self.is_first
    }
}

impl Transaction {
    /// Starts a transaction. The caller raises the session's transaction number (TXN-2).
    ///
    /// # Errors
    /// One has been started, or its write concern is `w: 0`.
    pub fn start(&mut self, options: TransactionOptions) -> Result<(), TransactionError> {
        if self.is_open() {
            return Err(TransactionError::InProgress);
        }
        if options.write_concern.as_ref().is_some_and(|concern| concern.w == Some(W::Members(0))) {
            return Err(TransactionError::Unacknowledged);
        }
        *self = Self { state: TransactionState::Starting, options, begun: self.begun, ..Self::default() };
        Ok(())
    }

    /// How far the transaction has come.
    pub fn state(&self) -> TransactionState {
        self.state
    }

    /// Whether operations of the session are part of it.
    pub fn is_open(&self) -> bool {
        matches!(self.state, TransactionState::Starting | TransactionState::InProgress)
    }

    /// The transaction's options.
    pub fn options(&self) -> &TransactionOptions {
        &self.options
    }

    /// The server that its commands have to go to. `None` if any that suits will do.
    pub fn pinned_to(&self) -> Option<&ServerAddress> {
        self.pinned_to.as_ref()
    }

    /// An operation outside of a transaction begins in the session (PIN-5).
    pub fn leave(&mut self) {
        if !self.is_open() {
            *self = Self { begun: self.begun, ..Self::default() };
        }
    }

    /// The session has ended.
    pub fn unpin(&mut self) {
        self.pinned_to = None;
    }

    /// A command of it is about to be sent. The first one starts the transaction at the server, and binds it to `router`, the mongos or
    /// load balancer that it has got a connection to (PIN-4).
    pub fn begin_command(&mut self, router: Option<&ServerAddress>) -> BegunCommand {
        let is_first = self.state == TransactionState::Starting;
        if is_first {
            (self.state, self.was_sent) = (TransactionState::InProgress, true);
        }
        let router = router.filter(|_| self.is_open() && self.pinned_to.is_none());
        if let Some(router) = router {
            self.pinned_to = Some(router.clone());
        }
        self.begun += 1;
        BegunCommand { number: self.begun, is_first, pins: router.is_some() }
    }

    /// The command was not sent, or an overloaded server refused it. If it was the first, so is the next one, which may go to another
    /// mongos (TXN-8). Where another command was begun since, nothing changes.
    pub fn take_back(&mut self, command: BegunCommand) {
        let BegunCommand { number, is_first, pins } = command;
        if !is_first || number != self.begun || self.state != TransactionState::InProgress {
            return;
        }
        (self.state, self.was_sent) = (TransactionState::Starting, false);
        if pins {
            self.unpin();
        }
    }

    /// Appends what goes along with a command of it (TXN-2). The first one starts it, with the read concern of all of them;
    /// `after` is the time of what a causally consistent session has seen.
    pub fn append_fields(
        &self,
        fields: &mut RawDocumentBuf,
        command: TransactionCommand,
        is_first: bool,
        after: Option<Timestamp>,
    ) {
        if is_first {
            fields.append(cstr!("startTransaction"), true);
            let mut concern = RawDocumentBuf::new();
            if let Some(level) = &self.options.read_concern_level {
                concern.append(cstr!("level"), level.as_str());
            }
            if let Some(after) = after {
                concern.append(cstr!("afterClusterTime"), after);
            }
            if !concern.is_empty() {
                fields.append(cstr!("readConcern"), concern);
            }
        }
        fields.append(cstr!("autocommit"), false);
        if command == TransactionCommand::Operation {
            return;
        }
        if let Some(token) = &self.recovery_token {
            fields.append(cstr!("recoveryToken"), token);
        }
    }

    /// The write concern of the next attempt at its end. `has_timeout`: timeoutMS takes the place of `wtimeout` (CSOT-3).
    pub fn write_concern(&self, command: TransactionCommand, has_timeout: bool) -> Option<RawDocumentBuf> {
        let mut concern = self.options.write_concern.clone().unwrap_or_default();
        if command == TransactionCommand::Commit && self.may_be_committed {
            concern.w = Some(W::Named("majority".into()));
            concern.timeout = Some(concern.timeout.unwrap_or(WRITE_CONCERN_TIMEOUT));
        }
        write_concern_document(&concern, !has_timeout)
    }

    /// Begins its commit. It counts as committed from here on, whatever the server says.
    ///
    /// # Errors
    /// None was started, or it was aborted.
    pub fn commit(&mut self) -> Result<Ending, TransactionError> {
        match self.state {
            TransactionState::None => return Err(TransactionError::NotStarted),
            TransactionState::Aborted => return Err(TransactionError::CommitAfterAbort),
            TransactionState::Starting | TransactionState::InProgress => {}
            TransactionState::Committed => self.may_be_committed = true,
        }
        self.state = TransactionState::Committed;
        Ok(if self.was_sent { Ending::Send } else { Ending::Nothing })
    }

    /// Begins its abort. It counts as aborted from here on, whatever the server says.
    ///
    /// # Errors
    /// None was started, or it was committed or aborted.
    pub fn abort(&mut self) -> Result<Ending, TransactionError> {
        match self.state {
            TransactionState::None => return Err(TransactionError::NotStarted),
            TransactionState::Committed => return Err(TransactionError::AbortAfterCommit),
            TransactionState::Aborted => return Err(TransactionError::AbortAfterAbort),
            TransactionState::Starting | TransactionState::InProgress => {}
        }
        self.state = TransactionState::Aborted;
        if self.was_sent {
            return Ok(Ending::Send);
        }
        self.unpin();
        Ok(Ending::Nothing)
    }

    /// Notes what a reply to one of the transaction's commands says. A mongos names where the transaction can be ended (PIN-7).
    pub fn handle_reply(&mut self, reply: &RawDocument) {
        if let Ok(token) = reply.get_document("recoveryToken")
            && token.as_bytes().len() <= MAX_RECOVERY_TOKEN
        {
            self.recovery_token = Some(token.to_owned());
        }
    }

    /// One of its commands has ended without an error.
    pub fn handle_success(&mut self, command: TransactionCommand) {
        match command {
            // PIN-6: a commit may be repeated.
            TransactionCommand::Operation | TransactionCommand::Commit => {}
            TransactionCommand::Abort => self.unpin(),
        }
    }

    /// An attempt at one of its commands has failed, with `labels` (PIN-5, TXN-7).
    pub fn handle_failure(&mut self, command: TransactionCommand, failure: &Failure, labels: Labels) {
        let unpins = match command {
            TransactionCommand::Operation => labels.has(ErrorLabel::TransientTransactionError),
            TransactionCommand::Abort => true,
            TransactionCommand::Commit => {
                self.may_be_committed |= !failure.is_overload();
                labels.has(ErrorLabel::TransientTransactionError)
                    || labels.has(ErrorLabel::UnknownTransactionCommitResult)
            }
        };
        if unpins {
            self.unpin();
        }
    }
}

impl TransactionCommand {
    /// The labels of a failure, with those that the client itself gives: TransientTransactionError where the whole transaction
    /// may be repeated (TXN-4), UnknownTransactionCommitResult where the commit may be (TXN-5).
    #[must_use]
    pub fn labels(self, failure: &Failure, labels: Labels) -> Labels {
        let is_of_network = match failure.kind {
            FailureKind::Selection | FailureKind::NotSentInTime | FailureKind::PoolCleared | FailureKind::Network => {
                true
            }
            FailureKind::Establish(fault) => matches!(fault, Fault::Network | Fault::Timeout),
            FailureKind::Client | FailureKind::Server { .. } | FailureKind::WriteConcern { .. } => false,
        };
        match self {
            Self::Operation | Self::Abort if is_of_network => labels.with(ErrorLabel::TransientTransactionError),
            Self::Operation | Self::Abort => labels,
            Self::Commit if is_of_network || may_have_committed(failure, labels) => {
                labels.with(ErrorLabel::UnknownTransactionCommitResult)
            }
            Self::Commit => labels,
        }
    }
}

/// Whether a server's error leaves open what became of a commit.
fn may_have_committed(failure: &Failure, labels: Labels) -> bool {
    match failure.kind {
        FailureKind::WriteConcern { code } => !code.is_some_and(|code| UNSATISFIABLE.contains(&code)),
        FailureKind::Server { code: Some(MAX_TIME_MS_EXPIRED) } => true,
        FailureKind::Server { .. } | FailureKind::Establish(_) => labels.has(ErrorLabel::RetryableWriteError),
        FailureKind::Selection
        | FailureKind::NotSentInTime
        | FailureKind::PoolCleared
        | FailureKind::Network
        | FailureKind::Client => false,
    }
}

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod tests;
