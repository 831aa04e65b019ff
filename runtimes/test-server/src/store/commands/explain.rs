//! `explain`: every query scans the whole collection, which is the truth here.

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf};
use cmap_core::wire::document::command_name;

use crate::document::document;
use crate::store::call::namespace;
use crate::store::catalog::Namespace;
use crate::store::{Call, CommandFailure, Store, code};

pub(super) fn run(store: &mut Store, command: &Call<'_>) -> Result<RawDocumentBuf, CommandFailure> {
    let arguments = command.arguments();
    arguments.check_known(&["verbosity"])?;
    let explained = arguments.required("explain", arguments.document("explain")?)?;
    let verbosity = arguments.string("verbosity")?.unwrap_or("allPlansExecution");
    if !matches!(verbosity, "queryPlanner" | "executionStats" | "allPlansExecution") {
        return Err(CommandFailure::failed_to_parse(
            "verbosity string must be one of {'queryPlanner', 'executionStats', 'allPlansExecution'}",
        ));
    }
    let name = command_name(explained).unwrap_or_default();
    if !matches!(name, "aggregate" | "count" | "delete" | "distinct" | "find" | "findAndModify" | "update") {
        let message = format!("Explain failed due to unknown command: {name}");
        return Err(CommandFailure::new(code::COMMAND_NOT_FOUND, message));
    }
    let namespace = namespace(name, command.database, explained)?;
    let mut reply = reply(store, namespace, explained)?;
    if verbosity != "queryPlanner" {
        reply.append(bson::cstr!("executionStats"), document! { "executionSuccess": true });
    }
    reply.append(bson::cstr!("command"), explained);
    Ok(reply)
}

/// The part of the reply that says how a command would read a collection.
pub(super) fn reply(
    store: &Store,
    namespace: Namespace<'_>,
    explained: &RawDocument,
) -> Result<RawDocumentBuf, CommandFailure> {
    let hint = explained.get("hint").ok().flatten();
    store.catalog.get(namespace).map_or(Ok(()), |collection| collection.check_hint(hint))?;
    let planner = document! {
        "namespace": namespace.full(),
        "indexFilterSet": false,
        "winningPlan": document! { "stage": "COLLSCAN", "direction": "forward" },
        "rejectedPlans": RawArrayBuf::new(),
    };
    Ok(document! { "explainVersion": "1", "queryPlanner": planner })
}
