//! The versioned API, which has one version: the commands that a strict client may use. A second version, which MongoDB has for
//! tests, has one command, which is deprecated.

use bson::RawBsonRef;

use super::failure::fail;
use super::request::Request;
use crate::store::{CommandFailure, code};

/// The commands of version 1 that this server has.
const COMMANDS: [&str; 28] = [
    "abortTransaction",
    "aggregate",
    "authenticate",
    "buildInfo",
    "bulkWrite",
    "collMod",
    "commitTransaction",
    "count",
    "create",
    "createIndexes",
    "delete",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "endSessions",
    "explain",
    "find",
    "findAndModify",
    "getMore",
    "hello",
    "insert",
    "killCursors",
    "listCollections",
    "listDatabases",
    "listIndexes",
    "ping",
    "refreshSessions",
    "update",
];

/// Commands of the handshake, which version 1 has too.
const HANDSHAKE: [&str; 5] = ["isMaster", "ismaster", "saslStart", "saslContinue", "logout"];

/// The command that the version for tests deprecates.
const DEPRECATED: &str = "testDeprecationInVersion2";

/// The stages of a pipeline that version 1 lacks.
const OTHER_STAGES: [&str; 6] =
    ["$currentOp", "$indexStats", "$listLocalSessions", "$listSearchIndexes", "$listSessions", "$planCacheStats"];

/// Refuses commands and stages that the declared version lacks, and commands that declare none where one `is_required`.
pub(super) fn check(request: &Request<'_>, is_required: bool) -> Result<(), CommandFailure> {
    match request.arguments.text("apiVersion")? {
        None if request.arguments.get("apiStrict").is_some()
            || request.arguments.get("apiDeprecationErrors").is_some() =>
        {
            Err(fail(322, "Provided apiStrict/apiDeprecationErrors without passing apiVersion"))
        }
        None if is_required => {
            let message = "The apiVersion parameter is required, please configure your MongoClient's API version";
            Err(fail(code::API_VERSION_MISSING, message))
        }
        None => Ok(()),
        Some("1") if request.arguments.flag("apiStrict") => check_strictly(request),
        Some("1") => Ok(()),
        Some("2") if request.name == DEPRECATED && request.arguments.flag("apiDeprecationErrors") => {
            let because = "is deprecated in API Version 2";
            Err(fail(324, format!("Provided apiDeprecationErrors:true, but the command {DEPRECATED} {because}")))
        }
        Some(_) => Err(fail(322, "API version must be \"1\"")),
    }
}

fn check_strictly(request: &Request<'_>) -> Result<(), CommandFailure> {
    let name = request.name;
    if !COMMANDS.contains(&name) && !HANDSHAKE.contains(&name) {
        let message = format!("Provided apiStrict:true, but the command {name} is not in API Version 1");
        return Err(fail(323, message));
    }
    let stages = request.arguments.get("pipeline").and_then(RawBsonRef::as_array);
    let names = stages.into_iter().flatten().filter_map(|stage| {
        let (name, _) = stage.ok()?.as_document()?.iter().next()?.ok()?;
        OTHER_STAGES.into_iter().find(|other| *other == name.as_str())
    });
    match names.into_iter().next() {
        Some(stage) => Err(fail(323, format!("stage {stage} is not allowed with 'apiStrict: true' in API Version 1"))),
        None => Ok(()),
    }
}
