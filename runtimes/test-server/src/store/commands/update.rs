//! `update`: documents that match a query are changed; with `upsert`, one is inserted where none matches.

use bson::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf};

use super::writes::{Writes, batch};
use crate::document::document;
use crate::store::arguments::Arguments;
use crate::store::catalog::Namespace;
use crate::store::filter::Filter;
use crate::store::pipeline::Pipeline;
use crate::store::update::Update;
use crate::store::work::Work;
use crate::store::write_error::WriteFailure;
use crate::store::{Call, CommandFailure, Store};

const FIELDS: &[&str] = &["updates", "ordered", "bypassDocumentValidation", "bypassEmptyTsReplacement", "let"];
const STATEMENT: &[&str] = &["q", "u", "c", "multi", "upsert", "collation", "arrayFilters", "hint"];

/// The result of one statement.
struct Updated {
    matched: usize,
    modified: usize,
    upserted: Option<RawBson>,
}

pub(super) fn run(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(FIELDS)?;
    let namespace = command.namespace()?;
    let statements = batch(&arguments, "updates")?;
    for statement in &statements {
        let arguments = Arguments::new("update.updates", statement);
        arguments.check_known(STATEMENT)?;
        if let Some(stages) = arguments.get("u").and_then(|update| update.as_array()) {
            Pipeline::check_names(stages)?;
        }
    }
    let mut writes = Writes::new(&arguments)?;
    let (mut modified, mut upserted) = (0, RawArrayBuf::new());
    for statement in statements {
        let outcome = update(store, namespace, statement, &command.work);
        if let Ok(Updated { upserted: Some(id), .. }) = &outcome {
            upserted.push(document! { "index": writes.index(), "_id": id });
        }
        modified += outcome.as_ref().map_or(0, |updated| updated.modified);
        if !writes.add(outcome.map(|updated| updated.matched)) || command.work.is_over() {
            break;
        }
    }
    let mut reply = document! { "n": writes.count() };
    if !upserted.is_empty() {
        reply.append(bson::cstr!("upserted"), upserted);
    }
    reply.append(bson::cstr!("nModified"), i32::try_from(modified).unwrap_or(i32::MAX));
    Ok(writes.append_errors(reply))
}

fn update(
    store: &mut Store,
    namespace: Namespace<'_>,
    statement: &RawDocument,
    work: &Work,
) -> Result<Updated, WriteFailure> {
    let arguments = Arguments::new("update.updates", statement);
    let filter = Filter::parse(arguments.required("q", arguments.document("q")?)?)?;
    let update = Update::parse(arguments.required("u", arguments.get("u"))?, arguments.array("arrayFilters")?)?;
    let (multi, upsert) = (arguments.boolean("multi")?, arguments.boolean("upsert")?);
    if multi && update.replaces() {
        return Err(
            CommandFailure::failed_to_parse("multi update is not supported for replacement-style update").into()
        );
    }
    let limit = if multi { usize::MAX } else { 1 };
    let collection = store.catalog.get(namespace);
    let hint = arguments.get("hint");
    let matching = collection.map_or(Ok(Vec::new()), |collection| collection.hinted(hint, &filter, limit, work))?;
    if matching.is_empty() && upsert {
        let document = store.catalog.with_id(&update.insertion(&filter, work)?);
        let id = document.get("_id").ok().flatten().map(RawBson::from);
        store.catalog.get_or_create(namespace)?.insert(document, work)?;
        return Ok(Updated { matched: 1, modified: 0, upserted: id });
    }
    let mut updated = Updated { matched: matching.len(), modified: 0, upserted: None };
    if let Some(collection) = store.catalog.get_mut(namespace) {
        for (record, old) in matching {
            let new = update.apply(&old, work)?;
            updated.modified += usize::from(collection.replace((record, old), new, work)?);
        }
    }
    Ok(updated)
}
