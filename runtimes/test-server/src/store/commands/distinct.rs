//! `distinct`: the different values at a path, in the order in which they are met.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bson::{RawArrayBuf, RawBson, RawDocumentBuf};
use cmap_core::wire::Limits;

use crate::document::document;
use crate::store::collection::Collection;
use crate::store::filter::Filter;
use crate::store::meter::value_size;
use crate::store::order::Ordered;
use crate::store::path::Path;
use crate::store::work::{self, weight};
use crate::store::{Call, CommandFailure, Store, code};

const FIELDS: &[&str] = &["key", "query", "collation", "hint"];

pub(super) fn run(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(FIELDS)?;
    let namespace = command.namespace()?;
    let path = Path::parse(arguments.required("key", arguments.string("key")?)?)?;
    let filter = Filter::parse(arguments.document("query")?.unwrap_or(&RawDocumentBuf::new()))?;

    let (mut seen, mut different, mut bytes) = (BTreeSet::new(), RawArrayBuf::new(), 0);
    let work = &command.work;
    let hint = arguments.get("hint");
    let matching = |collection: &Collection| collection.hinted(hint, &filter, usize::MAX, work);
    for (_, document) in store.catalog.get(namespace).map_or(Ok(Vec::new()), matching)? {
        let _ = path.visit(&document, work, &mut |found| {
            // Of an array its elements count, which are found before it.
            let Some(value) = found.value.filter(|value| found.is_element || value.as_array().is_none()) else {
                return ControlFlow::Continue(());
            };
            work.step(weight(value) * (2 * work::depth(seen.len())));
            let owned = RawBson::from(value);
            let size = value_size(&owned);
            if seen.insert(Ordered(owned)) {
                different.push(value);
                bytes += size;
            }
            if bytes > work.bytes { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        work.check()?;
        work.check_bytes("distinct", bytes)?;
        if different.as_bytes().len() > Limits::DEFAULT.max_document_size as usize {
            return Err(CommandFailure::new(code::DISTINCT_TOO_BIG, "distinct too big, 16mb cap"));
        }
    }
    Ok(document! { "values": different })
}
