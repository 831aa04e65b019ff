//! What the replies to batches add to the result (BW-11).

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use bson::{Bson, RawBsonRef, RawDocument};

use super::kind::Kind;
use super::result::{ConcernError, Outcome, Upserted, WriteResult};
use crate::wire::{CommandReply, WriteError, integer};

/// The most bytes that the texts of all errors have together; the codes of the others are kept.
const MAX_TEXTS_LENGTH: usize = 256 * 1024;

/// The most labels that are kept.
const MAX_LABELS: usize = 64;

/// The result so far, and what is known of the batch in hand.
#[derive(Debug)]
pub(super) struct Merge {
    pub(super) result: WriteResult,
    texts_left: usize,
    /// How many items of the batch have failed, as its reply says.
    failed: u64,
    /// How many of these errors have been read.
    read: u64,
}

impl Merge {
    pub(super) fn new() -> Self {
        let result = WriteResult { is_acknowledged: true, ..WriteResult::default() };
        Self { result, texts_left: MAX_TEXTS_LENGTH, failed: 0, read: 0 }
    }

    /// The reply to a batch of this many items came, the first of which has the place `offset`.
    pub(super) fn add_reply(&mut self, reply: &RawDocument, kind: Kind, is_ordered: bool, items: usize, offset: u64) {
        (self.failed, self.read) = (0, 0);
        let result = &mut self.result;
        let n = count(reply, "n");
        match kind {
            Kind::Insert => result.inserted += n,
            Kind::Delete => result.deleted += n,
            Kind::Update => {
                let before = result.upserted.len();
                result.upserted.extend(upserts(reply).map(|upsert| upsert.behind(offset)));
                let upserts = (result.upserted.len() - before) as u64;
                result.matched += n.saturating_sub(upserts);
                result.modified += count(reply, "nModified");
                result.upserts += upserts;
            }
            Kind::Bulk => {
                result.inserted += count(reply, "nInserted");
                result.matched += count(reply, "nMatched");
                result.modified += count(reply, "nModified");
                result.deleted += count(reply, "nDeleted");
                result.upserts += count(reply, "nUpserted");
                self.failed = count(reply, "nErrors");
            }
        }
        let mut first = None;
        if let Some(failure) = CommandReply::read(reply).write_failure() {
            first = failure.writes.first().and_then(|error| error.index);
            if kind != Kind::Bulk {
                self.failed = failure.writes.len() as u64;
                failure.writes.into_iter().for_each(|error| self.add_error(error, offset));
            }
            if let Some(error) = failure.write_concern {
                let of_concern = reply.get_document("writeConcernError").ok();
                let details =
                    of_concern.and_then(|concern| concern.get_document("errInfo").ok()).map(ToOwned::to_owned);
                self.result.concern_errors.push(ConcernError { error: *error, details });
            }
            self.add_labels(failure.labels);
        }
        // BW-16.
        self.result.has_written |= match is_ordered {
            true => self.failed == 0 || first.is_some_and(|index| index > 0),
            false => self.failed < items as u64,
        };
    }

    /// A document of a bulkWrite's results cursor came.
    pub(super) fn add_result(&mut self, document: &RawDocument, is_ordered: bool, offset: u64) {
        let index = document.get("idx").ok().flatten().and_then(integer).and_then(|index| u32::try_from(index).ok());
        if !CommandReply::read(document).ok {
            self.read += 1;
            // Those before it were carried out.
            self.result.has_written |= is_ordered && index.is_some_and(|index| index > 0);
            let error = WriteError { index, ..WriteError::read(document, &mut self.texts_left.clone()) };
            self.add_error(error, offset);
            return;
        }
        let place = behind(index.unwrap_or_default(), offset);
        self.result.has_written = true;
        let modified = document.get("nModified").ok().flatten().and_then(integer);
        let modified = modified.map(|count| u64::try_from(count).unwrap_or_default());
        self.result.outcomes.push(Outcome { index: place, n: count(document, "n"), modified });
        if let Some(id) = document.get_document("upserted").ok().and_then(id) {
            self.result.upserted.push(Upserted { index: place, id });
        }
    }

    /// The batch is done; whether one of its items has failed.
    pub(super) fn end_batch(&mut self) -> bool {
        let has_failed = self.failed > 0;
        if has_failed && self.read == 0 && self.result.errors.is_empty() {
            // The server counts an error, and does not say which.
            self.result.errors.push(WriteError { index: None, code: None, message: String::new(), details: None });
        }
        (self.failed, self.read) = (0, 0);
        has_failed
    }

    /// Whether the server has counted items as failed whose errors have not been read.
    pub(super) fn has_unread_errors(&self) -> bool {
        self.read < self.failed
    }

    pub(super) fn has_read_errors(&self) -> bool {
        self.read > 0
    }

    fn add_error(&mut self, mut error: WriteError, offset: u64) {
        error.index = error.index.and_then(|index| u32::try_from(offset + u64::from(index)).ok());
        let details = error.details.as_ref().map_or(0, |details| details.as_bytes().len());
        match self.texts_left.checked_sub(error.message.len() + details) {
            Some(left) => self.texts_left = left,
            None => (error.message, error.details) = (String::new(), None),
        }
        self.result.errors.push(error);
    }

    fn add_labels(&mut self, labels: Vec<String>) {
        let own = &mut self.result.labels;
        for label in labels {
            if own.len() < MAX_LABELS && !own.contains(&label) {
                own.push(label);
            }
        }
    }
}

impl Upserted {
    fn behind(self, offset: u64) -> Self {
        Self { index: behind(self.index, offset), ..self }
    }
}

/// The place in the operation of an item of a batch.
fn behind(index: u32, offset: u64) -> u32 {
    u32::try_from(offset + u64::from(index)).unwrap_or(u32::MAX)
}

fn count(document: &RawDocument, field: &str) -> u64 {
    let count = document.get(field).ok().flatten().and_then(integer);
    count.and_then(|count| u64::try_from(count).ok()).unwrap_or_default()
}

fn upserts(reply: &RawDocument) -> impl Iterator<Item = Upserted> {
    let listed = reply.get_array("upserted").into_iter().flatten();
    listed.filter_map(|upsert| {
        let upsert = upsert.ok().and_then(RawBsonRef::as_document)?;
        let index = integer(upsert.get("index").ok()??)?;
        Some(Upserted { index: u32::try_from(index).ok()?, id: id(upsert)? })
    })
}

fn id(document: &RawDocument) -> Option<Bson> {
    Bson::try_from(document.get("_id").ok()??).ok()
}
