//! Commands on data: what a method of a driver's interface sends, and what it makes of the reply.

use alloc::boxed::Box;
use core::time::Duration;

use bson::{Bson, Document, RawDocumentBuf, doc, oid::ObjectId};
use cmap_sim::CursorOptions;
use serde::Deserialize;
use serde::de::{IntoDeserializer, value};

use super::format::{CHANGE_STREAM, Data, FIND, MAX_TIME, Method, PlaceOptions, ReadPreferenceDocument, TimeoutMode};

/// Where an operation is carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The database.
    pub database: String,
    /// The collection, if it is one.
    pub collection: Option<String>,
    /// Its own concerns.
    pub options: Box<PlaceOptions>,
}

/// A command to send, and how to read its reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The database to send it to.
    pub database: String,
    /// The command.
    pub command: Document,
    /// Whether it reads, so that a member that is not the primary may do it.
    pub reads: bool,
    /// Which members may, if the place says so.
    pub read_preference: Option<ReadPreferenceDocument>,
    /// What the method makes of the reply.
    pub outcome: Outcome,
    /// What it inserts, if that may be several batches.
    pub documents: Option<Vec<Document>>,
    /// How its cursor is to be read, if the arguments say so.
    pub cursor: Option<CursorOptions>,
}

impl Place {
    /// How long an operation may take: by its own `timeoutMS`, or by the place's.
    pub fn limit(&self, timeout_ms: Option<u64>) -> Option<Duration> {
        timeout_ms.or(self.options.timeout_ms).map(Duration::from_millis)
    }
}

/// What a method makes of its reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A cursor, kept for later.
    Cursor,
    /// A change stream, kept for later.
    ChangeStream,
    /// All documents of a cursor.
    Documents,
    /// The first document of a cursor, or null.
    First,
    /// This field of all documents of a cursor.
    EachDocuments(&'static str),
    /// A field of the first document of a cursor, or 0.
    Count,
    /// A field of the reply.
    Field(&'static str),
    /// A field of each document of a field of the reply.
    EachOf(&'static str, &'static str),
    /// The counts of an update.
    Updated,
    /// The count of a deletion.
    Deleted,
    /// What is known before.
    Known(Bson),
}

/// The name of a command, and whether it reads.
struct Shape {
    command: &'static str,
    reads: bool,
}

impl Plan {
    /// What `data` sends at `place`, without the place's own concerns if it is `in_transaction`. Documents to insert that have no `_id` get one from `next_id`.
    ///
    /// # Errors
    /// An argument that is needed is not there.
    pub fn new(
        data: &Data,
        place: &Place,
        in_transaction: bool,
        next_id: impl FnMut() -> ObjectId,
    ) -> Result<Self, String> {
        let Shape { command, reads } = shape(data.method, &data.arguments);
        let on_admin =
            matches!(data.method, Method::ListDatabases | Method::ListDatabaseObjects | Method::ListDatabaseNames);
        let subject = match &place.collection {
            Some(collection) if data.method == Method::Rename => format!("{}.{collection}", place.database).into(),
            Some(_) | None if on_admin || command == "listCollections" => Bson::Int32(1),
            Some(collection) => Bson::from(collection),
            None => Bson::Int32(1),
        };
        let mut built = Document::new();
        built.insert(command, subject);
        let outcome = fill(&mut built, data, place, next_id)?;
        built.extend(data.arguments.get(MAX_TIME).map(|most| (MAX_TIME.to_owned(), most.clone())));
        let place_options = Some(&place.options).filter(|_| !in_transaction);
        let read_concern = place_options.and_then(|options| options.read_concern.as_ref());
        if let Some(concern) = read_concern.filter(|_| matches!(command, "aggregate" | "count" | "distinct" | "find")) {
            built.insert("readConcern", concern.0.clone());
        }
        let write_concern = place_options.and_then(|options| options.write_concern.as_ref());
        if let Some(concern) = write_concern.filter(|_| !reads) {
            built.insert("writeConcern", concern.0.clone());
        }
        let is_of_many = data.method == Method::InsertMany;
        let documents = if is_of_many { built.remove("documents") } else { None };
        let documents = documents.map(|documents| {
            let documents = documents.as_array().map(Vec::as_slice).unwrap_or_default();
            documents.iter().filter_map(Bson::as_document).cloned().collect()
        });
        let named = Some("database").filter(|_| data.method == Method::DropDatabase);
        let database = match named.map(|name| data.arguments.get_str(name)) {
            _ if on_admin || data.method == Method::Rename => "admin",
            None => &place.database,
            Some(name) => name.map_err(|_| "dropDatabase needs the name of a database")?,
        };
        let database = database.to_owned();
        let cursor = cursor_options(&built, &data.arguments)?;
        let read_preference = place.options.read_preference.clone();
        Ok(Self { database, command: built, reads, read_preference, outcome, documents, cursor })
    }
}

/// Why a driver does not send this: an update that is a whole document.
pub fn refusal(data: &Data) -> Option<&'static str> {
    let is_update = matches!(data.method, Method::UpdateOne | Method::UpdateMany | Method::FindOneAndUpdate);
    let update = data.arguments.get_document("update").ok().filter(|_| is_update)?;
    let is_whole = update.keys().next().is_none_or(|first| !first.starts_with('$'));
    is_whole.then_some("an update consists of operators")
}

