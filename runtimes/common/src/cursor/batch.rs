//! A batch: the documents of a reply, read in place.
//!
//! The reply stays as the server sent it. A place in its bytes moves from document to document, so that reading a batch
//! allocates nothing.

use std::ops::Range;

use bson::{RawDocument, RawDocumentBuf};
use cmap_core::wire::integer;

use crate::error::CursorError;

/// BSON's type of a document.
const DOCUMENT: u8 = 0x03;

/// The documents of a reply that have not been read.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Freed with its last document.
    reply: Option<RawDocumentBuf>,
    /// The elements of the array that have not been read.
    rest: Range<usize>,
    /// The document that was read last.
    current: Range<usize>,
}

/// What a reply says about its cursor, besides its documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CursorReply {
    /// 0 if the server has no more.
    pub(super) id: i64,
    pub(super) database: String,
    pub(super) collection: String,
}

impl Batch {
    /// The batch of a reply to a command that makes a cursor, or to a getMore.
    pub(super) fn of(reply: RawDocumentBuf) -> Result<(Self, CursorReply), CursorError> {
        let cursor = reply.get_document("cursor").map_err(|_| CursorError::NoCursor)?;
        let id = cursor.get("id").ok().flatten().and_then(integer).ok_or(CursorError::NoCursor)?;
        let (database, collection) = cursor.get_str("ns").ok().and_then(|ns| ns.split_once('.')).unwrap_or_default();
        let said = CursorReply { id, database: database.to_owned(), collection: collection.to_owned() };
        let array = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch"));
        let array = array.map_err(|_| CursorError::MalformedBatch)?.as_bytes();
        let start = array.as_ptr().addr() - reply.as_bytes().as_ptr().addr();
        // Between its length and its last zero.
        let rest = start + size_of::<i32>()..start + array.len() - 1;
        Ok((Self { reply: Some(reply), rest, current: 0..0 }, said))
    }

    /// Goes on to the next document; returns whether there is one.
    pub(super) fn advance(&mut self) -> Result<bool, CursorError> {
        if self.rest.is_empty() {
            *self = Self::default();
            return Ok(false);
        }
        self.current = self.next_document().ok_or(CursorError::MalformedBatch)?;
        self.rest.start = self.current.end;
        Ok(true)
    }

    /// The place of the next document.
    fn next_document(&self) -> Option<Range<usize>> {
        let bytes = self.reply.as_ref()?.as_bytes().get(..self.rest.end)?;
        let (kind, name) = bytes.get(self.rest.start..)?.split_first()?;
        let name_length = name.iter().position(|byte| *byte == 0)?;
        let start = self.rest.start + 1 + name_length + 1;
        let length = i32::from_le_bytes(*bytes.get(start..)?.first_chunk()?);
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        let document = RawDocument::from_bytes(bytes.get(start..end)?);
        (*kind == DOCUMENT && document.is_ok()).then_some(start..end)
    }

    /// The document that was read last.
    pub(super) fn current(&self) -> Option<&RawDocument> {
        let bytes = self.reply.as_ref()?.as_bytes().get(self.current.clone())?;
        RawDocument::from_bytes(bytes).ok()
    }

    /// The reply, until its last document has been read.
    pub(super) fn reply(&self) -> Option<&RawDocument> {
        self.reply.as_deref()
    }

    /// Whether all documents have been read.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};
    use cmap_core::random::Random;

    use super::*;

    fn reply(documents: i32) -> RawDocumentBuf {
        let mut batch = RawArrayBuf::new();
        (0..documents).for_each(|n| batch.push(rawdoc! { "n": n }));
        rawdoc! { "cursor": { "firstBatch": batch, "id": 5_i64, "ns": "db.c.d" }, "ok": 1.0 }
    }

    #[test]
    fn documents_come_in_their_order_and_the_reply_is_freed_behind_the_last() {
        let (mut batch, said) = Batch::of(reply(12)).unwrap();

        let mut read = Vec::new();
        while batch.advance().unwrap() {
            read.push(batch.current().unwrap().get_i32("n").unwrap());
        }

        assert_eq!(read, (0..12).collect::<Vec<_>>());
        assert_eq!(said, CursorReply { id: 5, database: "db".into(), collection: "c.d".into() });
        assert!(batch.is_empty() && batch.reply.is_none() && batch.current().is_none());
    }

    #[test]
    fn a_batch_of_the_next_kind_may_be_empty_and_its_id_an_int() {
        let reply = rawdoc! { "cursor": { "nextBatch": [], "id": 0, "ns": "db.c" } };

        let (mut batch, said) = Batch::of(reply).unwrap();

        assert!(batch.is_empty());
        assert_eq!((batch.advance(), said.id), (Ok(false), 0));
    }

    #[test]
    fn a_reply_without_a_cursor_is_told_from_one_with_a_bad_batch() {
        let refused = |reply| Batch::of(reply).unwrap_err();

        assert_eq!(refused(rawdoc! { "ok": 1.0 }), CursorError::NoCursor);
        assert_eq!(refused(rawdoc! { "cursor": { "firstBatch": [], "ns": "db.c" } }), CursorError::NoCursor);
        assert_eq!(refused(rawdoc! { "cursor": { "id": 1_i64, "firstBatch": 5 } }), CursorError::MalformedBatch);
    }

    #[test]
    fn what_is_no_document_ends_the_batch_with_an_error() {
        let mixed = rawdoc! { "cursor": { "firstBatch": [{ "n": 1 }, "text"], "id": 0, "ns": "db.c" } };
        let (mut batch, _) = Batch::of(mixed).unwrap();

        assert_eq!(batch.advance(), Ok(true));
        assert_eq!(batch.advance(), Err(CursorError::MalformedBatch));
    }

    #[test]
    fn bytes_changed_at_random_neither_panic_nor_lead_outside_of_the_batch() {
        let good = reply(5);
        for seed in 0..20_000 {
            let mut random = Random::new(seed);
            let mut bytes = good.as_bytes().to_vec();
            for _ in 0..=random.up_to(3) {
                let at = usize::try_from(random.up_to(bytes.len() as u64 - 1)).unwrap();
                bytes[at] = u8::try_from(random.up_to(255)).unwrap();
            }
            let Ok(changed) = RawDocumentBuf::from_bytes(bytes) else { continue };
            let Ok((mut batch, _)) = Batch::of(changed) else { continue };
            let mut documents = 0;
            while let Ok(true) = batch.advance() {
                documents += batch.current().map_or(0, |document| document.as_bytes().len());
            }
            assert!(documents <= good.as_bytes().len(), "seed {seed}");
        }
    }
}
