//! The common part of insert, update and delete: a batch of writes, each of which may fail.

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf};

use crate::store::arguments::Arguments;
use crate::store::failure::{CommandFailure, code};
use crate::store::write_error::WriteFailure;

/// After how many bytes of errors the others have no sentences, so that the reply stays short.
const MAX_ERRORS: usize = 1 << 20;

/// The outcomes of the writes so far.
#[derive(Debug)]
pub(super) struct Writes {
    is_ordered: bool,
    index: i32,
    count: i32,
    errors: RawArrayBuf,
}

/// The documents of a batch: at least one, and at most `max`.
pub(super) fn batch<'a>(
    arguments: &Arguments<'a>,
    name: &str,
    max: usize,
) -> Result<Vec<&'a RawDocument>, CommandFailure> {
    let batch = arguments.documents(name)?;
    if batch.is_empty() || batch.len() > max {
        let found = batch.len();
        let message = format!("Write batch sizes must be between 1 and {max}. Got {found} operations.");
        return Err(CommandFailure::new(code::INVALID_LENGTH, message));
    }
    Ok(batch)
}

impl Writes {
    /// Nothing has been written; a batch is ordered unless the command says otherwise.
    pub(super) fn new(arguments: &Arguments<'_>) -> Result<Self, CommandFailure> {
        let is_ordered = arguments.get("ordered").is_none() || arguments.boolean("ordered")?;
        Ok(Self { is_ordered, index: 0, count: 0, errors: RawArrayBuf::new() })
    }

    /// The index of the next write.
    pub(super) fn index(&self) -> i32 {
        self.index
    }

    /// How many documents were written.
    pub(super) fn count(&self) -> i32 {
        self.count
    }

    /// Counts a write by the number of its documents; returns whether to carry out the next one.
    pub(super) fn add(&mut self, outcome: Result<usize, WriteFailure>) -> bool {
        let goes_on = match outcome {
            Ok(count) => {
                self.count = self.count.saturating_add(i32::try_from(count).unwrap_or(i32::MAX));
                true
            }
            Err(failure) => {
                let is_short = self.errors.as_bytes().len() > MAX_ERRORS;
                self.errors.push(failure.to_document(self.index, is_short));
                !self.is_ordered
            }
        };
        self.index += 1;
        goes_on
    }

    /// `reply` with the errors, if there are any.
    pub(super) fn append_errors(&self, mut reply: RawDocumentBuf) -> RawDocumentBuf {
        if !self.errors.is_empty() {
            reply.append(bson::cstr!("writeErrors"), &self.errors);
        }
        reply
    }
}
