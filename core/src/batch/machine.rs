//! The batches of an operation, one after the other.

use alloc::borrow::ToOwned;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;

use bson::{RawDocument, RawDocumentBuf, cstr};

use super::error::BatchError;
use super::items::Items;
use super::kind::{Kind, NAMESPACES};
use super::merge::Merge;
use super::namespaces::Namespaces;
use super::result::WriteResult;
use crate::error_text::presentable;
use crate::wire::document::command_name;
use crate::wire::{Limits, Sequence, integer};

/// What a message leaves to its header and to the fields that clients add to commands (BW-3).
const RESERVE: usize = 1000;

/// The writes of one operation.
///
/// - Let it [`take`](Self::take) items while it [`wants_item`](Self::wants_item).
/// - [`begin`](Self::begin) the batch once its connection is known, and send its [`sequences`](Self::sequences) along with the
///   [`command`](Self::command).
/// - Hand in the reply, and the documents of a bulkWrite's results cursor; then [`end`](Self::end) the batch, until it says that there is
///   no other one.
pub struct Batches {
    kind: Kind,
    command: RawDocumentBuf,
    is_ordered: bool,
    errors_only: bool,
    /// Those of the last connection.
    limits: Limits,
    items: Items,
    /// Whether there are no more items to take.
    are_all: bool,
    namespaces: Namespaces,
    /// The batch in hand.
    batch: Option<Batch>,
    /// How many items are done, which is the place of the first other one.
    done: u64,
    merge: Merge,
}

/// The first items, in one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Batch {
    count: usize,
    length: usize,
}

impl Batches {
    /// The batches of `command`, whose items are in `sequences` of these names, and not in the command itself. A bulkWrite
    /// that does not say otherwise gets `errorsOnly: true` and `ordered: true` (BW-6).
    ///
    /// # Errors
    /// The command does not have such sequences, or needs others.
    pub fn new(command: &RawDocument, sequences: &[&str]) -> Result<Self, BatchError> {
        let kind = kind_of(command, sequences)?;
        let said = |field: &str| command.get(field).ok().flatten();
        let is_true = |field: &str| command.get_bool(field).unwrap_or(true);
        let (is_ordered, errors_only) = (is_true("ordered"), is_true("errorsOnly"));
        let is_added = |field: &str| kind == Kind::Bulk && said(field).is_none();
        let mut command = command.to_owned();
        if is_added("errorsOnly") {
            command.append(cstr!("errorsOnly"), true);
        }
        if is_added("ordered") {
            command.append(cstr!("ordered"), true);
        }
        Ok(Self {
            kind,
            command,
            is_ordered,
            errors_only,
            limits: Limits::DEFAULT,
            items: Items::default(),
            are_all: false,
            namespaces: Namespaces::default(),
            batch: None,
            done: 0,
            merge: Merge::new(),
        })
    }

    /// The command that goes along with each batch.
    pub fn command(&self) -> &RawDocument {
        &self.command
    }

