//! The result of all batches of an operation.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use bson::{Bson, RawDocumentBuf};

use crate::wire::{ServerError, WriteError};

/// What the batches of an operation have done together. Places are those in the sequence that was given, from 0.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WriteResult {
    /// The documents that were inserted, without those that updates inserted.
    pub inserted: u64,
    /// The documents that updates matched.
    pub matched: u64,
    /// The documents that updates changed.
    pub modified: u64,
    /// The documents that were deleted.
    pub deleted: u64,
    /// The documents that updates inserted since they matched none.
    pub upserts: u64,
    /// Those documents, one by one; of a bulkWrite only with `errorsOnly: false`.
    pub upserted: Vec<Upserted>,
    /// What became of each item of a bulkWrite with `errorsOnly: false` that has not failed.
    pub outcomes: Vec<Outcome>,
    /// The items that were not carried out. The first one ended the operation, unless it has `ordered: false` (BW-12).
    pub errors: Vec<WriteError>,
    /// The write concerns that were not satisfied, in the order of the batches: what those have written may be lost (BW-13, X-172).
    pub concern_errors: Vec<ConcernError>,
    /// Whether the server was asked what became of the writes. With `w: 0` all numbers are 0.
    pub is_acknowledged: bool,
    /// The labels that servers gave to errors of batches.
    pub(super) labels: Vec<String>,
    /// Whether a write is known to be done.
    pub(super) has_written: bool,
}

/// A document that an update inserted.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Upserted {
    /// The place of the update among those of its command, or of its operation, from 0. The greatest number stands for all beyond it.
    pub index: u32,
    /// The document's `_id`.
    pub id: Bson,
}

impl Upserted {
    /// A document with this `_id`, which the update at this place inserted.
    pub fn new(index: u32, id: Bson) -> Self {
        Self { index, id }
    }
}

/// What an item of a bulkWrite has done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// The place of the item. The greatest number stands for all beyond it.
    pub index: u32,
    /// The documents that it inserted or deleted, or that it matched; 1 for a document that an update inserted.
    pub n: u64,
    /// The documents that an update changed; `None` for other items.
    pub modified: Option<u64>,
}

/// A write concern that was not satisfied.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConcernError {
    /// The server's error.
    pub error: ServerError,
    /// `errInfo`, as the server wrote it.
    pub details: Option<RawDocumentBuf>,
}

impl WriteResult {
    /// The documents that were inserted, matched or deleted: what replies call `n`, which counts an upserted document, too.
    pub fn n(&self) -> u64 {
        self.inserted + self.matched + self.deleted + self.upserts
    }

    /// Whether all that was sent was carried out, with the write concern that was asked for.
    pub fn is_complete(&self) -> bool {
        self.errors.is_empty() && self.concern_errors.is_empty()
    }

    /// Whether a server has said of a write that it was carried out (BW-16). After an error, others may have been, too.
    pub fn has_written(&self) -> bool {
        self.has_written
    }

    /// The code of the first item that failed, or else of the first write concern.
    pub fn code(&self) -> Option<i32> {
        let of_item = self.errors.iter().find_map(|error| error.code);
        of_item.or_else(|| self.concern_errors.iter().find_map(|concern| concern.error.code))
    }

    /// Whether the server exceeded its time limit for an item, or for a write concern (CSOT-15).
    pub fn is_timeout(&self) -> bool {
        const MAX_TIME_MS_EXPIRED: Option<i32> = Some(50);
        self.errors.iter().any(|error| error.code == MAX_TIME_MS_EXPIRED)
            || self.concern_errors.iter().any(|concern| concern.error.is_timeout())
    }

    /// Whether a server gave this label to an error.
    pub fn has_label(&self, label: &str) -> bool {
        self.labels.iter().any(|own| own == label)
    }
}

/// The errors in it, as a sentence.
impl fmt::Display for WriteResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errors.as_slice() {
            [] => f.write_str("the writes were carried out")?,
            [error] => write!(f, "a write failed: {error}")?,
            [error, ..] => write!(f, "{} writes failed, the first one: {error}", self.errors.len())?,
        }
        match self.concern_errors.as_slice() {
            [] => Ok(()),
            [first, ..] => write!(f, "; the write concern was not satisfied: {}", first.error),
        }
    }
}
