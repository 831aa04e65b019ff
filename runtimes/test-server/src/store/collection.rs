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
use super::index::{Index, Keys};
use super::meter::{Held, Meter, Stored};
use super::nested::nested;
use super::order::Ordered;
use super::work::{self, Work, weight};
use super::write_error::WriteFailure;

/// How deep a stored document may be nested: less than a message, in which it is part of others.
const MAX_STORED_DEPTH: usize = 180;

/// How many indexes a collection may have.
const MAX_INDEXES: usize = 64;

/// The steps for each value of a document that was made: it is copied, and checked twice.
const STEPS_PER_VALUE: u64 = 3;
/// What a collection takes beyond its options and indexes.
const OVERHEAD: usize = 1024;
/// What a shared document takes in each further collection that has it.
const ENTRY: usize = 32;

/// A document, and the one that took its place.
pub(super) type Exchanged = (Arc<Stored>, Arc<Stored>);

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
    documents: BTreeMap<RecordId, Arc<Stored>>,
    next: RecordId,
    bytes: usize,
    meter: Arc<Meter>,
    /// The collection itself, and its indexes without their keys.
    held: Held,
    /// What a copy that shares its documents takes for that.
    _shares: Held,
    /// The ids of the documents that were changed, if that is noted.
    changed: Option<BTreeSet<Ordered>>,
}

/// A copy that shares its documents.
impl Clone for Collection {
    fn clone(&self) -> Self {
        let meter = Arc::clone(&self.meter);
        Self {
            namespace: self.namespace.clone(),
            options: self.options.clone(),
            uuid: self.uuid,
            cap: self.cap,
            indexes: self.indexes.iter().map(|index| index.copy(&meter)).collect(),
            documents: self.documents.clone(),
            next: self.next,
            bytes: self.bytes,
            held: meter.hold(self.held.bytes()),
            _shares: meter.hold(self.documents.len() * ENTRY),
            changed: self.changed.clone(),
            meter,
        }
    }
}

impl Collection {
    pub(super) fn new(
        namespace: String,
        options: RawDocumentBuf,
        cap: Option<Cap>,
        uuid: [u8; 16],
        meter: &Arc<Meter>,
    ) -> Self {
        let (indexes, documents) = (vec![Index::of_id()], BTreeMap::new());
        let (meter, held, _shares) = (Arc::clone(meter), meter.hold(0), meter.hold(0));
        let (next, bytes, changed) = (0, 0, None);
        let mut new =
            Self { namespace, options, uuid, cap, indexes, documents, next, bytes, meter, held, _shares, changed };
        new.hold();
        new
    }

    /// The bytes of a new collection with these options.
    pub(super) fn size(options: &RawDocument) -> usize {
        OVERHEAD + options.as_bytes().len() + Index::of_id().size()
    }

    /// Takes the bytes of the collection and its indexes as they are now.
    fn hold(&mut self) {
        let indexes: usize = self.indexes.iter().map(Index::size).sum();
        self.held.resize(OVERHEAD + self.options.as_bytes().len() + indexes);
    }

    /// Whether it is only the name of a view.
    pub(super) fn is_view(&self) -> bool {
        self.options.get("viewOn").is_ok_and(|source| source.is_some())
    }

    /// Sets its options.
    pub(super) fn set_options(&mut self, options: RawDocumentBuf) {
        self.options = options;
        self.hold();
    }

    /// Keeps the first `count` indexes.
    pub(super) fn truncate_indexes(&mut self, count: usize) {
        self.indexes.truncate(count);
        self.hold();
    }

    /// Removes the indexes of these names.
    pub(super) fn drop_indexes(&mut self, names: &[String]) {
        self.indexes.retain(|index| !names.contains(&index.name));
        self.hold();
    }

    /// A collection like this one, without documents.
    pub(super) fn emptied(&self) -> Self {
        let (namespace, options) = (self.namespace.clone(), self.options.clone());
        let mut emptied = Self::new(namespace, options, self.cap, self.uuid, &self.meter);
        emptied.indexes = self.indexes.iter().map(Index::emptied).collect();
        emptied.hold();
        emptied
    }

    /// A copy of the collection for another catalog, whose bytes `meter` counts.
    pub(super) fn copy(&self, meter: &Arc<Meter>) -> Self {
        let (namespace, options) = (self.namespace.clone(), self.options.clone());
        let mut copy = Self::new(namespace, options, self.cap, self.uuid, meter);
        copy.indexes = self.indexes.iter().map(|index| index.copy(meter)).collect();
        let stored = |document: &Stored| Arc::new(Stored::new((**document).to_owned(), meter));
        copy.documents = self.documents.iter().map(|(record, document)| (*record, stored(document))).collect();
        (copy.next, copy.bytes) = (self.next, self.bytes);
        copy.hold();
        copy
    }

