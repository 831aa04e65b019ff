//! `bulkWrite`, since MongoDB 8.0: insertions, updates and deletions in any of the collections that it lists, in one command.
//!
//! A write that fails is a document of the results, which are a cursor, and none of the command's own errors.

use std::sync::Arc;

use bson::{RawBson, RawDocument, RawDocumentBuf};

use super::writes::batch;
use super::{delete, update};
use crate::document::document;
use crate::store::arguments::Arguments;
use crate::store::catalog::Namespace;
use crate::store::cursor::Cursor;
use crate::store::failure::code;
use crate::store::meter::Stored;
use crate::store::pipeline::{Pipeline, count};
use crate::store::variables::Variables;
use crate::store::write_error::WriteFailure;
use crate::store::{Call, CommandFailure, Store};

#[rustfmt::skip]
const FIELDS: &[&str] = &[
    "ops", "nsInfo", "ordered", "errorsOnly", "bypassDocumentValidation", "bypassEmptyTsReplacement", "cursor", "let",
];
const INSERTION: &[&str] = &["insert", "document"];
#[rustfmt::skip]
const UPDATE: &[&str] = &[
    "update", "filter", "updateMods", "multi", "upsert", "upsertSupplied", "arrayFilters", "hint", "collation", "sort",
];
const DELETION: &[&str] = &["delete", "filter", "multi", "hint", "collation"];

/// One of the writes, and the collection that it is for.
struct Operation<'a> {
    namespace: Namespace<'a>,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Insert(&'a RawDocument),
    Update(update::Statement<'a>),
    Delete(delete::Statement<'a>),
}

/// What one write did.
enum Done {
    Inserted,
    Updated(update::Updated),
    Deleted(usize),
}

/// The number of writes, or of their documents, by what became of them.
#[derive(Debug, Default)]
struct Counts {
    errors: usize,
    inserted: usize,
    matched: usize,
    modified: usize,
    upserted: usize,
    deleted: usize,
}

pub(super) fn run(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(FIELDS)?;
    if command.database != "admin" {
        let message = "bulkWrite may only be run against the admin database.";
        return Err(CommandFailure::new(code::UNAUTHORIZED, message));
    }
    let namespaces = namespaces(&arguments)?;
    namespaces.iter().try_for_each(|namespace| store.catalog.refuse_view(*namespace))?;
    let operations = batch(&arguments, "ops", store.catalog.limits.write_batch)?;
    let read = |(index, operation)| Operation::read(index, operation, &namespaces);
    let operations: Vec<_> = operations.into_iter().enumerate().map(read).collect::<Result<_, _>>()?;
    if arguments.get("txnNumber").is_some() && arguments.get("autocommit").is_none() {
        refuse_multi(&operations)?;
    }
    let is_ordered = arguments.get("ordered").is_none() || arguments.boolean("ordered")?;
    let errors_only = arguments.boolean("errorsOnly")?;
    let batch_size = batch_size(&arguments)?;
    let variables = Variables::read(&arguments, &command.work)?;

    let (mut counts, mut results, mut bytes) = (Counts::default(), Vec::new(), 0);
    for (index, operation) in operations.iter().enumerate() {
        let outcome = operation.run(store, &variables, command);
        counts.add(outcome.as_ref());
        let has_failed = outcome.is_err();
        if has_failed || !errors_only {
            let result = result(index, &outcome);
            bytes += Stored::size(&result);
            command.work.check_bytes("the results of bulkWrite", bytes)?;
            results.push(Arc::new(Stored::computed(result)));
        }
        if has_failed && is_ordered || command.work.is_over() {
            break;
        }
    }
    let Store { catalog, cursors, .. } = store;
    let cursor = Cursor::of(format!("{}.$cmd.bulkWrite", command.database), results);
    let mut reply = cursors.open(command, catalog, cursor, batch_size, None)?;
    counts.append_to(&mut reply);
    Ok(reply)
}

/// The collections of `nsInfo`.
fn namespaces<'a>(arguments: &Arguments<'a>) -> Result<Vec<Namespace<'a>>, CommandFailure> {
    let entries = arguments.documents("nsInfo")?;
    let namespace = |entry: &'a RawDocument| {
        let entry = Arguments::new("bulkWrite.nsInfo", entry);
        entry.check_known(&["ns", "collectionUUID", "encryptionInformation"])?;
        let full = entry.required("ns", entry.string("ns")?)?;
        let (database, collection) = full.split_once('.').unwrap_or((full, ""));
        Namespace::new(database, collection)
    };
    entries.into_iter().map(namespace).collect()
}

/// By default, a batch has as many results as a reply can have.
fn batch_size(arguments: &Arguments<'_>) -> Result<usize, CommandFailure> {
    let Some(cursor) = arguments.document("cursor")? else { return Ok(usize::MAX) };
    let cursor = Arguments::new("bulkWrite.cursor", cursor);
    cursor.check_known(&["batchSize"])?;
    Ok(cursor.natural("batchSize")?.unwrap_or(usize::MAX))
}

