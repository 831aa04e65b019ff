//! Cursors: the rest of a result, handed out in batches.
//!
//! A cursor is exhausted when it looked for another document and found none, or when its limit is reached: a batch that
//! is exactly filled leaves it open, even if it took the last document (SRV-5). The documents are those that matched
//! when the command ran; only a tailable cursor sees later insertions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf};
use cmap_core::random::Random;
use cmap_core::wire::Limits;

use super::collection::{Collection, RecordId};
use super::failure::{CommandFailure, code};
use super::filter::Filter;
use super::projection::Projection;
use crate::document::document;

/// The default number of documents in the first batch.
pub(super) const DEFAULT_BATCH_SIZE: usize = 101;
/// The most that a document costs in a reply beyond its own bytes: its type and its index.
const OVERHEAD: usize = 10;

/// A result that is handed out in batches.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) namespace: String,
    pub(super) source: Source,
    pub(super) projection: Option<Projection>,
    /// How many documents it may still hand out.
    pub(super) limit: Option<usize>,
}

/// The source of a cursor's documents.
#[derive(Debug)]
pub(super) enum Source {
    /// A fixed list.
    Documents(VecDeque<Arc<RawDocumentBuf>>),
    /// The documents of a capped collection after a place, later ones included.
    Tail { filter: Filter, position: Option<RecordId> },
    /// None: the collection was dropped.
    Dropped,
}

/// Some documents, and whether there may be more.
#[derive(Debug, Default)]
pub(super) struct Batch {
    documents: RawArrayBuf,
    count: usize,
    bytes: usize,
    is_last: bool,
}

/// The open cursors.
#[derive(Debug)]
pub(super) struct Cursors {
    open: BTreeMap<i64, Cursor>,
    ids: Random,
}

impl Cursor {
    /// A cursor over a fixed list of documents.
    pub(super) fn of(namespace: String, documents: impl IntoIterator<Item = Arc<RawDocumentBuf>>) -> Self {
        let source = Source::Documents(documents.into_iter().collect());
        Self { namespace, source, projection: None, limit: None }
    }

    /// The reply with the first and only batch.
    pub(super) fn only_batch(
        mut self,
        batch_size: usize,
        collection: Option<&Collection>,
    ) -> Result<RawDocumentBuf, CommandFailure> {
        Ok(self.next_batch(batch_size, collection)?.into_reply("firstBatch", &self.namespace, 0))
    }

    /// The next documents: up to the number wanted, the number left, and the size of a reply.
    pub(super) fn next_batch(
        &mut self,
        wanted: usize,
        collection: Option<&Collection>,
    ) -> Result<Batch, CommandFailure> {
        let mut batch = Batch::default();
        loop {
            if self.limit == Some(0) {
                batch.is_last = true;
                return Ok(batch);
            }
            if batch.count == wanted {
                return Ok(batch);
            }
            let Some((document, place)) = self.source.peek(collection)? else {
                batch.is_last = matches!(self.source, Source::Documents(_));
                return Ok(batch);
            };
            let projected = self.projection.as_ref().map(|projection| projection.apply(&document));
            if !batch.push(projected.as_deref().unwrap_or(&document)) {
                return Ok(batch);
            }
            self.source.advance(place);
            self.limit = self.limit.map(|limit| limit - 1);
        }
    }
}

impl Source {
    /// The next document, and its place if this is a tail.
    fn peek(
        &mut self,
        collection: Option<&Collection>,
    ) -> Result<Option<(Arc<RawDocumentBuf>, RecordId)>, CommandFailure> {
        match self {
            Self::Documents(documents) => Ok(documents.front().map(|document| (Arc::clone(document), 0))),
            Self::Tail { filter, position } => {
                let Some(collection) = collection else { return Err(dropped()) };
                if position.is_some_and(|position| collection.start() > position) {
                    let message = "CollectionScan died due to position in capped collection being deleted";
                    return Err(CommandFailure::new(code::CAPPED_POSITION_LOST, message));
                }
                let next = position.map_or(0, |position| position + 1);
                let found = collection.documents_from(next).find(|(_, document)| filter.matches(document));
                if found.is_none() {
                    *position = collection.end().checked_sub(1);
                }
                Ok(found.map(|(record, document)| (Arc::clone(document), record)))
            }
            Self::Dropped => Err(dropped()),
        }
    }