    /// About how many bytes a copy takes that shares its documents.
    pub(super) fn size_of_copy(&self) -> usize {
        let keys: usize = self.indexes.iter().map(Index::bytes_of_keys).sum();
        self.held.bytes() + keys + self.documents.len() * ENTRY
    }

    /// Notes from now on which documents are changed.
    pub(super) fn note_changes(&mut self) {
        self.changed.get_or_insert_default();
    }

    /// The ids of the documents that were changed since that is noted.
    pub(super) fn changed(&self) -> impl Iterator<Item = &Ordered> {
        self.changed.iter().flatten()
    }

    /// Whether the document with this id was changed.
    pub(super) fn has_changed(&self, id: &Ordered) -> bool {
        self.changed.as_ref().is_some_and(|changed| changed.contains(id))
    }

    /// The document with this id, and its place.
    pub(super) fn by_id(&self, id: &Ordered) -> Option<(RecordId, &Arc<Stored>)> {
        let record = self.indexes.first()?.find(&vec![id.clone()])?;
        Some((record, self.documents.get(&record)?))
    }

    fn note_change(&mut self, document: &RawDocument) {
        if let Some(changed) = &mut self.changed {
            let id = document.get("_id").ok().flatten().unwrap_or(RawBsonRef::Null);
            changed.insert(Ordered(id.into()));
        }
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
    pub(super) fn documents(&self) -> impl Iterator<Item = &Arc<Stored>> {
        self.documents.values()
    }

    /// The documents after a place, each with its own.
    pub(super) fn documents_from(&self, first: RecordId) -> impl Iterator<Item = (RecordId, &Arc<Stored>)> {
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
    pub(super) fn matching(
        &self,
        filter: &Filter,
        limit: usize,
        work: &Work,
    ) -> Result<Vec<(RecordId, Arc<Stored>)>, CommandFailure> {
        if let (Some(id), Some(index)) = (filter.only_id(), self.indexes.first()) {
            work.step(weight(id.as_raw_bson_ref()) * work::depth(self.documents.len()));
            let found = index.find(&vec![Ordered(id.clone())]);
            let found = found.and_then(|record| Some((record, Arc::clone(self.documents.get(&record)?))));
            return Ok(found.into_iter().take(limit).collect());
        }
        let matching = self.documents.iter().filter(|(_, document)| {
            work.step(1);
            filter.matches(document, work)
        });
        let matching = matching.map(|(record, document)| (*record, Arc::clone(document))).take(limit).collect();
        work.check()?;
        Ok(matching)
    }

    /// Inserts a document that has its `_id`.
    pub(super) fn insert(&mut self, document: RawDocumentBuf, work: &Work) -> Result<Arc<Stored>, WriteFailure> {
        check_storable(&document, work)?;
        if let Some(cap) = self.cap
            && document.as_bytes().len() > cap.bytes
        {
            let message = "object to insert exceeds cappedMaxSize";
            return Err(CommandFailure::bad_value(message).into());
        }
        let keys = self.check_keys(&document, None, work)?;
        let bytes: usize = keys.iter().map(|keys| keys.bytes).sum();
        self.meter.check(bytes + Stored::size(&document))?;
        let record = self.next;
        self.next += 1;
        let stored = self.store(record, document, keys);
        self.enforce_cap(work);
        Ok(stored)
    }

    /// Puts another document in the place of `old`; returns both if they differ.
    pub(super) fn replace(
        &mut self,
        (record, old): (RecordId, Arc<Stored>),
        document: RawDocumentBuf,
        work: &Work,
    ) -> Result<Option<Exchanged>, WriteFailure> {
        if old.as_bytes() == document.as_bytes() || !self.documents.contains_key(&record) {
            return Ok(None);
        }
        check_storable(&document, work)?;
        let keys = self.check_keys(&document, Some(record), work)?;
        // The old document is freed, unless a cursor has it, too.
        let is_shared = Arc::strong_count(&old) > 2;
        let freed = if is_shared { 0 } else { Stored::size(&old) };
        let bytes: usize = keys.iter().map(|keys| keys.bytes).sum();
        self.meter.check((bytes + Stored::size(&document)).saturating_sub(freed))?;
        for (index, keys) in self.indexes.iter_mut().zip(keys) {
            index.exchange(&old, keys, record, &self.meter, work);
        }
        self.bytes -= old.as_bytes().len();
        self.note_change(&old);
        let new = self.put(record, document);
        Ok(Some((old, new)))
    }

    /// Gives up the keys of the document in a place, but for its `_id`. [`replace_released`](Self::replace_released) has to follow.
    pub(super) fn release_unique_keys(&mut self, record: RecordId, work: &Work) {
        if let Some(document) = self.documents.get(&record) {
            self.indexes.iter_mut().skip(1).for_each(|index| index.release(document, record, work));
        }
    }

    /// Puts another document with the same `_id` in the place of one whose keys were given up.
    pub(super) fn replace_released(
        &mut self,
        record: RecordId,
        document: RawDocumentBuf,
        work: &Work,
    ) -> Result<(), WriteFailure> {
        check_storable(&document, work)?;
        let keys = self.check_keys(&document, Some(record), work)?;
        let bytes: usize = keys.iter().skip(1).map(|keys| keys.bytes).sum();
        self.meter.check(bytes + Stored::size(&document))?;
        for (index, keys) in self.indexes.iter_mut().zip(keys).skip(1) {
            index.take(keys, record, &self.meter);
        }
        if let Some(old) = self.documents.get(&record) {
            self.bytes -= old.as_bytes().len();
        }
        self.put(record, document);
        Ok(())
    }

    /// Removes the document in a place.
    pub(super) fn remove(&mut self, record: RecordId, work: &Work) -> Option<Arc<Stored>> {
        let document = self.documents.remove(&record)?;
        self.note_change(&document);
        self.bytes -= document.as_bytes().len();
        for index in &mut self.indexes {
            index.release(&document, record, work);
        }
        Some(document)
    }

    /// Adds an index, with the keys of all documents.
    pub(super) fn add_index(&mut self, mut index: Index, work: &Work) -> Result<(), WriteFailure> {
        if self.indexes.len() >= MAX_INDEXES {
            let message = format!("add index fails, too many indexes for {}", self.namespace);
            return Err(CommandFailure::new(code::CANNOT_CREATE_INDEX, message).into());
        }
        self.meter.check(index.size())?;
        for (record, document) in &self.documents {
            let keys = index.check(document, Some(*record), &self.namespace, work)?;
            self.meter.check(keys.bytes)?;
            index.take(keys, *record, &self.meter);
        }
        self.indexes.push(index);
        self.hold();
        Ok(())
    }

    fn check_keys(
        &self,
        document: &RawDocument,
        own: Option<RecordId>,
        work: &Work,
    ) -> Result<Vec<Keys>, WriteFailure> {
        let mut bytes = 0;
        let keys = self.indexes.iter().map(|index| {
            let keys = index.check(document, own, &self.namespace, work)?;
            // Before those of the other indexes are made, too.
            bytes += keys.bytes;
            work.check_bytes("the keys of a document", bytes)?;
            Ok(keys)
        });
        keys.collect()
    }

    fn store(&mut self, record: RecordId, document: RawDocumentBuf, keys: Vec<Keys>) -> Arc<Stored> {
        for (index, keys) in self.indexes.iter_mut().zip(keys) {
            index.take(keys, record, &self.meter);
        }
        self.put(record, document)
    }

    fn put(&mut self, record: RecordId, document: RawDocumentBuf) -> Arc<Stored> {
        self.note_change(&document);
        self.bytes += document.as_bytes().len();
        let stored = Arc::new(Stored::new(document, &self.meter));
        self.documents.insert(record, Arc::clone(&stored));
        stored
    }

    /// Removes the oldest documents of a capped collection that has too many.
    fn enforce_cap(&mut self, work: &Work) {
        let Some(Cap { bytes, documents }) = self.cap else { return };
        while self.bytes > bytes || documents.is_some_and(|documents| self.documents.len() > documents) {
            let Some((oldest, _)) = self.documents.first_key_value() else { return };
            let oldest = *oldest;
            self.remove(oldest, work);
        }
    }
}

/// Whether a document may be stored: its size, its depth, its `_id`.
fn check_storable(document: &RawDocument, work: &Work) -> Result<(), CommandFailure> {
    check_size(document, work)?;
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
pub(super) fn check_size(document: &RawDocument, work: &Work) -> Result<(), CommandFailure> {
    let (length, max) = (document.as_bytes().len(), Limits::DEFAULT.max_document_size as usize);
    if length > max {
        let message = format!("object to insert too large. size in bytes: {length}, max size: {max}");
        return Err(CommandFailure::new(code::BSON_OBJECT_TOO_LARGE, message));
    }
    // It is well-formed, or deeper than any message.
    let (depth, values) = match validate(document.as_bytes()) {
        Ok(_) => measure(document),
        Err(_) => (usize::MAX, 0),
    };
    work.step(STEPS_PER_VALUE * values);
    work.copy(length);
    work.check()?;
    if depth > MAX_STORED_DEPTH {
        return Err(CommandFailure::new(
            code::OVERFLOW,
            "cannot insert document because it exceeds 180 levels of nesting",
        ));
    }
    Ok(())
}

/// The depth of a document that is not nested deeper than any message, and the number of its values.
fn measure(document: &RawDocument) -> (usize, u64) {
    let (mut depth, mut values) = (0, 0);
    for (_, value) in document.iter().filter_map(Result::ok) {
        values += 1;
        if let Some(Ok(inner)) = nested(value) {
            let (inner_depth, inner_values) = measure(inner);
            depth = depth.max(inner_depth);
            values += inner_values;
        }
    }
    (depth + 1, values)
}
