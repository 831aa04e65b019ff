//! Whether bytes are a BSON document: one pass over everything, before any field is read.
//!
//! Every length must lie within the document around it, every name and string must have its end, every type must be
//! known. The pass descends without recursion: it keeps the ends of the documents around the current one in an array,
//! whose size is also the depth allowed, so no input can exhaust the stack. Afterwards iterating over the document
//! cannot fail. Whether a string is UTF-8 is left to the reader of a value, because servers have cut error messages in the
//! middle of a character; and whether a binary of the old subtype 2 repeats its length, because servers store it as it comes.
//! [`validate_utf8`] checks both, too, for who decides by what a document contains.

use alloc::vec::Vec;

use bson::{RawDocument, RawDocumentBuf};
use thiserror::Error;

use super::header::patch_length;

/// How deep documents and arrays may be nested, the outermost included; the server allows as many.
pub const MAX_DEPTH: usize = 200;

/// The length of the empty document.
pub const MIN_LENGTH: usize = 5;

/// A document is malformed: where, counted from its first byte, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// The document's length is not the number of its bytes.
    #[error("{found} bytes with the length {announced:?}")]
    LengthMismatch {
        /// The length at the document's beginning, if it has that many bytes.
        announced: Option<i32>,
        /// The number of bytes.
        found: usize,
    },
    /// A length that is too small, or greater than the rest of the document around it.
    #[error("at byte {at}: the length {found} is not between {min} and {max}")]
    Length {
        /// Where.
        at: usize,
        /// The length.
        found: i32,
        /// The least possible here.
        min: usize,
        /// The greatest possible here.
        max: usize,
    },
    /// A value reaches beyond the end of its document.
    #[error("at byte {at}: a value of {needed} bytes, and {left} are left")]
    Truncated {
        /// Where.
        at: usize,
        /// How many bytes the value has.
        needed: usize,
        /// How many are left.
        left: usize,
    },
    /// A string, name or document has no NUL at its end.
    #[error("at byte {at}: no NUL where one must be")]
    Unterminated {
        /// Where.
        at: usize,
    },
    /// A document's NUL comes before the end that its length gives.
    #[error("at byte {at}: the document ends before its length does")]
    EndsEarly {
        /// Where.
        at: usize,
    },
    /// A type that does not exist.
    #[error("at byte {at}: unknown type {tag:#04x}")]
    UnknownType {
        /// Where.
        at: usize,
        /// The type.
        tag: u8,
    },
    /// A name or regular expression is not UTF-8, or a string where strings are checked ([`validate_utf8`]).
    #[error("at byte {at}: not UTF-8")]
    NotUtf8 {
        /// Where.
        at: usize,
    },
    /// A boolean other than 0 and 1.
    #[error("at byte {at}: a boolean of {found}")]
    NotBoolean {
        /// Where.
        at: usize,
        /// The value.
        found: u8,
    },
    /// Documents nested too deep.
    #[error("at byte {at}: nested deeper than {max}")]
    TooDeep {
        /// Where.
        at: usize,
        /// The depth allowed.
        max: usize,
    },
}

/// The bytes that follow an element's name.
enum Value {
    /// This many bytes.
    Plain(usize),
    /// A document or an array, after this many other bytes.
    Nested { before: usize, length: usize },
}

/// `bytes` as a document, if they are one (see the [module](self)).
pub fn validate(bytes: &[u8]) -> Result<&RawDocument, DocumentError> {
    check::<false>(bytes)
}

/// Like [`validate`], and every string at every depth has to be UTF-8, and every old binary to repeat its length: reading any value
/// of the document cannot fail.
pub fn validate_utf8(bytes: &[u8]) -> Result<&RawDocument, DocumentError> {
    check::<true>(bytes)
}

/// Checks a document; if `UTF8` is set, its strings and its old binaries, too.
pub(super) fn check<const UTF8: bool>(bytes: &[u8]) -> Result<&RawDocument, DocumentError> {
    let announced = bytes.first_chunk().map(|length| i32::from_le_bytes(*length));
    let mismatch = DocumentError::LengthMismatch { announced, found: bytes.len() };
    let document = match announced.map(usize::try_from) {
        Some(Ok(length)) if length == bytes.len() && length >= MIN_LENGTH => bytes,
        Some(_) | None => return Err(mismatch),
    };

    // Ends are the positions of the final NULs. Always: at <= end < document.len().
    let mut around = Ends::default();
    let mut end = document.len() - 1;
    let mut at = 4;
    loop {
        let tag = document[at];
        if at == end {
            if tag != 0 {
                return Err(DocumentError::Unterminated { at });
            }
            let Some(outer) = around.pop() else {
                return RawDocument::from_bytes(document).map_err(|_| mismatch);
            };
            end = outer;
            at += 1;
            continue;
        }
        let value_at = at + 1 + name(document, at, end)? + 1;
        match value::<UTF8>(tag, &document[value_at..end], value_at)? {
            Value::Plain(length) => at = value_at + length,
            Value::Nested { before, length } => {
                let start = value_at + before;
                around.push(end).ok_or(DocumentError::TooDeep { at: start, max: MAX_DEPTH })?;
                end = start + length - 1;
                at = start + 4;
            }
        }
    }
}

