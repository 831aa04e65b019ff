//! Indexes: their specifications, and for the unique ones the keys in use.
//!
//! Queries do not use them, except the one of `_id`. An array at an indexed path has a key for each of its elements.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use bson::raw::CString;
use bson::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::arguments::{Arguments, fields, shown};
use super::collation;
use super::collection::RecordId;
use super::failure::{CommandFailure, code};
use super::filter::Filter;
use super::meter::{Held, Meter, value_size};
use super::number::Number;
use super::order::{Ordered, compare_documents};
use super::path::{Found, Path};
use super::sort::{Direction, MAX_KEYS, Sort};
use super::work::{self, Work, weight};
use super::write_error::WriteFailure;
use crate::document::document;

/// The values of a document at the paths of an index.
pub(super) type Key = Vec<Ordered>;

/// An index of one collection.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) name: String,
    /// As listIndexes shows it.
    pub(super) description: RawDocumentBuf,
    /// Its `key`.
    pub(super) pattern: RawDocumentBuf,
    paths: Vec<(String, Path)>,
    is_sparse: bool,
    is_partial: bool,
    /// The keys in use, if no two documents may have the same key.
    taken: Option<Taken>,
}

/// The record of each key, and the bytes that the keys take; those count once the index is in a collection.
#[derive(Debug, Default)]
struct Taken {
    /// Shared with copies of the collection, until one of them changes it: most writes leave the keys of a document as they are.
    records: Arc<BTreeMap<Key, RecordId>>,
    held: Option<Held>,
}

/// The keys of a document, and their bytes.
#[derive(Debug, Default)]
pub(super) struct Keys {
    keys: BTreeSet<Key>,
    pub(super) bytes: usize,
}

/// The fields of an index that MongoDB knows.
#[rustfmt::skip]
const OPTIONS: &[&str] = &[
    "2dsphereIndexVersion", "background", "bits", "bucketSize", "clustered", "coarsestIndexedLevel", "collation",
    "default_language", "dropDups", "expireAfterSeconds", "finestIndexedLevel", "hidden", "key", "language_override", "max", "min",
    "name", "ns", "originalSpec", "partialFilterExpression", "prepareUnique", "sparse", "storageEngine", "textIndexVersion",
    "unique", "v", "weights", "wildcardProjection",
];

/// The most keys that one document may have in an index, as on a server.
const MAX_KEYS_OF_DOCUMENT: usize = 100_000;
/// What an index, and a key of it, take beyond the bytes of their documents and values.
const OVERHEAD: usize = 512;
const KEY_OVERHEAD: usize = 64;
/// The steps to describe a key that another document has.
const STEPS_PER_DUPLICATE: u64 = 80;

impl Index {
    /// The index that every collection has.
    pub(super) fn of_id() -> Self {
        Self {
            name: "_id_".to_string(),
            description: document! { "v": 2, "key": document! { "_id": 1 }, "name": "_id_" },
            pattern: document! { "_id": 1 },
            paths: Path::parse("_id").map(|path| ("_id".to_string(), path)).into_iter().collect(),
            is_sparse: false,
            is_partial: false,
            taken: Some(Taken::default()),
        }
    }

