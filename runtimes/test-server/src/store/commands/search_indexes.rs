//! The commands on search indexes, which a plain MongoDB server knows but cannot carry out.

use bson::RawDocumentBuf;

use crate::store::{Call, CommandFailure, Store};

pub(super) fn run(_: &mut Store, _: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    Err(CommandFailure::search_not_enabled())
}
