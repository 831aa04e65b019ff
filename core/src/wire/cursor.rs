//! Reading forward through untrusted bytes.
//!
//! A [`Cursor`] hands out one piece after the other and never reads past its end: a missing piece becomes an error that
//! names the piece, how many bytes it needs and how many there are.

use bson::RawDocument;

use super::document;
use super::error::WireError;

/// The bytes that are not read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], WireError> {
        let truncated = WireError::Truncated { what, needed: count, found: self.rest.len() };
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, WireError> {
        self.array(what).map(u8::from_le_bytes)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, WireError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self, what: &'static str) -> Result<i32, WireError> {
        self.array(what).map(i32::from_le_bytes)
    }

    pub(super) fn i64(&mut self, what: &'static str) -> Result<i64, WireError> {
        self.array(what).map(i64::from_le_bytes)
    }

    /// Text up to a NUL, which is read too.
    pub(super) fn c_string(&mut self, what: &'static str) -> Result<&'a str, WireError> {
        let length = document::find_nul(self.rest).ok_or(WireError::InvalidText { what, problem: "has no end" })?;
        let text = self.take(length + 1, what)?;
        core::str::from_utf8(&text[..length]).map_err(|_| WireError::InvalidText { what, problem: "is not UTF-8" })
    }

    /// A document of at most `max` bytes, checked at every depth, its strings included if `UTF8` is set.
    pub(super) fn document<const UTF8: bool>(&mut self, max: usize) -> Result<&'a RawDocument, WireError> {
        let announced = Self { rest: self.rest }.i32("a document's length")?;
        let length = usize::try_from(announced).unwrap_or(0);
        if length < document::MIN_LENGTH {
            return Err(WireError::DocumentTooShort { length: announced, min: document::MIN_LENGTH });
        }
        if length > max {
            return Err(WireError::DocumentTooLong { length, max });
        }
        Ok(document::check::<UTF8>(self.take(length, "a document")?)?)
    }

    /// Fails unless all of `what` has been read.
    pub(super) fn end(self, what: &'static str) -> Result<(), WireError> {
        match self.rest.len() {
            0 => Ok(()),
            count => Err(WireError::TrailingBytes { what, count }),
        }
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], WireError> {
        let truncated = WireError::Truncated { what, needed: N, found: self.rest.len() };
        let (taken, rest) = self.rest.split_first_chunk().ok_or(truncated)?;
        self.rest = rest;
        Ok(*taken)
    }
}