/// The ends of the documents around the current one, the outermost first. For a document with none inside, the array is
/// never made: clearing it would cost as much as checking a small document.
#[derive(Default)]
struct Ends {
    ends: Option<[usize; MAX_DEPTH - 1]>,
    depth: usize,
}

impl Ends {
    /// `None` if there are too many.
    #[inline]
    fn push(&mut self, end: usize) -> Option<()> {
        *self.ends.get_or_insert([0; MAX_DEPTH - 1]).get_mut(self.depth)? = end;
        self.depth += 1;
        Some(())
    }

    #[inline]
    fn pop(&mut self) -> Option<usize> {
        self.depth = self.depth.checked_sub(1)?;
        self.ends.as_ref()?.get(self.depth).copied()
    }
}

/// A top-level element of a document that may not have been checked.
#[derive(Clone, Copy)]
pub(crate) struct Element<'a> {
    pub(crate) tag: u8,
    pub(crate) name: &'a [u8],
    /// The value's bytes.
    pub(crate) value: &'a [u8],
}

impl<'a> Element<'a> {
    /// The value, if it is a document.
    pub(crate) fn document(&self) -> Option<&'a RawDocument> {
        const DOCUMENT: u8 = 0x03;
        RawDocument::from_bytes(self.value).ok().filter(|_| self.tag == DOCUMENT)
    }
}

/// `document` without the fields of this name. `None` if it is malformed.
pub(crate) fn without(document: &RawDocument, name: &str) -> Option<RawDocumentBuf> {
    let mut rest = Vec::from([0; 4]);
    for element in elements(document) {
        let element = element.ok()?;
        if element.name != name.as_bytes() {
            rest.push(element.tag);
            rest.extend_from_slice(element.name);
            rest.push(0);
            rest.extend_from_slice(element.value);
        }
    }
    rest.push(0);
    let length = rest.len();
    patch_length(&mut rest, 0, length);
    RawDocumentBuf::from_bytes(rest).ok()
}

/// The top-level elements of `document`, for readers that ignore the insides of values.
pub(crate) fn elements(document: &RawDocument) -> Elements<'_> {
    let bytes = document.as_bytes();
    Elements { bytes, at: 4, last: bytes.len() - 1 }
}

/// Goes over the elements of a document. After an error it ends.
pub(crate) struct Elements<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The position of the document's NUL.
    last: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, DocumentError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.last {
            return None;
        }
        Some(match element(self.bytes, self.at, self.last) {
            Ok((element, end)) => {
                self.at = end;
                Ok(element)
            }
            Err(error) => {
                self.at = self.last;
                Err(error)
            }
        })
    }
}

/// The element at position `at`, and the position of the next one.
#[inline(always)]
fn element(bytes: &[u8], at: usize, last: usize) -> Result<(Element<'_>, usize), DocumentError> {
    let length = name(bytes, at, last)?;
    let (tag, name) = (bytes[at], &bytes[at + 1..at + 1 + length]);
    let value_at = at + 1 + length + 1;
    let end = value_at
        + match value::<false>(tag, &bytes[value_at..last], value_at)? {
            Value::Plain(length) => length,
            Value::Nested { before, length } => before + length,
        };
    Ok((Element { tag, name, value: &bytes[value_at..end] }, end))
}

/// The name of the command in `body`: its first key.
pub fn command_name(body: &RawDocument) -> Option<&str> {
    core::str::from_utf8(elements(body).next()?.ok()?.name).ok()
}

/// The number of bytes before the first NUL.
#[inline]
pub(super) fn find_nul(bytes: &[u8]) -> Option<usize> {
    Text::find(bytes).map(|text| text.length)
}

/// A text that a NUL ends.
struct Text {
    length: usize,
    is_ascii: bool,
}

impl Text {
    /// The text at the beginning of `bytes`, read eight bytes at a time: names are most of what is checked.
    #[inline(always)]
    fn find(bytes: &[u8]) -> Option<Self> {
        const LOW: u64 = 0x0101_0101_0101_0101;
        const HIGH: u64 = 0x8080_8080_8080_8080;
        let (mut rest, mut length, mut high) = (bytes, 0, 0);
        while let Some((eight, others)) = rest.split_first_chunk() {
            let eight = u64::from_le_bytes(*eight);
            // Its lowest bit is the high bit of the first NUL byte. The bits above that may be wrong.
            let nul = eight.wrapping_sub(LOW) & !eight & HIGH;
            if nul != 0 {
                high |= eight & (nul ^ (nul - 1));
                return Some(Self { length: length + nul.trailing_zeros() as usize / 8, is_ascii: high & HIGH == 0 });
            }
            high |= eight;
            length += 8;
            rest = others;
        }
        for byte in rest {
            if *byte == 0 {
                return Some(Self { length, is_ascii: high & HIGH == 0 });
            }
            high |= u64::from(*byte);
            length += 1;
        }
        None
    }
}

