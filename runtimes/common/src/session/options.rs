//! The options of a session.

use std::time::Duration;

use bson::Timestamp;
use cmap_core::session::TransactionOptions;

/// What a session does beyond having an id.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SessionOptions {
    /// What its reads see.
    pub consistency: Consistency,
    /// The defaults of its transactions, which come before the client's options.
    pub transactions: TransactionOptions,
    /// How long each commit, each abort and each [`with_transaction`](crate::Session::with_transaction) may take (defaultTimeoutMS,
    /// CSOT-26). Zero means no limit, `None` the client's timeoutMS. Other operations of the session have the client's.
    pub timeout: Option<Duration>,
}

/// What the reads of a session see. A snapshot session is not causally consistent, and has no transactions (SES-16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Consistency {
    /// The session's own earlier writes and reads, on any member (SES-15).
    #[default]
    Causal,
    /// Whatever the member has that serves the read.
    None,
    /// All the same: the data of one time, whatever is written meanwhile. MongoDB 5.0 or later.
    Snapshot {
        /// The time, such as the [`snapshot_time`](crate::Session::snapshot_time) of another session; `None` is that of the
        /// first read.
        at: Option<Timestamp>,
    },
}

impl From<Consistency> for SessionOptions {
    fn from(consistency: Consistency) -> Self {
        Self { consistency, ..Self::default() }
    }
}

impl From<TransactionOptions> for SessionOptions {
    fn from(transactions: TransactionOptions) -> Self {
        Self { transactions, ..Self::default() }
    }
}
