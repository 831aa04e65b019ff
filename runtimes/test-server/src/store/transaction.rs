//! A transaction in the store: a view of the collections as they were when it began, and what it has changed in it.
//!
//! The view shares its collections with the store, until either side changes one. A write conflicts with what others have written
//! to the same document since the beginning, and with what other transactions have written that are still open; the first one
//! to write wins. A commit carries the changed documents over into the store, all or none.

use std::sync::Arc;

use bson::{RawBson, RawBsonRef, RawDocumentBuf};

use super::arguments::values;
use super::call::namespace;
use super::catalog::{Catalog, Namespace};
use super::collection::Collection;
use super::failure::{CommandFailure, code};
use super::history::{Event, TransactionId};
use super::meter::Stored;
use super::order::Ordered;
use super::work::Work;
use super::{Caller, Spent, Store, StoreCommand};

/// A transaction that is open.
#[derive(Debug)]
pub struct StoreTransaction {
    /// The collections at its beginning.
    base: Catalog,
    view: Catalog,
    /// The commands that made collections and indexes.
    definitions: Vec<Definition>,
}

/// A view to read from.
#[derive(Debug)]
pub struct StoreSnapshot(Catalog);

/// What a transaction has changed, for every store that has the same documents.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    definitions: Vec<Definition>,
    documents: Vec<Change>,
    /// What its commands did, in their order, for change streams.
    events: Vec<Arc<Event>>,
    transaction: Option<Arc<TransactionId>>,
}

/// A command that made a collection or indexes.
#[derive(Clone, Debug)]
struct Definition {
    name: String,
    database: String,
    body: RawDocumentBuf,
}

/// What became of a document.
#[derive(Clone, Debug)]
struct Change {
    database: String,
    collection: String,
    id: RawBson,
    /// `None` if it was deleted.
    document: Option<RawDocumentBuf>,
}

/// The commands that make something, and are part of a transaction.
const DEFINITIONS: [&str; 2] = ["create", "createIndexes"];

impl Changes {
    /// The bytes of the documents.
    pub fn size(&self) -> usize {
        let definitions = self.definitions.iter().map(|definition| definition.body.as_bytes().len());
        let documents = self.documents.iter().flat_map(|change| &change.document).map(|it| it.as_bytes().len());
        definitions.chain(documents).sum()
    }

    /// The changes as those of the transaction with this number in this session.
    #[must_use]
    pub fn of_transaction(mut self, session: &[u8], number: i64) -> Self {
        self.transaction = Some(Arc::new(TransactionId { session: session.to_vec(), number }));
        self
    }

    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.definitions.is_empty() && self.documents.is_empty()
    }
}

impl StoreTransaction {
    /// Whether it has changed the document of this id.
    fn has_changed(&self, namespace: Namespace<'_>, id: &Ordered) -> bool {
        self.view.get(namespace).is_some_and(|collection| collection.has_changed(id))
    }

    /// The collections in which it has changed something.
    fn changed(&self) -> impl Iterator<Item = (Namespace<'_>, &Collection)> {
        self.view.changed()
    }

    /// Whether something that it has changed was changed in `store`, too, since it began.
    pub fn conflicts_with(&self, store: &Store) -> bool {
        let document = |catalog: &Catalog, namespace: Namespace<'_>, id: &Ordered| -> Option<Arc<Stored>> {
            catalog.get(namespace)?.by_id(id).map(|(_, document)| Arc::clone(document))
        };
        let has_moved = |namespace: Namespace<'_>, id: &Ordered| match (
            document(&self.base, namespace, id),
            document(&store.catalog, namespace, id),
        ) {
            (Some(before), Some(now)) => !Arc::ptr_eq(&before, &now),
            (before, now) => before.is_some() || now.is_some(),
        };
        self.changed().any(|(namespace, own)| own.changed().any(|id| has_moved(namespace, id)))
    }

    /// Whether both have changed the same document.
    pub fn conflicts_with_other(&self, other: &Self) -> bool {
        self.changed().any(|(namespace, own)| own.changed().any(|id| other.has_changed(namespace, id)))
    }

    /// What it has changed. The documents of a collection are in its order, so that new ones keep theirs.
    pub fn changes(self) -> Changes {
        let mut documents = Vec::new();
        for (namespace, collection) in self.changed() {
            let before = self.base.get(namespace);
            let mut changed = Vec::new();
            for id in collection.changed() {
                let after = collection.by_id(id).map(|(record, document)| (record, (***document).to_owned()));
                let place = after.as_ref().map(|(record, _)| *record);
                let place_before = before.and_then(|before| before.by_id(id)).map(|(record, _)| record);
                // One that was deleted and inserted again has another place.
                if place_before.is_some() && place_before != place || place.is_none() {
                    changed.push((None, id, None));
                }
                changed.extend(after.map(|(record, document)| (Some(record), id, Some(document))));
            }
            changed.sort_by_key(|(place, ..)| *place);
            documents.extend(changed.into_iter().map(|(_, id, document)| Change {
                database: namespace.database.to_owned(),
                collection: namespace.collection.to_owned(),
                id: id.0.clone(),
                document,
            }));
        }
        let (definitions, events) = (self.definitions, self.view.history.into_events());
        Changes { definitions, documents, events, transaction: None }
    }
}

