//! `listCollections`, `listDatabases`, and the list of what is inconsistent, which is empty.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::spec::BinarySubtype;
use bson::{Binary, RawArrayBuf, RawDocumentBuf};

use crate::document::document;
use crate::store::arguments::Arguments;
use crate::store::collection::Collection;
use crate::store::cursor::Cursor;
use crate::store::failure::code;
use crate::store::filter::Filter;
use crate::store::meter::Stored;
use crate::store::{Call, CommandFailure, Store};

/// The steps for the description of a collection or a database.
const STEPS_PER_DESCRIPTION: u64 = 50;

/// The databases that a server always has.
const ALWAYS_THERE: [&str; 3] = ["admin", "config", "local"];

pub(super) fn collections(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(&["filter", "cursor", "nameOnly", "authorizedCollections", "includePendingDrops"])?;
    let filter = Filter::parse(arguments.document("filter")?.unwrap_or(&RawDocumentBuf::new()))?;
    let names_only = arguments.boolean("nameOnly")?;
    let batch_size = batch_size(&arguments)?;

    let (mut matching, mut bytes) = (Vec::new(), 0);
    for (name, collection) in store.catalog.collections(command.database) {
        let full = description(name, collection);
        command.work.step(STEPS_PER_DESCRIPTION);
        command.work.check()?;
        if !filter.matches(&full, &command.work) {
            continue;
        }
        let shown = if names_only {
            document! { "name": name, "type": if collection.is_view() { "view" } else { "collection" } }
        } else {
            full
        };
        bytes += Stored::size(&shown);
        command.work.check_bytes("listCollections", bytes)?;
        matching.push(Arc::new(Stored::computed(shown)));
    }
    let cursor = Cursor::of(format!("{}.$cmd.listCollections", command.database), matching);
    store.cursors.open(command, &store.catalog, cursor, batch_size, None)
}

fn description(name: &str, collection: &Collection) -> RawDocumentBuf {
    if collection.is_view() {
        let options = &*collection.options;
        return document! {
            "name": name, "type": "view", "options": options, "info": document! { "readOnly": true },
        };
    }
    let uuid = Binary { subtype: BinarySubtype::Uuid, bytes: collection.uuid.into() };
    let mut description = document! { "name": name, "type": "collection" };
    description.append(bson::cstr!("options"), &collection.options);
    description.append(bson::cstr!("info"), document! { "readOnly": false, "uuid": uuid });
    description.append(bson::cstr!("idIndex"), document! { "v": 2, "key": document! { "_id": 1 }, "name": "_id_" });
    description
}

/// `checkMetadataConsistency` finds nothing: the documents of a cluster are all in one store.
pub(super) fn inconsistencies(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(&["cursor", "checkIndexes"])?;
    let batch_size = batch_size(&arguments)?;
    let cursor = Cursor::of(format!("{}.$cmd.checkMetadataConsistency", command.database), Vec::new());
    store.cursors.open(command, &store.catalog, cursor, batch_size, None)
}

/// The batch size in the field `cursor` of a command that lists something: by default, all.
pub(super) fn batch_size(arguments: &Arguments<'_>) -> Result<usize, CommandFailure> {
    let Some(cursor) = arguments.document("cursor")? else { return Ok(usize::MAX) };
    let cursor = Arguments::new("cursor", cursor);
    cursor.check_known(&["batchSize"])?;
    Ok(cursor.natural("batchSize")?.unwrap_or(usize::MAX))
}

pub(super) fn databases(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(&["filter", "nameOnly", "authorizedDatabases"])?;
    if command.database != "admin" {
        let message = "listDatabases may only be run against the admin database.";
        return Err(CommandFailure::new(code::UNAUTHORIZED, message));
    }
    let filter = Filter::parse(arguments.document("filter")?.unwrap_or(&RawDocumentBuf::new()))?;
    let names_only = arguments.boolean("nameOnly")?;

    let mut sizes: BTreeMap<&str, i64> = ALWAYS_THERE.map(|name| (name, 0)).into();
    for (name, collections) in store.catalog.databases() {
        let bytes: usize = collections.values().map(|collection| collection.bytes()).sum();
        sizes.insert(name, i64::try_from(bytes).unwrap_or(i64::MAX));
    }
    let (mut listed, mut total) = (RawArrayBuf::new(), 0_i64);
    for (name, size) in sizes {
        let full = document! { "name": name, "sizeOnDisk": size, "empty": false };
        command.work.step(STEPS_PER_DESCRIPTION);
        command.work.check()?;
        if !filter.matches(&full, &command.work) {
            continue;
        }
        total = total.saturating_add(size);
        listed.push(if names_only {
            document! { "name": name }
        } else {
            full
        });
    }
    let mut reply = document! { "databases": listed };
    if !names_only {
        reply.append(bson::cstr!("totalSize"), total);
        reply.append(bson::cstr!("totalSizeMb"), total >> 20);
    }
    Ok(reply)
}
