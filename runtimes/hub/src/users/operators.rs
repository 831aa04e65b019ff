//! Operators' commands that the hub knows. No rule depends on them: the hub refuses every command that is not ordinary. The list decides
//! the error: "not authorized" sends a user to the rules, "no such command" to the spelling.

/// Commands that concern the server and everybody who uses it. A star at the end of a name stands for any text.
#[rustfmt::skip]
const OPERATOR_COMMANDS: &[&str] = &[
    "_*", "abortMoveCollection", "abortReshardCollection", "abortRewriteCollection", "abortUnshardCollection",
    "addShard*", "allChangesForCluster", "analyze", "appendOplogNote", "applyOps", "authSchemaUpgrade", "autoCompact",
    "balancer*", "cleanupOrphaned", "cleanupReshardCollection", "clearJumboFlag", "clearLog", "commitReshardCollection",
    "commitShardRemoval", "commitTransition*", "compact", "configureCollectionBalancing", "configureFailPoint",
    "configureQueryAnalyzer", "createRole", "createUser", "dbCheck", "dropAllRolesFromDatabase",
    "dropAllUsersFromDatabase", "dropConnections", "dropRole", "dropUser", "enableSharding", "eval",
    "flushRouterConfig", "fsync*", "getCmdLineOpts", "getDiagnosticData", "getLog", "getParameter", "grant*",
    "invalidateUserCache", "killAllSessions*", "lockInfo", "logApplicationMessage", "logRotate", "mapReduce",
    "mergeAllChunksOnShard", "mergeChunks", "move*", "profile", "refineCollectionShardKey", "removeQuerySettings",
    "removeShard*", "replSet*", "resetPlacementHistory", "reshardCollection", "revoke*", "rewriteCollection",
    "rolesInfo", "rotateCertificates", "setAllowMigrations", "setAuditConfig", "setClusterParameter",
    "setDefaultRWConcern", "setFeatureCompatibilityVersion", "setIndexCommitQuorum", "setParameter",
    "setProfilingFilterGlobally", "setQuerySettings", "setUserWriteBlockMode", "shardCollection", "shutdown", "sleep",
    "split*", "startRecordingTraffic", "startShardDraining", "startTrafficRecording", "startTransition*",
    "stopRecordingTraffic", "stopShardDraining", "stopTrafficRecording", "stopTransition*", "testDeployment", "top",
    "transitionFromDedicatedConfigServer", "transitionToDedicatedConfigServer", "unshardCollection",
    "untrackUnshardedCollection", "updateRole", "updateUser", "updateZoneKeyRange", "usersInfo",
];

/// Whether a command is one of them. Routers know some in lower case, too (`addshard`), so their case is no matter.
pub(super) fn is_operators(action: &str) -> bool {
    OPERATOR_COMMANDS.iter().any(|name| match name.strip_suffix('*') {
        Some(front) => action.get(..front.len()).is_some_and(|own| own.eq_ignore_ascii_case(front)),
        None => action.eq_ignore_ascii_case(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operators_command_is_one_in_any_case() {
        for action in
            ["addShard", "addshard", "addShardToZone", "REMOVESHARD", "getDiagnosticData", "_configsvrAddShard"]
        {
            assert!(is_operators(action), "{action}");
        }
        for action in ["find", "shard", "é", "", "noSuchCommand"] {
            assert!(!is_operators(action), "{action}");
        }
    }
}
