//! `findAndModify`: one document that matches is changed or removed, and returned as it was or as it became.

use bson::{RawBson, RawDocument, RawDocumentBuf};

use crate::document::document;
use crate::store::filter::Filter;
use crate::store::projection::Projection;
use crate::store::sort::Sort;
use crate::store::update::Update;
use crate::store::variables::Variables;
use crate::store::{Call, CommandFailure, Store};

#[rustfmt::skip]
const FIELDS: &[&str] = &[
    "query", "sort", "remove", "update", "new", "fields", "upsert", "bypassDocumentValidation", "collation",
    "bypassEmptyTsReplacement", "arrayFilters", "hint", "let",
];

pub(super) fn run(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(FIELDS)?;
    let namespace = command.namespace()?;
    let variables = Variables::read(&arguments, &command.work)?;
    let filter = Filter::parse(&variables.bind(arguments.document("query")?.unwrap_or(&RawDocumentBuf::new()))?)?;
    let sort = arguments.document("sort")?.map(Sort::parse).transpose()?;
    let projection = arguments.document("fields")?.map(Projection::parse).transpose()?.flatten();
    let array_filters = arguments.array("arrayFilters")?;
    let update = arguments.get("update").map(|update| variables.bind_update(update)).transpose()?;
    let update = update.map(|update| Update::parse(update.as_raw_bson_ref(), array_filters)).transpose()?;
    let (remove, new, upsert) = (arguments.boolean("remove")?, arguments.boolean("new")?, arguments.boolean("upsert")?);
    let work = &command.work;
    let shown = |document: &RawDocument| match &projection {
        None => RawBson::Document(document.to_owned()),
        Some(projection) => RawBson::Document(projection.apply(document, work)),
    };

    let limit = if sort.is_some() { usize::MAX } else { 1 };
    let collection = store.catalog.get(namespace);
    let hint = arguments.get("hint");
    let mut matching = collection.map_or(Ok(Vec::new()), |all| all.hinted(hint, &filter, limit, work))?;
    if let Some(sort) = sort {
        sort.apply_to(&mut matching, work, |(_, document)| document)?;
    }
    let found = matching.into_iter().next();

    let Some(update) = update else {
        if !remove {
            return Err(CommandFailure::failed_to_parse("Either an update or remove=true must be specified"));
        }
        if upsert || new {
            return Err(CommandFailure::failed_to_parse(
                "Cannot specify upsert=true or new=true with remove=true: a removed document has no new version",
            ));
        }
        let value = found.as_ref().map_or(RawBson::Null, |(record, document)| {
            store.catalog.delete(namespace, *record, work);
            shown(document)
        });
        let count = i32::from(found.is_some());
        return Ok(document! { "lastErrorObject": document! { "n": count }, "value": value });
    };
    if remove {
        return Err(CommandFailure::failed_to_parse("Cannot specify both an update and remove=true"));
    }
    match found {
        Some((record, old)) => {
            let changed = update.apply(&old, work)?;
            let value = if new { shown(&changed) } else { shown(&old) };
            store.catalog.replace(namespace, (record, old), changed, update.manner(), work)?;
            Ok(document! { "lastErrorObject": document! { "n": 1, "updatedExisting": true }, "value": value })
        }
        None if upsert => {
            let document = store.catalog.with_id(&update.insertion(&filter, work)?);
            let id = document.get("_id").ok().flatten().map_or(RawBson::Null, RawBson::from);
            let value = if new { shown(&document) } else { RawBson::Null };
            store.catalog.insert(namespace, document, work)?;
            let last_error = document! { "n": 1, "updatedExisting": false, "upserted": id };
            Ok(document! { "lastErrorObject": last_error, "value": value })
        }
        None => {
            Ok(document! { "lastErrorObject": document! { "n": 0, "updatedExisting": false }, "value": RawBson::Null })
        }
    }
}
