//! The log: what was written, in its order and with its time, until every member has it.

use std::collections::VecDeque;
use std::sync::Arc;

use cmap_core::time::Instant;

use crate::replica_set::view::Position;
use crate::replication::{SharedEntry, Timed};

/// How many entries, and bytes of them, are kept for members that lag behind. One that needs more copies another member's
/// documents.
const MOST_ENTRIES: usize = 100_000;
const MOST_BYTES: usize = 64 << 20;

/// The entries that some members do not have yet.
#[derive(Debug, Default)]
pub(super) struct Log {
    entries: VecDeque<Logged>,
    /// Of the commands in them.
    bytes: usize,
    /// The position before the first entry.
    start: Position,
}

/// An entry, and when it was written.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    pub(super) at: Instant,
    pub(super) entry: SharedEntry,
}

impl Log {
    /// The position after the last entry.
    pub(super) fn end(&self) -> Position {
        Position(self.start.0 + self.entries.len() as u64)
    }

    pub(super) fn push(&mut self, at: Instant, entry: Timed) {
        self.bytes += entry.entry.size();
        self.entries.push_back(Logged { at, entry: Arc::new(entry) });
        while self.entries.len() > MOST_ENTRIES || self.bytes > MOST_BYTES {
            self.forget(Position(self.start.0 + 1));
        }
    }

    /// The entry after a position; an error if the log no longer has it.
    pub(super) fn after(&self, position: Position) -> Result<Option<&Logged>, Forgotten> {
        let index = position.0.checked_sub(self.start.0).ok_or(Forgotten)?;
        Ok(usize::try_from(index).ok().and_then(|index| self.entries.get(index)))
    }

    /// Forgets the entries up to a position, which every member has.
    pub(super) fn forget(&mut self, position: Position) {
        while self.start < position
            && let Some(logged) = self.entries.pop_front()
        {
            self.bytes -= logged.entry.entry.size();
            self.start.0 += 1;
        }
    }

    /// Takes back the entries after a position; the log goes on from there.
    pub(super) fn cut(&mut self, position: Position) {
        if position < self.start || position > self.end() {
            self.entries.clear();
            self.start = position;
        }
        self.entries.truncate(usize::try_from(position.0 - self.start.0).unwrap_or(usize::MAX));
        self.bytes = self.entries.iter().map(|logged| logged.entry.entry.size()).sum();
    }
}

/// The log has only later entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forgotten;
