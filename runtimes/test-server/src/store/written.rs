//! The writes of the catalog that its history notes.

use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};

use super::catalog::{Catalog, Namespace};
use super::collection::RecordId;
use super::history::{Change, Manner};
use super::meter::Stored;
use super::work::Work;
use super::write_error::WriteFailure;

impl Catalog {
    /// Inserts a document that has its `_id`; the collection is made if there is none.
    pub(super) fn insert(
        &mut self,
        namespace: Namespace<'_>,
        document: RawDocumentBuf,
        work: &Work,
    ) -> Result<(), WriteFailure> {
        let collection = self.get_or_create(namespace)?;
        let stored = collection.insert(document, work)?;
        let uuid = collection.uuid;
        self.history.note(namespace, uuid, || Change::Insert(stored));
        Ok(())
    }

    /// Puts another document in the place of `old`; returns whether it differs.
    pub(super) fn replace(
        &mut self,
        namespace: Namespace<'_>,
        (record, old): (RecordId, Arc<Stored>),
        document: RawDocumentBuf,
        manner: Manner,
        work: &Work,
    ) -> Result<bool, WriteFailure> {
        let Some(collection) = self.get_mut(namespace) else { return Ok(false) };
        let Some((before, after)) = collection.replace((record, old), document, work)? else { return Ok(false) };
        let (uuid, has_images) = (collection.uuid, has_images(&collection.options));
        self.history.note(namespace, uuid, || match manner {
            Manner::Updated => Change::Update { before, after, has_images },
            Manner::Replaced => Change::Replace { before, after, has_images },
        });
        Ok(true)
    }

    /// Removes the document in a place.
    pub(super) fn delete(&mut self, namespace: Namespace<'_>, record: RecordId, work: &Work) {
        let Some(collection) = self.get_mut(namespace) else { return };
        let Some(before) = collection.remove(record, work) else { return };
        let (uuid, has_images) = (collection.uuid, has_images(&collection.options));
        self.history.note(namespace, uuid, || Change::Delete { before, has_images });
    }
}

/// Whether the options of a collection say that documents are kept as they were before and after changes.
fn has_images(options: &RawDocument) -> bool {
    let images = options.get_document("changeStreamPreAndPostImages");
    images.is_ok_and(|images| images.get_bool("enabled").unwrap_or(false))
}
