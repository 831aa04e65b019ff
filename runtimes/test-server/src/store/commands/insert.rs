//! `insert`: documents into a collection, which is made if there is none.

use bson::RawDocumentBuf;

use super::writes::{Writes, batch};
use crate::document::document;
use crate::store::{Call, CommandFailure, Store};

const FIELDS: &[&str] = &["documents", "ordered", "bypassDocumentValidation", "bypassEmptyTsReplacement"];

pub(super) fn run(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(FIELDS)?;
    let namespace = command.namespace()?;
    let documents = batch(&arguments, "documents", store.catalog.limits.write_batch)?;
    let mut writes = Writes::new(&arguments)?;
    for document in documents {
        let document = store.catalog.with_id(document);
        // Without room for the collection the command fails, and not a single write.
        store.catalog.get_or_create(namespace)?;
        let inserted = store.catalog.insert(namespace, document, &command.work);
        if !writes.add(inserted.map(|()| 1)) || command.work.is_over() {
            break;
        }
    }
    Ok(writes.append_errors(document! { "n": writes.count() }))
}
