//! Kinds of commands: who may give them, on which database, and what they do to data.

use bson::RawBsonRef;

use super::request::{Request, is_hello};

/// Commands that clients may give before they log in.
pub(super) fn is_for_everybody(command: &str) -> bool {
    is_hello(command) || FOR_EVERYBODY.contains(&command)
}

/// Whether a command changes the store.
pub(super) fn changes_data(request: &Request<'_>) -> bool {
    WRITES.contains(&request.name) || puts_out(request)
}

/// Whether the last stage of a pipeline changes a collection.
pub(super) fn puts_out(request: &Request<'_>) -> bool {
    let last = stages(request).last().filter(|_| request.name == "aggregate" && !request.arguments.flag("explain"));
    matches!(last, Some("$out" | "$merge"))
}

/// Whether the first stage of a pipeline listens to changes.
pub(super) fn opens_change_stream(request: &Request<'_>) -> bool {
    request.name == "aggregate" && stages(request).next() == Some("$changeStream")
}

/// The names of a pipeline's stages.
fn stages<'a>(request: &Request<'a>) -> impl Iterator<Item = &'a str> {
    let stages = request.arguments.array("pipeline").ok().flatten().into_iter().flatten();
    let name = |stage: RawBsonRef<'a>| Some(stage.as_document()?.iter().next()?.ok()?.0.as_str());
    stages.filter_map(Result::ok).filter_map(name)
}

const FOR_EVERYBODY: [&str; 9] = [
    "ping",
    "buildInfo",
    "buildinfo",
    "saslStart",
    "saslContinue",
    "authenticate",
    "logout",
    "connectionStatus",
    "whatsmyuri",
];

/// Commands of the database "admin" alone.
pub(super) const ADMIN_ONLY: [&str; 20] = [
    "abortTransaction",
    "bulkWrite",
    "commitTransaction",
    "configureFailPoint",
    "getCmdLineOpts",
    "getLog",
    "getParameter",
    "hostInfo",
    "killAllSessions",
    "killAllSessionsByPattern",
    "listDatabases",
    "replSetFreeze",
    "replSetGetConfig",
    "replSetGetStatus",
    "replSetReconfig",
    "replSetStepDown",
    "replSetStepUp",
    "setParameter",
    "shardCollection",
    "testDeployment",
];

/// Commands that change the store.
const WRITES: [&str; 14] = [
    "bulkWrite",
    "collMod",
    "insert",
    "update",
    "delete",
    "findAndModify",
    "findandmodify",
    "create",
    "drop",
    "dropDatabase",
    "createIndexes",
    "dropIndexes",
    "renameCollection",
    "shardCollection",
];
