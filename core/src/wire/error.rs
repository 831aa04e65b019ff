//! Errors of messages, by blame: those that a peer sent, and those that a caller wanted to send.
//!
//! After a [`WireError`] the stream cannot be trusted any more: the two sides no longer agree where a message starts,
//! so the connection is closed (MSG-3). An [`EncodeError`] leaves everything as it was, the output included.

use alloc::string::String;

use thiserror::Error;

use super::compression::{CompressionError, CompressorId};
use super::document::DocumentError;
use super::header::OpCode;
use crate::error_text::readable_debug;

/// A peer's bytes break the protocol. Every fault has its own variant, with the value found and the limit.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// A message that says it is shorter than its own header.
    #[error("a message announces {length} bytes; the header alone has {min}")]
    MessageTooShort {
        /// The announced length.
        length: i32,
        /// The least length of a message.
        min: usize,
    },
    /// A message longer than is allowed (MSG-4).
    #[error("a message announces {length} bytes; at most {max} are allowed")]
    MessageTooLong {
        /// The announced length.
        length: usize,
        /// The greatest length allowed.
        max: usize,
    },
    /// The header's length is not the length of the bytes that were handed over.
    #[error("a message announces {announced} bytes and has {found}")]
    LengthMismatch {
        /// The announced length.
        announced: usize,
        /// The bytes there are.
        found: usize,
    },
    /// Something ends before it is complete.
    #[error("{what} needs {needed} bytes and only {found} are left")]
    Truncated {
        /// What ends too early.
        what: &'static str,
        /// How many bytes it needs.
        needed: usize,
        /// How many are left.
        found: usize,
    },
    /// Something is complete, and more follows.
    #[error("{count} bytes follow the end of {what}")]
    TrailingBytes {
        /// The part that ended.
        what: &'static str,
        /// How many bytes follow.
        count: usize,
    },
    /// An operation that does not exist, or is not used any more.
    #[error("unknown opCode {0}")]
    UnknownOpCode(i32),
    /// A known operation in the wrong place.
    #[error("expected {expected:?}, found {found:?}")]
    UnexpectedOpCode {
        /// The expected operation.
        expected: OpCode,
        /// The operation found.
        found: OpCode,
    },
    /// Flags among the low 16 bits, all of which must be understood, that are unknown (MSG-5).
    #[error("unknown flag bits {0:#06x}")]
    UnknownFlags(u32),
    /// A section of a kind that does not exist (MSG-3).
    #[error("unknown section kind {0}")]
    UnknownSection(u8),
    /// A second section of kind 0 (MSG-2).
    #[error("the message has two bodies")]
    TwoBodies,
    /// No section of kind 0 (MSG-2).
    #[error("the message has no body")]
    NoBody,
    /// Two document sequences of one name (MSG-2).
    #[error("two document sequences are called {identifier:?}")]
    DuplicateIdentifier {
        /// The name, shortened to [`SHOWN`] bytes.
        identifier: String,
    },
    /// A document sequence in a reply: only commands have them (MSG-2).
    #[error("the message has document sequences, which only commands have")]
    Sequences,
    /// A document sequence whose name is longer than that of any field of a command.
    #[error("the name of a document sequence, {identifier:?}, is longer than {max} bytes")]
    LongIdentifier {
        /// The name, shortened to [`SHOWN`] bytes.
        identifier: String,
        /// How many bytes are allowed.
        max: usize,
    },
    /// More sections than any command has.
    #[error("the message has more than {max} sections")]
    TooManySections {
        /// How many are allowed.
        max: usize,
    },
    /// A document sequence whose length is impossible.
    #[error("a document sequence announces {length} bytes; its own length takes {min}")]
    SequenceTooShort {
        /// The announced length.
        length: i32,
        /// The least length of a sequence.
        min: usize,
    },
    /// A text without an end, or not in UTF-8.
    #[error("{what} {problem}")]
    InvalidText {
        /// Which text.
        what: &'static str,
        /// The fault of the text.
        problem: &'static str,
    },
    /// The checksum does not match the message (MSG-6).
    #[error("the checksum is {announced:#010x}, the message's is {computed:#010x}")]
    Checksum {
        /// The checksum in the message.
        announced: u32,
        /// The checksum of its bytes.
        computed: u32,
    },
    /// A document shorter than an empty one.
    #[error("a document announces {length} bytes; the empty one has {min}")]
    DocumentTooShort {
        /// The announced length.
        length: i32,
        /// The least length of a document.
        min: usize,
    },
    /// A document longer than is allowed (MSG-4).
    #[error("a document announces {length} bytes; at most {max} are allowed")]
    DocumentTooLong {
        /// The announced length.
        length: usize,
        /// The greatest length allowed.
        max: usize,
    },
    /// A document is malformed inside.
    #[error("malformed document: {0}")]
    Document(DocumentError),
    /// An OP_REPLY whose number of documents differs from the one it announces.
    #[error("the reply announces {announced} documents and has {found}")]
    DocumentCount {
        /// The announced number.
        announced: i32,
        /// The number of documents.
        found: usize,
    },
    /// A compressed message cannot be unpacked.
    #[error(transparent)]
    Compression(#[from] CompressionError),
}

