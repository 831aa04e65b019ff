//! Which collections commands open, for tests that ask.
//!
//! The catalog notes each collection that it looks up, makes or removes. Of stages and commands that this store lacks, those
//! collections count that MongoDB opens before it runs them. MongoDB does not ask whether texts are UTF-8, and neither does this: a
//! text that is not hides nothing next to it. Where a field is there twice, both count.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use bson::{RawArray, RawBsonRef, RawDocument};

use super::arguments::{fields, values};
use super::catalog::{Catalog, Namespace};

/// The namespaces that were opened, once somebody has asked. A catalog shares them with its views.
#[derive(Clone, Debug, Default)]
pub(super) struct Opened(Option<Arc<Mutex<BTreeSet<String>>>>);

impl Opened {
    /// Those since the last call. The first call begins to note them.
    pub(super) fn take(&mut self) -> BTreeSet<String> {
        let noted = self.0.get_or_insert_default();
        std::mem::take(&mut *noted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn note(&self, namespace: Namespace<'_>) {
        if let Some(noted) = &self.0 {
            noted.lock().unwrap_or_else(PoisonError::into_inner).insert(namespace.full());
        }
    }

    pub(super) fn are_noted(&self) -> bool {
        self.0.is_some()
    }
}

/// Commands that name a collection of their database first.
#[rustfmt::skip]
const ON_COLLECTION: [&str; 26] = [
    "aggregate", "cloneCollectionAsCapped", "collMod", "collStats", "collstats", "compact", "convertToCapped", "count", "create",
    "createIndexes", "delete", "deleteIndexes", "distinct", "drop", "dropIndexes", "find", "findAndModify", "findandmodify", "insert",
    "listIndexes", "mapReduce", "mapreduce", "planCacheClear", "reIndex", "update", "validate",
];

/// Opens what a command involves.
pub(super) fn open_involved(catalog: &Catalog, name: &str, database: &str, body: &RawDocument) {
    if catalog.opened.are_noted() {
        Involved { catalog }.command(name, database, body);
    }
}

struct Involved<'c> {
    catalog: &'c Catalog,
}

impl Involved<'_> {
    fn command(&self, name: &str, database: &str, body: &RawDocument) {
        for (field, value) in fields(body) {
            match (name, field, value) {
                ("explain", "explain", RawBsonRef::Document(inner)) => {
                    if let Some((name, _)) = fields(inner).next() {
                        self.command(name, database, inner);
                    }
                }
                ("aggregate", "aggregate", RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_)) => {
                    self.change_stream(database, body);
                }
                ("renameCollection", "renameCollection" | "to", RawBsonRef::String(full)) => self.full(full),
                ("dataSize", "dataSize", RawBsonRef::String(full)) => self.full(full),
                ("bulkWrite", "nsInfo", RawBsonRef::Array(entries)) => {
                    let entries = values(entries).filter_map(RawBsonRef::as_document).flat_map(fields);
                    entries
                        .filter(|(name, _)| *name == "ns")
                        .filter_map(|(_, it)| it.as_str())
                        .for_each(|it| self.full(it));
                }
                ("copydb", "fromdb", RawBsonRef::String(other)) => self.all_of(|name| name == other),
                ("group", "group", RawBsonRef::Document(group)) => {
                    let named = fields(group).filter(|(name, _)| *name == "ns").filter_map(|(_, it)| it.as_str());
                    named.for_each(|collection| self.open(database, collection));
                }
                ("filemd5", "root", RawBsonRef::String(bucket)) => self.open(database, &format!("{bucket}.chunks")),
                ("getMore", "collection", RawBsonRef::String(collection))
                | ("create" | "collMod", "viewOn", RawBsonRef::String(collection))
                | ("cloneCollectionAsCapped", "toCollection", RawBsonRef::String(collection)) => {
                    self.open(database, collection);
                }
                ("aggregate" | "create" | "collMod", "pipeline", RawBsonRef::Array(stages)) => {
                    self.pipeline(database, stages);
                }
                ("mapReduce" | "mapreduce", "out", RawBsonRef::String(collection)) => self.open(database, collection),
                ("mapReduce" | "mapreduce", "out", RawBsonRef::Document(out)) => {
                    let database = last(out, "db").unwrap_or(database);
                    let into = fields(out).filter(|(how, _)| matches!(*how, "replace" | "merge" | "reduce"));
                    into.filter_map(|(_, it)| it.as_str()).for_each(|collection| self.open(database, collection));
                }
                (name, field, RawBsonRef::String(collection)) if name == field && ON_COLLECTION.contains(&name) => {
                    self.open(database, collection);
                }
                _ => {}
            }
        }
    }

    /// A change stream of a database, or of all, reads every collection there.
    fn change_stream(&self, database: &str, body: &RawDocument) {
        let stages = fields(body).filter(|(name, _)| *name == "pipeline").filter_map(|(_, stages)| stages.as_array());
        let first = stages.filter_map(|stages| values(stages).next()?.as_document());
        for (_, options) in first.flat_map(fields).filter(|(name, _)| *name == "$changeStream") {
            let of_all = options.as_document().is_some_and(|it| it.get_bool("allChangesForCluster").unwrap_or(false));
            self.all_of(|name| of_all || name == database);
        }
    }

    /// Every collection of these databases.
    fn all_of(&self, is_one: impl Fn(&str) -> bool) {
        for (name, collections) in self.catalog.databases().filter(|(name, _)| is_one(name)) {
            collections.keys().for_each(|collection| self.open(name, collection));
        }
    }

    fn pipeline(&self, database: &str, stages: &RawArray) {
        for stage in values(stages).filter_map(RawBsonRef::as_document) {
            let mut fields_of_stage = fields(stage);
            // A stage has one field.
            if let (Some((name, argument)), None) = (fields_of_stage.next(), fields_of_stage.next()) {
                self.stage(database, name, argument);
            }
        }
    }

    fn stage(&self, database: &str, name: &str, argument: RawBsonRef<'_>) {
        match (name, argument) {
            ("$unionWith" | "$out" | "$merge", RawBsonRef::String(collection)) => self.open(database, collection),
            ("$lookup" | "$graphLookup", RawBsonRef::Document(stage)) if last(stage, "db").is_none() => {
                let mut of_pipeline = database;
                for (_, from) in fields(stage).filter(|(name, _)| *name == "from") {
                    of_pipeline = self.place(database, from).unwrap_or(database);
                }
                self.pipelines_in(of_pipeline, stage, |name| name == "pipeline");
            }
            ("$unionWith", RawBsonRef::Document(stage)) => {
                self.place(database, argument);
                self.pipelines_in(last(stage, "db").unwrap_or(database), stage, |name| name == "pipeline");
            }
            ("$out", RawBsonRef::Document(_)) => _ = self.place(database, argument),
            ("$merge", RawBsonRef::Document(stage)) => {
                fields(stage).filter(|(name, _)| *name == "into").for_each(|(_, into)| _ = self.place(database, into));
            }
            ("$facet", RawBsonRef::Document(facets)) => self.pipelines_in(database, facets, |_| true),
            ("$rankFusion" | "$scoreFusion", RawBsonRef::Document(stage)) => {
                let input = stage.get_document("input").and_then(|input| input.get_document("pipelines"));
                input.into_iter().for_each(|pipelines| self.pipelines_in(database, pipelines, |_| true));
            }
            _ => {}
        }
    }

    fn pipelines_in(&self, database: &str, document: &RawDocument, is_one: impl Fn(&str) -> bool) {
        let pipelines = fields(document).filter(|(name, _)| is_one(name)).filter_map(|(_, value)| value.as_array());
        pipelines.for_each(|stages| self.pipeline(database, stages));
    }

    /// A collection by its name, or by a document with `coll` and perhaps `db`, which is returned.
    fn place<'d>(&self, database: &str, named: RawBsonRef<'d>) -> Option<&'d str> {
        if let RawBsonRef::String(collection) = named {
            self.open(database, collection);
            return None;
        }
        let named = named.as_document()?;
        let other = last(named, "db");
        let collections = fields(named).filter(|(name, _)| *name == "coll").filter_map(|(_, value)| value.as_str());
        collections.for_each(|collection| self.open(other.unwrap_or(database), collection));
        other
    }

    /// Old servers join the two names, and part them at the first dot.
    fn open(&self, database: &str, collection: &str) {
        self.full(&format!("{database}.{collection}"));
    }

    fn full(&self, namespace: &str) {
        // A name that is invalid opens nothing.
        if let Some((database, collection)) = namespace.split_once('.')
            && let Ok(namespace) = Namespace::new(database, collection)
        {
            self.catalog.opened.note(namespace);
        }
    }
}

/// The text of the last field of this name.
fn last<'d>(document: &'d RawDocument, name: &str) -> Option<&'d str> {
    fields(document).filter(|(own, _)| *own == name).filter_map(|(_, value)| value.as_str()).last()
}
