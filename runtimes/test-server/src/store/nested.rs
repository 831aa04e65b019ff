//! What is nested in a value.

use bson::{RawBsonRef, RawDocument};

/// The number of values in a document, an array, or what is none of them. Texts that are no UTF-8 are errors.
pub(super) fn count_in(value: RawBsonRef<'_>) -> Result<usize, bson::error::Error> {
    let mut count = 0;
    for field in nested(value).transpose()?.into_iter().flat_map(RawDocument::iter) {
        count += 1 + count_in(field?.1)?;
    }
    Ok(count)
}

/// The document in a value.
pub(super) fn nested(value: RawBsonRef<'_>) -> Option<Result<&RawDocument, bson::error::Error>> {
    let array = || Some(RawDocument::from_bytes(value.as_array()?.as_bytes()));
    let scope = || value.as_javascript_with_scope().map(|code| Ok(code.scope));
    value.as_document().map(Ok).or_else(array).or_else(scope)
}
