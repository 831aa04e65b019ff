//! The collections that a command touches, as its document shows: those it names, and those that its pipelines join or write to.
//!
//! Rules for collections would be worth nothing if `$lookup` or `$out` went around them. So every document of the command is looked
//! at, and what only looks like such a stage counts as one.
//!
//! | file | content |
//! |---|---|
//! | `tables` | names that mean something to a server |

mod tables;

use std::collections::BTreeSet;

use bson::{RawBsonRef, RawDocument};
use cmap_core::wire::{Sequence, integer};

use super::names::shown;
use super::reading::{array, field, fields, text, there_twice, values};
use super::refusal::Refusal;
use super::request::Request;
use tables::{OF_THE_SERVER, is_between_servers, modern, names_its_database, without_buckets};

/// A collection that a command touches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The database.
    pub database: String,
    /// The collection; empty if the command concerns the whole database.
    pub collection: String,
    /// The command's name, or that of the stage which writes.
    pub action: String,
}

/// How many different targets a command may have. Each is compared with all rules, on the thread that serves others, too.
const MOST_TARGETS: usize = 1_000;

/// The targets of a command, at least one.
///
/// # Errors
/// It has more than a thousand, one of them has a name that can be taken for another one, or something in it cannot be read.
pub fn targets(request: &Request) -> Result<Vec<Target>, Refusal> {
    let sequences = request.sequences()?;
    let mut found = Found::new(&request.database);
    found.command(&request.name, request.body(), &sequences)?;
    sequences.iter().flat_map(Sequence::documents).try_for_each(|document| found.document(document))?;
    if found.targets.len() > MOST_TARGETS {
        let message = format!("the command touches more than {MOST_TARGETS} collections; send several commands");
        return Err(Refusal::new(72, "InvalidOptions", message));
    }
    if found.targets.iter().any(|(database, collection, _)| is_ambiguous(database, collection)) {
        let message = "the name of a database has no dot, and that of a collection no NUL; correct the name";
        return Err(Refusal::new(73, "InvalidNamespace", message));
    }
    let target = |(database, collection, action): &(&str, &str, &str)| Target {
        database: (*database).into(),
        collection: (*collection).into(),
        action: (*action).into(),
    };
    Ok(found.targets.iter().map(target).collect())
}

/// Whether a server could take the names for others: old ones join the two by a dot and part them at the first one, or end them at a NUL.
fn is_ambiguous(database: &str, collection: &str) -> bool {
    database.contains(['.', '\0']) || collection.contains('\0')
}

fn is_of_all_databases(stage: RawBsonRef<'_>) -> Result<bool, Refusal> {
    // What is no document, or says no boolean, is refused by the server.
    let all = stage.as_document().map(|stage| field(stage, "allChangesForCluster")).transpose()?;
    Ok(all.flatten().is_some())
}

