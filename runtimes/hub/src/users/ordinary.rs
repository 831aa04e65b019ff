//! What any user may be allowed by a star.
//!
//! Everything else is operators': the commands that concern the server and everybody who uses it, those that the hub does not know, and the
//! places where a server keeps what is its own. A list of what is harmless stays right when MongoDB gets another command.

use super::operators::is_operators;
use crate::protocol::Target;

/// Commands that concern the collections which they name, their users or nothing, by their modern names; and stages that write or watch. A
/// user may run any other one where a rule names it in full: a star is not enough.
pub const ORDINARY_COMMANDS: &[&str] = &[
    "$changeStream",
    "$merge",
    "$out",
    "abortTransaction",
    "aggregate",
    "buildInfo",
    "bulkWrite",
    "cleanupStructuredEncryptionData",
    "cloneCollectionAsCapped",
    "collMod",
    "collStats",
    "commitTransaction",
    "compactStructuredEncryptionData",
    "convertToCapped",
    "count",
    "create",
    "createIndexes",
    "createSearchIndexes",
    "currentOp",
    "dataSize",
    "dbHash",
    "dbStats",
    "delete",
    "distinct",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "dropSearchIndex",
    "endSessions",
    "explain",
    "find",
    "findAndModify",
    "getClusterParameter",
    "getDefaultRWConcern",
    "getMore",
    "hostInfo",
    "insert",
    "killCursors",
    "killOp",
    "killSessions",
    "listCollections",
    "listCommands",
    "listDatabases",
    "listIndexes",
    "listSearchIndexes",
    "ping",
    "planCacheClear",
    "planCacheClearFilters",
    "planCacheListFilters",
    "planCacheSetFilter",
    "reIndex",
    "refreshSessions",
    "renameCollection",
    "serverStatus",
    "startSession",
    "update",
    "updateSearchIndex",
    "validate",
    "whatsmyuri",
];

/// What a command that is not in the list is called where names are counted: clients make up names.
const OTHER: &str = "other";

/// Databases that are the server's own.
const OF_THE_SERVER: [&str; 2] = ["config", "local"];

/// With what the names of collections begin that are the server's own, in any database: users, views, profiles.
const SYSTEM: &str = "system.";

/// Whether a command is one that the hub knows as harmless. Servers know some in another case, too, which the hub does not.
pub(super) fn is_ordinary(action: &str) -> bool {
    ORDINARY_COMMANDS.contains(&action)
}

/// Whether the database is the server's own.
pub(super) fn is_database_of_the_server(target: &Target) -> bool {
    OF_THE_SERVER.contains(&target.database.as_str())
}

/// Whether the collection is the server's own.
pub(super) fn is_system_collection(target: &Target) -> bool {
    target.collection.starts_with(SYSTEM)
}

/// Whether the hub knows what a command concerns, in any case of letters. Stages of pipelines are known by their dollar.
pub fn is_known(action: &str) -> bool {
    action.starts_with('$')
        || ORDINARY_COMMANDS.iter().any(|name| name.eq_ignore_ascii_case(action))
        || is_operators(action)
}

/// The name of a command in the list, or `other`.
pub fn listed_name(command: &str) -> &'static str {
    ORDINARY_COMMANDS.iter().find(|name| **name == command).copied().unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_concerns_everybody_or_is_not_known_is_not_ordinary_x_133() {
        for action in [
            "addShard",
            "addshard",
            "enablesharding",
            "$backupCursorExtend",
            "$currentOp",
            "getDiagnosticData",
            "_configsvrAddShard",
            "filemd5",
            "copydb",
            "FIND",
            "aCommandOfNextYear",
            "",
        ] {
            assert!(!is_ordinary(action), "{action}");
        }
        for action in ["find", "commitTransaction", "$out", "ping"] {
            assert!(is_ordinary(action), "{action}");
        }
    }

    #[test]
    fn the_list_is_in_order() {
        assert!(ORDINARY_COMMANDS.is_sorted());
    }
}
