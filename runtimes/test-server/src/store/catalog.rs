//! The databases, and the collections in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{RawDocument, RawDocumentBuf};
use cmap_core::random::Random;

use super::collection::{Cap, Collection};
use super::failure::CommandFailure;
use super::limits::StoreLimits;
use super::meter::Meter;
use super::update::with_id;

/// The longest `database.collection`.
const MAX_NAMESPACE: usize = 255;
/// The longest name of a database.
const MAX_DATABASE: usize = 63;

/// The name of a collection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Namespace<'a> {
    pub(super) database: &'a str,
    pub(super) collection: &'a str,
}

/// All databases.
#[derive(Debug)]
pub(super) struct Catalog {
    databases: BTreeMap<String, BTreeMap<String, Collection>>,
    uuids: Random,
    object_ids: u64,
    pub(super) limits: StoreLimits,
    meter: Arc<Meter>,
}

impl<'a> Namespace<'a> {
    /// A valid name of a collection.
    pub(super) fn new(database: &'a str, collection: &'a str) -> Result<Self, CommandFailure> {
        let forbidden = |character| matches!(character, '/' | '\\' | '.' | ' ' | '"' | '$' | '\0');
        if database.is_empty() || database.len() > MAX_DATABASE || database.contains(forbidden) {
            return Err(CommandFailure::invalid_namespace(format!("Invalid database name: '{database}'")));
        }
        if collection.is_empty() || collection.starts_with('.') || collection.contains(['$', '\0']) {
            let message = format!("Invalid namespace specified '{database}.{collection}'");
            return Err(CommandFailure::invalid_namespace(message));
        }
        if database.len() + 1 + collection.len() > MAX_NAMESPACE {
            let message = format!("Fully qualified namespace is too long. Namespace: {database}.{collection} Max: 255");
            return Err(CommandFailure::invalid_namespace(message));
        }
        Ok(Self { database, collection })
    }

    /// `database.collection`.
    pub(super) fn full(&self) -> String {
        format!("{}.{}", self.database, self.collection)
    }
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
        Self { databases: BTreeMap::new(), uuids: Random::new(1), object_ids: 0, limits, meter }
    }

    /// The same collections, in a catalog of its own.
    pub(super) fn copy(&self) -> Self {
        let meter = Meter::new(self.limits.bytes);
        let copy = |(name, collection): (&String, &Collection)| (name.clone(), collection.copy(&meter));
        let databases = self.databases.iter();
        let databases = databases.map(|(name, database)| (name.clone(), database.iter().map(copy).collect())).collect();
        let (uuids, object_ids, limits) = (self.uuids.clone(), self.object_ids, self.limits.clone());
        Self { databases, uuids, object_ids, limits, meter }
    }

    /// The collection, if it exists.
    pub(super) fn get(&self, namespace: Namespace<'_>) -> Option<&Collection> {
        self.databases.get(namespace.database)?.get(namespace.collection)
    }

    /// The collection, if it exists, to be changed.
    pub(super) fn get_mut(&mut self, namespace: Namespace<'_>) -> Option<&mut Collection> {
        self.databases.get_mut(namespace.database)?.get_mut(namespace.collection)
    }

    /// The collection; a new one if it does not exist.
    pub(super) fn get_or_create(&mut self, namespace: Namespace<'_>) -> Result<&mut Collection, CommandFailure> {
        if self.get(namespace).is_none() {
            self.create(namespace, RawDocumentBuf::new(), None)?;
        }
        let database = self.databases.entry(namespace.database.to_owned()).or_default();
        let new = || Collection::new(namespace.full(), RawDocumentBuf::new(), None, [0; 16], &self.meter);
        Ok(database.entry(namespace.collection.to_owned()).or_insert_with(new))
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
        let collection = Collection::new(namespace.full(), options, cap, uuid, &self.meter);
        let database = self.databases.entry(namespace.database.to_owned()).or_default();
        database.insert(namespace.collection.to_owned(), collection);
        Ok(())
    }

    /// Adds a collection under a name.
    pub(super) fn put(&mut self, namespace: Namespace<'_>, mut collection: Collection) {
        collection.namespace = namespace.full();
        let database = self.databases.entry(namespace.database.to_owned()).or_default();
        database.insert(namespace.collection.to_owned(), collection);
    }

    /// Takes a collection out; a database without collections is gone.
    pub(super) fn remove(&mut self, namespace: Namespace<'_>) -> Option<Collection> {
        let database = self.databases.get_mut(namespace.database)?;
        let collection = database.remove(namespace.collection);
        if database.is_empty() {
            self.databases.remove(namespace.database);
        }
        collection
    }

    /// Takes a database out.
    pub(super) fn remove_database(&mut self, name: &str) -> Option<BTreeMap<String, Collection>> {
        self.databases.remove(name)
    }

    /// The databases by name.
    pub(super) fn databases(&self) -> impl Iterator<Item = (&str, &BTreeMap<String, Collection>)> {
        self.databases.iter().map(|(name, collections)| (name.as_str(), collections))
    }

    /// The collections of a database by name.
    pub(super) fn collections(&self, database: &str) -> impl Iterator<Item = (&str, &Collection)> {
        let collections = self.databases.get(database).into_iter().flatten();
        collections.map(|(name, collection)| (name.as_str(), collection))
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
        self.object_ids += 1;
        let [count @ .., a, b, c] = self.object_ids.to_be_bytes();
        ObjectId::from_parts(0, count, [a, b, c])
    }

    /// A random UUID, of version 4.
    fn next_uuid(&mut self) -> [u8; 16] {
        let bits = u128::from(self.uuids.next_u64()) << 64 | u128::from(self.uuids.next_u64());
        let bits = bits & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
        bits.to_be_bytes()
    }
}
