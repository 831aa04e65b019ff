//! The databases, and the collections in them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{RawDocument, RawDocumentBuf};
use cmap_core::random::Random;

use super::collection::{Cap, Collection};
use super::failure::CommandFailure;
use super::history::{Change, History};
use super::limits::StoreLimits;
use super::meter::{Held, Meter};
pub(super) use super::namespace::Namespace;
use super::opened::Opened;
use super::update::with_id;

/// What a view takes, and each database and collection in it.
const VIEW_OVERHEAD: usize = 512;
const ENTRY_OVERHEAD: usize = 320;

/// The collections of a database by name. Names are shared, too: a view costs no copies of them.
pub(super) type Collections = BTreeMap<Arc<str>, Arc<Collection>>;

/// All databases.
#[derive(Debug)]
pub(super) struct Catalog {
    databases: BTreeMap<Arc<str>, Collections>,
    uuids: Random,
    object_ids: ObjectIds,
    pub(super) limits: StoreLimits,
    pub(super) meter: Arc<Meter>,
    /// The collections that were given out to be changed, if that is noted: in a view. They note which of their documents are changed.
    changed: Option<BTreeSet<(Arc<str>, Arc<str>)>>,
    /// What was written, for change streams.
    pub(super) history: History,
    /// The collections that were looked up, made or removed.
    pub(super) opened: Opened,
    /// What a view takes beyond its collections.
    _held: Option<Held>,
}

/// The ids of documents that come without one. Those of a view have an origin of their own, so that no two views make the same.
#[derive(Clone, Copy, Debug, Default)]
struct ObjectIds {
    origin: u64,
    count: u64,
}

impl Default for Catalog {
    fn default() -> Self {
        Self::new(StoreLimits::default())
    }
}

impl Catalog {
    /// A catalog without databases.
    pub(super) fn new(limits: StoreLimits) -> Self {
        let meter = Meter::new(limits.bytes);
        let (databases, uuids, object_ids) = (BTreeMap::new(), Random::new(1), ObjectIds::default());
        let (history, opened) = (History::default(), Opened::default());
        Self { databases, uuids, object_ids, limits, meter, changed: None, history, opened, _held: None }
    }

    /// The collections as they are now, shared until either side changes one. `origin` is that of the ids that it makes; with
    /// one, its collections note what is changed in them.
    pub(super) fn view(&self, origin: Option<u64>) -> Result<Self, CommandFailure> {
        let entries: usize = self.databases.values().map(|collections| 1 + collections.len()).sum();
        let bytes = VIEW_OVERHEAD + entries * ENTRY_OVERHEAD;
        self.meter.check(bytes)?;
        Ok(Self {
            databases: self.databases.clone(),
            uuids: self.uuids.clone(),
            object_ids: origin.map_or(self.object_ids, |origin| ObjectIds { origin, count: 0 }),
            limits: self.limits.clone(),
            meter: Arc::clone(&self.meter),
            changed: origin.map(|_| BTreeSet::new()),
            history: origin.map(|_| self.history.of_transaction()).unwrap_or_default(),
            opened: self.opened.clone(),
            _held: Some(self.meter.hold(bytes)),
        })
    }

    /// Takes back everything that happened since `view` was made.
    pub(super) fn restore(&mut self, view: Self) {
        self.databases = view.databases;
    }

    /// Fails if there is no room to copy a collection that is shared with a view, and that a command is about to change.
    pub(super) fn check_room_to_change(&self, namespace: Namespace<'_>) -> Result<(), CommandFailure> {
        let collection = self.databases.get(namespace.database).and_then(|own| own.get(namespace.collection));
        let shared = collection.filter(|collection| Arc::strong_count(collection) > 1);
        shared.map_or(Ok(()), |collection| self.meter.check(collection.size_of_copy()))
    }

    /// A copy of all collections in a new catalog.
    pub(super) fn copy(&self) -> Self {
        let meter = Meter::new(self.limits.bytes);
        let copy =
            |(name, collection): (&Arc<str>, &Arc<Collection>)| (Arc::clone(name), Arc::new(collection.copy(&meter)));
        let databases = self.databases.iter();
        let databases =
            databases.map(|(name, database)| (Arc::clone(name), database.iter().map(copy).collect())).collect();
        let (uuids, object_ids, limits) = (self.uuids.clone(), self.object_ids, self.limits.clone());
        let (history, opened) = (self.history.clone(), Opened::default());
        Self { databases, uuids, object_ids, limits, meter, changed: None, history, opened, _held: None }
    }

    /// Refuses a view, which can be made, listed and dropped.
    pub(super) fn refuse_view(&self, namespace: Namespace<'_>) -> Result<(), CommandFailure> {
        let collection = self.databases.get(namespace.database).and_then(|own| own.get(namespace.collection));
        match collection.is_some_and(|collection| collection.is_view()) {
            true => Err(CommandFailure::not_supported("a command on a view")),
            false => Ok(()),
        }
    }

    /// The collection, if it exists.
    pub(super) fn get(&self, namespace: Namespace<'_>) -> Option<&Collection> {
        self.opened.note(namespace);
        self.databases.get(namespace.database)?.get(namespace.collection).map(|collection| &**collection)
    }