fn shape(method: Method, arguments: &Document) -> Shape {
    let (command, reads) = match method {
        Method::Aggregate if writes(arguments) => ("aggregate", false),
        Method::Aggregate | Method::CountDocuments | Method::CreateChangeStream => ("aggregate", true),
        Method::CreateFindCursor | Method::Find | Method::FindOne => ("find", true),
        Method::CreateIndex => ("createIndexes", false),
        Method::DeleteMany => ("delete", false),
        Method::DeleteOne => ("delete", false),
        Method::Distinct => ("distinct", true),
        Method::DropIndex | Method::DropIndexes => ("dropIndexes", false),
        Method::Count | Method::EstimatedDocumentCount => ("count", true),
        Method::CreateCollection => ("create", false),
        Method::DropCollection => ("drop", false),
        Method::DropDatabase => ("dropDatabase", false),
        Method::FindOneAndDelete | Method::FindOneAndReplace | Method::FindOneAndUpdate => ("findAndModify", false),
        Method::InsertMany | Method::InsertOne => ("insert", false),
        Method::ListCollectionNames | Method::ListCollectionObjects | Method::ListCollections => {
            ("listCollections", true)
        }
        Method::ListDatabaseNames | Method::ListDatabaseObjects | Method::ListDatabases => ("listDatabases", true),
        Method::ListIndexNames | Method::ListIndexes => ("listIndexes", true),
        Method::Rename => ("renameCollection", false),
        Method::ReplaceOne | Method::UpdateOne => ("update", false),
        Method::UpdateMany => ("update", false),
    };
    Shape { command, reads }
}

/// Whether a pipeline ends by writing.
fn writes(arguments: &Document) -> bool {
    let pipeline = arguments.get_array("pipeline").map(Vec::as_slice).unwrap_or_default();
    let last = pipeline.last().and_then(Bson::as_document);
    last.is_some_and(|stage| stage.contains_key("$out") || stage.contains_key("$merge"))
}

