//! What an error says about repeating the operation: where it arose, its code, and its labels (RTY-3, RTY-5, RTY-6).
//!
//! These codes are not those by which a server's state is judged (`server/operation_error.rs`): some of either table are
//! not in the other.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::connection::{Fault, RETRYABLE_ERROR, SYSTEM_OVERLOADED_ERROR};

/// Codes after which a read may be repeated (RTY-3).
pub const READ_CODES: [i32; 13] = [6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];

/// Codes after which a write may be repeated that a server older than MongoDB 4.4 refused: those of reads, without
/// ReadConcernMajorityNotAvailableYet (RTY-6).
pub const WRITE_CODES: [i32; 12] = [6, 7, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];

/// The wire version of MongoDB 4.4, whose servers label their errors themselves.
pub(crate) const LABELS_ITS_ERRORS: i32 = 9;

/// The code and the beginning of the message with which servers refuse transaction numbers (RTY-12).
const NO_TRANSACTION_NUMBERS: (i32, &str) = (20, "Transaction numbers");

/// The failure of one attempt at an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// Where the failure arose.
    pub kind: FailureKind,
    /// The error labels.
    pub labels: Labels,
    /// `baseBackoffMS`: the pause that an overloaded server asks for, to be doubled with each retry. `None` is the default.
    pub base_backoff: Option<Duration>,
}

/// Where a failure arose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// No server suited.
    Selection,
    /// The pool was cleared, or is paused (CMAP-28).
    PoolCleared,
    /// A connection could not be established.
    Establish(Fault),
    /// Time was up before the command was sent: no connection was free, or none was left for a round trip.
    NotSentInTime,
    /// In the client: the command cannot be written, the client is closed.
    Client,
    /// The connection was lost, or there was no reply in time, or none that can be used. The command may have been carried out.
    Network,
    /// The server replied with an error.
    Server {
        /// Its code.
        code: Option<i32>,
    },
    /// The server could not satisfy the write concern. It has carried out the writes.
    WriteConcern {
        /// Its code.
        code: Option<i32>,
    },
}

/// The labels that decide about a retry, of an operation or of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum ErrorLabel {
    /// The server has more to do than it can.
    SystemOverloadedError = 1,
    /// The operation did nothing and may be repeated, whatever it is.
    RetryableError = 2,
    /// A write may be repeated with the same transaction number.
    RetryableWriteError = 4,
    /// The attempt wrote nothing.
    NoWritesPerformed = 8,
    /// The whole transaction may be repeated.
    TransientTransactionError = 16,
    /// The commit of a transaction may be repeated.
    UnknownTransactionCommitResult = 32,
}

/// A set of [`ErrorLabel`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(u8);

impl Failure {
    /// A failure without labels.
    pub fn new(kind: FailureKind) -> Self {
        Self { kind, labels: Labels::default(), base_backoff: None }
    }

    /// Sets the labels of its error.
    #[must_use]
    pub fn with_labels(mut self, labels: Labels) -> Self {
        self.labels = labels;
        self
    }

    /// Sets the pause that the server asks for. Zero is none (BP-3).
    #[must_use]
    pub fn with_base_backoff(mut self, base_backoff: Option<Duration>) -> Self {
        self.base_backoff = base_backoff.filter(|base| !base.is_zero());
        self
    }

    /// Whether an overloaded server is the cause.
    pub fn is_overload(&self) -> bool {
        self.labels.has(ErrorLabel::SystemOverloadedError)
    }

    /// Whether any operation may be repeated, since the server refused it unseen (BP-9).
    pub fn is_retryable_overload(&self) -> bool {
        self.is_overload() && self.labels.has(ErrorLabel::RetryableError)
    }

    /// Whether a read may be repeated (RTY-3).
    pub fn is_retryable_read(&self) -> bool {
        match self.kind {
            FailureKind::Network | FailureKind::PoolCleared => true,
            FailureKind::Establish(Fault::Network | Fault::Timeout) => true,
            FailureKind::Establish(Fault::Server { code }) | FailureKind::Server { code } => {
                code.is_some_and(|code| READ_CODES.contains(&code))
            }
            FailureKind::Selection
            | FailureKind::NotSentInTime
            | FailureKind::Client
            | FailureKind::Establish(Fault::Other)
            | FailureKind::WriteConcern { .. } => false,
        }
    }

    /// Whether a write with a transaction number may be repeated (RTY-5, RTY-6). `labels_itself`: the server is of version 4.4
    /// or newer; `is_mongos`: it is one.
    pub fn is_retryable_write(&self, labels_itself: bool, is_mongos: bool) -> bool {
        let is_listed = |code: Option<i32>| code.is_some_and(|code| WRITE_CODES.contains(&code));
        self.labels.has(ErrorLabel::RetryableWriteError)
            || match self.kind {
                FailureKind::Network | FailureKind::PoolCleared => true,
                FailureKind::Establish(Fault::Network | Fault::Timeout) => true,
                FailureKind::Establish(Fault::Server { code }) => is_listed(code),
                FailureKind::Server { code } => !labels_itself && is_listed(code),
                FailureKind::WriteConcern { code } => !labels_itself && !is_mongos && is_listed(code),
                FailureKind::Selection
                | FailureKind::NotSentInTime
                | FailureKind::Client
                | FailureKind::Establish(Fault::Other) => false,
            }
    }

    /// Whether the command had been sent, or part of it.
    pub fn is_of_sent_command(&self) -> bool {
        match self.kind {
            FailureKind::Network | FailureKind::Server { .. } | FailureKind::WriteConcern { .. } => true,
            FailureKind::Selection
            | FailureKind::NotSentInTime
            | FailureKind::PoolCleared
            | FailureKind::Establish(_)
            | FailureKind::Client => false,
        }
    }
}

