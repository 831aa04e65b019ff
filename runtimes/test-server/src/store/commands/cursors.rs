//! `getMore` and `killCursors`.

use bson::{RawArrayBuf, RawDocumentBuf};

use crate::document::document;
use crate::store::arguments::values;
use crate::store::catalog::Namespace;
use crate::store::{Call, CommandFailure, Store};

/// The next batch: as large as a reply can be, unless the command limits the documents; zero means no limit.
pub(super) fn get_more(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(&[
        "collection",
        "batchSize",
        "term",
        "lastKnownCommittedOpTime",
        "includeQueryStatsMetrics",
    ])?;
    let id = arguments.get("getMore");
    let id = id
        .and_then(|id| id.as_i64())
        .ok_or_else(|| arguments.wrong_type("getMore", id.unwrap_or(bson::RawBsonRef::Null), "long"))?;
    let collection = arguments.required("collection", arguments.string("collection")?)?;
    if collection.is_empty() {
        let message = format!("Invalid namespace specified '{}.'", command.database);
        return Err(CommandFailure::invalid_namespace(message));
    }
    let batch_size = arguments.natural("batchSize")?.filter(|size| *size > 0).unwrap_or(usize::MAX);
    let namespace = Namespace { database: command.database, collection };
    let Store { catalog, cursors, .. } = store;
    cursors.get_more(command, id, namespace, batch_size, catalog)
}

pub(super) fn kill(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(&["cursors"])?;
    let collection = arguments.required("killCursors", arguments.string("killCursors")?)?;
    let ids = arguments.required("cursors", arguments.array("cursors")?)?;
    let ids: Vec<_> = values(ids)
        .map(|id| id.as_i64().ok_or_else(|| arguments.wrong_type("cursors", id, "long")))
        .collect::<Result<_, _>>()?;
    let namespace = Namespace { database: command.database, collection }.full();
    let (mut killed, mut not_found) = (RawArrayBuf::new(), RawArrayBuf::new());
    for id in ids {
        if store.cursors.kill(id, &namespace) { killed.push(id) } else { not_found.push(id) }
    }
    Ok(document! {
        "cursorsKilled": killed,
        "cursorsNotFound": not_found,
        "cursorsAlive": RawArrayBuf::new(),
        "cursorsUnknown": RawArrayBuf::new(),
    })
}