    /// The collection, if it exists, to be changed. One that is shared is copied.
    pub(super) fn get_mut(&mut self, namespace: Namespace<'_>) -> Option<&mut Collection> {
        self.opened.note(namespace);
        self.note_change(namespace);
        let collection = self.databases.get_mut(namespace.database)?.get_mut(namespace.collection)?;
        let collection = Arc::make_mut(collection);
        if self.changed.is_some() {
            collection.note_changes();
        }
        Some(collection)
    }

    /// The collection; a new one if it does not exist.
    pub(super) fn get_or_create(&mut self, namespace: Namespace<'_>) -> Result<&mut Collection, CommandFailure> {
        if self.get(namespace).is_none() {
            self.create(namespace, RawDocumentBuf::new(), None)?;
        }
        self.note_change(namespace);
        let database = self.databases.entry(namespace.database.into()).or_default();
        let new = || Arc::new(Collection::new(namespace.full(), RawDocumentBuf::new(), None, [0; 16], &self.meter));
        let collection = Arc::make_mut(database.entry(namespace.collection.into()).or_insert_with(new));
        if self.changed.is_some() {
            collection.note_changes();
        }
        Ok(collection)
    }

    fn note_change(&mut self, namespace: Namespace<'_>) {
        let Some(changed) = &mut self.changed else { return };
        let name = || {
            let (database, collections) = self.databases.get_key_value(namespace.database)?;
            let (collection, _) = collections.get_key_value(namespace.collection)?;
            Some((Arc::clone(database), Arc::clone(collection)))
        };
        changed.extend(name());
    }

    /// The collections that were given out to be changed, if that is noted.
    pub(super) fn changed(&self) -> impl Iterator<Item = (Namespace<'_>, &Collection)> {
        self.changed.iter().flatten().filter_map(|(database, collection)| {
            let namespace = Namespace { database, collection };
            Some((namespace, self.get(namespace)?))
        })
    }

    /// Makes a collection, which replaces one of the same name.
    pub(super) fn create(
        &mut self,
        namespace: Namespace<'_>,
        options: RawDocumentBuf,
        cap: Option<Cap>,
    ) -> Result<(), CommandFailure> {
        self.meter.check(Collection::size(&options))?;
        let uuid = self.next_uuid();
        self.history.note(namespace, uuid, || Change::Create { options: options.clone() });
        let collection = Collection::new(namespace.full(), options, cap, uuid, &self.meter);
        self.add(namespace, collection);
        Ok(())
    }

    /// Adds a collection under a name.
    pub(super) fn put(&mut self, namespace: Namespace<'_>, mut collection: Collection) {
        collection.namespace = namespace.full();
        self.add(namespace, collection);
    }

    fn add(&mut self, namespace: Namespace<'_>, collection: Collection) {
        self.opened.note(namespace);
        let database = self.databases.entry(namespace.database.into()).or_default();
        database.insert(namespace.collection.into(), Arc::new(collection));
    }

    /// Takes a collection out; a database without collections is gone.
    pub(super) fn remove(&mut self, namespace: Namespace<'_>) -> Option<Arc<Collection>> {
        self.opened.note(namespace);
        let database = self.databases.get_mut(namespace.database)?;
        let collection = database.remove(namespace.collection);
        if database.is_empty() {
            self.databases.remove(namespace.database);
        }
        collection
    }

    /// Takes a database out.
    pub(super) fn remove_database(&mut self, name: &str) -> Option<Collections> {
        let collections = self.databases.remove(name)?;
        collections.keys().for_each(|collection| self.opened.note(Namespace { database: name, collection }));
        Some(collections)
    }

    /// The databases by name.
    pub(super) fn databases(&self) -> impl Iterator<Item = (&str, &Collections)> {
        self.databases.iter().map(|(name, collections)| (&**name, collections))
    }

    /// The collections of a database by name.
    pub(super) fn collections(&self, database: &str) -> impl Iterator<Item = (&str, &Collection)> {
        let collections = self.databases.get(database).into_iter().flatten();
        collections.map(|(name, collection)| (&**name, &**collection))
    }

    /// `document` with its `_id` first, and a new one if it has none.
    pub(super) fn with_id(&mut self, document: &RawDocument) -> RawDocumentBuf {
        if document.iter().next().and_then(Result::ok).is_some_and(|(name, _)| name.as_str() == "_id") {
            return document.to_owned();
        }
        match document.get("_id").ok().flatten() {
            Some(id) => with_id(Some(id), document),
            None => with_id(Some(self.next_object_id().into()), document),
        }
    }

    fn next_object_id(&mut self) -> ObjectId {
        let ObjectIds { origin, count } = &mut self.object_ids;
        *count += 1;
        let [a, b, c, d, ..] = origin.to_be_bytes();
        let [more @ .., x, y, z] = count.to_be_bytes();
        ObjectId::from_parts(u32::from_be_bytes([a, b, c, d]), more, [x, y, z])
    }

    /// A random UUID, of version 4.
    fn next_uuid(&mut self) -> [u8; 16] {
        let bits = u128::from(self.uuids.next_u64()) << 64 | u128::from(self.uuids.next_u64());
        let bits = bits & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
        bits.to_be_bytes()
    }
}
