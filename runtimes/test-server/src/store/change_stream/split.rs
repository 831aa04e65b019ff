//! `$changeStreamSplitLargeEvent`: the parts of an event that is too large for one document.
//!
//! Each part has some of the event's fields, an `_id` of its own, and `splitEvent` with its number and that of all parts.

use std::sync::Arc;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use cmap_core::wire::Limits;

use super::token::Token;
use crate::document::document;
use crate::store::failure::{CommandFailure, code};
use crate::store::meter::Stored;
use crate::store::pipeline::count;
use crate::store::work::Work;

/// What `_id` and `splitEvent` take in each part, at most.
const OVERHEAD: usize = 256;

/// The parts of a document. `token` makes that of the part with a number, from 1 on.
pub(super) fn split(
    document: &RawDocument,
    token: impl Fn(u32) -> Token,
    work: &Work,
) -> Result<Vec<(Arc<Stored>, Token)>, CommandFailure> {
    let max = Limits::DEFAULT.max_document_size as usize - OVERHEAD;
    let mut parts = vec![RawDocumentBuf::new()];
    for (name, value) in document.iter().filter_map(Result::ok).filter(|(name, _)| name.as_str() != "_id") {
        let size = size(name.as_str(), value);
        if size > max {
            let message = format!("Splitting change event failed: the field {name} alone is too large");
            return Err(CommandFailure::new(code::BSON_OBJECT_TOO_LARGE, message));
        }
        if parts.last().is_some_and(|part| part.as_bytes().len() + size > max) {
            parts.push(RawDocumentBuf::new());
        }
        if let Some(part) = parts.last_mut() {
            part.append(name, value);
        }
    }
    work.copy(document.as_bytes().len());
    let all = parts.len();
    let numbered = (1..).zip(parts).map(|(number, part)| {
        let token = token(number);
        let place = document! { "fragment": count(number as usize), "of": count(all) };
        let mut document = document! { "_id": token.to_document(), "splitEvent": place };
        part.iter().filter_map(Result::ok).for_each(|(name, value)| document.append(name, value));
        (Arc::new(Stored::computed(document)), token)
    });
    Ok(numbered.collect())
}

/// The bytes of a field.
fn size(name: &str, value: RawBsonRef<'_>) -> usize {
    let mut field = RawDocumentBuf::new();
    field.append(bson::cstr!("x"), value);
    field.as_bytes().len() + name.len()
}