/// Adds the fields behind the command's name.
fn fill(
    command: &mut Document,
    data: &Data,
    place: &Place,
    mut next_id: impl FnMut() -> ObjectId,
) -> Result<Outcome, String> {
    let arguments = &data.arguments;
    let argument = |name: &str| {
        arguments.get(name).cloned().ok_or_else(|| format!("the argument `{name}` of {:?} is missing", data.method))
    };
    let copy = |command: &mut Document, names: &[&str]| {
        let present = names.iter().filter_map(|name| Some((*name, arguments.get(name)?)));
        command.extend(present.map(|(name, value)| (name.to_owned(), value.clone())));
    };
    let batch = || arguments.get("batchSize").map_or_else(Document::new, |size| doc! { "batchSize": size.clone() });
    Ok(match data.method {
        Method::Aggregate => {
            command.insert("pipeline", argument("pipeline")?);
            command.insert("cursor", batch());
            Outcome::Documents
        }
        Method::CreateChangeStream => {
            let mut stage = Document::new();
            copy(&mut stage, &CHANGE_STREAM);
            if place.collection.is_none() && place.database == "admin" {
                stage.insert("allChangesForCluster", true);
            }
            let mut stages = vec![Bson::from(doc! { "$changeStream": stage })];
            stages.extend(argument("pipeline")?.as_array().cloned().unwrap_or_default());
            command.insert("pipeline", stages);
            command.insert("cursor", batch());
            copy(command, &["collation", "comment"]);
            Outcome::ChangeStream
        }
        Method::CountDocuments => {
            let group = doc! { "$group": { "_id": 1, "n": { "$sum": 1 } } };
            command.insert("pipeline", vec![doc! { "$match": argument("filter")? }, group]);
            command.insert("cursor", Document::new());
            Outcome::Count
        }
        Method::CreateFindCursor | Method::Find => {
            copy(command, &FIND);
            let kind = arguments.get_str("cursorType").unwrap_or_default();
            if kind.starts_with("tailable") {
                command.insert("tailable", true);
            }
            if kind == "tailableAwait" {
                command.insert("awaitData", true);
            }
            if data.method == Method::Find { Outcome::Documents } else { Outcome::Cursor }
        }
        Method::FindOne => {
            copy(command, &["filter", "sort"]);
            command.extend(doc! { "limit": 1, "singleBatch": true });
            Outcome::First
        }
        Method::CreateIndex => {
            let keys = argument("keys")?;
            let name = arguments.get("name").cloned().unwrap_or_else(|| index_name(&keys).into());
            command.insert("indexes", vec![doc! { "key": keys, "name": name.clone() }]);
            Outcome::Known(name)
        }
        Method::DeleteMany | Method::DeleteOne => {
            let limit = i32::from(data.method == Method::DeleteOne);
            let mut deletion = doc! { "q": argument("filter")?, "limit": limit };
            copy(&mut deletion, &["hint"]);
            command.insert("deletes", vec![deletion]);
            command.insert("ordered", true);
            Outcome::Deleted
        }
        Method::Count => {
            command.insert("query", argument("filter")?);
            Outcome::Field("n")
        }
        Method::CreateCollection | Method::DropCollection => {
            command.insert(shape(data.method, arguments).command, argument("collection")?);
            copy(command, &["capped", "size", "max", "viewOn"]);
            Outcome::Known(Bson::Null)
        }
        Method::DropDatabase => Outcome::Known(Bson::Null),
        Method::Distinct => {
            command.insert("key", argument("fieldName")?);
            command.insert("query", argument("filter")?);
            Outcome::Field("values")
        }
        Method::DropIndex | Method::DropIndexes => {
            command.insert("index", arguments.get("name").cloned().unwrap_or_else(|| "*".into()));
            Outcome::Known(Bson::Null)
        }
        Method::EstimatedDocumentCount => Outcome::Field("n"),
        Method::FindOneAndDelete => {
            command.extend(doc! { "query": argument("filter")?, "remove": true });
            copy(command, &["sort", "hint", "comment"]);
            Outcome::Field("value")
        }
        Method::FindOneAndReplace => {
            command.extend(doc! { "query": argument("filter")?, "update": argument("replacement")? });
            copy(command, &["sort", "upsert", "hint", "comment"]);
            command.extend(
                arguments.get_str("returnDocument").ok().map(|which| ("new".into(), (which == "After").into())),
            );
            Outcome::Field("value")
        }
        Method::FindOneAndUpdate => {
            command.extend(doc! { "query": argument("filter")?, "update": argument("update")? });
            copy(command, &["sort", "upsert", "hint", "comment"]);
            command.extend(
                arguments.get_str("returnDocument").ok().map(|which| ("new".into(), (which == "After").into())),
            );
            Outcome::Field("value")
        }
        Method::InsertMany | Method::InsertOne => {
            let is_one = data.method == Method::InsertOne;
            let documents = if is_one { Bson::Array(vec![argument("document")?]) } else { argument("documents")? };
            let documents = documents.as_array().map(Vec::as_slice).unwrap_or_default();
            let documents: Vec<Document> =
                documents.iter().filter_map(Bson::as_document).map(|own| with_id(own, &mut next_id)).collect();
            let ids: Vec<Bson> = documents.iter().filter_map(|document| document.get("_id").cloned()).collect();
            command.extend(doc! { "documents": documents, "ordered": true });
            copy(command, &["ordered", "comment"]);
            Outcome::Known(inserted(data.method, ids))
        }
        Method::ListCollections | Method::ListCollectionObjects | Method::ListCollectionNames => {
            copy(command, &["filter"]);
            command.insert("cursor", batch());
            if data.method == Method::ListCollectionNames { Outcome::EachDocuments("name") } else { Outcome::Documents }
        }
        Method::ListDatabases | Method::ListDatabaseObjects => {
            copy(command, &["filter"]);
            Outcome::Field("databases")
        }
        Method::ListDatabaseNames => {
            copy(command, &["filter"]);
            command.insert("nameOnly", true);
            Outcome::EachOf("databases", "name")
        }
        Method::ListIndexes | Method::ListIndexNames => {
            command.insert("cursor", batch());
            if data.method == Method::ListIndexes { Outcome::Documents } else { Outcome::EachDocuments("name") }
        }
        Method::Rename => {
            let to = argument("to")?;
            let to = to.as_str().ok_or("`to` is not the name of a collection")?;
            command.insert("to", format!("{}.{to}", place.database));
            copy(command, &["dropTarget"]);
            Outcome::Known(Bson::Null)
        }
        Method::ReplaceOne | Method::UpdateOne | Method::UpdateMany => {
            let change = if data.method == Method::ReplaceOne { "replacement" } else { "update" };
            let multi = data.method == Method::UpdateMany;
            let mut update = doc! { "q": argument("filter")?, "u": argument(change)?, "multi": multi };
            copy(&mut update, &["upsert", "sort", "hint"]);
            command.insert("updates", vec![update]);
            command.insert("ordered", true);
            Outcome::Updated
        }
    })
}

