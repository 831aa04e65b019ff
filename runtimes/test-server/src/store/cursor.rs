//! Cursors: the rest of a result, handed out in batches.
//!
//! A cursor is exhausted when it looked for another document and found none, or when its limit is reached: a batch that
//! is exactly filled leaves it open, even if it took the last document (SRV-5). The documents are those that matched
//! when the command ran; only a tailable cursor sees later insertions, and only a change stream later changes. Those that are open are in `cursors`.

use std::collections::VecDeque;
use std::sync::Arc;

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf};
use cmap_core::wire::Limits;

use super::catalog::Catalog;
use super::change_stream::ChangeStream;
use super::collection::{Collection, RecordId};
use super::failure::{CommandFailure, code};
use super::filter::Filter;
use super::meter::Stored;
use super::projection::Projection;
use super::work::Work;
use crate::document::document;

/// The default number of documents in the first batch.
pub(super) const DEFAULT_BATCH_SIZE: usize = 101;
/// The most that a document costs in a reply beyond its own bytes: its type and its index.
const OVERHEAD: usize = 10;
/// What a cursor takes beyond its documents and its query.
const OVERHEAD_OF_CURSOR: usize = 1024;
/// How many bytes a byte of a query becomes when it is read.
const QUERY_GROWTH: usize = 16;

/// A result that is handed out in batches.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) namespace: String,
    pub(super) source: Source,
    pub(super) projection: Option<Projection>,
    /// How many documents it may still hand out.
    pub(super) limit: Option<usize>,
    /// Whether it may be idle for as long as its session, or its connection, lives.
    pub(super) no_timeout: bool,
    /// Whether its getMore waits for documents, if there are none.
    pub(super) awaits_data: bool,
    /// The bytes of its query and its projection.
    pub(super) query_bytes: usize,
    /// The steps left of the time limit that the client set.
    pub(super) time_left: Option<u64>,
}

/// The source of a cursor's documents.
#[derive(Debug)]
pub(super) enum Source {
    /// A fixed list.
    Documents(VecDeque<Arc<Stored>>),
    /// The documents of a capped collection after a place, later ones included.
    /// The first ones that match, `skip` of them, are left out.
    Tail { filter: Filter, position: Option<RecordId>, skip: usize },
    /// The changes in the history, later ones included.
    Changes(Box<ChangeStream>),
    /// None: the collection was dropped.
    Dropped,
}

/// Some documents, and whether there may be more.
#[derive(Debug, Default)]
pub(super) struct Batch {
    documents: RawArrayBuf,
    count: usize,
    bytes: usize,
    pub(super) is_last: bool,
    /// Where a change stream can go on after the batch.
    resume_token: Option<RawDocumentBuf>,
}

impl Cursor {
    /// A cursor over a fixed list of documents.
    pub(super) fn of(namespace: String, documents: impl IntoIterator<Item = Arc<Stored>>) -> Self {
        let mut documents: VecDeque<_> = documents.into_iter().collect();
        documents.shrink_to_fit();
        let (source, projection, limit, time_left) = (Source::Documents(documents), None, None, None);
        Self { namespace, source, projection, limit, no_timeout: false, awaits_data: false, query_bytes: 0, time_left }
    }

    /// The cursor of a change stream.
    pub(super) fn of_changes(namespace: String, stream: ChangeStream) -> Self {
        let source = Source::Changes(Box::new(stream));
        Self { source, awaits_data: true, ..Self::of(namespace, []) }
    }

    /// Whether it hands out changes.
    pub(super) fn is_change_stream(&self) -> bool {
        matches!(self.source, Source::Changes(_))
    }

    /// About how many bytes it takes. A document that is in a collection, too, is a pointer here.
    pub(super) fn size(&self) -> usize {
        let documents = match &self.source {
            Source::Documents(documents) => {
                let own = documents.iter().filter(|document| Arc::strong_count(document) == 1);
                documents.len() * size_of::<Arc<Stored>>() + own.map(|document| Stored::size(document)).sum::<usize>()
            }
            Source::Tail { .. } | Source::Changes(_) | Source::Dropped => 0,
        };
        OVERHEAD_OF_CURSOR + self.namespace.len() + QUERY_GROWTH * self.query_bytes + documents
    }