impl Store {
    /// Begins a transaction. `origin` is that of the ids that it gives to documents without one.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn begin(&self, origin: u64) -> Result<StoreTransaction, CommandFailure> {
        let (base, view) = (self.catalog.view(None)?, self.catalog.view(Some(origin))?);
        Ok(StoreTransaction { base, view, definitions: Vec::new() })
    }

    /// The collections as they are now, to read from later.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn snapshot(&self) -> Result<StoreSnapshot, CommandFailure> {
        self.catalog.view(None).map(StoreSnapshot)
    }

    /// Carries out a command in a transaction, like [`run_as`](Self::run_as).
    pub fn run_in(
        &mut self,
        transaction: &mut StoreTransaction,
        caller: Caller,
        command: &StoreCommand<'_>,
    ) -> Option<(Result<RawDocumentBuf, CommandFailure>, Spent)> {
        for namespace in involved(command) {
            if let Err(failure) = transaction.view.check_room_to_change(namespace) {
                return Some((Err(failure), Spent::default()));
            }
        }
        std::mem::swap(&mut self.catalog, &mut transaction.view);
        let ran = self.run_as(caller, command);
        std::mem::swap(&mut self.catalog, &mut transaction.view);
        if DEFINITIONS.contains(&command.name) && ran.as_ref().is_some_and(|(outcome, _)| outcome.is_ok()) {
            let (name, database) = (command.name.to_owned(), command.database.to_owned());
            transaction.definitions.push(Definition { name, database, body: command.body.to_owned() });
        }
        ran
    }

    /// Carries out a command that reads, on a snapshot, like [`run_as`](Self::run_as).
    pub fn run_on(
        &mut self,
        snapshot: &mut StoreSnapshot,
        caller: Caller,
        command: &StoreCommand<'_>,
    ) -> Option<(Result<RawDocumentBuf, CommandFailure>, Spent)> {
        std::mem::swap(&mut self.catalog, &mut snapshot.0);
        let ran = self.run_as(caller, command);
        std::mem::swap(&mut self.catalog, &mut snapshot.0);
        ran
    }

    /// Carries out what a transaction has changed: all of it, or nothing.
    ///
    /// # Errors
    /// It does not fit to what was written meanwhile, or there is no room.
    pub fn apply(&mut self, caller: Caller, changes: &Changes) -> Result<(), CommandFailure> {
        let before = self.catalog.view(None)?;
        // Its history is that of its commands.
        let history = std::mem::take(&mut self.catalog.history);
        let applied = self.apply_in_order(caller, changes);
        self.catalog.history = history;
        match applied {
            Ok(()) => self.catalog.history.commit(&changes.events, changes.transaction.as_ref()),
            Err(_) => self.catalog.restore(before),
        }
        applied
    }

    fn apply_in_order(&mut self, caller: Caller, changes: &Changes) -> Result<(), CommandFailure> {
        // Its commands have kept their time limits already.
        let caller = Caller { ignores_max_time: true, ..caller };
        for Definition { name, database, body } in &changes.definitions {
            match self.run_as(caller, &StoreCommand { name, database, body }) {
                Some((outcome, _)) => outcome.map(drop).map_err(met_another_write)?,
                None => return Err(CommandFailure::new(code::COMMAND_NOT_FOUND, "no such command")),
            }
        }
        // A commit has the writes of many commands, each of which was within its limits.
        let work = Work::new(&self.catalog.limits).unlimited();
        // What makes room, and frees keys, first.
        for change in changes.documents.iter().filter(|change| change.document.is_none()) {
            if let Some(collection) = self.catalog.get_mut(change.namespace())
                && let Some((record, _)) = collection.by_id(&Ordered(change.id.clone()))
            {
                collection.remove(record, &work);
            }
        }
        let mut inserted = Vec::new();
        let mut replaced = Vec::new();
        for change in &changes.documents {
            let Some(document) = &change.document else { continue };
            let collection = self.catalog.get_or_create(change.namespace())?;
            match collection.by_id(&Ordered(change.id.clone())) {
                Some((record, _)) => {
                    // Documents may have passed on a key among them, in any order.
                    collection.release_unique_keys(record, &work);
                    replaced.push((change, record, document));
                }
                None => inserted.push((change, document)),
            }
        }
        for (change, record, document) in replaced {
            let collection = self.catalog.get_or_create(change.namespace())?;
            let stored = collection.replace_released(record, document.clone(), &work);
            stored.map_err(|failure| met_another_write(failure.into()))?;
        }
        for (change, document) in inserted {
            let collection = self.catalog.get_or_create(change.namespace())?;
            let stored = collection.insert(document.clone(), &work);
            stored.map_err(|failure| met_another_write(failure.into()))?;
        }
        Ok(())
    }
}

/// The collections that a command names; those that are not well named are left out.
fn involved<'a>(command: &StoreCommand<'a>) -> Vec<Namespace<'a>> {
    let StoreCommand { name, database, body } = *command;
    if name != "bulkWrite" {
        return namespace(name, database, body).into_iter().collect();
    }
    let entries = body.get_array("nsInfo").into_iter().flat_map(values).filter_map(RawBsonRef::as_document);
    let names = entries.filter_map(|entry| entry.get_str("ns").ok()?.split_once('.'));
    names.filter_map(|(database, collection)| Namespace::new(database, collection).ok()).collect()
}

impl Change {
    fn namespace(&self) -> Namespace<'_> {
        Namespace { database: &self.database, collection: &self.collection }
    }
}

/// The failure of a commit. What its commands could do goes wrong only because others have written meanwhile, unless there is no room.
fn met_another_write(failure: CommandFailure) -> CommandFailure {
    match failure.code {
        code::OUT_OF_DISK_SPACE => failure,
        _ => CommandFailure::new(code::WRITE_CONFLICT, "the transaction met another write"),
    }
}