    /// The name of the sequence of its items.
    pub fn items_name(&self) -> &'static str {
        self.kind.items()
    }

    /// Adds the next item of a bulkWrite's `nsInfo`. All of them come before the items of `ops`.
    ///
    /// # Errors
    /// It cannot be written as a document.
    pub fn add_namespace<E: fmt::Display>(&mut self, namespace: Result<&RawDocument, E>) -> Result<(), BatchError> {
        let index = self.namespaces.count() as u64;
        match namespace {
            Ok(namespace) => self.namespaces.add(namespace),
            Err(error) => {
                let problem = presentable(&error.to_string()).into_owned();
                return Err(BatchError::Unwritable { sequence: NAMESPACES, index, problem });
            }
        }
        Ok(())
    }

    /// Whether the next message may take more items than are at hand.
    pub fn wants_item(&self) -> bool {
        let most = usize::try_from(self.limits.max_write_batch).unwrap_or(usize::MAX);
        !self.are_all && self.items.count() <= most && self.fixed() + self.items.length() <= self.room()
    }

    /// Takes the next item, which `next` appends; `None` if there is none. Returns whether there was one.
    ///
    /// # Errors
    /// That of `next`; or it does not append one document; or an item of a bulkWrite does not name its collection. The item is not
    /// taken.
    pub fn take<E: fmt::Display>(
        &mut self,
        next: impl FnOnce(&mut Vec<u8>) -> Option<Result<(), E>>,
    ) -> Result<bool, BatchError> {
        let index = self.done + self.items.count() as u64;
        let unwritable = |problem: &str| {
            let (sequence, problem) = (self.kind.items(), presentable(problem).into_owned());
            BatchError::Unwritable { sequence, index, problem }
        };
        match self.items.append(next) {
            Some(Ok(true)) => {}
            Some(Ok(false)) => return Err(unwritable("it is none")),
            Some(Err(error)) => return Err(unwritable(&error.to_string())),
            None => {
                self.are_all = true;
                return Ok(false);
            }
        }
        if self.kind == Kind::Bulk && self.items.last().is_none_or(|item| self.namespace_of(item).is_none()) {
            self.items.take_back();
            return Err(BatchError::NoNamespace { index, namespaces: self.namespaces.count() });
        }
        Ok(true)
    }

    /// Whether the last item is a document to insert without an `_id`, or inserts one.
    pub fn lacks_id(&self) -> bool {
        let Some(last) = self.items.last() else { return false };
        let lacks_id = |document: &RawDocument| document.get("_id").is_ok_and(|id| id.is_none());
        match self.kind {
            Kind::Insert => lacks_id(last),
            Kind::Bulk => command_name(last) == Some("insert") && last.get_document("document").is_ok_and(lacks_id),
            Kind::Update | Kind::Delete => false,
        }
    }

    /// Gives the document of the last item this `_id`, as its first field (BW-17).
    pub fn add_id(&mut self, id: [u8; 12]) {
        self.items.add_id((self.kind == Kind::Bulk).then_some("document"), id);
    }

    /// Whether there is nothing to send: all items are done.
    pub fn is_empty(&self) -> bool {
        self.are_all && self.items.count() == 0
    }

    /// # Errors
    /// There are no items at all (BW-7).
    pub fn check_any(&self) -> Result<(), BatchError> {
        let are_none = self.is_empty() && self.done == 0;
        if are_none { Err(BatchError::NoItems { sequence: self.kind.items() }) } else { Ok(()) }
    }

    /// # Errors
    /// A bulkWrite with `w: 0` asks for what only a reply can say (BW-7).
    pub fn check_unacknowledged(&self) -> Result<(), BatchError> {
        match self.kind {
            Kind::Bulk if !self.errors_only => Err(BatchError::UnacknowledgedResults),
            Kind::Bulk if self.is_ordered => Err(BatchError::UnacknowledgedOrder),
            Kind::Bulk | Kind::Insert | Kind::Update | Kind::Delete => Ok(()),
        }
    }

    /// An attempt has a connection with these limits. The first one decides what the batch has: as many of the first items as fit
    /// (BW-2). Returns whether this is the first.
    ///
    /// # Errors
    /// The first item does not fit by itself (BW-4).
    pub fn begin(&mut self, limits: &Limits) -> Result<bool, BatchError> {
        if self.batch.is_some() {
            return Ok(false);
        }
        self.limits = *limits;
        self.namespaces.begin();
        let most = usize::try_from(limits.max_write_batch).unwrap_or(usize::MAX);
        let (room, mut size, mut batch) = (self.room(), self.fixed(), Batch { count: 0, length: 0 });
        while batch.count < most.min(self.items.count()) {
            let Some(item) = self.items.at(batch.length) else { break };
            let (length, namespace) = (item.as_bytes().len(), self.namespace_of(item));
            let needed = length + namespace.map_or(0, |given| self.namespaces.cost(given));
            if size + needed > room {
                if batch.count > 0 {
                    break;
                }
                let max = room.saturating_sub(size);
                return Err(BatchError::TooLarge { index: self.done, length: needed, max });
            }
            if let Some(given) = namespace {
                let number = self.namespaces.number(given);
                self.items.renumber(batch.length, number);
            }
            size += needed;
            batch = Batch { count: batch.count + 1, length: batch.length + length };
        }
        self.batch = Some(batch);
        Ok(true)
    }

    /// The sequences of the batch in hand.
    pub fn sequences(&self) -> Vec<Sequence<'_>> {
        let length = self.batch.map_or(0, |batch| batch.length);
        let mut sequences = Vec::from([Sequence::of(self.kind.items(), self.items.first(length))]);
        if self.kind == Kind::Bulk {
            sequences.push(Sequence::of(NAMESPACES, self.namespaces.of_batch()));
        }
        sequences
    }

    /// The reply to the batch in hand came: one whose `ok` is 1.
    pub fn handle_reply(&mut self, reply: &RawDocument) {
        let items = self.batch.map_or(0, |batch| batch.count);
        self.merge.add_reply(reply, self.kind, self.is_ordered, items, self.done);
    }

    /// The batch in hand was sent with `w: 0`.
    pub fn handle_unacknowledged(&mut self) {
        self.merge.result.is_acknowledged = false;
    }

    /// A document of the results cursor came, of which the reply to a bulkWrite has the first ones.
    pub fn handle_result(&mut self, document: &RawDocument) {
        self.merge.add_result(document, self.is_ordered, self.done);
    }

    /// Whether the results cursor has more to say: not after the error that ends an ordered bulkWrite.
    pub fn wants_results(&self) -> bool {
        let is_over = self.is_ordered && self.merge.has_read_errors();
        self.kind == Kind::Bulk && !is_over && (!self.errors_only || self.merge.has_unread_errors())
    }

    /// The batch in hand is done. Returns whether the next one follows: not after an error of an item, if they are ordered (BW-12).
    pub fn end(&mut self) -> bool {
        if let Some(batch) = self.batch.take() {
            self.items.finish(batch.count, batch.length);
            self.done += batch.count as u64;
        }
        let has_failed = self.merge.end_batch();
        !(has_failed && self.is_ordered)
    }

    /// The result of all that was sent.
    pub fn into_result(self) -> WriteResult {
        self.merge.result
    }

    /// The length of the command without its items.
    fn fixed(&self) -> usize {
        self.command.as_bytes().len()
    }

    /// How long the command and its items may be.
    fn room(&self) -> usize {
        usize::try_from(self.limits.max_message_size).unwrap_or(usize::MAX).saturating_sub(RESERVE)
    }

    /// The place in `nsInfo` that an item of a bulkWrite names in its first field.
    fn namespace_of(&self, item: &RawDocument) -> Option<usize> {
        if self.kind != Kind::Bulk {
            return None;
        }
        let (_, place) = item.iter().next()?.ok()?;
        usize::try_from(integer(place)?).ok().filter(|place| *place < self.namespaces.count())
    }
}

