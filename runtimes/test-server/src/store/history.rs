//! What was written, in its order: what change streams read.
//!
//! A history is kept by servers of a cluster alone. Every write notes what it changed, with the documents before and after it, which
//! the collections share. Each event has its place: the cluster's time of its operation, and its number in that operation. All
//! members carry out the same operations with the same times, so that an event has one place on each of them. The oldest events are
//! forgotten when their bytes are too many.

use std::collections::VecDeque;
use std::sync::Arc;

use bson::{DateTime, RawBson, RawDocumentBuf, Timestamp};

use super::meter::Stored;
use super::namespace::Namespace;

/// What an event takes beyond its documents.
const OVERHEAD: usize = 256;

/// Everything up to a place: the first `next` events of the operation with this time, and of its next event so many parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    pub(super) time: Time,
    pub(super) next: u32,
    pub(super) parts: u32,
}

/// The time of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Time(pub(super) Timestamp);

impl Default for Time {
    fn default() -> Self {
        Self(Timestamp { time: 0, increment: 0 })
    }
}

/// The events, or none if no history is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    is_kept: bool,
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// The most bytes. A transaction has no limit of its own.
    limit: usize,
    /// Every event up to here is forgotten.
    forgotten: Point,
    /// The place of the next event, and when its operation is carried out.
    next: Point,
    wall: Option<DateTime>,
    /// The last operation whose events are shown, if not all are: what no election takes back.
    shown: Option<u32>,
}

/// A change.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) time: Time,
    /// Its number among those of its operation.
    pub(super) number: u32,
    pub(super) wall: DateTime,
    pub(super) database: String,
    /// Empty if the change is one of the whole database.
    pub(super) collection: String,
    pub(super) uuid: [u8; 16],
    pub(super) transaction: Option<Arc<TransactionId>>,
    pub(super) change: Change,
}

/// The transaction that a change is part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TransactionId {
    pub(super) session: Vec<u8>,
    pub(super) number: i64,
}

/// What was changed.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Insert(Arc<Stored>),
    /// `has_images` says that the collection keeps documents before and after changes.
    Update {
        before: Arc<Stored>,
        after: Arc<Stored>,
        has_images: bool,
    },
    Replace {
        before: Arc<Stored>,
        after: Arc<Stored>,
        has_images: bool,
    },
    Delete {
        before: Arc<Stored>,
        has_images: bool,
    },
    Drop,
    Rename {
        to: (String, String),
        dropped: Option<[u8; 16]>,
    },
    DropDatabase,
    Create {
        options: RawDocumentBuf,
    },
    CreateIndexes {
        indexes: RawBson,
    },
    DropIndexes {
        indexes: RawBson,
    },
    Modify {
        description: RawDocumentBuf,
    },
    ShardCollection {
        description: RawDocumentBuf,
    },
}

/// How a document came to be another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Some of its fields were changed.
    Updated,
    /// Another one took its place.
    Replaced,
}

impl Point {
    /// Before every event of this time.
    pub(super) fn before(time: Timestamp) -> Self {
        Self { time: Time(time), next: 0, parts: 0 }
    }

    /// After every event of this time.
    pub(super) fn after(time: Time) -> Self {
        Self { time, next: u32::MAX, parts: 0 }
    }
}

impl Event {
    /// Everything up to this event, with it.
    pub(super) fn end(&self) -> Point {
        Point { time: self.time, next: self.number + 1, parts: 0 }
    }

    /// Everything before this event, and the first `parts` of it.
    pub(super) fn part(&self, parts: u32) -> Point {
        Point { time: self.time, next: self.number, parts }
    }

    fn size(&self) -> usize {
        OVERHEAD + self.database.len() + self.collection.len() + self.change.size()
    }
}

impl Change {
    fn size(&self) -> usize {
        match self {
            Self::Insert(document) | Self::Delete { before: document, .. } => Stored::size(document),
            Self::Update { before, after, .. } | Self::Replace { before, after, .. } => {
                Stored::size(before) + Stored::size(after)
            }
            Self::Create { options: document }
            | Self::Modify { description: document }
            | Self::ShardCollection { description: document } => document.as_bytes().len(),
            Self::CreateIndexes { indexes } | Self::DropIndexes { indexes } => super::meter::value_size(indexes),
            Self::Drop | Self::Rename { .. } | Self::DropDatabase => 0,
        }
    }
}

impl History {
    /// Begins to keep one, of so many bytes.
    pub(super) fn keep(&mut self, limit: usize) {
        (self.is_kept, self.limit) = (true, limit);
    }

    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// An empty history for the writes of a transaction, which have no time before its end.
    pub(super) fn of_transaction(&self) -> Self {
        Self { is_kept: self.is_kept, limit: usize::MAX, ..Self::default() }
    }

    /// The events from now on are those of an operation of this time.
    pub(super) fn begin(&mut self, time: Timestamp, wall: DateTime) {
        (self.next, self.wall) = (Point::before(time), Some(wall));
    }

    /// From now on, events are shown up to the operation of this increment, or all.
    pub(super) fn show_until(&mut self, operation: Option<u32>) {
        self.shown = operation;
    }

    /// Notes a change in a collection.
    pub(super) fn note(&mut self, namespace: Namespace<'_>, uuid: [u8; 16], change: impl FnOnce() -> Change) {
        if !self.is_kept {
            return;
        }
        self.add(Event {
            time: Time::default(),
            number: 0,
            wall: DateTime::from_millis(0),
            database: namespace.database.to_owned(),
            collection: namespace.collection.to_owned(),
            uuid,
            transaction: None,
            change: change(),
        });
    }

    /// Notes the changes of a transaction, which is committed now.
    pub(super) fn commit(&mut self, events: &[Arc<Event>], transaction: Option<&Arc<TransactionId>>) {
        if self.is_kept {
            for event in events {
                self.add(Event { transaction: transaction.cloned(), ..Event::clone(event) });
            }
        }
    }

    fn add(&mut self, mut event: Event) {
        (event.time, event.number) = (self.next.time, self.next.next);
        event.wall = self.wall.unwrap_or(event.wall);
        self.next.next += 1;
        self.bytes += event.size();
        self.events.push_back(Arc::new(event));
        while self.bytes > self.limit
            && let Some(oldest) = self.events.pop_front()
        {
            self.bytes -= oldest.size();
            self.forgotten = oldest.end();
        }
    }

    /// Every event, which are those of a transaction.
    pub(super) fn into_events(self) -> Vec<Arc<Event>> {
        self.events.into()
    }

    /// The events after a point that are shown.
    pub(super) fn after(&self, point: Point) -> impl Iterator<Item = &Arc<Event>> {
        let start = self.events.partition_point(|event| event.end() <= point);
        self.events.range(start..).take_while(|event| self.shows(event))
    }

    /// The event that ends at a point.
    pub(super) fn ending_at(&self, point: Point) -> Option<&Arc<Event>> {
        let index = self.events.partition_point(|event| event.end() < point);
        self.events.get(index).filter(|event| event.end() == point)
    }

    /// Everything that is shown by now.
    pub(super) fn end(&self) -> Point {
        let count = self.events.partition_point(|event| self.shows(event));
        let last = count.checked_sub(1).and_then(|last| self.events.get(last));
        Point::after(last.map_or(self.forgotten.time, |last| last.time))
    }

    /// Whether every event after a point is still there.
    pub(super) fn reaches_back_to(&self, point: Point) -> bool {
        point >= self.forgotten
    }

    fn shows(&self, event: &Event) -> bool {
        self.shown.is_none_or(|shown| event.time.0.increment <= shown)
    }
}