    /// The reply with the first and only batch.
    pub(super) fn only_batch(
        mut self,
        batch_size: usize,
        catalog: &Catalog,
        collection: Option<&Collection>,
        work: &Work,
    ) -> Result<RawDocumentBuf, CommandFailure> {
        Ok(self.next_batch(batch_size, catalog, collection, work)?.into_reply("firstBatch", &self.namespace, 0))
    }

    /// The next documents: up to the number wanted, the number left, and the size of a reply.
    pub(super) fn next_batch(
        &mut self,
        wanted: usize,
        catalog: &Catalog,
        collection: Option<&Collection>,
        work: &Work,
    ) -> Result<Batch, CommandFailure> {
        let mut batch = Batch::default();
        self.fill(&mut batch, wanted, catalog, collection, work)?;
        if let Source::Changes(stream) = &self.source {
            batch.resume_token = Some(stream.resume_token());
        }
        Ok(batch)
    }

    fn fill(
        &mut self,
        batch: &mut Batch,
        wanted: usize,
        catalog: &Catalog,
        collection: Option<&Collection>,
        work: &Work,
    ) -> Result<(), CommandFailure> {
        loop {
            if self.limit == Some(0) {
                batch.is_last = true;
                return Ok(());
            }
            if batch.count == wanted {
                return Ok(());
            }
            let next = match self.source.peek(catalog, collection, work) {
                // What was found before is handed out first.
                Err(_) if batch.count > 0 && self.is_change_stream() => return Ok(()),
                next => next?,
            };
            let Some((document, place)) = next else {
                batch.is_last = self.source.has_ended();
                return Ok(());
            };
            let projected = self.projection.as_ref().map(|projection| projection.apply(&document, work));
            work.step(1);
            work.check()?;
            let document = projected.as_deref().unwrap_or(&document);
            work.copy(document.as_bytes().len());
            if !batch.push(document) {
                return Ok(());
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
        catalog: &Catalog,
        collection: Option<&Collection>,
        work: &Work,
    ) -> Result<Option<(Arc<Stored>, RecordId)>, CommandFailure> {
        match self {
            Self::Documents(documents) => Ok(documents.front().map(|document| (Arc::clone(document), 0))),
            Self::Tail { filter, position, skip } => {
                let Some(collection) = collection else { return Err(dropped()) };
                if position.is_some_and(|position| collection.start() > position) {
                    let message = "CollectionScan died due to position in capped collection being deleted";
                    return Err(CommandFailure::new(code::CAPPED_POSITION_LOST, message));
                }
                let next = position.map_or(0, |position| position + 1);
                let from = collection.documents_from(next);
                let mut matching = from.filter(|(_, document)| filter.matches(document, work));
                while *skip > 0
                    && let Some((record, _)) = matching.next()
                {
                    *skip -= 1;
                    *position = Some(record);
                }
                let found = matching.next();
                work.check()?;
                if found.is_none() {
                    *position = collection.end().checked_sub(1);
                }
                Ok(found.map(|(record, document)| (Arc::clone(document), record)))
            }
            Self::Changes(stream) => Ok(stream.peek(catalog, work)?.map(|document| (document, 0))),
            Self::Dropped => Err(dropped()),
        }
    }

    /// Whether no further document can come, once there is none.
    fn has_ended(&self) -> bool {
        match self {
            Self::Documents(_) => true,
            Self::Changes(stream) => stream.is_over(),
            Self::Tail { .. } | Self::Dropped => false,
        }
    }

    fn advance(&mut self, to: RecordId) {
        match self {
            Self::Documents(documents) => _ = documents.pop_front(),
            Self::Tail { position, .. } => *position = Some(to),
            Self::Changes(stream) => stream.advance(),
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
    pub(super) fn into_reply(self, name: &'static str, namespace: &str, id: i64) -> RawDocumentBuf {
        let mut cursor = RawDocumentBuf::new();
        match name {
            "firstBatch" => cursor.append(bson::cstr!("firstBatch"), self.documents),
            _ => cursor.append(bson::cstr!("nextBatch"), self.documents),
        }
        cursor.append(bson::cstr!("id"), id);
        cursor.append(bson::cstr!("ns"), namespace);
        if let Some(token) = self.resume_token {
            cursor.append(bson::cstr!("postBatchResumeToken"), token);
        }
        document! { "cursor": cursor }
    }
}