    fn advance(&mut self, to: RecordId) {
        match self {
            Self::Documents(documents) => _ = documents.pop_front(),
            Self::Tail { position, .. } => *position = Some(to),
            Self::Dropped => {}
        }
    }
}

fn dropped() -> CommandFailure {
    CommandFailure::new(code::QUERY_PLAN_KILLED, "collection dropped between getMore calls")
}

impl Batch {
    /// Adds a document, unless the batch has others and would become too long.
    fn push(&mut self, document: &RawDocument) -> bool {
        let bytes = self.bytes + document.as_bytes().len() + OVERHEAD;
        if self.count > 0 && bytes > Limits::DEFAULT.max_document_size as usize {
            return false;
        }
        self.documents.push(document);
        self.count += 1;
        self.bytes = bytes;
        true
    }

    /// The field `cursor` of a reply.
    fn into_reply(self, name: &'static str, namespace: &str, id: i64) -> RawDocumentBuf {
        let mut cursor = RawDocumentBuf::new();
        match name {
            "firstBatch" => cursor.append(bson::cstr!("firstBatch"), self.documents),
            _ => cursor.append(bson::cstr!("nextBatch"), self.documents),
        }
        cursor.append(bson::cstr!("id"), id);
        cursor.append(bson::cstr!("ns"), namespace);
        document! { "cursor": cursor }
    }
}

impl Default for Cursors {
    fn default() -> Self {
        Self { open: BTreeMap::new(), ids: Random::new(0) }
    }
}

impl Cursors {
    /// The reply that opens a cursor: its first batch, and its id if there may be more.
    pub(super) fn open(
        &mut self,
        mut cursor: Cursor,
        batch_size: usize,
        collection: Option<&Collection>,
    ) -> Result<RawDocumentBuf, CommandFailure> {
        let batch = cursor.next_batch(batch_size, collection)?;
        let id = if batch.is_last { 0 } else { self.next_id() };
        let reply = batch.into_reply("firstBatch", &cursor.namespace, id);
        if id != 0 {
            self.open.insert(id, cursor);
        }
        Ok(reply)
    }

    /// The reply to getMore.
    pub(super) fn get_more(
        &mut self,
        id: i64,
        namespace: &str,
        batch_size: usize,
        collection: Option<&Collection>,
    ) -> Result<RawDocumentBuf, CommandFailure> {
        let Some(cursor) = self.open.get_mut(&id) else {
            return Err(CommandFailure::new(code::CURSOR_NOT_FOUND, format!("cursor id {id} not found")));
        };
        if cursor.namespace != namespace {
            return Err(CommandFailure::new(
                code::UNAUTHORIZED,
                format!(
                    "Requested getMore on namespace '{namespace}', but cursor was created on different namespace '{}'",
                    cursor.namespace
                ),
            ));
        }
        let batch = cursor.next_batch(batch_size, collection);
        if batch.as_ref().map_or(true, |batch| batch.is_last) {
            self.open.remove(&id);
        }
        let batch = batch?;
        let id = if batch.is_last { 0 } else { id };
        Ok(batch.into_reply("nextBatch", namespace, id))
    }

    /// Closes a cursor; returns whether it was open.
    pub(super) fn kill(&mut self, id: i64, namespace: &str) -> bool {
        let is_open = self.open.get(&id).is_some_and(|cursor| cursor.namespace == namespace);
        if is_open {
            self.open.remove(&id);
        }
        is_open
    }

    /// A collection was dropped: the next getMore of each of its cursors fails.
    pub(super) fn drop_collection(&mut self, namespace: &str) {
        for cursor in self.open.values_mut().filter(|cursor| cursor.namespace == namespace) {
            cursor.source = Source::Dropped;
        }
    }

    /// The number of open cursors.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    fn next_id(&mut self) -> i64 {
        loop {
            // Positive, because that is easier to read in a log.
            let id = i64::try_from(self.ids.next_u64() >> 1).unwrap_or(0);
            if id != 0 && !self.open.contains_key(&id) {
                return id;
            }
        }
    }
}
