//! What the server knows, by name: for help texts, and for tests that ask before they begin.

/// Names of one sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Known {
    /// What they are.
    pub subject: &'static str,
    /// The names.
    pub names: &'static [&'static str],
}

/// Everything with a name that clients can ask for. What else MongoDB has is refused by error 115, and what is no part of
/// MongoDB as a server refuses it.
#[rustfmt::skip]
pub const KNOWN: &[Known] = &[
    Known { subject: "commands on data", names: &[
        "aggregate", "collMod", "count", "create", "createIndexes", "collStats", "dbStats", "delete",
        "distinct", "drop", "dropDatabase", "dropIndexes", "explain", "find", "findAndModify", "getMore", "insert", "killCursors", "listCollections",
        "listDatabases", "listIndexes", "renameCollection", "update", "validate",
    ] },
    Known { subject: "other commands", names: &[
        "abortTransaction", "authenticate", "buildInfo", "commitTransaction", "configureFailPoint", "connectionStatus", "createUser", "dropAllUsersFromDatabase",
        "dropUser", "endSessions", "getCmdLineOpts", "getLog", "getParameter", "hello", "hostInfo", "isMaster",
        "killAllSessions", "killAllSessionsByPattern", "killSessions", "logout", "ping", "refreshSessions", "replSetFreeze",
        "replSetGetConfig", "replSetGetStatus", "replSetReconfig", "replSetStepDown", "replSetStepUp", "saslContinue",
        "saslStart", "serverStatus", "setParameter", "startSession", "testDeployment", "updateUser", "usersInfo", "whatsmyuri",
    ] },
    Known { subject: "commands of a mongos", names: &["checkMetadataConsistency", "shardCollection"] },
    Known { subject: "commands of version 8.0", names: &["bulkWrite"] },
    Known { subject: "query operators", names: &[
        "$all", "$and", "$comment", "$elemMatch", "$eq", "$exists", "$expr", "$gt", "$gte", "$in", "$lt", "$lte", "$mod", "$ne", "$nin",
        "$nor", "$not", "$or", "$regex", "$size", "$type", "$where",
    ] },
    Known { subject: "update operators", names: &[
        "$addToSet", "$inc", "$max", "$min", "$mul", "$pop", "$pull", "$pullAll", "$push", "$rename", "$set", "$setOnInsert",
        "$unset",
    ] },
    Known { subject: "pipeline stages", names: &[
        "$addFields", "$changeStream", "$changeStreamSplitLargeEvent", "$count", "$currentOp", "$group", "$limit", "$listLocalSessions", "$match", "$merge", "$out",
        "$project", "$replaceRoot", "$replaceWith", "$set", "$skip", "$sort", "$unset", "$unwind",
    ] },
    Known { subject: "accumulators", names: &["$first", "$last", "$max", "$min", "$push", "$sum"] },
    Known { subject: "expressions", names: &["$eq", "$literal", "$setField"] },
    Known { subject: "fail points", names: &[
        "failCommand", "failGetMoreAfterCursorCheckout", "maxTimeAlwaysTimeOut", "maxTimeNeverTimeOut",
        "onPrimaryTransactionalWrite",
    ] },
    Known { subject: "parameters", names: &[
        "authenticationMechanisms", "enableTestCommands", "featureCompatibilityVersion",
        "ingressConnectionEstablishmentBurstCapacitySecs", "ingressConnectionEstablishmentMaxQueueDepth",
        "ingressConnectionEstablishmentRateLimiterEnabled", "ingressConnectionEstablishmentRatePerSec", "logLevel",
        "notablescan", "quiet", "requireApiVersion", "scramIterationCount", "scramSHA256IterationCount",
    ] },
    Known { subject: "login mechanisms", names: &["MONGODB-OIDC", "MONGODB-X509", "PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256"] },
    Known { subject: "compressors", names: &["snappy", "zlib", "zstd"] },
];

/// Commands that a mongod has and this server lacks.
#[rustfmt::skip]
const LACKING: &[&str] = &[
    "analyze", "analyzeShardKey", "applyOps", "autoCompact", "cleanupOrphaned", "cloneCollectionAsCapped",
    "compact", "compactStructuredEncryptionData", "configureQueryAnalyzer", "connPoolStats", "convertToCapped",
    "createRole", "currentOp", "dataSize", "dbHash", "dropAllRolesFromDatabase", "dropConnections", "dropRole", "features",
    "filemd5", "flushRouterConfig", "fsync", "fsyncUnlock", "getClusterParameter", "getDefaultRWConcern", "getShardMap",
    "getShardVersion", "grantPrivilegesToRole", "grantRolesToRole", "grantRolesToUser", "invalidateUserCache", "killOp",
    "listCommands", "lockInfo", "logApplicationMessage", "logRotate", "mapReduce", "mergeChunks", "planCacheClear",
    "planCacheClearFilters", "planCacheListFilters", "planCacheSetFilter", "profile", "reIndex",
    "replSetAbortPrimaryCatchUp", "replSetInitiate", "replSetMaintenance", "replSetResizeOplog", "replSetSyncFrom",
    "revokePrivilegesFromRole", "revokeRolesFromRole", "revokeRolesFromUser", "rolesInfo", "rotateCertificates",
    "setClusterParameter", "setDefaultRWConcern", "setFeatureCompatibilityVersion", "setIndexCommitQuorum",
    "setShardVersion", "shardingState", "shutdown", "splitVector", "top", "updateRole", "validateDBMetadata",
    "waitForFailPoint",
];

/// Whether a mongod has a command that this server lacks.
pub(crate) fn lacks(command: &str) -> bool {
    LACKING.contains(&command)
}