/// Refuses writes of many documents in a command that may be sent twice.
fn refuse_multi(operations: &[Operation<'_>]) -> Result<(), CommandFailure> {
    for operation in operations {
        let multi = match &operation.kind {
            Kind::Insert(_) => false,
            Kind::Update(statement) => statement.arguments.boolean("multi")?,
            Kind::Delete(statement) => statement.multi,
        };
        if multi {
            let message = "Cannot use retryable writes with multi=true";
            return Err(CommandFailure::new(code::INVALID_OPTIONS, message));
        }
    }
    Ok(())
}

impl<'a> Operation<'a> {
    /// Reads an operation: its first field names the kind of it, with the index of its collection.
    fn read(index: usize, operation: &'a RawDocument, all: &[Namespace<'a>]) -> Result<Self, CommandFailure> {
        let arguments = Arguments::new("bulkWrite.ops", operation);
        let first = operation.iter().next().and_then(Result::ok).map(|(name, _)| name.as_str());
        let (name, known) = match first {
            Some("insert") => ("insert", INSERTION),
            Some("update") => ("update", UPDATE),
            Some("delete") => ("delete", DELETION),
            found => {
                let message = format!("Unrecognized operation '{}' in bulkWrite.ops", found.unwrap_or_default());
                return Err(CommandFailure::failed_to_parse(message));
            }
        };
        arguments.check_known(known)?;
        let place = arguments.required(name, arguments.integer(name)?)?;
        let namespace = usize::try_from(place).ok().and_then(|place| all.get(place)).copied();
        let namespace = namespace.ok_or_else(|| {
            CommandFailure::bad_value(format!("BulkWrite ops entry {index} has an invalid nsInfo index."))
        })?;
        let filter = || arguments.required("filter", arguments.document("filter")?);
        let kind = match name {
            "insert" => Kind::Insert(arguments.required("document", arguments.document("document")?)?),
            "update" => {
                let update = arguments.required("updateMods", arguments.get("updateMods"))?;
                if let Some(stages) = update.as_array() {
                    Pipeline::check_names(stages)?;
                }
                Kind::Update(update::Statement { arguments, filter: filter()?, update })
            }
            _ => {
                let (multi, hint) = (arguments.boolean("multi")?, arguments.get("hint"));
                Kind::Delete(delete::Statement { filter: filter()?, multi, hint })
            }
        };
        Ok(Self { namespace, kind })
    }

    fn run(&self, store: &mut Store, variables: &Variables<'_>, command: &Call<'_>) -> Result<Done, WriteFailure> {
        let (namespace, work) = (self.namespace, &command.work);
        match &self.kind {
            Kind::Insert(document) => {
                let document = store.catalog.with_id(document);
                store.catalog.insert(namespace, document, work)?;
                Ok(Done::Inserted)
            }
            Kind::Update(statement) => statement.run(store, namespace, variables, work).map(Done::Updated),
            Kind::Delete(statement) => statement.run(store, namespace, variables, work).map(Done::Deleted),
        }
    }
}

impl Counts {
    fn add(&mut self, outcome: Result<&Done, &WriteFailure>) {
        match outcome {
            Err(_) => self.errors += 1,
            Ok(Done::Inserted) => self.inserted += 1,
            Ok(Done::Updated(update::Updated { upserted: Some(_), .. })) => self.upserted += 1,
            Ok(Done::Updated(updated)) => {
                self.matched += updated.matched;
                self.modified += updated.modified;
            }
            Ok(Done::Deleted(deleted)) => self.deleted += deleted,
        }
    }

    fn append_to(&self, reply: &mut RawDocumentBuf) {
        reply.append(bson::cstr!("nErrors"), count(self.errors));
        reply.append(bson::cstr!("nInserted"), count(self.inserted));
        reply.append(bson::cstr!("nMatched"), count(self.matched));
        reply.append(bson::cstr!("nModified"), count(self.modified));
        reply.append(bson::cstr!("nUpserted"), count(self.upserted));
        reply.append(bson::cstr!("nDeleted"), count(self.deleted));
    }
}

/// The document of the results for one write.
fn result(index: usize, outcome: &Result<Done, WriteFailure>) -> RawDocumentBuf {
    let idx: RawBson = count(index);
    match outcome {
        Err(failure) => failure.to_result(idx),
        Ok(Done::Inserted) => document! { "ok": 1.0, "idx": idx, "n": 1 },
        Ok(Done::Deleted(deleted)) => document! { "ok": 1.0, "idx": idx, "n": count(*deleted) },
        Ok(Done::Updated(updated)) => {
            let (n, modified) = (count(updated.matched), count(updated.modified));
            let mut result = document! { "ok": 1.0, "idx": idx, "n": n, "nModified": modified };
            if let Some(id) = &updated.upserted {
                result.append(bson::cstr!("upserted"), document! { "_id": id });
            }
            result
        }
    }
}
