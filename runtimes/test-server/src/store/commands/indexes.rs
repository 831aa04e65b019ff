//! `createIndexes`, `listIndexes` and `dropIndexes`.

use std::sync::Arc;

use bson::{RawBson, RawBsonRef, RawDocumentBuf};

use super::list::batch_size;
use crate::document::{array, document};
use crate::store::arguments::values;
use crate::store::collection::Collection;
use crate::store::cursor::Cursor;
use crate::store::failure::code;
use crate::store::history::Change;
use crate::store::index::Index;
use crate::store::meter::Stored;
use crate::store::pipeline::count;
use crate::store::{Call, CommandFailure, Store};

/// All indexes are made, or none.
pub(super) fn create(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(&["indexes", "ignoreUnknownIndexOptions", "commitQuorum"])?;
    let namespace = command.namespace()?;
    let specifications = arguments.documents("indexes")?;
    if specifications.is_empty() {
        return Err(CommandFailure::bad_value("Must specify at least one index to create"));
    }
    let ignores_unknown = arguments.boolean("ignoreUnknownIndexOptions")?;
    let indexes = specifications.into_iter().map(|specification| Index::parse(specification, ignores_unknown));
    let indexes = indexes.collect::<Result<Vec<_>, _>>()?;

    let is_new = store.catalog.get(namespace).is_none();
    let collection = store.catalog.get_or_create(namespace)?;
    let before = collection.indexes.len();
    for index in indexes {
        let is_there = is_there(collection, &index);
        let added =
            is_there.and_then(|there| if there { Ok(()) } else { Ok(collection.add_index(index, &command.work)?) });
        if let Err(failure) = added {
            collection.truncate_indexes(before);
            if is_new {
                store.catalog.remove(namespace);
            }
            return Err(failure);
        }
    }
    let after = collection.indexes.len();
    let (uuid, made) = (collection.uuid, described(&collection.indexes[before..]));
    if after > before {
        store.catalog.history.note(namespace, uuid, || Change::CreateIndexes { indexes: made });
    }
    let mut reply = document! {
        "numIndexesBefore": count(before),
        "numIndexesAfter": count(after),
        "createdCollectionAutomatically": is_new,
    };
    if after == before {
        reply.append(bson::cstr!("note"), "all indexes already exist");
    }
    Ok(reply)
}

/// The descriptions of indexes, as an array.
fn described<'a>(indexes: impl IntoIterator<Item = &'a Index>) -> RawBson {
    RawBson::Array(array(indexes.into_iter().map(|index| &*index.description)))
}

/// Whether the collection has just this index; one that is different in part is a conflict.
fn is_there(collection: &Collection, index: &Index) -> Result<bool, CommandFailure> {
    for existing in &collection.indexes {
        let (same_name, same_pattern) = (existing.name == index.name, existing.has_pattern(&index.pattern));
        // The index of _id is always unique, with or without the option.
        if same_pattern && (existing.name == "_id_" || same_name && existing.has_options_of(index)) {
            return Ok(true);
        }
        if same_name {
            let message = format!(
                "An existing index has the same name as the requested index. When index names are not specified, they \
                 are auto generated and can cause conflicts. Please refer to our documentation. Name: {}",
                index.name
            );
            return Err(CommandFailure::new(code::INDEX_KEY_SPECS_CONFLICT, message));
        }
        if same_pattern {
            let message = format!("Index already exists with a different name: {}", existing.name);
            return Err(CommandFailure::new(code::INDEX_OPTIONS_CONFLICT, message));
        }
    }
    Ok(false)
}

pub(super) fn list(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(&["cursor", "includeBuildUUIDs", "includeIndexBuildInfo"])?;
    let namespace = command.namespace()?;
    let batch_size = batch_size(&arguments)?;
    let Some(collection) = store.catalog.get(namespace) else {
        let message = format!("ns does not exist: {}", namespace.full());
        return Err(CommandFailure::new(code::NAMESPACE_NOT_FOUND, message));
    };
    let documents = collection.indexes.iter().map(|index| Arc::new(Stored::computed(index.description.clone())));
    let cursor = Cursor::of(namespace.full(), documents);
    store.cursors.open(command, &store.catalog, cursor, batch_size, None)
}

pub(super) fn drop(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(&["index"])?;
    let namespace = command.namespace()?;
    let wanted = arguments.required("index", arguments.get("index"))?;
    let Some(collection) = store.catalog.get_mut(namespace) else {
        let message = format!("ns not found {}", namespace.full());
        return Err(CommandFailure::new(code::NAMESPACE_NOT_FOUND, message));
    };
    let before = collection.indexes.len();
    let dropped = named(collection, wanted)?;
    let indexes = collection.indexes.iter().filter(|index| dropped.contains(&index.name));
    let (uuid, gone) = (collection.uuid, described(indexes));
    collection.drop_indexes(&dropped);
    store.catalog.history.note(namespace, uuid, || Change::DropIndexes { indexes: gone });
    Ok(document! { "nIndexesWas": count(before) })
}

/// The names of the indexes that dropIndexes means.
fn named(collection: &Collection, wanted: RawBsonRef<'_>) -> Result<Vec<String>, CommandFailure> {
    let not_found =
        |what: &str| CommandFailure::new(code::INDEX_NOT_FOUND, format!("index not found with name [{what}]"));
    let by_name = |name: &str| match collection.indexes.iter().find(|index| index.name == name) {
        Some(_) if name == "_id_" => Err(CommandFailure::new(code::INVALID_OPTIONS, "cannot drop _id index")),
        Some(_) => Ok(name.to_owned()),
        None => Err(not_found(name)),
    };
    if wanted.as_str() == Some("*") {
        return Ok(collection.indexes.iter().skip(1).map(|index| index.name.clone()).collect());
    }
    if let Some(name) = wanted.as_str() {
        return Ok(vec![by_name(name)?]);
    }
    if let Some(pattern) = wanted.as_document() {
        return match collection.indexes.iter().find(|index| index.has_pattern(pattern)) {
            Some(index) => Ok(vec![by_name(&index.name)?]),
            None => {
                let message = format!("can't find index with key: {}", crate::store::arguments::shown(wanted));
                Err(CommandFailure::new(code::INDEX_NOT_FOUND, message))
            }
        };
    }
    let array = wanted.as_array().ok_or_else(|| {
        CommandFailure::new(code::TYPE_MISMATCH, "dropIndexes needs a name, names, or a key pattern".to_owned())
    })?;
    values(array).map(|name| by_name(name.as_str().unwrap_or_default())).collect()
}