fn has_change_stream(body: &RawDocument) -> Result<bool, Refusal> {
    let stages = array(body, "pipeline")?.into_iter().flat_map(values);
    for stage in stages {
        let names = stage?.as_document().into_iter().flat_map(fields);
        for field in names {
            if field?.0 == "$changeStream" {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The documents of a command's list, which is in its document or a sequence.
fn listed<'a>(
    body: &'a RawDocument,
    sequences: &'a [Sequence<'a>],
    name: &str,
) -> Result<Vec<&'a RawDocument>, Refusal> {
    let mut documents = Vec::new();
    for item in array(body, name)?.into_iter().flat_map(values) {
        documents.push(item?.as_document().ok_or_else(|| malformed(name))?);
    }
    documents.extend(sequences.iter().filter(|sequence| sequence.identifier == name).flat_map(Sequence::documents));
    Ok(documents)
}

fn malformed(list: &str) -> Refusal {
    Refusal::new(9, "FailedToParse", format!("an entry of {list} is not what the hub can apply rules to"))
}

/// The writes of a `bulkWrite`, which name the position of their namespace.
const WRITES: [&str; 3] = ["insert", "update", "delete"];

/// What is found, by names that the command itself holds: one that is there a million times costs no copies.
struct Found<'a> {
    database: &'a str,
    /// The databases that the stages around the present one name: a name in their pipelines may be one of there, too.
    around: Vec<&'a str>,
    /// Database, collection, action.
    targets: BTreeSet<(&'a str, &'a str, &'a str)>,
    /// The fields so far of the present document and those around it.
    names: Vec<&'a str>,
}

impl<'a> Found<'a> {
    fn new(database: &'a str) -> Self {
        Self { database, around: Vec::new(), targets: BTreeSet::new(), names: Vec::new() }
    }

    fn command(&mut self, name: &'a str, body: &'a RawDocument, sequences: &'a [Sequence<'a>]) -> Result<(), Refusal> {
        let first = field(body, name)?;
        for field in fields(body).skip(1) {
            let (key, _) = field?;
            if is_between_servers(key) {
                let message = format!("the field {} is for servers among each other; leave it out", shown(key));
                return Err(Refusal::unauthorized(message));
            }
        }
        let name = modern(name);
        match (name, first) {
            // What is explained is what counts, and the explanation itself.
            ("explain", Some(RawBsonRef::Document(inner))) => {
                self.add(self.database, "", name);
                fields(body).skip(1).try_for_each(|field| field.and_then(|(key, value)| self.stage(key, value)))?;
                return match fields(inner).next() {
                    Some(first) => self.command(first?.0, inner, &[]),
                    None => Ok(()),
                };
            }
            ("getMore", _) => self.add(self.database, text(body, "collection")?.unwrap_or_default(), name),
            ("renameCollection", from) => {
                // Whatever a server makes of another type.
                self.full(from.and_then(RawBsonRef::as_str).unwrap_or_default(), name);
                self.full(text(body, "to")?.unwrap_or_default(), name);
            }
            (_, Some(RawBsonRef::String(namespace))) if names_its_database(name) => self.full(namespace, name),
            (_, Some(RawBsonRef::String(collection))) => self.add(self.database, collection, name),
            _ => self.add(self.database, "", name),
        }
        match name {
            "bulkWrite" => self.bulk_write(body, sequences)?,
            "mapReduce" => self.output(body)?,
            _ => {}
        }
        if let Some(view_on) = text(body, "viewOn")? {
            self.add(self.database, view_on, "aggregate");
        }
        if let Some(copy) = text(body, "toCollection")? {
            self.add(self.database, copy, name);
        }
        self.document(body)?;
        // On a whole database, or all of them.
        if name == "aggregate" && !matches!(first, Some(RawBsonRef::String(_))) && has_change_stream(body)? {
            self.add(self.database, "", "$changeStream");
        }
        Ok(())
    }

    /// Where a `mapReduce` writes: a name, or a document that says how, whereto and, maybe, into which database.
    fn output(&mut self, body: &'a RawDocument) -> Result<(), Refusal> {
        match field(body, "out")? {
            Some(RawBsonRef::Document(out)) => {
                let database = text(out, "db")?.unwrap_or(self.database);
                for how in ["replace", "merge", "reduce"] {
                    if let Some(collection) = text(out, how)? {
                        self.add(database, collection, "$out");
                    }
                }
            }
            Some(out) => _ = self.named(out, "$out")?,
            None => {}
        }
        Ok(())
    }

    /// A `bulkWrite` is what its namespaces and its writes are.
    fn bulk_write(&mut self, body: &'a RawDocument, sequences: &'a [Sequence<'a>]) -> Result<(), Refusal> {
        let namespaces = listed(body, sequences, "nsInfo")?.into_iter();
        let namespaces = namespaces.map(|entry| text(entry, "ns")?.ok_or_else(|| malformed("nsInfo")));
        let namespaces = namespaces.collect::<Result<Vec<_>, _>>()?;
        namespaces.iter().for_each(|namespace| self.full(namespace, "bulkWrite"));
        for write in listed(body, sequences, "ops")? {
            let mut is_known = false;
            for field in fields(write) {
                let (key, position) = field?;
                let Some(kind) = WRITES.into_iter().find(|kind| *kind == key) else { continue };
                let position = integer(position).and_then(|position| usize::try_from(position).ok());
                let namespace = position.and_then(|position| namespaces.get(position));
                self.full(namespace.ok_or_else(|| malformed("ops"))?, kind);
                is_known = true;
            }
            if !is_known {
                return Err(malformed("ops"));
            }
        }
        Ok(())
    }

    /// Looks for stages in a document, at every depth; core has bounded the depth. A field that is there twice could be one to the hub and
    /// another one to the server.
    fn document(&mut self, document: &'a RawDocument) -> Result<(), Refusal> {
        let begin = self.names.len();
        for field in fields(document) {
            let (key, value) = field?;
            self.names.push(key);
            self.stage(key, value)?;
        }
        let own = self.names.get_mut(begin..).unwrap_or_default();
        own.sort_unstable();
        if let Some((twice, _)) = own.iter().zip(own.iter().skip(1)).find(|(one, next)| one == next) {
            return Err(there_twice(twice));
        }
        self.names.truncate(begin);
        Ok(())
    }

    /// A field that may be a stage, and what is in it.
    fn stage(&mut self, key: &'a str, value: RawBsonRef<'a>) -> Result<(), Refusal> {
        let mut databases = [None; 2];
        match key {
            key if !key.starts_with('$') => {}
            "$lookup" | "$graphLookup" => databases = self.source(value, "from")?,
            "$unionWith" => databases = self.source(value, "coll")?,
            "$out" => _ = self.named(value, "$out")?,
            stage if OF_THE_SERVER.contains(&stage) => self.add(self.database, "", stage),
            "$changeStream" if is_of_all_databases(value)? => self.add("admin", "", "allChangesForCluster"),
            "$merge" => {
                let into = value.as_document().map_or(Ok(Some(value)), |stage| field(stage, "into"))?;
                into.map(|into| self.named(into, "$merge")).transpose()?;
            }
            _ => {}
        }
        let outside = self.around.len();
        for database in databases.into_iter().flatten() {
            if database != self.database && !self.around.contains(&database) {
                self.around.push(database);
            }
        }
        let found = self.value(value);
        self.around.truncate(outside);
        found
    }

    fn value(&mut self, value: RawBsonRef<'a>) -> Result<(), Refusal> {
        if let RawBsonRef::Array(array) = value {
            return values(array).try_for_each(|item| self.value(item?));
        }
        let scope = || value.as_javascript_with_scope().map(|code| code.scope);
        value.as_document().or_else(scope).map_or(Ok(()), |inner| self.document(inner))
    }

    /// A collection that a stage reads: a name, or a document whose `field` is a name or names database and collection. Returns the
    /// databases that the stage names: its pipeline may be one of there, whatever its `field` is.
    fn source(&mut self, stage: RawBsonRef<'a>, name: &str) -> Result<[Option<&'a str>; 2], Refusal> {
        let Some(stage) = stage.as_document() else { return Ok([self.named(stage, "aggregate")?, None]) };
        let database = text(stage, "db")?;
        let of_source = match (field(stage, name)?, database) {
            (Some(RawBsonRef::String(collection)), Some(database)) => {
                self.add(database, collection, "aggregate");
                None
            }
            (Some(named), _) => self.named(named, "aggregate")?,
            (None, _) => None,
        };
        Ok([database, of_source])
    }

    /// A collection by its name, or by a document that names it and perhaps its database, which is returned.
    fn named(&mut self, named: RawBsonRef<'a>, action: &'a str) -> Result<Option<&'a str>, Refusal> {
        let (database, collection) = match (named.as_str(), named.as_document()) {
            (Some(collection), _) => (None, collection),
            (None, Some(named)) => (text(named, "db")?, text(named, "coll")?.unwrap_or_default()),
            (None, None) => return Ok(None),
        };
        match database {
            Some(database) => self.add(database, collection, action),
            None => {
                self.add(self.database, collection, action);
                (0..self.around.len()).for_each(|at| self.add(self.around[at], collection, action));
            }
        }
        Ok(database)
    }

    fn full(&mut self, namespace: &'a str, action: &'a str) {
        let (database, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
        self.add(database, collection, action);
    }

    fn add(&mut self, database: &'a str, collection: &'a str, action: &'a str) {
        // One too many is enough to refuse the command.
        if self.targets.len() <= MOST_TARGETS {
            self.targets.insert((database, without_buckets(collection), action));
        }
    }
}

#[cfg(test)]
mod tests;