/// What `command` is, if it needs exactly these sequences.
fn kind_of(command: &RawDocument, sequences: &[&str]) -> Result<Kind, BatchError> {
    let name = command_name(command).unwrap_or_default();
    let shown = |name: &str| presentable(name).into_owned();
    let kind = Kind::named(name);
    let is_known = |sequence: &str| kind.is_some_and(|kind| kind.sequences().contains(&sequence));
    if let Some(unknown) = sequences.iter().find(|sequence| !is_known(sequence)) {
        return Err(BatchError::NoSuchSequence { command: shown(name), sequence: shown(unknown) });
    }
    let Some(kind) = kind else {
        return Err(BatchError::NoSuchSequence { command: shown(name), sequence: Kind::Insert.items().to_owned() });
    };
    let is_once = |needed: &str| sequences.iter().filter(|sequence| **sequence == needed).count() == 1;
    match kind.sequences().iter().find(|needed| !is_once(needed)) {
        Some(sequence) => Err(BatchError::NotOnce { command: shown(name), sequence }),
        None => Ok(kind),
    }
}

// Items may be confidential, so only their number and length are shown.
impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Batches");
        debug.field("items", &self.items.count()).field("length", &self.items.length());
        debug.field("batch", &self.batch).field("done", &self.done).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
