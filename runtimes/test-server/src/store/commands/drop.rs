//! `drop` and `dropDatabase`. Dropping something that does not exist succeeds, too, as on servers since MongoDB 7.0.

use bson::RawDocumentBuf;

use crate::document::document;
use crate::store::catalog::Namespace;
use crate::store::history::Change;
use crate::store::pipeline::count;
use crate::store::{Call, CommandFailure, Store};

pub(super) fn collection(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    command.arguments().check_known(&["encryptedFields", "collectionUUID"])?;
    let namespace = command.namespace()?;
    let Some(collection) = store.catalog.remove(namespace) else { return Ok(RawDocumentBuf::new()) };
    store.catalog.history.note(namespace, collection.uuid, || Change::Drop);
    store.cursors.drop_collections(|namespace| namespace == collection.namespace);
    Ok(document! { "nIndexesWas": count(collection.indexes.len()), "ns": collection.namespace.as_str() })
}

pub(super) fn database(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let Some(collections) = store.catalog.remove_database(command.database) else { return Ok(RawDocumentBuf::new()) };
    for (name, collection) in &collections {
        let namespace = Namespace { database: command.database, collection: name };
        store.catalog.history.note(namespace, collection.uuid, || Change::Drop);
    }
    let database = Namespace { database: command.database, collection: "" };
    store.catalog.history.note(database, [0; 16], || Change::DropDatabase);
    store.cursors.drop_collections(|namespace| {
        let (database, collection) = namespace.split_once('.').unwrap_or_default();
        database == command.database && collections.contains_key(collection)
    });
    Ok(document! { "dropped": command.database })
}
