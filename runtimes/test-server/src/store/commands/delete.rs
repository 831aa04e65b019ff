//! `delete`: documents that match a query, one or all.

use bson::{RawDocument, RawDocumentBuf};

use super::writes::{Writes, batch};
use crate::document::document;
use crate::store::arguments::Arguments;
use crate::store::catalog::Namespace;
use crate::store::filter::Filter;
use crate::store::work::Work;
use crate::store::write_error::WriteFailure;
use crate::store::{Call, CommandFailure, Store};

const FIELDS: &[&str] = &["deletes", "ordered", "let"];
const STATEMENT: &[&str] = &["q", "limit", "collation", "hint"];

pub(super) fn run(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(FIELDS)?;
    let namespace = command.namespace()?;
    let statements = batch(&arguments, "deletes")?;
    for statement in &statements {
        Arguments::new("delete.deletes", statement).check_known(STATEMENT)?;
    }
    let mut writes = Writes::new(&arguments)?;
    for statement in statements {
        if !writes.add(delete(store, namespace, statement, &command.work)) || command.work.is_over() {
            break;
        }
    }
    Ok(writes.append_errors(document! { "n": writes.count() }))
}

fn delete(
    store: &mut Store,
    namespace: Namespace<'_>,
    statement: &RawDocument,
    work: &Work,
) -> Result<usize, WriteFailure> {
    let arguments = Arguments::new("delete.deletes", statement);
    let filter = Filter::parse(arguments.required("q", arguments.document("q")?)?)?;
    let limit = match arguments.required("limit", arguments.integer("limit")?)? {
        0 => usize::MAX,
        1 => 1,
        found => {
            let message = format!("The limit field in delete objects must be 0 or 1. Got {found}");
            return Err(CommandFailure::failed_to_parse(message).into());
        }
    };
    let Some(collection) = store.catalog.get_mut(namespace) else { return Ok(0) };
    let matching = collection.hinted(arguments.get("hint"), &filter, limit, work)?;
    for (record, _) in &matching {
        work.check()?;
        collection.remove(*record, work);
    }
    Ok(matching.len())
}
