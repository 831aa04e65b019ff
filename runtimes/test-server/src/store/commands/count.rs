//! `count`: how many documents match.

use std::sync::Arc;

use bson::RawDocumentBuf;

use crate::document::document;
use crate::store::filter::Filter;
use crate::store::meter::Stored;
use crate::store::pipeline::count;
use crate::store::{Call, CommandFailure, Store};

const FIELDS: &[&str] = &["query", "limit", "skip", "hint", "collation", "fields", "readConcern"];

pub(super) fn run(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(FIELDS)?;
    let namespace = command.namespace()?;
    let filter = Filter::parse(arguments.document("query")?.unwrap_or(&RawDocumentBuf::new()))?;
    let skip = arguments.natural("skip")?.unwrap_or(0);
    // A negative limit means its absolute value; zero means none.
    let limit = arguments.integer("limit")?.unwrap_or(0).unsigned_abs();
    let limit = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };

    let collection = store.catalog.get(namespace);
    let Some(collection) = collection else { return Ok(document! { "n": 0 }) };
    let is_match = |document: &&Arc<Stored>| {
        command.work.step(1);
        filter.matches(document, &command.work)
    };
    let matching = match arguments.get("hint") {
        None => collection.documents().filter(is_match).skip(skip).take(limit).count(),
        // A sparse index lacks documents.
        hint => collection.hinted(hint, &filter, limit.saturating_add(skip), &command.work)?.len().saturating_sub(skip),
    };
    Ok(document! { "n": count(matching) })
}
