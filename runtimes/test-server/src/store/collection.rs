//! A collection: documents in the order of their insertion, indexes, and the bounds of a capped one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bson::spec::ElementType;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use cmap_core::wire::Limits;
use cmap_core::wire::document::validate;

use super::arguments::{fields, type_name};
use super::failure::{CommandFailure, code};
use super::filter::Filter;
use super::index::{Index, Key};
use super::order::Ordered;
use super::write_error::WriteFailure;

/// How deep a stored document may be nested: less than a message, in which it is part of others.
const MAX_STORED_DEPTH: usize = 180;

/// How many indexes a collection may have.
const MAX_INDEXES: usize = 64;

/// The place of a document in a collection; later ones are greater.
pub(super) type RecordId = u64;

/// The bounds of a capped collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cap {
    pub(super) bytes: usize,
    pub(super) documents: Option<usize>,
}

/// Documents under one name.
#[derive(Debug)]
pub(super) struct Collection {
    /// `database.collection`.
    pub(super) namespace: String,
    /// Its options, as listCollections shows them.
    pub(super) options: RawDocumentBuf,
    pub(super) uuid: [u8; 16],
    pub(super) cap: Option<Cap>,
    /// The first is that of `_id`.
    pub(super) indexes: Vec<Index>,
    documents: BTreeMap<RecordId, Arc<RawDocumentBuf>>,
    next: RecordId,
    bytes: usize,
}

impl Collection {
    pub(super) fn new(namespace: String, options: RawDocumentBuf, cap: Option<Cap>, uuid: [u8; 16]) -> Self {
        let (indexes, documents) = (vec![Index::of_id()], BTreeMap::new());
        Self { namespace, options, uuid, cap, indexes, documents, next: 0, bytes: 0 }
    }

    /// A collection like this one, without documents.
    pub(super) fn emptied(&self) -> Self {
        let mut emptied = Self::new(self.namespace.clone(), self.options.clone(), self.cap, self.uuid);
        emptied.indexes = self.indexes.iter().map(Index::emptied).collect();
        emptied
    }

    /// The number of documents.
    pub(super) fn len(&self) -> usize {
        self.documents.len()
    }

    /// Their bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The documents in their natural order.
    pub(super) fn documents(&self) -> impl Iterator<Item = &Arc<RawDocumentBuf>> {
        self.documents.values()
    }

    /// The documents after a place, each with its own.
    pub(super) fn documents_from(&self, first: RecordId) -> impl Iterator<Item = (RecordId, &Arc<RawDocumentBuf>)> {
        self.documents.range(first..).map(|(record, document)| (*record, document))
    }

    /// The place of the first document.
    pub(super) fn start(&self) -> RecordId {
        self.documents.first_key_value().map_or(self.next, |(record, _)| *record)
    }

    /// The place of the next document.
    pub(super) fn end(&self) -> RecordId {
        self.next
    }

    /// The documents that match, with their places, up to `limit`.
    pub(super) fn matching(&self, filter: &Filter, limit: usize) -> Vec<(RecordId, Arc<RawDocumentBuf>)> {
        if let (Some(id), Some(index)) = (filter.only_id(), self.indexes.first()) {
            let found = index.find(&vec![Ordered(id.clone())]);
            let found = found.and_then(|record| Some((record, Arc::clone(self.documents.get(&record)?))));
            return found.into_iter().take(limit).collect();
        }
        let matching = self.documents.iter().filter(|(_, document)| filter.matches(document));
        matching.map(|(record, document)| (*record, Arc::clone(document))).take(limit).collect()
    }

    /// Refuses a hint that names an unknown index. There is no planner that would follow one.
    pub(super) fn check_hint(&self, hint: Option<RawBsonRef<'_>>) -> Result<(), CommandFailure> {
        let Some(hint) = hint else { return Ok(()) };
        let (name, pattern) = (hint.as_str(), hint.as_document());
        let is_index = self.indexes.iter().any(|index| {
            name == Some(index.name.as_str()) || pattern.is_some_and(|pattern| index.has_pattern(pattern))
        });
        let is_none = pattern.is_some_and(|pattern| fields(pattern).all(|(name, _)| name == "$natural"));
        match is_index || is_none {
            true => Ok(()),
            false => {
                let message = "error processing query: hint provided does not correspond to an existing index";
                Err(CommandFailure::bad_value(message))
            }
        }
    }

    /// Inserts a document that has its `_id`.
    pub(super) fn insert(&mut self, document: RawDocumentBuf) -> Result<(), WriteFailure> {
        check_storable(&document)?;
        if let Some(cap) = self.cap
            && document.as_bytes().len() > cap.bytes
        {
            let message = "object to insert exceeds cappedMaxSize";
            return Err(CommandFailure::bad_value(message).into());
        }
        let keys = self.check_keys(&document, None)?;
        let record = self.next;
        self.next += 1;
        self.store(record, document, keys);
        self.enforce_cap();
        Ok(())
    }