    /// Reads one of the `indexes` of createIndexes. Options that MongoDB does not have are refused, or left out.
    pub(super) fn parse(specification: &RawDocument, ignores_unknown: bool) -> Result<Self, CommandFailure> {
        let arguments = Arguments::new("createIndexes.indexes", specification);
        let key = arguments.required("key", arguments.document("key")?)?;
        let name = arguments.required("name", arguments.string("name")?)?;
        let cannot = |message: String| CommandFailure::new(code::CANNOT_CREATE_INDEX, message);
        if name.is_empty() {
            return Err(cannot("The index name cannot be empty".to_string()));
        }
        if !ignores_unknown
            && let Some((option, _)) = fields(specification).find(|(option, _)| !OPTIONS.contains(option))
        {
            let message = format!("The field '{option}' is not valid for an index specification.");
            return Err(CommandFailure::new(code::INVALID_INDEX_SPECIFICATION_OPTION, message));
        }
        let mut paths = Vec::new();
        for (field, value) in fields(key) {
            let is_text = value.as_str().is_some_and(|text| !text.is_empty());
            if !is_text && Number::read(value).is_none_or(Number::is_zero) {
                let shown = shown(value);
                return Err(cannot(format!(
                    "Values in v:2 index key pattern cannot be {shown}: only numbers other than 0, and the names of types"
                )));
            }
            if let Some(kind) = value.as_str() {
                check_kind(kind)?;
            }
            let path = Path::parse(field)?;
            if path.parts().iter().any(String::is_empty) {
                return Err(cannot("Index keys cannot be an empty field".to_string()));
            }
            paths.push((field.to_string(), path));
        }
        if paths.len() > MAX_KEYS {
            return Err(CommandFailure::new(code::TOO_MANY_KEYS, "too many compound keys"));
        }
        if paths.is_empty() {
            return Err(cannot("Index keys cannot be empty.".to_string()));
        }
        let (is_unique, is_sparse) = (arguments.boolean("unique")?, arguments.boolean("sparse")?);
        let partial = arguments.document("partialFilterExpression")?;
        if let Some(filter) = partial {
            if is_sparse {
                return Err(cannot("cannot mix \"partialFilterExpression\" and \"sparse\" options".to_string()));
            }
            if paths.len() == 1 && paths.iter().all(|(field, _)| field == "_id") {
                return Err(cannot("_id index cannot be a partial index".to_string()));
            }
            if !Filter::parse(filter)?.suits_partial_index() {
                let filter = shown(RawBsonRef::Document(filter));
                return Err(cannot(format!("Expression not supported in partial index: {filter}")));
            }
            if is_unique {
                return Err(CommandFailure::not_supported("a unique index with a partialFilterExpression"));
            }
        }
        if is_unique {
            // Any other index changes no result.
            collation::check(arguments.document("collation")?)?;
        }
        let mut description = document! { "v": 2 };
        for (field, value) in specification.iter().filter_map(Result::ok) {
            if !matches!(field.as_str(), "v" | "ns") && OPTIONS.contains(&field.as_str()) {
                description.append(field, value);
            }
        }
        let taken = is_unique.then(Taken::default);
        Ok(Self {
            name: name.to_string(),
            description,
            pattern: key.to_owned(),
            paths,
            is_sparse,
            is_partial: partial.is_some(),
            taken,
        })
    }

    /// An index like this one, of no documents.
    pub(super) fn emptied(&self) -> Self {
        Self {
            name: self.name.clone(),
            description: self.description.clone(),
            pattern: self.pattern.clone(),
            paths: self.paths.clone(),
            is_sparse: self.is_sparse,
            is_partial: self.is_partial,
            taken: self.taken.as_ref().map(|_| Taken::default()),
        }
    }

    /// A copy of the index and its keys, whose bytes `meter` counts.
    pub(super) fn copy(&self, meter: &Arc<Meter>) -> Self {
        let taken = self.taken.as_ref().map(|Taken { records, held }| Taken {
            records: Arc::clone(records),
            held: held.as_ref().map(|held| meter.hold(held.bytes())),
        });
        Self { taken, ..self.emptied() }
    }

    /// The bytes of an index without keys.
    pub(super) fn size(&self) -> usize {
        OVERHEAD + 4 * self.description.as_bytes().len()
    }

    /// The bytes of its keys.
    pub(super) fn bytes_of_keys(&self) -> usize {
        self.taken.as_ref().and_then(|taken| taken.held.as_ref()).map_or(0, Held::bytes)
    }

