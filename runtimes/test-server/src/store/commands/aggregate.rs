//! `aggregate`: a pipeline over a collection, over the server's own state, or over what is written from now on.

use std::sync::Arc;

use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, RawBsonRef, RawDocument, RawDocumentBuf};

use super::explain;
use crate::document::document;
use crate::store::arguments::{Arguments, values};
use crate::store::change_stream::{self, ChangeStream};
use crate::store::collection::Collection;
use crate::store::cursor::{Cursor, DEFAULT_BATCH_SIZE};
use crate::store::filter::Filter;
use crate::store::meter::Stored;
use crate::store::number::Number;
use crate::store::pipeline::{Beginning, Pipeline, database_namespace};
use crate::store::variables::Variables;
use crate::store::{Call, CommandFailure, Store, code};

#[rustfmt::skip]
const FIELDS: &[&str] = &[
    "pipeline", "explain", "allowDiskUse", "cursor", "hint", "needsMerge", "fromMongos", "bypassDocumentValidation",
    "collation", "let", "isMapReduceCommand", "includeQueryStatsMetrics",
];

pub(super) fn run(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(FIELDS)?;
    let stages = arguments.required("pipeline", arguments.array("pipeline")?)?;
    let stages: Option<Vec<&RawDocument>> = values(stages).map(RawBsonRef::as_document).collect();
    let stages = stages.ok_or_else(|| {
        CommandFailure::new(code::TYPE_MISMATCH, "Each element of the 'pipeline' array must be an object")
    })?;
    let variables = Variables::read(&arguments, &command.work)?;
    let stages: Vec<_> = stages.into_iter().map(|stage| variables.bind_stage(stage)).collect::<Result<_, _>>()?;
    let stages: Vec<&RawDocument> = stages.iter().map(|stage| &**stage).collect();
    if change_stream::is_first_of(&stages) {
        return watch(store, command, &stages);
    }
    let pipeline = Pipeline::parse(&stages)?;
    if arguments.boolean("explain")? {
        let mut reply = explain::reply(store, command.namespace()?, command.body)?;
        reply.append(bson::cstr!("command"), command.body);
        return Ok(reply);
    }
    let batch_size = batch_size(&arguments)?;
    let read_concern = arguments.document("readConcern")?.and_then(|concern| concern.get_str("level").ok());
    if let Some(output) = pipeline.output
        && read_concern == Some("linearizable")
    {
        let message = format!("{} cannot be used with a 'linearizable' read concern level", output.stage());
        return Err(CommandFailure::new(code::INVALID_OPTIONS, message));
    }

    let is_of_database = arguments.get("aggregate").and_then(Number::read).is_some();
    let namespace = if is_of_database { None } else { Some(command.namespace()?) };
    let documents = match (pipeline.beginning, namespace) {
        (Some(beginning), None) => vec![Arc::new(Stored::computed(beginning.document()))],
        (None, Some(namespace)) => {
            let collection = store.catalog.get(namespace);
            match arguments.get("hint") {
                None => collection.into_iter().flat_map(Collection::documents).map(Arc::clone).collect(),
                hint => {
                    let all = Filter::All(Vec::new());
                    let hinted = |collection: &Collection| collection.hinted(hint, &all, usize::MAX, &command.work);
                    collection.map_or(Ok(Vec::new()), hinted)?.into_iter().map(|(_, document)| document).collect()
                }
            }
        }
        (Some(_), Some(_)) => {
            let message = "The first stage of this pipeline must be run against the database with {aggregate: 1}";
            return Err(CommandFailure::invalid_namespace(message));
        }
        (None, None) => {
            let message = "{aggregate: 1} is not valid for this pipeline; a collection is needed.";
            return Err(CommandFailure::invalid_namespace(message));
        }
    };
    let mut documents = pipeline.run(documents, &command.work)?;
    if let Some(output) = pipeline.output {
        output.put(&mut store.catalog, command.database, &documents, &command.work)?;
        documents.clear();
    }
    let name = namespace.map_or_else(|| database_namespace(command.database), |namespace| namespace.full());
    let Store { catalog, cursors, .. } = store;
    cursors.open(command, catalog, Cursor::of(name, documents), batch_size, None)
}

/// Opens a change stream.
fn watch(store: &mut Store, command: &Call<'_>, stages: &[&RawDocument]) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    if arguments.boolean("explain")? {
        return Err(CommandFailure::not_supported("explain of a change stream"));
    }
    let batch_size = batch_size(&arguments)?;
    let Store { catalog, cursors, .. } = store;
    let stream = ChangeStream::open(command, stages, catalog)?;
    let cursor = Cursor::of_changes(stream.namespace(), stream);
    cursors.open(command, catalog, cursor, batch_size, None)
}

fn batch_size(arguments: &Arguments<'_>) -> Result<usize, CommandFailure> {
    let Some(cursor) = arguments.document("cursor")? else {
        return Err(CommandFailure::failed_to_parse(
            "The 'cursor' option is required, except for aggregate with the explain argument",
        ));
    };
    let cursor = Arguments::new("aggregate.cursor", cursor);
    cursor.check_known(&["batchSize"])?;
    Ok(cursor.natural("batchSize")?.unwrap_or(DEFAULT_BATCH_SIZE))
}

impl Beginning {
    /// One session, one operation: at least that of the command itself.
    fn document(self) -> RawDocumentBuf {
        let bytes = |subtype, length| Binary { subtype, bytes: vec![0; length] };
        match self {
            Self::Sessions => document! {
                "_id": document! { "id": bytes(BinarySubtype::Uuid, 16), "uid": bytes(BinarySubtype::Generic, 32) },
                "lastUse": DateTime::from_millis(0),
            },
            Self::Operations => document! { "type": "op", "active": true, "op": "command" },
        }
    }
}
