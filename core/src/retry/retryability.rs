//! Which commands may be sent a second time, as their documents show (RTY-2, RTY-4).
//!
//! A read may, since it changes nothing. A write may if a transaction number lets the server recognise the repetition, which
//! servers offer for writes of single documents. Any other command is repeated only if an overloaded server refused it
//! before it did anything (BP-9).

#[cfg(feature = "wire")]
use bson::{RawBsonRef, RawDocument};
use serde::{Deserialize, Serialize};
use thiserror::Error;

#[cfg(feature = "wire")]
use crate::connection::{ClientField, Outline};
#[cfg(feature = "wire")]
use crate::server::has_output;

/// How an element of a write says that it concerns several documents.
#[cfg(feature = "wire")]
#[derive(Clone, Copy)]
enum Several {
    IfTrue(&'static str),
    UnlessOne(&'static str),
}

/// What a command does, by its name.
#[cfg(feature = "wire")]
#[derive(Clone, Copy)]
enum Kind {
    /// It reads (RTY-2). `aggregate` does unless it writes its result.
    Read,
    /// It writes single documents (RTY-4), or several by the field of an element of the array.
    NumberedWrite(Option<(&'static str, Several)>),
    /// It writes, and has no transaction number.
    OtherWrite,
    Other,
}

/// Whether a command may be sent again after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retryability {
    /// It reads.
    Read,
    /// It writes single documents: a server carries it out once for each transaction number.
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
    /// That of a command, by its own fields. `acknowledged` says whether it wants a reply and its write concern is not `w: 0`.
    pub fn of_command(command: &Outline<'_>, acknowledged: bool) -> Self {
        let (name, kind) = (command.name, Kind::named(command.name));
        let once = |option, reason| Self::OverloadOnly { option, reason };
        let has_output = has_output(name, command.body);
        let writes = has_output || matches!(kind, Kind::NumberedWrite(_) | Kind::OtherWrite);
        let option = match (kind, name) {
            _ if writes => RetryOption::Writes,
            (Kind::Read, _) | (_, "getMore" | "mapReduce") => RetryOption::Reads,
            (Kind::NumberedWrite(_) | Kind::OtherWrite | Kind::Other, _) => RetryOption::Both,
        };
        if command.has(ClientField::Autocommit) {
            return once(option, OnceReason::InTransaction);
        }
        match kind {
            _ if writes && !acknowledged => once(option, OnceReason::Unacknowledged),
            Kind::NumberedWrite(Some((array, several))) if several.concerns(command.body, array) => {
                once(option, OnceReason::SeveralDocuments)
            }
            Kind::NumberedWrite(_) => Self::Write,
            _ if name == "getMore" => once(option, OnceReason::GetMore),
            _ if has_output => once(option, OnceReason::Output),
            Kind::Read => Self::Read,
            Kind::OtherWrite | Kind::Other => once(option, OnceReason::OtherCommand),
        }
    }
}

#[cfg(feature = "wire")]
impl Kind {
    fn named(name: &str) -> Self {
        match name {
            "aggregate" | "count" | "distinct" | "find" | "listCollections" | "listDatabases" | "listIndexes" => {
                Self::Read
            }
            "insert" | "findAndModify" | "findandmodify" => Self::NumberedWrite(None),
            "update" => Self::NumberedWrite(Some(("updates", Several::IfTrue("multi")))),
            "delete" => Self::NumberedWrite(Some(("deletes", Several::UnlessOne("limit")))),
            "bulkWrite" => Self::NumberedWrite(Some(("ops", Several::IfTrue("multi")))),
            "collMod"
            | "convertToCapped"
            | "create"
            | "createIndexes"
            | "createSearchIndexes"
            | "drop"
            | "dropDatabase"
            | "dropIndexes"
            | "renameCollection" => Self::OtherWrite,
            _ => Self::Other,
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

    /// The same command for a caller that wants it to run once: as for the helpers that run any command (RTY-2).
    #[must_use]
    pub fn once(self) -> Self {
        let option = match self {
            Self::OverloadOnly { .. } => return self,
            Self::Read | Self::Write => RetryOption::Both,
        };
        Self::OverloadOnly { option, reason: OnceReason::Unwanted }
    }

    /// The same command as part of a transaction (TXN-6).
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

#[cfg(feature = "wire")]
impl Several {
    fn concerns(self, body: &RawDocument, array: &str) -> bool {
        let elements = body.get_array(array).ok().into_iter().flatten().map_while(Result::ok);
        elements.filter_map(RawBsonRef::as_document).any(|element| match self {
            Self::IfTrue(field) => element.get_bool(field).unwrap_or_default(),
            Self::UnlessOne(field) => {
                element.get(field).ok().flatten().and_then(crate::wire::integer).is_none_or(|limit| limit != 1)
            }
        })
    }
}

#[cfg(test)]
#[cfg(feature = "wire")]
mod tests {
    use alloc::vec;

    use bson::rawdoc;

    use super::*;
    use crate::connection::Command;

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
    fn an_overloaded_server_s_refusal_needs_the_option_that_fits_the_command_bp_2() {
        let option = |body: &RawDocument| once(body).map(|(option, _)| option);

        assert_eq!(option(&rawdoc! { "drop": "c" }), Some(RetryOption::Writes));
        assert_eq!(option(&rawdoc! { "getMore": 1_i64 }), Some(RetryOption::Reads));
        assert_eq!(option(&rawdoc! { "ping": 1 }), Some(RetryOption::Both));
    }
}