    /// The paths of its fields, in their order.
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(|(name, _)| name.as_str())
    }

    /// Whether both index the same fields in the same way.
    pub(super) fn has_pattern(&self, pattern: &RawDocument) -> bool {
        compare_documents(&self.pattern, pattern).is_eq()
    }

    /// Whether the options that decide which documents it takes are the same.
    pub(super) fn has_options_of(&self, other: &Self) -> bool {
        let filter =
            |index: &Self| index.description.get_document("partialFilterExpression").ok().map(ToOwned::to_owned);
        (self.taken.is_some(), self.is_sparse) == (other.taken.is_some(), other.is_sparse)
            && filter(self) == filter(other)
    }

    /// The order of its keys; `None` if it is partial, or its keys have no order that documents show.
    pub(super) fn order(&self) -> Option<Sort> {
        let direction = |(_, value)| match Number::read(value)?.compare(Number::Int32(0)).is_lt() {
            true => Some(Direction::Down),
            false => Some(Direction::Up),
        };
        let directions: Option<Vec<_>> = fields(&self.pattern).map(direction).collect();
        let paths = self.paths.iter().map(|(_, path)| path.clone());
        directions.filter(|_| !self.is_partial).map(|directions| Sort::By(paths.zip(directions).collect()))
    }

    /// Whether it has a key for this document: a sparse index needs one of its fields.
    pub(super) fn has(&self, document: &RawDocument, work: &Work) -> bool {
        let is_there = |(_, path): &(String, Path)| {
            let there = &mut |found: Found<'_>| match found.value {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            };
            path.visit(document, work, there).is_break()
        };
        !self.is_sparse || self.paths.iter().any(is_there)
    }

    /// The keys that `document` would take, if it may have them; `own` is the record that it replaces.
    pub(super) fn check(
        &self,
        document: &RawDocument,
        own: Option<RecordId>,
        namespace: &str,
        work: &Work,
    ) -> Result<Keys, WriteFailure> {
        let Some(Taken { records, .. }) = &self.taken else { return Ok(Keys::default()) };
        let keys = self.keys(document, work)?;
        // Once to look for them, once to take them.
        work.step((2 * keys.keys.len() * self.paths.len()) as u64 * work::depth(records.len()));
        work.check()?;
        match keys.keys.iter().find(|key| records.get(*key).is_some_and(|record| Some(*record) != own)) {
            None => Ok(keys),
            Some(key) => {
                work.step(STEPS_PER_DUPLICATE);
                Err(self.duplicate(key, namespace))
            }
        }
    }

    /// Takes keys for a record.
    pub(super) fn take(&mut self, keys: Keys, record: RecordId, meter: &Arc<Meter>) {
        if let Some(Taken { records, held }) = &mut self.taken {
            Arc::make_mut(records).extend(keys.keys.into_iter().map(|key| (key, record)));
            let held = held.get_or_insert_with(|| meter.hold(0));
            held.resize(held.bytes() + keys.bytes);
        }
    }

    /// Gives up the keys of a record: all of them, even after too much work.
    pub(super) fn release(&mut self, document: &RawDocument, record: RecordId, work: &Work) {
        let keys = self.keys_to_release(document, work);
        self.release_keys(&keys, record);
    }

    /// Gives up the keys of a record that has another document from now on, and takes the keys of that.
    pub(super) fn exchange(
        &mut self,
        old: &RawDocument,
        keys: Keys,
        record: RecordId,
        meter: &Arc<Meter>,
        work: &Work,
    ) {
        let before = self.keys_to_release(old, work);
        if before.keys != keys.keys || before.bytes != keys.bytes {
            self.release_keys(&before, record);
            self.take(keys, record, meter);
        }
    }

    fn keys_to_release(&self, document: &RawDocument, work: &Work) -> Keys {
        let Some(Taken { records, .. }) = &self.taken else { return Keys::default() };
        let own = work.unlimited();
        let keys = self.keys(document, &own).unwrap_or_default();
        work.step(own.done() + keys.keys.len() as u64 * work::depth(records.len()) / 2);
        keys
    }

    fn release_keys(&mut self, keys: &Keys, record: RecordId) {
        let Some(Taken { records, held }) = &mut self.taken else { return };
        let records = Arc::make_mut(records);
        for key in &keys.keys {
            if records.get(key) == Some(&record) {
                records.remove(key);
            }
        }
        if let Some(held) = held {
            held.resize(held.bytes().saturating_sub(keys.bytes));
        }
    }

    /// The record that has this key.
    pub(super) fn find(&self, key: &Key) -> Option<RecordId> {
        self.taken.as_ref()?.records.get(key).copied()
    }

    fn keys(&self, document: &RawDocument, work: &Work) -> Result<Keys, CommandFailure> {
        let mut keys = BTreeSet::new();
        let mut key = Key::new();
        let (mut alternatives, mut is_missing): (Option<(usize, BTreeSet<Ordered>)>, _) = (None, true);
        for (_, path) in &self.paths {
            let (mut elements, mut is_array) = (BTreeSet::new(), false);
            let _ = path.visit(document, work, &mut |found| {
                is_missing &= found.value.is_none();
                let whole_array = !found.is_element && found.value.is_some_and(|value| value.as_array().is_some());
                // The key of an empty array is undefined.
                let value = if whole_array { RawBsonRef::Undefined } else { found.value.unwrap_or(RawBsonRef::Null) };
                is_array |= found.is_element || whole_array;
                if !whole_array || elements.is_empty() {
                    work.step(weight(value) * work::depth(elements.len()));
                    elements.insert(Ordered(RawBson::from(value)));
                }
                if elements.len() > MAX_KEYS_OF_DOCUMENT { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if elements.len() > MAX_KEYS_OF_DOCUMENT {
                let message = format!(
                    "Index key generation exceeded limit of {MAX_KEYS_OF_DOCUMENT} keys per document in {}",
                    self.name
                );
                return Err(CommandFailure::new(code::CANNOT_BUILD_INDEX_KEYS, message));
            }
            if is_array || elements.len() > 1 {
                if alternatives.is_some() {
                    let message = "cannot index parallel arrays";
                    return Err(CommandFailure::new(code::CANNOT_INDEX_PARALLEL_ARRAYS, message));
                }
                alternatives = Some((key.len(), elements));
                key.push(Ordered(RawBson::Null));
            } else {
                key.push(elements.pop_first().unwrap_or(Ordered(RawBson::Null)));
            }
        }
        if self.is_sparse && is_missing {
            return Ok(Keys::default());
        }
        let size =
            |values: &mut dyn Iterator<Item = &Ordered>| values.map(|Ordered(value)| value_size(value)).sum::<usize>();
        let common = KEY_OVERHEAD + size(&mut key.iter());
        let bytes = match &alternatives {
            None => common,
            Some((_, elements)) => elements.len() * common + size(&mut elements.iter()),
        };
        work.check_bytes("the keys of a document in an index", bytes)?;
        work.step((bytes / 16) as u64);
        match alternatives {
            None => _ = keys.insert(key),
            Some((position, elements)) => keys.extend(elements.into_iter().map(|element| {
                let mut key = key.clone();
                if let Some(place) = key.get_mut(position) {
                    *place = element;
                }
                key
            })),
        }
        Ok(Keys { keys, bytes })
    }

    fn duplicate(&self, key: &Key, namespace: &str) -> WriteFailure {
        let mut value = RawDocumentBuf::new();
        let mut shown_key = Vec::new();
        for ((field, _), Ordered(part)) in self.paths.iter().zip(key) {
            if let Ok(field) = CString::try_from(field.as_str()) {
                value.append(field, part);
            }
            shown_key.push(format!("{field}: {}", shown(part.as_raw_bson_ref())));
        }
        let message = format!(
            "E11000 duplicate key error collection: {namespace} index: {} dup key: {{ {} }}",
            self.name,
            shown_key.join(", ")
        );
        WriteFailure::duplicate(message, self.pattern.clone(), value)
    }
}

/// Refuses an index whose type would need queries that the store lacks, and a type that MongoDB has not.
fn check_kind(kind: &str) -> Result<(), CommandFailure> {
    match kind {
        "2d" | "2dsphere" | "hashed" => Ok(()),
        "text" => Err(CommandFailure::not_supported("a text index")),
        _ => Err(CommandFailure::new(code::CANNOT_CREATE_INDEX, format!("Unknown index plugin '{kind}'"))),
    }
}
