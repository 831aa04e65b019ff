//! Which commands may be sent a second time, as their documents show (RTY-2, RTY-4).
//!
//! A read may, since it changes nothing. A write may if a transaction number lets the server recognise the repetition, which
//! servers offer for writes of single documents. Any other command is repeated only if an overloaded server refused it
//! before it did anything (BP-9).

use serde::{Deserialize, Serialize};
use thiserror::Error;

#[cfg(feature = "wire")]
use crate::connection::{ClientField, Effect, Outline};

/// Whether a command may be sent again after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retryability {
    /// The command reads.
    Read,
    /// The command writes single documents: a server carries it out once for each transaction number.
    Write,
    /// Only if an overloaded server refused it (BP-9).
    OverloadOnly {
        /// The option that allows this.
        option: RetryOption,
        /// Why no other error lets it be repeated.
        reason: OnceReason,
    },
}

/// The option of a client that allows retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetryOption {
    /// `retryReads`.
    Reads,
    /// `retryWrites`.
    Writes,
    /// Both of them: the client does not know what the command does (BP-2).
    Both,
}

/// Why an operation runs once, unless an overloaded server refused it. It displays as the reason in a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum OnceReason {
    /// One of its updates or deletes may concern several documents.
    #[error("it may write several documents")]
    SeveralDocuments,
    /// Its write concern is `w: 0`, or it wants no reply.
    #[error("its write is not acknowledged")]
    Unacknowledged,
    /// It goes on with a cursor, which a repetition would move twice.
    #[error("a repeated getMore would skip documents")]
    GetMore,
    /// It writes the result of an aggregation or of a mapReduce.
    #[error("it writes its result to a collection")]
    Output,
    /// It is part of a transaction, which is repeated as a whole.
    #[error("it is part of a transaction, which has to be repeated as a whole")]
    InTransaction,
    /// It is no command that the specification allows to repeat.
    #[error("commands of this name are not repeated")]
    OtherCommand,
    /// Its server, such as a standalone, has no transaction numbers.
    #[error("the server has no retryable writes")]
    NotSupported,
    /// Its caller wants no retries.
    #[error("its caller wants no retries")]
    Unwanted,
}

#[cfg(feature = "wire")]
impl Retryability {
    /// Decides by a command's fields and sequences how often it may be sent. `acknowledged` says whether it wants a reply and its write
    /// concern is not `w: 0`.
    pub fn of_command(command: &Outline<'_>, acknowledged: bool) -> Self {
        let option = match command.effect() {
            Effect::Reads | Effect::ReadsOnce => RetryOption::Reads,
            Effect::WritesDocuments(_) | Effect::WritesResult | Effect::Writes => RetryOption::Writes,
            Effect::Unknown => RetryOption::Both,
        };
        let once = |reason| Self::OverloadOnly { option, reason };
        match command.effect() {
            _ if command.has(ClientField::Autocommit) => once(OnceReason::InTransaction),
            _ if option == RetryOption::Writes && !acknowledged => once(OnceReason::Unacknowledged),
            Effect::Reads => Self::Read,
            Effect::ReadsOnce if command.name == "getMore" => once(OnceReason::GetMore),
            Effect::WritesResult => once(OnceReason::Output),
            Effect::WritesDocuments(Some(items)) if command.concerns_several(items) => {
                once(OnceReason::SeveralDocuments)
            }
            Effect::WritesDocuments(_) => Self::Write,
            Effect::ReadsOnce | Effect::Writes | Effect::Unknown => once(OnceReason::OtherCommand),
        }
    }
}

impl Retryability {
    /// Whether the command is known to read. The errors of any other are reported as those of a write (BP-11).
    pub(super) fn reads(self) -> bool {
        match self {
            Self::Read | Self::OverloadOnly { option: RetryOption::Reads, .. } => true,
            Self::Write | Self::OverloadOnly { option: RetryOption::Writes | RetryOption::Both, .. } => false,
        }
    }

