//! Reading OP_MSG: flags, then sections, then perhaps a checksum.
//!
//! ```text
//! header | flags u32 | section ... section | checksum u32, if the flags say so
//! section: kind 0 | document                               the body, exactly one
//!          kind 1 | length i32 | identifier \0 | document ...   a document sequence, any number
//! ```
//!
//! [`Message::decode`] reads every byte once and keeps references. A message that it accepts needs no further checks:
//! the iterators over sequences and documents only step from one length to the next.

use bson::RawDocument;

use super::checksum::{CHECKSUM_LEN, checksum};
use super::cursor::Cursor;
use super::error::{WireError, shown};
use super::flags::Flags;
use super::header::{Header, OpCode};
use super::limits::Limits;

/// The kind of the section that is the body.
pub(super) const KIND_BODY: u8 = 0;
/// The kind of a section with a document sequence.
pub(super) const KIND_SEQUENCE: u8 = 1;
/// The length of a sequence's length, which counts itself (MSG-4).
pub(super) const SEQUENCE_LEN: usize = 4;

/// The most sections that a message may have. Commands have three at most; comparing the identifiers of millions would
/// cost a reader too much time.
pub const MAX_SECTIONS: usize = 256;

/// The longest name of a document sequence: a field of a command. Without a bound, comparing hundreds of names of many kilobytes would
/// cost a reader as much.
pub const MAX_IDENTIFIER: usize = 256;

/// Whether a message may have document sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sequences {
    /// It may: it is a command, or may be one.
    #[default]
    Allowed,
    /// It may not: it is a reply.
    Refused,
}

/// A whole, valid OP_MSG.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The header. The caller checks whether it answers the right request.
    pub header: Header,
    /// The flags of the message.
    pub flags: Flags,
    /// The command or the reply.
    pub body: &'a RawDocument,
    sections: &'a [u8],
}

/// A document sequence: documents that belong to a field of the body.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// The name of the field.
    pub identifier: &'a str,
    pub(super) documents: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads one whole message (MSG-2 to MSG-6).
    pub fn decode(message: &'a [u8], limits: &Limits) -> Result<Self, WireError> {
        Self::read::<false>(message, limits, Sequences::Allowed)
    }

    /// Like [`decode`](Self::decode), and every string of its documents, at every depth, has to be UTF-8: reading any value of
    /// the message cannot fail.
    pub fn decode_utf8(message: &'a [u8], limits: &Limits) -> Result<Self, WireError> {
        Self::read::<true>(message, limits, Sequences::Allowed)
    }

    pub(super) fn read<const UTF8: bool>(
        message: &'a [u8],
        limits: &Limits,
        allowed: Sequences,
    ) -> Result<Self, WireError> {
        let (header, mut cursor) = Header::split_of(OpCode::Msg, message, limits)?;
        let flags = Flags::from_bits(cursor.u32("the flags of an OP_MSG")?)?;
        let sections = match flags.contains(Flags::CHECKSUM_PRESENT) {
            true => verified(message, cursor.rest())?,
            false => cursor.rest(),
        };
        let body = check_sections::<UTF8>(sections, limits, allowed)?;
        Ok(Self { header, flags, body, sections })
    }

    /// Whether a request wants no reply (MSG-7, SRV-4), or a reply is followed by another (MSG-8).
    pub fn more_to_come(&self) -> bool {
        self.flags.contains(Flags::MORE_TO_COME)
    }

    /// Whether a request may be answered by several replies (MSG-9).
    pub fn exhaust_allowed(&self) -> bool {
        self.flags.contains(Flags::EXHAUST_ALLOWED)
    }

    /// Whether there are document sequences. Only commands have them.
    pub fn has_sequences(&self) -> bool {
        self.sections.len() > 1 + self.body.as_bytes().len()
    }

    /// The document sequences, in the order of the message.
    pub fn sequences(&self) -> impl Iterator<Item = Sequence<'a>> + use<'a> {
        sequences(self.sections)
    }
}

impl<'a> Sequence<'a> {
    /// Documents that are encoded one behind the other.
    pub(crate) fn of(identifier: &'a str, documents: &'a [u8]) -> Self {
        Self { identifier, documents }
    }

