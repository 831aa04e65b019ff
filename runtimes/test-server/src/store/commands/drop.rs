//! `drop` and `dropDatabase`. Dropping something that does not exist succeeds, too, as on servers since MongoDB 7.0.

use bson::RawDocumentBuf;

use crate::document::document;
use crate::store::pipeline::count;
use crate::store::{Call, CommandFailure, Store};

pub(super) fn collection(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    command.arguments().check_known(&["encryptedFields", "collectionUUID"])?;
    let namespace = command.namespace()?;
    let Some(collection) = store.catalog.remove(namespace) else { return Ok(RawDocumentBuf::new()) };
    store.cursors.drop_collections(|namespace| namespace == collection.namespace);
    Ok(document! { "nIndexesWas": count(collection.indexes.len()), "ns": collection.namespace.as_str() })
}

pub(super) fn database(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let Some(collections) = store.catalog.remove_database(command.database) else { return Ok(RawDocumentBuf::new()) };
    store.cursors.drop_collections(|namespace| {
        let (database, collection) = namespace.split_once('.').unwrap_or_default();
        database == command.database && collections.contains_key(collection)
    });
    Ok(document! { "dropped": command.database })
}