/// Whether a server's error says that it has no transaction numbers, and with them no retryable writes (RTY-12).
pub fn refuses_transaction_numbers(code: Option<i32>, message: &str) -> bool {
    let (refusal, beginning) = NO_TRANSACTION_NUMBERS;
    code == Some(refusal) && message.starts_with(beginning)
}

/// The text for a server without transactions, instead of that server's words about transaction numbers.
pub const NO_TRANSACTIONS: &str = "transactions need a replica set or a sharded cluster, and this server stands alone: to try them with one server, start it with --replSet and run rs.initiate()";

/// The text for a server without retryable writes, outside of transactions (RTY-12).
pub const NO_RETRYABLE_WRITES: &str = "This MongoDB deployment does not support retryable writes. Please add retryWrites=false to your connection string.";

impl ErrorLabel {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::SystemOverloadedError,
        Self::RetryableError,
        Self::RetryableWriteError,
        Self::NoWritesPerformed,
        Self::TransientTransactionError,
        Self::UnknownTransactionCommitResult,
    ];

    /// The label as it stands in `errorLabels`.
    pub fn name(self) -> &'static str {
        match self {
            Self::SystemOverloadedError => SYSTEM_OVERLOADED_ERROR,
            Self::RetryableError => RETRYABLE_ERROR,
            Self::RetryableWriteError => "RetryableWriteError",
            Self::NoWritesPerformed => "NoWritesPerformed",
            Self::TransientTransactionError => "TransientTransactionError",
            Self::UnknownTransactionCommitResult => "UnknownTransactionCommitResult",
        }
    }
}

impl Labels {
    /// The labels of an error: those for which `has` returns true.
    pub fn of(has: impl Fn(&str) -> bool) -> Self {
        ErrorLabel::ALL.into_iter().filter(|label| has(label.name())).collect()
    }

    /// Whether the label of this name is one of them.
    pub fn has_named(self, name: &str) -> bool {
        ErrorLabel::ALL.into_iter().any(|label| self.has(label) && label.name() == name)
    }

    /// Adds `label`.
    #[must_use]
    pub fn with(self, label: ErrorLabel) -> Self {
        Self(self.0 | label as u8)
    }

    /// Whether `label` is one of them.
    pub fn has(self, label: ErrorLabel) -> bool {
        self.0 & label as u8 != 0
    }
}

impl FromIterator<ErrorLabel> for Labels {
    fn from_iter<T: IntoIterator<Item = ErrorLabel>>(labels: T) -> Self {
        Self(labels.into_iter().fold(0, |set, label| set | label as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: i32) -> Failure {
        Failure::new(FailureKind::Server { code: Some(code) })
    }

    #[test]
    fn a_read_is_repeated_after_a_network_error_and_codes_of_the_table_rty_3() {
        for kind in [
            FailureKind::Network,
            FailureKind::PoolCleared,
            FailureKind::Establish(Fault::Timeout),
            FailureKind::Establish(Fault::Server { code: Some(91) }),
            FailureKind::Server { code: Some(134) },
        ] {
            assert!(Failure::new(kind).is_retryable_read(), "{kind:?}");
        }
        for kind in [
            FailureKind::Selection,
            FailureKind::Client,
            FailureKind::Establish(Fault::Other),
            FailureKind::Establish(Fault::Server { code: Some(18) }),
            FailureKind::Server { code: Some(11000) },
            FailureKind::Server { code: None },
        ] {
            assert!(!Failure::new(kind).is_retryable_read(), "{kind:?}");
        }
    }

    #[test]
    fn legacy_not_primary_is_a_state_change_but_not_retryable_x_52() {
        assert!(!server(10058).is_retryable_read());
        assert!(crate::server::StateChange::of(Some(10058), "").is_some());
        assert!(server(89).is_retryable_read());
        assert!(crate::server::StateChange::of(Some(89), "").is_none());
    }

    #[test]
    fn the_label_of_a_server_decides_about_a_write_and_not_its_code_rty_5() {
        let labelled = server(5).with_labels(Labels::from_iter([ErrorLabel::RetryableWriteError]));

        assert!(labelled.is_retryable_write(true, false));
        assert!(!server(91).is_retryable_write(true, false));
    }

    #[test]
    fn an_old_server_s_code_stands_for_the_label_rty_6() {
        let concern = Failure::new(FailureKind::WriteConcern { code: Some(91) });

        assert!(server(91).is_retryable_write(false, false));
        assert!(!server(134).is_retryable_write(false, false));
        assert!(concern.is_retryable_write(false, false));
        assert!(!concern.is_retryable_write(false, true), "a mongos has tried again itself");
    }

    #[test]
    fn a_server_without_retryable_writes_is_recognised_rty_12() {
        assert!(refuses_transaction_numbers(Some(20), "Transaction numbers are only allowed on .."));
        assert!(!refuses_transaction_numbers(Some(20), "illegal operation"));
        assert!(!refuses_transaction_numbers(None, "Transaction numbers are only allowed on .."));
    }

    #[test]
    fn labels_are_known_by_their_names() {
        let labels = Labels::of(|name| name == "NoWritesPerformed" || name == "SystemOverloadedError");

        assert!(labels.has(ErrorLabel::NoWritesPerformed) && labels.has(ErrorLabel::SystemOverloadedError));
        assert!(!labels.has(ErrorLabel::RetryableError) && !labels.has(ErrorLabel::RetryableWriteError));
    }
}