/// How a cursor is to be read, if the arguments say so.
fn cursor_options(command: &Document, arguments: &Document) -> Result<Option<CursorOptions>, String> {
    let max_await_time = arguments.get("maxAwaitTimeMS").and_then(number).map(Duration::from_millis);
    let mode = arguments.get_str("timeoutMode").ok().map(|mode| TimeoutMode::deserialize(mode.into_deserializer()));
    let mode: Option<TimeoutMode> = mode.transpose().map_err(|error: value::Error| error.to_string())?;
    if max_await_time.is_none() && mode.is_none() {
        return Ok(None);
    }
    let command = RawDocumentBuf::try_from(command).map_err(|error| error.to_string())?;
    let mut options = CursorOptions::of_command(&command);
    (options.max_await_time, options.timeout_mode) = (max_await_time, mode.map(timeout_mode));
    Ok(Some(options))
}

/// The client's name of a mode.
pub fn timeout_mode(mode: TimeoutMode) -> cmap_sim::TimeoutMode {
    match mode {
        TimeoutMode::CursorLifetime => cmap_sim::TimeoutMode::CursorLifetime,
        TimeoutMode::Iteration => cmap_sim::TimeoutMode::Iteration,
    }
}

fn number(value: &Bson) -> Option<u64> {
    u64::try_from(value.as_i64().or_else(|| value.as_i32().map(i64::from))?).ok()
}