/// A message cannot be sent as asked. Only the caller can cause it, never data from a network.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The message would be longer than the server takes (MSG-4).
    #[error("the message would have {length} bytes or more; the server takes {max}")]
    MessageTooLong {
        /// The length so far.
        length: usize,
        /// The greatest length allowed.
        max: usize,
    },
    /// The command, which is a document with all that it inserts, is longer than the server takes (MSG-4).
    #[error(
        "the command has {length} bytes with all of its documents, and the server takes {max}: use `sequence` for the items of a \
         write, which sends as many commands as they take"
    )]
    CommandTooLong {
        /// The command's length so far.
        length: usize,
        /// The greatest length allowed.
        max: usize,
    },
    /// A document is longer than the server takes (MSG-4).
    #[error("a document has {length} bytes; the server takes {max}")]
    DocumentTooLong {
        /// The document's length.
        length: usize,
        /// The greatest length allowed.
        max: usize,
    },
    /// A name with a NUL in it, which would end it early.
    #[error("{name:?} contains a NUL and cannot be a name")]
    NulInName {
        /// The name, shortened to [`SHOWN`] bytes.
        name: String,
    },
    /// A field that the body, or the list of fields to append, has already (MSG-10).
    #[error("the field {name:?} is there already")]
    DuplicateField {
        /// The field's name, shortened to [`SHOWN`] bytes.
        name: String,
    },
    /// Two document sequences of one name (MSG-2).
    #[error("two document sequences are called {identifier:?}")]
    DuplicateIdentifier {
        /// The name, shortened to [`SHOWN`] bytes.
        identifier: String,
    },
    /// More sections than a reader accepts.
    #[error("the message has more than {max} sections")]
    TooManySections {
        /// How many are allowed.
        max: usize,
    },
    /// exhaustAllowed on a command other than getMore and hello (MSG-9).
    #[error("{command:?} cannot be exhausted: only getMore and hello can")]
    ExhaustNotAllowed {
        /// The command's name, shortened to [`SHOWN`] bytes.
        command: String,
    },
    /// The body, or a document of fields to append, is malformed.
    #[error("malformed document: {0}")]
    Document(DocumentError),
    /// The compressor failed.
    #[error("{} failed to compress the message", .0.name())]
    Compressor(CompressorId),
}

readable_debug!(WireError, EncodeError);

/// How many bytes of a name an error shows: a peer's names have any length.
pub const SHOWN: usize = 64;

/// The beginning of a name, for an error.
pub(super) fn shown(name: &str) -> String {
    let end = (0..=SHOWN.min(name.len())).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    name[..end].into()
}

impl From<DocumentError> for WireError {
    fn from(error: DocumentError) -> Self {
        Self::Document(error)
    }
}

impl From<DocumentError> for EncodeError {
    fn from(error: DocumentError) -> Self {
        Self::Document(error)
    }
}
