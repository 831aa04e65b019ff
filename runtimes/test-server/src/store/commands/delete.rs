//! `delete`: documents that match a query, one or all.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::writes::{Writes, batch};
use crate::document::document;
use crate::store::arguments::Arguments;
use crate::store::catalog::Namespace;
use crate::store::filter::Filter;
use crate::store::variables::Variables;
use crate::store::work::Work;
use crate::store::write_error::WriteFailure;
use crate::store::{Call, CommandFailure, Store};

const FIELDS: &[&str] = &["deletes", "ordered", "let"];
const STATEMENT: &[&str] = &["q", "limit", "collation", "hint"];

/// One statement of `delete`, or of `bulkWrite`.
pub(super) struct Statement<'a> {
    pub(super) filter: &'a RawDocument,
    pub(super) multi: bool,
    pub(super) hint: Option<RawBsonRef<'a>>,
}

pub(super) fn run(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(FIELDS)?;
    let namespace = command.namespace()?;
    let statements = batch(&arguments, "deletes", store.catalog.limits.write_batch)?;
    for statement in &statements {
        Arguments::new("delete.deletes", statement).check_known(STATEMENT)?;
    }
    let variables = Variables::read(&arguments, &command.work)?;
    let mut writes = Writes::new(&arguments)?;
    for statement in statements {
        let outcome = Statement::read(statement)
            .map_err(WriteFailure::from)
            .and_then(|statement| statement.run(store, namespace, &variables, &command.work));
        if !writes.add(outcome) || command.work.is_over() {
            break;
        }
    }
    Ok(writes.append_errors(document! { "n": writes.count() }))
}

impl<'a> Statement<'a> {
    /// Reads a statement of `delete`.
    fn read(statement: &'a RawDocument) -> Result<Self, CommandFailure> {
        let arguments = Arguments::new("delete.deletes", statement);
        let filter = arguments.required("q", arguments.document("q")?)?;
        let multi = match arguments.required("limit", arguments.integer("limit")?)? {
            0 => true,
            1 => false,
            found => {
                let message = format!("The limit field in delete objects must be 0 or 1. Got {found}");
                return Err(CommandFailure::failed_to_parse(message));
            }
        };
        Ok(Self { filter, multi, hint: arguments.get("hint") })
    }

    /// Carries it out, and returns how many documents were deleted.
    pub(super) fn run(
        &self,
        store: &mut Store,
        namespace: Namespace<'_>,
        variables: &Variables<'_>,
        work: &Work,
    ) -> Result<usize, WriteFailure> {
        let filter = Filter::parse(&variables.bind(self.filter)?)?;
        let limit = if self.multi { usize::MAX } else { 1 };
        let Some(collection) = store.catalog.get(namespace) else { return Ok(0) };
        let matching = collection.hinted(self.hint, &filter, limit, work)?;
        let records: Vec<_> = matching.into_iter().map(|(record, _)| record).collect();
        for record in &records {
            work.check()?;
            store.catalog.delete(namespace, *record, work);
        }
        Ok(records.len())
    }
}