/// The name that drivers give an index: the fields, each with its direction.
fn index_name(keys: &Bson) -> String {
    let keys = keys.as_document().into_iter().flatten();
    let part = |(field, direction): (&String, &Bson)| match direction.as_str() {
        Some(kind) => format!("{field}_{kind}"),
        None => format!("{field}_{direction}"),
    };
    let parts: Vec<String> = keys.map(part).collect();
    parts.join("_")
}

/// The document with an `_id`, in front.
pub(super) fn with_id(document: &Document, next_id: &mut impl FnMut() -> ObjectId) -> Document {
    if document.contains_key("_id") {
        return document.clone();
    }
    let mut with_id = doc! { "_id": next_id() };
    with_id.extend(document.clone());
    with_id
}

fn inserted(method: Method, ids: Vec<Bson>) -> Bson {
    if method == Method::InsertOne {
        return doc! { "insertedId": ids.into_iter().next().unwrap_or(Bson::Null) }.into();
    }
    let by_index: Document = ids.into_iter().enumerate().map(|(index, id)| (index.to_string(), id)).collect();
    doc! { "insertedIds": by_index }.into()
}

impl Outcome {
    /// Whether the reply has a cursor.
    pub fn is_of_cursor(&self) -> bool {
        match self {
            Self::Cursor
            | Self::ChangeStream
            | Self::Documents
            | Self::First
            | Self::EachDocuments(_)
            | Self::Count => true,
            Self::Field(_) | Self::EachOf(..) | Self::Updated | Self::Deleted | Self::Known(_) => false,
        }
    }

    /// The result of a reply without a cursor.
    pub fn of_reply(&self, reply: &Document) -> Bson {
        let count = |field: &str| reply.get(field).cloned().unwrap_or(Bson::Int32(0));
        match self {
            Self::Field(field) => reply.get(field).cloned().unwrap_or(Bson::Null),
            Self::EachOf(list, field) => {
                let items = reply.get_array(list).map(Vec::as_slice).unwrap_or_default();
                each(items.iter().filter_map(Bson::as_document), field)
            }
            Self::Updated => {
                let upserted = reply.get_array("upserted").map(Vec::as_slice).unwrap_or_default();
                let count_of_upserted = i64::try_from(upserted.len()).unwrap_or_default();
                let matched = count("n").as_i32().map_or(0, i64::from) - count_of_upserted;
                let mut result = doc! {
                    "matchedCount": matched, "modifiedCount": count("nModified"), "upsertedCount": count_of_upserted,
                };
                let id = upserted.first().and_then(|first| first.as_document()?.get("_id").cloned());
                result.extend(id.map(|id| ("upsertedId".to_owned(), id)));
                result.into()
            }
            Self::Deleted => doc! { "deletedCount": count("n") }.into(),
            Self::Known(result) => result.clone(),
            Self::Cursor
            | Self::ChangeStream
            | Self::Documents
            | Self::First
            | Self::EachDocuments(_)
            | Self::Count => Bson::Null,
        }
    }

    /// The result of all documents of a cursor.
    pub fn of_documents(&self, documents: Vec<Document>) -> Bson {
        match self {
            Self::First => documents.into_iter().next().map_or(Bson::Null, Bson::Document),
            Self::EachDocuments(field) => each(documents.iter(), field),
            Self::Count => documents.first().and_then(|first| first.get("n").cloned()).unwrap_or(Bson::Int32(0)),
            Self::Cursor
            | Self::ChangeStream
            | Self::Documents
            | Self::Field(_)
            | Self::EachOf(..)
            | Self::Updated
            | Self::Deleted
            | Self::Known(_) => Bson::Array(documents.into_iter().map(Bson::Document).collect()),
        }
    }
}

fn each<'a>(documents: impl Iterator<Item = &'a Document>, field: &str) -> Bson {
    Bson::Array(documents.filter_map(|document| document.get(field).cloned()).collect())
}
