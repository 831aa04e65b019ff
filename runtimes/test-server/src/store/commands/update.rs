//! `update`: documents that match a query are changed; with `upsert`, one is inserted where none matches.

use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::writes::{Writes, batch};
use crate::ServerVersion;
use crate::document::document;
use crate::store::arguments::Arguments;
use crate::store::catalog::Namespace;
use crate::store::filter::Filter;
use crate::store::pipeline::Pipeline;
use crate::store::sort::Sort;
use crate::store::update::Update;
use crate::store::variables::Variables;
use crate::store::work::Work;
use crate::store::write_error::WriteFailure;
use crate::store::{Call, CommandFailure, Store};

const FIELDS: &[&str] = &["updates", "ordered", "bypassDocumentValidation", "bypassEmptyTsReplacement", "let"];
const STATEMENT: &[&str] = &["q", "u", "c", "multi", "upsert", "collation", "arrayFilters", "hint"];
/// Fields of a statement since MongoDB 8.0.
const STATEMENT_OF_8_0: &[&str] = &["sort"];

/// One statement of `update`, or of `bulkWrite`.
pub(super) struct Statement<'a> {
    /// All fields but the next two, which have other names in the two commands.
    pub(super) arguments: Arguments<'a>,
    pub(super) filter: &'a RawDocument,
    pub(super) update: RawBsonRef<'a>,
}

/// The result of one statement.
pub(super) struct Updated {
    pub(super) matched: usize,
    pub(super) modified: usize,
    pub(super) upserted: Option<RawBson>,
}

pub(super) fn run(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(FIELDS)?;
    let namespace = command.namespace()?;
    let statements = batch(&arguments, "updates", store.catalog.limits.write_batch)?;
    let is_8_0 = store.version >= ServerVersion::V8_0;
    let known = [STATEMENT, if is_8_0 { STATEMENT_OF_8_0 } else { &[] }].concat();
    for statement in &statements {
        let arguments = Arguments::new("update.updates", statement);
        arguments.check_known(&known)?;
        if let Some(stages) = arguments.get("u").and_then(|update| update.as_array()) {
            Pipeline::check_names(stages)?;
        }
    }
    let variables = Variables::read(&arguments, &command.work)?;
    let mut writes = Writes::new(&arguments)?;
    let (mut modified, mut upserted) = (0, RawArrayBuf::new());
    for statement in statements {
        let outcome = Statement::read(statement)
            .map_err(WriteFailure::from)
            .and_then(|statement| statement.run(store, namespace, &variables, &command.work));
        if let Ok(Updated { upserted: Some(id), .. }) = &outcome {
            upserted.push(document! { "index": writes.index(), "_id": id });
        }
        modified += outcome.as_ref().map_or(0, |updated| updated.modified);
        if !writes.add(outcome.map(|updated| updated.matched)) || command.work.is_over() {
            break;
        }
    }
    let mut reply = document! { "n": writes.count() };
    if !upserted.is_empty() {
        reply.append(bson::cstr!("upserted"), upserted);
    }
    reply.append(bson::cstr!("nModified"), i32::try_from(modified).unwrap_or(i32::MAX));
    Ok(writes.append_errors(reply))
}

impl<'a> Statement<'a> {
    /// Reads a statement of `update`.
    fn read(statement: &'a RawDocument) -> Result<Self, CommandFailure> {
        let arguments = Arguments::new("update.updates", statement);
        let filter = arguments.required("q", arguments.document("q")?)?;
        let update = arguments.required("u", arguments.get("u"))?;
        Ok(Self { arguments, filter, update })
    }

    /// Carries it out.
    pub(super) fn run(
        &self,
        store: &mut Store,
        namespace: Namespace<'_>,
        variables: &Variables<'_>,
        work: &Work,
    ) -> Result<Updated, WriteFailure> {
        let Self { arguments, filter, update } = self;
        let filter = Filter::parse(&variables.bind(filter)?)?;
        let update = variables.bind_update(*update)?;
        let update = Update::parse(update.as_raw_bson_ref(), arguments.array("arrayFilters")?)?;
        let (multi, upsert) = (arguments.boolean("multi")?, arguments.boolean("upsert")?);
        let sort = arguments.document("sort")?.map(Sort::parse).transpose()?;
        if multi && update.replaces() {
            let message = "multi update is not supported for replacement-style update";
            return Err(CommandFailure::failed_to_parse(message).into());
        }
        if multi && sort.is_some() {
            return Err(CommandFailure::failed_to_parse("Cannot specify sort with multi=true").into());
        }
        let limit = if multi || sort.is_some() { usize::MAX } else { 1 };
        let collection = store.catalog.get(namespace);
        let hint = arguments.get("hint");
        let mut matching =
            collection.map_or(Ok(Vec::new()), |collection| collection.hinted(hint, &filter, limit, work))?;
        if let Some(sort) = sort {
            sort.apply_to(&mut matching, work, |(_, document)| document)?;
            matching.truncate(1);
        }
        if matching.is_empty() && upsert {
            let document = store.catalog.with_id(&update.insertion(&filter, work)?);
            let id = document.get("_id").ok().flatten().map(RawBson::from);
            store.catalog.insert(namespace, document, work)?;
            return Ok(Updated { matched: 1, modified: 0, upserted: id });
        }
        let mut updated = Updated { matched: matching.len(), modified: 0, upserted: None };
        let manner = update.manner();
        for (record, old) in matching {
            let new = update.apply(&old, work)?;
            updated.modified += usize::from(store.catalog.replace(namespace, (record, old), new, manner, work)?);
        }
        Ok(updated)
    }
}
