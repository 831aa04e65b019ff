//! `find`: the documents that match a query, sorted, limited, projected, in batches.

use bson::RawDocumentBuf;

use crate::store::bounds::{Bounds, key_projection};
use crate::store::cursor::{Cursor, DEFAULT_BATCH_SIZE, Source};
use crate::store::filter::Filter;
use crate::store::projection::Projection;
use crate::store::sort::Sort;
use crate::store::variables::Variables;
use crate::store::{Call, CommandFailure, Store};

#[rustfmt::skip]
const FIELDS: &[&str] = &[
    "filter", "sort", "projection", "hint", "skip", "limit", "batchSize", "singleBatch", "max", "min", "returnKey",
    "showRecordId", "tailable", "oplogReplay", "noCursorTimeout", "awaitData", "allowPartialResults", "collation",
    "allowDiskUse", "let", "includeQueryStatsMetrics",
];

pub(super) fn run(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(FIELDS)?;
    let namespace = command.namespace()?;
    let variables = Variables::read(&arguments, &command.work)?;
    let filter = match arguments.document("filter")? {
        Some(filter) => Filter::parse(&variables.bind(filter)?)?,
        None => Filter::All(Vec::new()),
    };
    let sort = arguments.document("sort")?.map(Sort::parse).transpose()?;
    let projection = arguments.document("projection")?.map(Projection::parse).transpose()?.flatten();
    let skip = arguments.natural("skip")?.unwrap_or(0);
    let limit = arguments.natural("limit")?.filter(|limit| *limit > 0);
    let batch_size = arguments.natural("batchSize")?.unwrap_or(DEFAULT_BATCH_SIZE);
    let single_batch = arguments.boolean("singleBatch")?;
    let is_tailable = arguments.boolean("tailable")?;
    let returns_key = arguments.boolean("returnKey")?;
    // Keys have no place in the collection.
    if arguments.boolean("showRecordId")? && !returns_key {
        return Err(CommandFailure::not_supported("find with showRecordId"));
    }
    if returns_key && projection.is_some() {
        return Err(CommandFailure::not_supported("returnKey with a projection"));
    }
    if arguments.boolean("awaitData")? && !is_tailable {
        return Err(CommandFailure::failed_to_parse("Cannot set 'awaitData' without also setting 'tailable'"));
    }

    let collection = store.catalog.get(namespace);
    let hint = arguments.get("hint");
    let work = &command.work;
    let mut cursor = Cursor::of(namespace.full(), []);
    if let Some(collection) = collection {
        let is_empty = collection.len() == 0;
        collection.check_hint(hint)?;
        if is_tailable && collection.cap.is_none() {
            return Err(CommandFailure::bad_value(
                "error processing query: tailable cursor requested on non capped collection",
            ));
        }
        let bounds = Bounds::read(collection, hint, arguments.document("min")?, arguments.document("max")?)?;
        if is_tailable && bounds.is_some() {
            return Err(CommandFailure::not_supported("min or max of a tailable cursor"));
        }
        if is_tailable && !is_empty {
            cursor.source = Source::Tail { filter, position: None, skip };
            cursor.awaits_data = arguments.boolean("awaitData")?;
            cursor.limit = limit;
        } else {
            // At most one document matches, and the search ends after it.
            let by_id = filter.only_id().is_some().then_some(1);
            let needed = if sort.is_some() || bounds.is_some() { None } else { limit };
            let needed = needed.map_or(usize::MAX, |limit| limit.saturating_add(skip));
            let mut documents: Vec<_> =
                collection.hinted(hint, &filter, needed, work)?.into_iter().map(|(_, document)| document).collect();
            if let Some(bounds) = bounds {
                documents.retain(|document| bounds.hold(document, work));
                work.check()?;
            }
            if let Some(sort) = sort {
                sort.apply(&mut documents, work)?;
            }
            cursor = Cursor::of(namespace.full(), documents.into_iter().skip(skip));
            cursor.limit = limit.or(by_id);
        }
        cursor.projection = match returns_key {
            true => Some(key_projection(collection, hint, arguments.document("sort")?)?),
            false => projection,
        };
    } else {
        // An empty result has no further batch.
        cursor.limit = Some(0);
    }
    if single_batch {
        return cursor.only_batch(batch_size, &store.catalog, collection, work);
    }
    let query = [arguments.document("filter")?, arguments.document("projection")?];
    cursor.query_bytes = query.into_iter().flatten().map(|query| query.as_bytes().len()).sum();
    cursor.no_timeout = arguments.boolean("noCursorTimeout")?;
    store.cursors.open(command, &store.catalog, cursor, batch_size, collection)
}
