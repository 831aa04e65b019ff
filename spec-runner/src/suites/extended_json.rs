//! Extended JSON, as test files write BSON, to BSON.

use bson::{Bson, Document};
use serde_json::Value;

/// The BSON value that `value` writes; an error says why there is none.
pub(crate) fn bson(value: Value) -> Result<Bson, String> {
    Bson::try_from(value).map_err(|error| format!("is not Extended JSON: {error}"))
}

/// The document that `value` writes; an error says why there is none.
pub(crate) fn document(value: Value) -> Result<Document, String> {
    let Bson::Document(document) = bson(value.clone())? else {
        return Err(format!("expected a document, not {value}"));
    };
    Ok(document)
}
