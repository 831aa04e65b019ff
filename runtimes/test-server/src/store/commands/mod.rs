//! The commands on data (SRV-2), one file each.

mod aggregate;
mod bulk_write;
mod coll_mod;
mod count;
mod create;
mod cursors;
mod delete;
mod distinct;
mod drop;
mod explain;
mod find;
mod find_and_modify;
mod indexes;
mod insert;
mod list;
mod search_indexes;
mod statistics;
mod update;
mod writes;

use bson::RawDocumentBuf;

use super::{Call, CommandFailure, Store};

type Run = fn(&mut Store, &Call<'_>) -> Result<RawDocumentBuf, CommandFailure>;

/// The command of that name.
pub(super) fn named(name: &str) -> Option<Run> {
    Some(match name {
        "aggregate" => aggregate::run,
        "bulkWrite" => bulk_write::run,
        "checkMetadataConsistency" => list::inconsistencies,
        "collMod" => coll_mod::run,
        "collStats" | "collstats" => statistics::collection,
        "count" => count::run,
        "create" => create::run,
        "createIndexes" => indexes::create,
        "dbStats" | "dbstats" => statistics::database,
        "delete" => delete::run,
        "distinct" => distinct::run,
        "drop" => drop::collection,
        "dropDatabase" => drop::database,
        "dropIndexes" | "deleteIndexes" => indexes::drop,
        "explain" => explain::run,
        "find" => find::run,
        "findAndModify" | "findandmodify" => find_and_modify::run,
        "getMore" => cursors::get_more,
        "insert" => insert::run,
        "killCursors" => cursors::kill,
        "listCollections" => list::collections,
        "listDatabases" => list::databases,
        "listIndexes" => indexes::list,
        "createSearchIndexes" | "dropSearchIndex" | "listSearchIndexes" | "updateSearchIndex" => search_indexes::run,
        "renameCollection" => create::rename,
        "shardCollection" => coll_mod::shard,
        "update" => update::run,
        "validate" => statistics::validate,
        _ => return None,
    })
}
