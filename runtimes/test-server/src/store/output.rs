//! `$out` and `$merge`: the collection that takes a pipeline's result.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::arguments::fields;
use super::catalog::{Catalog, Namespace};
use super::collection::check_size;
use super::failure::{CommandFailure, code};
use super::history::{Change, Manner};
use super::meter::Stored;
use super::order::Ordered;
use super::work::Work;

/// Where a result goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output<'a> {
    /// That of the command, if it is none.
    database: Option<&'a str>,
    collection: &'a str,
    kind: Kind,
}

/// What becomes of the documents that the collection has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `$out`: they are replaced.
    Replace,
    /// `$merge`: one with the `_id` of a new one gets its fields, and the others stay.
    Merge,
}

impl<'a> Output<'a> {
    /// The names of the stages.
    pub(super) const STAGES: [&'static str; 2] = ["$out", "$merge"];

    /// Reads the argument of the stage `name`.
    pub(super) fn parse(name: &str, argument: RawBsonRef<'a>) -> Result<Self, CommandFailure> {
        let kind = if name == "$merge" { Kind::Merge } else { Kind::Replace };
        let place = match (kind, argument.as_document()) {
            (Kind::Merge, Some(options)) => into(options)?,
            (Kind::Merge, None) | (Kind::Replace, _) => argument,
        };
        let by_fields = || {
            let place = place.as_document()?;
            Some((place.get_str("db").ok(), place.get_str("coll").ok()?))
        };
        let by_name = place.as_str().map(|collection| (None, collection));
        let (database, collection) = by_name.or_else(by_fields).ok_or_else(|| {
            CommandFailure::failed_to_parse(format!("{name} needs the name of a collection, or db and coll"))
        })?;
        Ok(Self { database, collection, kind })
    }

    /// The name of the stage.
    pub(super) fn stage(self) -> &'static str {
        match self.kind {
            Kind::Replace => "$out",
            Kind::Merge => "$merge",
        }
    }

    /// Stores the result of a pipeline in `database`. `$out` keeps the options and indexes of the collection, and changes nothing if one
    /// document cannot be stored; `$merge` stops at the first that cannot.
    pub(super) fn put(
        self,
        catalog: &mut Catalog,
        database: &str,
        documents: &[Arc<Stored>],
        work: &Work,
    ) -> Result<(), CommandFailure> {
        let namespace = Namespace::new(self.database.unwrap_or(database), self.collection)?;
        catalog.refuse_view(namespace)?;
        match self.kind {
            Kind::Replace => {
                let replaced = catalog.get(namespace).map(|replaced| replaced.uuid);
                let mut made = catalog.get_or_create(namespace)?.emptied();
                for document in documents {
                    made.insert(catalog.with_id(document), work)?;
                }
                let uuid = made.uuid;
                catalog.put(namespace, made);
                // MongoDB makes another collection, which takes the name.
                let made = Namespace { database: namespace.database, collection: "tmp.agg_out" };
                let to = (namespace.database.to_owned(), namespace.collection.to_owned());
                catalog.history.note(made, uuid, || Change::Rename { to, dropped: replaced });
            }
            Kind::Merge => {
                for document in documents {
                    let new = catalog.with_id(document);
                    let id = new.get("_id").ok().flatten().unwrap_or(RawBsonRef::Null);
                    let collection = catalog.get(namespace);
                    let found = collection.and_then(|collection| collection.by_id(&Ordered(id.into())));
                    match found.map(|(record, old)| (record, Arc::clone(old))) {
                        None => catalog.insert(namespace, new, work)?,
                        Some(old) => {
                            let merged = merge(&old.1, &new, work)?;
                            catalog.replace(namespace, old, merged, Manner::Updated, work)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// The collection that `$merge` names. What asks for anything but the defaults is refused.
fn into(options: &RawDocument) -> Result<RawBsonRef<'_>, CommandFailure> {
    for (name, value) in fields(options) {
        let is_usual = match name {
            "into" => true,
            "on" => value.as_str() == Some("_id"),
            "whenMatched" => value.as_str() == Some("merge"),
            "whenNotMatched" => value.as_str() == Some("insert"),
            "let" => false,
            name => {
                let message = format!("BSON field '$merge.{name}' is an unknown field.");
                return Err(CommandFailure::new(code::UNKNOWN_FIELD, message));
            }
        };
        if !is_usual {
            return Err(CommandFailure::not_supported(&format!("this value of {name} in $merge")));
        }
    }
    options.get("into").ok().flatten().ok_or_else(|| CommandFailure::failed_to_parse("$merge needs the field into"))
}

/// `old` with the fields of `new`: in their places, or after the others.
fn merge(old: &RawDocument, new: &RawDocument, work: &Work) -> Result<RawDocumentBuf, CommandFailure> {
    let mut news: BTreeMap<_, _> = new.iter().filter_map(Result::ok).collect();
    let mut merged = RawDocumentBuf::new();
    for (name, value) in old.iter().filter_map(Result::ok) {
        work.step(1);
        merged.append(name, news.remove(name).unwrap_or(value));
    }
    for (name, value) in new.iter().filter_map(Result::ok).filter(|(name, _)| news.contains_key(name)) {
        work.step(1);
        merged.append(name, value);
    }
    work.copy(merged.as_bytes().len());
    check_size(&merged, work)?;
    Ok(merged)
}
