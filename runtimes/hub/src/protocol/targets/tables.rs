//! Names that mean something to a server: commands with several names, stages, places, and fields that are not for clients.

/// Stages that show what others do. They count as operators' commands.
pub(super) const OF_THE_SERVER: [&str; 12] = [
    "$backupCursor",
    "$backupCursorExtend",
    "$currentOp",
    "$listCatalog",
    "$listClusterCatalog",
    "$listLocalSessions",
    "$listSampledQueries",
    "$listSessions",
    "$operationMetrics",
    "$querySettings",
    "$queryStats",
    "$shardedDataDistribution",
];

/// The name by which rules know a command that has several.
pub(super) fn modern(name: &str) -> &str {
    match name {
        "$eval" => "eval",
        "buildinfo" => "buildInfo",
        "collstats" => "collStats",
        "datasize" => "dataSize",
        "dbhash" => "dbHash",
        "dbstats" => "dbStats",
        "deleteIndexes" => "dropIndexes",
        "findandmodify" => "findAndModify",
        "mapreduce" => "mapReduce",
        other => other,
    }
}

/// Commands whose collection is named with its database, `shop.orders`, wherever they are run.
const WITH_DATABASE: [&str; 28] = [
    "abortMoveCollection",
    "abortReshardCollection",
    "abortUnshardCollection",
    "analyzeShardKey",
    "balancerCollectionStatus",
    "checkShardingIndex",
    "cleanupOrphaned",
    "cleanupReshardCollection",
    "clearJumboFlag",
    "commitReshardCollection",
    "configureCollectionBalancing",
    "configureQueryAnalyzer",
    "dataSize",
    "getShardVersion",
    "mergeAllChunksOnShard",
    "mergeChunks",
    "moveChunk",
    "moveCollection",
    "moveRange",
    "refineCollectionShardKey",
    "reshardCollection",
    "setAllowMigrations",
    "shardCollection",
    "split",
    "splitChunk",
    "splitVector",
    "unshardCollection",
    "updateZoneKeyRange",
];

pub(super) fn names_its_database(command: &str) -> bool {
    WITH_DATABASE.iter().any(|name| name.eq_ignore_ascii_case(command))
}

/// Where a server keeps the documents of a time series `X`: in `system.buckets.X`.
const BUCKETS: &str = "system.buckets.";

/// The collection as users know it.
pub(super) fn without_buckets(mut collection: &str) -> &str {
    while let Some(series) = collection.strip_prefix(BUCKETS) {
        collection = series;
    }
    collection
}

/// Fields that begin with a dollar sign, and that clients may put into any command.
const OF_CLIENTS: [&str; 3] = ["$clusterTime", "$db", "$readPreference"];

/// Other fields by which servers speak with each other, and which let a command pass where it would be stopped.
const BETWEEN_SERVERS: [&str; 8] = [
    "coordinator",
    "databaseVersion",
    "maxTimeMSOpOnly",
    "mayBypassWriteBlocking",
    "shardVersion",
    "startOrContinueTransaction",
    "txnRetryCounter",
    "versionContext",
];

/// Whether a field of a command is for servers alone. They believe what it says about others: `$audit` who the user is, `$client` which
/// program asks. One that begins with a dollar sign and is not known counts as such.
pub(super) fn is_between_servers(field: &str) -> bool {
    field.starts_with('$') && !OF_CLIENTS.contains(&field) || BETWEEN_SERVERS.contains(&field)
}
