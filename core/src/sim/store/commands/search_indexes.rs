//! The commands on search indexes, which a MongoDB server by itself knows and has not.

use bson::RawDocumentBuf;

use crate::sim::store::{CommandFailure, Store, StoreCommand};

pub(super) fn run(_: &mut Store, _: &StoreCommand<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    Err(CommandFailure::search_not_enabled())
}
