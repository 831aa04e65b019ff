//! What makes no batch. Nothing of it was sent.

use alloc::string::String;

use thiserror::Error;

/// Items cannot be sent as they are, or not to this server.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The command is none that has such a sequence.
    #[error(
        "`{command}` has no sequence `{sequence}`: insert has `documents`, update `updates`, delete `deletes`, and bulkWrite `ops` \
         and `nsInfo`"
    )]
    NoSuchSequence {
        /// The command's name.
        command: String,
        /// The sequence's name.
        sequence: String,
    },
    /// A sequence that the command needs was not given, or was given twice.
    #[error("`{command}` needs the sequence `{sequence}`, once")]
    NotOnce {
        /// The command's name.
        command: String,
        /// The sequence's name.
        sequence: &'static str,
    },
    /// There is nothing to write (BW-7).
    #[error("there is nothing to write: the sequence `{sequence}` is empty")]
    NoItems {
        /// The sequence's name.
        sequence: &'static str,
    },
    /// An item fits into no message (BW-4).
    #[error("item {index} has {length} bytes, and a message to the server has room for {max}: write it in parts")]
    TooLarge {
        /// The place of the item in its sequence, from 0.
        index: u64,
        /// Its length, with that of its collection's name in a bulkWrite.
        length: usize,
        /// The greatest length for which there is room.
        max: usize,
    },
    /// An item cannot be written as a document.
    #[error("item {index} of `{sequence}` cannot be written as a document: {problem}")]
    Unwritable {
        /// The sequence's name.
        sequence: &'static str,
        /// The place of the item in its sequence, from 0.
        index: u64,
        /// Why.
        problem: String,
    },
    /// An item of a bulkWrite does not begin with the place of its collection.
    #[error(
        "item {index} of `ops` names no item of `nsInfo`, which has {namespaces}: it has to begin with `insert`, `update` or `delete` \
         and the place there of its collection, from 0"
    )]
    NoNamespace {
        /// The place of the item in `ops`, from 0.
        index: u64,
        /// How many collections there are.
        namespaces: usize,
    },
    /// A bulkWrite with `w: 0` asks for the results of its items (BW-7).
    #[error("Cannot request unacknowledged write concern and verbose results; set `errorsOnly: true`")]
    UnacknowledgedResults,
    /// A bulkWrite with `w: 0` is to end with its first error (BW-7).
    #[error("Cannot request unacknowledged write concern and ordered writes; set `ordered: false`")]
    UnacknowledgedOrder,
}