    /// Puts another document in a place; returns whether it differs.
    pub(super) fn replace(&mut self, record: RecordId, document: RawDocumentBuf) -> Result<bool, WriteFailure> {
        let Some(old) = self.documents.get(&record).map(Arc::clone) else { return Ok(false) };
        if old.as_bytes() == document.as_bytes() {
            return Ok(false);
        }
        check_storable(&document)?;
        let keys = self.check_keys(&document, Some(record))?;
        self.remove(record);
        self.store(record, document, keys);
        Ok(true)
    }

    /// Removes the document in a place.
    pub(super) fn remove(&mut self, record: RecordId) -> Option<Arc<RawDocumentBuf>> {
        let document = self.documents.remove(&record)?;
        self.bytes -= document.as_bytes().len();
        for index in &mut self.indexes {
            index.release(&document, record);
        }
        Some(document)
    }

    /// Adds an index, with the keys of all documents.
    pub(super) fn add_index(&mut self, mut index: Index) -> Result<(), WriteFailure> {
        if self.indexes.len() >= MAX_INDEXES {
            let message = format!("add index fails, too many indexes for {}", self.namespace);
            return Err(CommandFailure::new(code::CANNOT_CREATE_INDEX, message).into());
        }
        for (record, document) in &self.documents {
            let keys = index.check(document, Some(*record), &self.namespace)?;
            index.take(keys, *record);
        }
        self.indexes.push(index);
        Ok(())
    }

    fn check_keys(&self, document: &RawDocument, own: Option<RecordId>) -> Result<Vec<BTreeSet<Key>>, WriteFailure> {
        self.indexes.iter().map(|index| index.check(document, own, &self.namespace)).collect()
    }

    fn store(&mut self, record: RecordId, document: RawDocumentBuf, keys: Vec<BTreeSet<Key>>) {
        for (index, keys) in self.indexes.iter_mut().zip(keys) {
            index.take(keys, record);
        }
        self.bytes += document.as_bytes().len();
        self.documents.insert(record, Arc::new(document));
    }

    /// Removes the oldest documents of a capped collection that has too many.
    fn enforce_cap(&mut self) {
        let Some(Cap { bytes, documents }) = self.cap else { return };
        while self.bytes > bytes || documents.is_some_and(|documents| self.documents.len() > documents) {
            let Some((oldest, _)) = self.documents.first_key_value() else { return };
            let oldest = *oldest;
            self.remove(oldest);
        }
    }
}

/// Whether a document may be stored: its size, its depth, its `_id`.
fn check_storable(document: &RawDocument) -> Result<(), CommandFailure> {
    check_size(document)?;
    let id = document.get("_id").ok().flatten().unwrap_or(RawBsonRef::Null);
    let kind = id.element_type();
    if matches!(kind, ElementType::Array | ElementType::RegularExpression | ElementType::Undefined) {
        let message = format!("The '_id' value cannot be of type {}", type_name(kind));
        return Err(CommandFailure::new(code::INVALID_ID_FIELD, message));
    }
    let is_reserved = |name: &str| name.starts_with('$') && !matches!(name, "$ref" | "$id" | "$db");
    match id.as_document().into_iter().flat_map(fields).find(|(name, _)| is_reserved(name)) {
        Some((name, _)) => {
            let message = format!("_id fields may not contain '$'-prefixed fields: {name} is not valid for storage.");
            Err(CommandFailure::new(code::DOLLAR_PREFIXED_FIELD_NAME, message))
        }
        None => Ok(()),
    }
}

/// Whether a document is neither too long nor too deep.
pub(super) fn check_size(document: &RawDocument) -> Result<(), CommandFailure> {
    let (length, max) = (document.as_bytes().len(), Limits::DEFAULT.max_document_size as usize);
    if length > max {
        let message = format!("object to insert too large. size in bytes: {length}, max size: {max}");
        return Err(CommandFailure::new(code::BSON_OBJECT_TOO_LARGE, message));
    }
    // It is well-formed, or deeper than any message.
    if validate(document.as_bytes()).is_err() || depth(document) > MAX_STORED_DEPTH {
        return Err(CommandFailure::new(
            code::OVERFLOW,
            "cannot insert document because it exceeds 180 levels of nesting",
        ));
    }
    Ok(())
}

/// The depth of a document that is not nested deeper than any message.
fn depth(document: &RawDocument) -> usize {
    let inner = document.iter().filter_map(Result::ok).map(|(_, value)| {
        let array = || RawDocument::from_bytes(value.as_array()?.as_bytes()).ok();
        let scope = || value.as_javascript_with_scope().map(|code| code.scope);
        value.as_document().or_else(array).or_else(scope).map_or(0, depth)
    });
    1 + inner.max().unwrap_or(0)
}