    /// Whether the command is known to write, so that errors of single writes fail it.
    pub fn writes(self) -> bool {
        match self {
            Self::Write | Self::OverloadOnly { option: RetryOption::Writes, .. } => true,
            Self::Read | Self::OverloadOnly { option: RetryOption::Reads | RetryOption::Both, .. } => false,
        }
    }

    /// How the command is retried for a caller that wants it to run once: as for the helpers that run any command (RTY-2).
    #[must_use]
    pub fn once(self) -> Self {
        let option = match self {
            Self::OverloadOnly { .. } => return self,
            Self::Read | Self::Write => RetryOption::Both,
        };
        Self::OverloadOnly { option, reason: OnceReason::Unwanted }
    }

    /// How the command is retried as part of a transaction (TXN-6).
    #[must_use]
    pub fn in_transaction(self) -> Self {
        let option = match self {
            Self::Read => RetryOption::Reads,
            Self::Write => RetryOption::Writes,
            Self::OverloadOnly { option, .. } => option,
        };
        Self::OverloadOnly { option, reason: OnceReason::InTransaction }
    }
}

#[cfg(test)]
#[cfg(feature = "wire")]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use bson::{RawDocument, RawDocumentBuf, rawdoc};

    use super::*;
    use crate::connection::Command;
    use crate::wire::{Flags, Limits, Message, MessageIds, MessageWriter};

    fn of(body: &RawDocument) -> Retryability {
        Retryability::of_command(&Outline::of(&Command::new("db", body)), true)
    }

    /// The option that lets it be repeated after an overload, and why nothing else does.
    fn once(body: &RawDocument) -> Option<(RetryOption, OnceReason)> {
        match of(body) {
            Retryability::OverloadOnly { option, reason } => Some((option, reason)),
            Retryability::Read | Retryability::Write => None,
        }
    }

    fn reason(body: &RawDocument) -> Option<OnceReason> {
        once(body).map(|(_, reason)| reason)
    }

    #[test]
    fn reads_may_be_repeated_rty_2() {
        for read in [
            rawdoc! { "find": "c" },
            rawdoc! { "aggregate": "c", "pipeline": [{ "$out": "d" }, { "$match": {} }] },
            rawdoc! { "distinct": "c", "key": "a" },
            rawdoc! { "count": "c" },
            rawdoc! { "listCollections": 1 },
            rawdoc! { "listDatabases": 1 },
            rawdoc! { "listIndexes": "c" },
        ] {
            assert_eq!(of(&read), Retryability::Read, "{read:?}");
        }
    }

    #[test]
    fn a_read_that_goes_on_or_writes_its_result_is_not_repeated_rty_2() {
        for (body, expected) in [
            (rawdoc! { "getMore": 5_i64, "collection": "c" }, OnceReason::GetMore),
            (rawdoc! { "aggregate": "c", "pipeline": [{ "$match": {} }, { "$merge": "d" }] }, OnceReason::Output),
            (rawdoc! { "mapReduce": "c", "out": "d" }, OnceReason::Output),
            (rawdoc! { "mapReduce": "c", "out": { "inline": 1 } }, OnceReason::OtherCommand),
            (rawdoc! { "ping": 1 }, OnceReason::OtherCommand),
            (rawdoc! { "create": "c" }, OnceReason::OtherCommand),
            (rawdoc! { "find": "c", "autocommit": false }, OnceReason::InTransaction),
        ] {
            assert_eq!(reason(&body), Some(expected), "{body:?}");
        }
    }

    /// The document with the byte 0xff in place of each question mark.
    fn damaged(document: &RawDocument) -> RawDocumentBuf {
        let bytes = document.as_bytes().iter().map(|byte| if *byte == b'?' { 0xff } else { *byte });
        RawDocumentBuf::from_bytes(bytes.collect()).unwrap()
    }

    #[test]
    fn what_cannot_be_read_may_write_or_concern_several_documents() {
        let aggregate = rawdoc! { "aggregate": "c", "pipeline": ["?", { "$out": "d" }] };
        let last = rawdoc! { "aggregate": "c", "pipeline": [{ "$match": {} }, "?"] };
        let update = rawdoc! { "update": "c", "updates": ["?", { "q": {}, "u": {}, "multi": true }] };
        let number = rawdoc! { "update": "c", "updates": [{ "q": {}, "u": {}, "multi": 1 }] };

        assert_eq!(reason(&damaged(&aggregate)), Some(OnceReason::Output));
        assert_eq!(reason(&damaged(&last)), Some(OnceReason::Output));
        assert!(reason(&damaged(&update)).is_some() && reason(&number).is_some());
    }

    #[test]
    fn writes_of_single_documents_may_be_repeated_rty_4() {
        for write in [
            rawdoc! { "insert": "c", "documents": [{}, {}] },
            rawdoc! { "update": "c", "updates": [{ "q": {}, "u": {}, "multi": false }, { "q": {}, "u": {} }] },
            rawdoc! { "delete": "c", "deletes": [{ "q": {}, "limit": 1 }] },
            rawdoc! { "findAndModify": "c", "remove": true },
            rawdoc! { "bulkWrite": 1, "ops": [{ "insert": 0 }] },
        ] {
            assert_eq!(of(&write), Retryability::Write, "{write:?}");
        }
    }

    #[test]
    fn writes_of_several_documents_and_those_without_a_reply_run_once_rty_4() {
        for write in [
            rawdoc! { "update": "c", "updates": [{ "q": {}, "u": {} }, { "q": {}, "u": {}, "multi": true }] },
            rawdoc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }] },
            rawdoc! { "bulkWrite": 1, "ops": [{ "update": 0, "multi": true }] },
        ] {
            assert_eq!(reason(&write), Some(OnceReason::SeveralDocuments), "{write:?}");
        }
        let unacknowledged =
            Retryability::of_command(&Outline::of(&Command::new("db", &rawdoc! { "insert": "c" })), false);
        let reason = OnceReason::Unacknowledged;
        assert_eq!(unacknowledged, Retryability::OverloadOnly { option: RetryOption::Writes, reason });
    }

    #[test]
    fn a_write_is_judged_by_its_document_sequences_too_rty_4() {
        let reason = |body: &RawDocument, field: &str, item: &RawDocument| {
            let mut bytes = Vec::new();
            let (limits, ids) = (Limits::DEFAULT, MessageIds::request(1));
            let mut writer = MessageWriter::begin(&mut bytes, ids, Flags::NONE, body, &[], &limits).unwrap();
            writer.sequence(field, [item]).unwrap();
            writer.finish();
            let message = Message::decode(&bytes, &limits).unwrap();
            let sequences: Vec<_> = message.sequences().collect();
            let command = Command { sequences: &sequences, ..Command::new("db", body) };
            match Retryability::of_command(&Outline::of(&command), true) {
                Retryability::OverloadOnly { reason, .. } => Some(reason),
                Retryability::Read | Retryability::Write => None,
            }
        };
        let update = rawdoc! { "update": "c" };

        let several = Some(OnceReason::SeveralDocuments);
        assert_eq!(reason(&update, "updates", &rawdoc! { "q": {}, "u": {}, "multi": true }), several);
        assert_eq!(reason(&rawdoc! { "delete": "c" }, "deletes", &rawdoc! { "q": {}, "limit": 0 }), several);
        assert_eq!(reason(&update, "updates", &rawdoc! { "q": {}, "u": {} }), None);
    }

    #[test]
    fn an_overloaded_server_s_refusal_needs_the_option_that_fits_the_command_bp_2() {
        let option = |body: &RawDocument| once(body).map(|(option, _)| option);

        assert_eq!(option(&rawdoc! { "drop": "c" }), Some(RetryOption::Writes));
        assert_eq!(option(&rawdoc! { "getMore": 1_i64 }), Some(RetryOption::Reads));
        assert_eq!(option(&rawdoc! { "ping": 1 }), Some(RetryOption::Both));
    }
}
