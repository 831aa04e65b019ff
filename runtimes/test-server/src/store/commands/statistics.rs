//! `collStats`, `dbStats` and `validate`: the counts and sizes that this store knows.

use bson::{RawArrayBuf, RawDocumentBuf};

use crate::document::document;
use crate::store::collection::Collection;
use crate::store::failure::code;
use crate::store::pipeline::count;
use crate::store::{Call, CommandFailure, Store};

pub(super) fn collection(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let namespace = command.namespace()?;
    let found = store.catalog.get(namespace);
    let (documents, bytes) = found.map_or((0, 0), |collection| (collection.len(), collection.bytes()));
    let mut reply = document! {
        "ns": namespace.full(),
        "size": count(bytes),
        "count": count(documents),
        "storageSize": count(bytes),
        "totalIndexSize": 0,
        "nindexes": count(found.map_or(0, |collection| collection.indexes.len())),
        "capped": found.is_some_and(|collection| collection.cap.is_some()),
    };
    if let Some(average) = bytes.checked_div(documents) {
        reply.append(bson::cstr!("avgObjSize"), count(average));
    }
    Ok(reply)
}

pub(super) fn database(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let collections = || store.catalog.collections(command.database).map(|(_, collection)| collection);
    let bytes: usize = collections().map(Collection::bytes).sum();
    Ok(document! {
        "db": command.database,
        "collections": count(collections().count()),
        "views": 0,
        "objects": count(collections().map(Collection::len).sum()),
        "dataSize": count(bytes),
        "storageSize": count(bytes),
        "indexes": count(collections().map(|collection| collection.indexes.len()).sum()),
        "openCursors": count(store.cursors.len()),
    })
}

pub(super) fn validate(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let namespace = command.namespace()?;
    let Some(collection) = store.catalog.get(namespace) else {
        let message = format!("Collection '{}' does not exist to validate.", namespace.full());
        return Err(CommandFailure::new(code::NAMESPACE_NOT_FOUND, message));
    };
    Ok(document! {
        "ns": namespace.full(),
        "nInvalidDocuments": 0,
        "nrecords": count(collection.len()),
        "nIndexes": count(collection.indexes.len()),
        "valid": true,
        "warnings": RawArrayBuf::new(),
        "errors": RawArrayBuf::new(),
    })
}