    /// How many bytes its documents have.
    pub fn length(&self) -> usize {
        self.documents.len()
    }

    /// The documents, in the order of the message.
    pub fn documents(&self) -> Documents<'a> {
        Documents { rest: self.documents }
    }
}

/// Documents in sequence, already checked.
#[derive(Clone, Copy, Debug)]
pub struct Documents<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Iterator for Documents<'a> {
    type Item = &'a RawDocument;

    fn next(&mut self) -> Option<&'a RawDocument> {
        let length = usize::try_from(i32::from_le_bytes(*self.rest.first_chunk()?)).ok()?;
        let (document, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        RawDocument::from_bytes(document).ok()
    }
}

/// The sections of a message that ends in a checksum, if the checksum is right.
fn verified<'a>(message: &[u8], rest: &'a [u8]) -> Result<&'a [u8], WireError> {
    let what = "the checksum of an OP_MSG";
    let truncated = WireError::Truncated { what, needed: CHECKSUM_LEN, found: rest.len() };
    let (sections, announced) = rest.split_last_chunk::<CHECKSUM_LEN>().ok_or(truncated)?;
    let announced = u32::from_le_bytes(*announced);
    let computed = checksum(&message[..message.len() - CHECKSUM_LEN]);
    match announced == computed {
        true => Ok(sections),
        false => Err(WireError::Checksum { announced, computed }),
    }
}

/// Checks all sections, in any order, and returns the body.
fn check_sections<'a, const UTF8: bool>(
    sections: &'a [u8],
    limits: &Limits,
    allowed: Sequences,
) -> Result<&'a RawDocument, WireError> {
    let mut cursor = Cursor::new(sections);
    let mut body = None;
    let mut count = 0;
    while !cursor.is_empty() {
        count += 1;
        if count > MAX_SECTIONS {
            return Err(WireError::TooManySections { max: MAX_SECTIONS });
        }
        let before = &sections[..sections.len() - cursor.rest().len()];
        match cursor.u8("a section's kind")? {
            KIND_BODY if body.is_some() => return Err(WireError::TwoBodies),
            KIND_BODY => body = Some(cursor.document::<UTF8>(limits.document())?),
            KIND_SEQUENCE if allowed == Sequences::Refused => return Err(WireError::Sequences),
            KIND_SEQUENCE => {
                let mut sequence = split_sequence(&mut cursor)?;
                let identifier = sequence.c_string("a document sequence's identifier")?;
                if identifier.len() > MAX_IDENTIFIER {
                    let identifier = shown(identifier);
                    return Err(WireError::LongIdentifier { identifier, max: MAX_IDENTIFIER });
                }
                if sequences(before).any(|other| other.identifier == identifier) {
                    return Err(WireError::DuplicateIdentifier { identifier: shown(identifier) });
                }
                while !sequence.is_empty() {
                    sequence.document::<UTF8>(limits.document())?;
                }
            }
            unknown => return Err(WireError::UnknownSection(unknown)),
        }
    }
    body.ok_or(WireError::NoBody)
}

/// A document sequence without its length.
fn split_sequence<'a>(cursor: &mut Cursor<'a>) -> Result<Cursor<'a>, WireError> {
    let length = cursor.i32("a document sequence's length")?;
    match usize::try_from(length).ok().and_then(|length| length.checked_sub(SEQUENCE_LEN)) {
        Some(length) => Ok(Cursor::new(cursor.take(length, "a document sequence")?)),
        None => Err(WireError::SequenceTooShort { length, min: SEQUENCE_LEN }),
    }
}

/// The document sequences among sections that were checked before.
pub(super) fn sequences(sections: &[u8]) -> impl Iterator<Item = Sequence<'_>> {
    let mut cursor = Cursor::new(sections);
    core::iter::from_fn(move || {
        loop {
            match cursor.u8("").ok()? {
                KIND_BODY => {
                    let length = Cursor::new(cursor.rest()).i32("").ok()?;
                    cursor.take(usize::try_from(length).ok()?, "").ok()?;
                }
                _ => {
                    let mut sequence = split_sequence(&mut cursor).ok()?;
                    let identifier = sequence.c_string("").ok()?;
                    return Some(Sequence { identifier, documents: sequence.rest() });
                }
            }
        }
    })
}