/// The length of the name of the element at `at`, whose type is not NUL unless the document is broken.
#[inline(always)]
fn name(document: &[u8], at: usize, end: usize) -> Result<usize, DocumentError> {
    if document[at] == 0 {
        return Err(DocumentError::EndsEarly { at });
    }
    c_string(&document[at + 1..end], at + 1)
}

/// The length of the UTF-8 text before the first NUL in `rest`, which is at position `at` of its document.
#[inline(always)]
fn c_string(rest: &[u8], at: usize) -> Result<usize, DocumentError> {
    match Text::find(rest) {
        Some(Text { length, is_ascii: true }) => Ok(length),
        Some(Text { length, .. }) if core::str::from_utf8(&rest[..length]).is_ok() => Ok(length),
        Some(_) => Err(DocumentError::NotUtf8 { at }),
        None => Err(DocumentError::Unterminated { at }),
    }
}

/// The length of the value of type `tag` that starts `rest`: never more than the length of `rest`.
///
/// Inlined, like the reader of names: together that saves a third of all instructions.
#[inline(always)]
fn value<const UTF8: bool>(tag: u8, rest: &[u8], at: usize) -> Result<Value, DocumentError> {
    let plain = |needed: usize| match needed <= rest.len() {
        true => Ok(Value::Plain(needed)),
        false => Err(DocumentError::Truncated { at, needed, left: rest.len() }),
    };
    match tag {
        // Double, date, timestamp, 64-bit integer; 32-bit integer; 128-bit decimal; object id.
        0x01 | 0x09 | 0x11 | 0x12 => plain(8),
        0x10 => plain(4),
        0x13 => plain(16),
        0x07 => plain(12),
        // Undefined, null, the least and the greatest key.
        0x06 | 0x0a | 0xff | 0x7f => plain(0),
        // String, code, symbol.
        0x02 | 0x0d | 0x0e => Ok(Value::Plain(string::<UTF8>(rest, at)?)),
        // Database pointer: a string and an object id.
        0x0c => plain(string::<UTF8>(rest, at)? + 12),
        // Document, array.
        0x03 | 0x04 => Ok(Value::Nested { before: 0, length: length(rest, at, 0, MIN_LENGTH)? }),
        0x05 => binary::<UTF8>(rest, at),
        0x08 => match rest.first() {
            Some(0 | 1) => Ok(Value::Plain(1)),
            Some(found) => Err(DocumentError::NotBoolean { at, found: *found }),
            None => plain(1),
        },
        // Regular expression: pattern and options.
        0x0b => {
            let pattern = c_string(rest, at)? + 1;
            Ok(Value::Plain(pattern + c_string(&rest[pattern..], at + pattern)? + 1))
        }
        // Code with scope: the length of it all, the code, and a document that fills the rest.
        0x0f => {
            let total = length(rest, at, 0, 4 + 5 + MIN_LENGTH)?;
            let before = 4 + string::<UTF8>(&rest[4..total], at + 4)?;
            let scope = length(&rest[before..total], at + before, 0, MIN_LENGTH)?;
            match before + scope == total {
                true => Ok(Value::Nested { before, length: scope }),
                false => Err(DocumentError::EndsEarly { at: at + before + scope }),
            }
        }
        tag => Err(DocumentError::UnknownType { at, tag }),
    }
}

/// The length of a string, its own length and its NUL included.
#[inline]
fn string<const UTF8: bool>(rest: &[u8], at: usize) -> Result<usize, DocumentError> {
    let end = 4 + length(rest, at, 4, 1)?;
    match rest[end - 1] {
        0 if UTF8 && core::str::from_utf8(&rest[4..end - 1]).is_err() => Err(DocumentError::NotUtf8 { at: at + 4 }),
        0 => Ok(end),
        _ => Err(DocumentError::Unterminated { at: at + end - 1 }),
    }
}

fn binary<const UTF8: bool>(rest: &[u8], at: usize) -> Result<Value, DocumentError> {
    let content = length(rest, at, 5, 0)?;
    // The old subtype 2 repeats its length. What follows it is found without that.
    if UTF8 && rest[4] == 2 {
        let inner = length(&rest[5..5 + content], at + 5, 4, 0)?;
        if inner + 4 != content {
            return Err(DocumentError::EndsEarly { at: at + 9 + inner });
        }
    }
    Ok(Value::Plain(5 + content))
}

/// The length that starts `rest`: at least `min`, and at most the bytes of `rest` beyond `besides`.
#[inline]
fn length(rest: &[u8], at: usize, besides: usize, min: usize) -> Result<usize, DocumentError> {
    let truncated = DocumentError::Truncated { at, needed: besides.max(4), left: rest.len() };
    let found = i32::from_le_bytes(*rest.first_chunk().ok_or(truncated)?);
    let max = rest.len().checked_sub(besides).ok_or(truncated)?;
    match usize::try_from(found) {
        Ok(length) if length >= min && length <= max => Ok(length),
        Ok(_) | Err(_) => Err(DocumentError::Length { at, found, min, max }),
    }
}
