//! Writing OP_MSG, into a buffer that the caller owns.
//!
//! The writer appends: the buffer may already hold other messages. It allocates nothing but what the buffer needs to
//! grow. Until [`MessageWriter::finish`] the message is not there: a writer that fails or is dropped takes back what it
//! wrote, so the buffer never holds half a message.

use alloc::vec::Vec;
use core::fmt;

use bson::RawDocument;

use super::checksum::{CHECKSUM_LEN, checksum};
use super::document::command_name;
use super::error::{EncodeError, shown};
use super::field::{Field, append_body, append_c_string};
use super::flags::Flags;
use super::header::{HEADER_LEN, Header, MessageIds, OpCode, patch_length};
use super::limits::Limits;
use super::op_msg::{KIND_BODY, KIND_SEQUENCE, MAX_SECTIONS, Sequence, sequences};

/// The sequence that holds users' own documents, which do not get the allowance of the documents that wrap them
/// (MSG-4).
const USER_DOCUMENTS: &str = "documents";

/// A message that is being written.
#[must_use = "a message that is not finished is taken back"]
pub struct MessageWriter<'b> {
    out: &'b mut Vec<u8>,
    start: usize,
    flags: Flags,
    limits: Limits,
    sections: usize,
    finished: bool,
}

// An outgoing message may be confidential, so only its length is shown.
impl fmt::Debug for MessageWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageWriter").field("len", &(self.out.len() - self.start)).finish_non_exhaustive()
    }
}

impl<'b> MessageWriter<'b> {
    /// Appends header, flags and the one body (MSG-2): the bytes of `body` with `fields` behind its own (MSG-10).
    ///
    /// `limits` are those of the hello of the connection that the message is for (HS-16).
    pub fn begin(
        out: &'b mut Vec<u8>,
        ids: MessageIds,
        flags: Flags,
        body: &RawDocument,
        fields: &[Field<'_>],
        limits: &Limits,
    ) -> Result<Self, EncodeError> {
        Self::begin_with(out, ids, flags, body, [fields, &[]], limits)
    }

    /// Appends header, flags and the one body, with fields from two places behind the body's own (MSG-10).
    pub(crate) fn begin_with(
        out: &'b mut Vec<u8>,
        ids: MessageIds,
        flags: Flags,
        body: &RawDocument,
        fields: [&[Field<'_>]; 2],
        limits: &Limits,
    ) -> Result<Self, EncodeError> {
        if flags.contains(Flags::EXHAUST_ALLOWED) {
            check_exhaustible(body)?;
        }
        let start = out.len();
        let writer = Self { out, start, flags, limits: *limits, sections: 1, finished: false };
        let header = Header { length: HEADER_LEN, ids, op_code: OpCode::Msg };
        writer.out.extend_from_slice(&header.encode());
        writer.out.extend_from_slice(&flags.bits().to_le_bytes());
        writer.out.push(KIND_BODY);
        append_body(writer.out, body, fields, limits.document())?;
        writer.check_length()?;
        Ok(writer)
    }

    /// Appends a document sequence. An error takes back the sequence, and leaves the message as it was before.
    pub fn sequence<'d>(
        &mut self,
        identifier: &str,
        documents: impl IntoIterator<Item = &'d RawDocument>,
    ) -> Result<(), EncodeError> {
        let max = match identifier {
            USER_DOCUMENTS => self.limits.user_document(),
            _ => self.limits.document(),
        };
        self.append_sequence(identifier, |message| {
            documents.into_iter().map(RawDocument::as_bytes).try_for_each(|document| match document.len() {
                length if length > max => Err(EncodeError::DocumentTooLong { length, max }),
                _ => message.append(document),
            })
        })
    }

    /// Appends a document sequence of a message that came from elsewhere, as it is: whether one of its documents is too long is for
    /// the server to say. An error takes back the sequence, and leaves the message as it was before.
    pub fn pass_on(&mut self, sequence: &Sequence<'_>) -> Result<(), EncodeError> {
        self.append_sequence(sequence.identifier, |message| message.append(sequence.documents))
    }

    /// Completes the message, with a checksum if the flags say so (MSG-6), and returns its length.
    pub fn finish(mut self) -> usize {
        let with_checksum = self.flags.contains(Flags::CHECKSUM_PRESENT);
        let length = self.length();
        patch_length(self.out, self.start, length);
        if with_checksum {
            let checksum = checksum(&self.out[self.start..]);
            self.out.extend_from_slice(&checksum.to_le_bytes());
        }
        self.finished = true;
        length
    }

    /// Appends a sequence whose documents `append` appends.
    fn append_sequence(
        &mut self,
        identifier: &str,
        append: impl FnOnce(&mut Self) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        if self.sections >= MAX_SECTIONS {
            return Err(EncodeError::TooManySections { max: MAX_SECTIONS });
        }
        if sequences(&self.out[self.start + HEADER_LEN + 4..]).any(|other| other.identifier == identifier) {
            return Err(EncodeError::DuplicateIdentifier { identifier: shown(identifier) });
        }
        let before = self.out.len();
        self.out.push(KIND_SEQUENCE);
        let at = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        let appended = append_c_string(self.out, identifier).and_then(|()| append(self));
        if let Err(error) = appended.and_then(|()| self.check_length()) {
            self.out.truncate(before);
            return Err(error);
        }
        let length = self.out.len() - at;
        patch_length(self.out, at, length);
        self.sections += 1;
        Ok(())
    }

    /// Appends documents, unless the message were too long with them.
    fn append(&mut self, documents: &[u8]) -> Result<(), EncodeError> {
        let (length, max) = (self.length() + documents.len(), self.limits.message());
        if length > max {
            return Err(EncodeError::MessageTooLong { length, max });
        }
        self.out.extend_from_slice(documents);
        Ok(())
    }

    /// The length that the message would have if it were finished now.
    fn length(&self) -> usize {
        let checksum = if self.flags.contains(Flags::CHECKSUM_PRESENT) { CHECKSUM_LEN } else { 0 };
        self.out.len() - self.start + checksum
    }

    fn check_length(&self) -> Result<(), EncodeError> {
        let (length, max) = (self.length(), self.limits.message());
        if length > max { Err(EncodeError::MessageTooLong { length, max }) } else { Ok(()) }
    }
}

impl Drop for MessageWriter<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.out.truncate(self.start);
        }
    }
}

/// MSG-9.
fn check_exhaustible(body: &RawDocument) -> Result<(), EncodeError> {
    let command = command_name(body).unwrap_or_default();
    match command {
        "getMore" | "hello" => Ok(()),
        legacy if legacy.eq_ignore_ascii_case("isMaster") => Ok(()),
        _ => Err(EncodeError::ExhaustNotAllowed { command: shown(command) }),
    }
}
