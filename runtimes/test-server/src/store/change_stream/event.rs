//! The document of a change, as a stream hands it out.

use std::sync::Arc;

use bson::spec::BinarySubtype;
use bson::{Binary, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::description;
use super::options::{BeforeChange, FullDocument, Options};
use crate::document::document;
use crate::store::catalog::{Catalog, Namespace};
use crate::store::failure::{CommandFailure, code};
use crate::store::history::{Change, Event};
use crate::store::meter::Stored;
use crate::store::order::Ordered;
use crate::store::work::Work;

/// The bytes of the hash of a user's name, which is part of a session's id.
const USER: usize = 32;

/// The document of an event under this token.
pub(super) fn document(
    event: &Event,
    token: &RawDocument,
    options: &Options,
    catalog: &Catalog,
    work: &Work,
) -> Result<RawDocumentBuf, CommandFailure> {
    let mut document = header(event, token, operation_type(&event.change));
    if options.shows_expanded && !event.collection.is_empty() {
        document.append(bson::cstr!("collectionUUID"), uuid(event.uuid));
    }
    append_full_document(&mut document, event, options, catalog)?;
    document.append(bson::cstr!("ns"), namespace(&event.database, &event.collection));
    if let Change::Rename { to: (database, collection), .. } = &event.change {
        document.append(bson::cstr!("to"), namespace(database, collection));
    }
    if let Some(key) = key(&event.change) {
        document.append(bson::cstr!("documentKey"), key);
    }
    if let Change::Update { before, after, .. } = &event.change {
        let description = description::describe(before, after, options.shows_expanded, work)?;
        document.append(bson::cstr!("updateDescription"), description);
    }
    append_before_change(&mut document, event, options)?;
    if options.shows_expanded
        && let Some(description) = operation_description(&event.change)
    {
        document.append(bson::cstr!("operationDescription"), description);
    }
    if let Some(transaction) = &event.transaction {
        let id = Binary { subtype: BinarySubtype::Uuid, bytes: transaction.session.clone() };
        let user = Binary { subtype: BinarySubtype::Generic, bytes: vec![0; USER] };
        document.append(bson::cstr!("lsid"), document! { "id": id, "uid": user });
        document.append(bson::cstr!("txnNumber"), transaction.number);
    }
    work.copy(document.as_bytes().len());
    work.check()?;
    Ok(document)
}

/// The document that says that a stream is invalid by an event.
pub(super) fn invalidation(event: &Event, token: &RawDocument) -> RawDocumentBuf {
    header(event, token, "invalidate")
}

fn header(event: &Event, token: &RawDocument, kind: &str) -> RawDocumentBuf {
    document! { "_id": token, "operationType": kind, "clusterTime": event.time.0, "wallTime": event.wall }
}

fn operation_type(change: &Change) -> &'static str {
    match change {
        Change::Insert(_) => "insert",
        Change::Update { .. } => "update",
        Change::Replace { .. } => "replace",
        Change::Delete { .. } => "delete",
        Change::Drop => "drop",
        Change::Rename { .. } => "rename",
        Change::DropDatabase => "dropDatabase",
        Change::Create { .. } => "create",
        Change::CreateIndexes { .. } => "createIndexes",
        Change::DropIndexes { .. } => "dropIndexes",
        Change::Modify { .. } => "modify",
        Change::ShardCollection { .. } => "shardCollection",
    }
}

/// The `_id` of the document that was changed.
fn key(change: &Change) -> Option<RawDocumentBuf> {
    let (Change::Insert(document)
    | Change::Update { before: document, .. }
    | Change::Replace { before: document, .. }
    | Change::Delete { before: document, .. }) = change
    else {
        return None;
    };
    Some(document! { "_id": id(document) })
}

fn id(document: &RawDocument) -> RawBsonRef<'_> {
    document.get("_id").ok().flatten().unwrap_or(RawBsonRef::Null)
}

fn append_full_document(
    document: &mut RawDocumentBuf,
    event: &Event,
    options: &Options,
    catalog: &Catalog,
) -> Result<(), CommandFailure> {
    let found: Option<Arc<Stored>> = match (&event.change, options.full_document) {
        (Change::Insert(after) | Change::Replace { after, .. }, _) => Some(Arc::clone(after)),
        (Change::Update { .. }, FullDocument::Default) => return Ok(()),
        (Change::Update { before, .. }, FullDocument::UpdateLookup) => {
            let namespace = Namespace { database: &event.database, collection: &event.collection };
            let collection = catalog.get(namespace);
            let found = collection.and_then(|collection| collection.by_id(&Ordered(id(before).into())));
            found.map(|(_, document)| Arc::clone(document))
        }
        (Change::Update { after, has_images: true, .. }, _) => Some(Arc::clone(after)),
        (Change::Update { has_images: false, .. }, FullDocument::WhenAvailable) => None,
        (Change::Update { has_images: false, .. }, FullDocument::Required) => return Err(missing("post-image", event)),
        _ => return Ok(()),
    };
    match found {
        Some(found) => document.append(bson::cstr!("fullDocument"), &**found),
        None => document.append(bson::cstr!("fullDocument"), RawBson::Null),
    }
    Ok(())
}

fn append_before_change(document: &mut RawDocumentBuf, event: &Event, options: &Options) -> Result<(), CommandFailure> {
    let (Change::Update { before, has_images, .. }
    | Change::Replace { before, has_images, .. }
    | Change::Delete { before, has_images }) = &event.change
    else {
        return Ok(());
    };
    match (options.before_change, has_images) {
        (BeforeChange::Off, _) => {}
        (_, true) => document.append(bson::cstr!("fullDocumentBeforeChange"), &***before),
        (BeforeChange::WhenAvailable, false) => {
            document.append(bson::cstr!("fullDocumentBeforeChange"), RawBson::Null);
        }
        (BeforeChange::Required, false) => return Err(missing("pre-image", event)),
    }
    Ok(())
}

fn missing(image: &str, event: &Event) -> CommandFailure {
    let message = format!(
        "Change stream was configured to require a {image} for all update, delete and replace events, but the {image} \
         was not found for an event of {}.{}",
        event.database, event.collection
    );
    CommandFailure::new(code::NO_MATCHING_DOCUMENT, message)
}

/// What an operation did that is no change of a document.
fn operation_description(change: &Change) -> Option<RawDocumentBuf> {
    Some(match change {
        Change::Rename { to: (database, collection), dropped } => {
            let mut description = document! { "to": namespace(database, collection) };
            if let Some(dropped) = dropped {
                description.append(bson::cstr!("dropTarget"), uuid(*dropped));
            }
            description
        }
        Change::Create { options } => {
            let index = document! { "v": 2, "key": document! { "_id": 1 }, "name": "_id_" };
            let mut description = document! { "idIndex": index };
            options.iter().filter_map(Result::ok).for_each(|(name, value)| description.append(name, value));
            description
        }
        Change::CreateIndexes { indexes } | Change::DropIndexes { indexes } => document! { "indexes": indexes },
        Change::Modify { description } | Change::ShardCollection { description } => description.clone(),
        Change::Insert(_)
        | Change::Update { .. }
        | Change::Replace { .. }
        | Change::Delete { .. }
        | Change::Drop
        | Change::DropDatabase => return None,
    })
}

fn namespace(database: &str, collection: &str) -> RawDocumentBuf {
    let mut namespace = document! { "db": database };
    if !collection.is_empty() {
        namespace.append(bson::cstr!("coll"), collection);
    }
    namespace
}

fn uuid(bytes: [u8; 16]) -> Binary {
    Binary { subtype: BinarySubtype::Uuid, bytes: bytes.into() }
}
