//! The methods of a driver's interface, and the arguments that each takes.

use serde::Deserialize;

/// The methods of a driver's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "each is the specification's method of this name")]
pub enum Method {
    Aggregate,
    Count,
    CountDocuments,
    CreateChangeStream,
    CreateCollection,
    CreateFindCursor,
    CreateIndex,
    DeleteMany,
    DeleteOne,
    Distinct,
    DropCollection,
    DropDatabase,
    DropIndex,
    DropIndexes,
    EstimatedDocumentCount,
    Find,
    FindOne,
    FindOneAndDelete,
    FindOneAndReplace,
    FindOneAndUpdate,
    InsertMany,
    InsertOne,
    ListCollectionNames,
    ListCollectionObjects,
    ListCollections,
    ListDatabaseNames,
    ListDatabaseObjects,
    ListDatabases,
    ListIndexNames,
    ListIndexes,
    Rename,
    ReplaceOne,
    UpdateMany,
    UpdateOne,
}

/// The arguments of a find that are fields of its command.
#[rustfmt::skip]
pub const FIND: [&str; 12] = [
    "filter", "sort", "projection", "hint", "skip", "limit", "batchSize", "comment", "max", "min", "returnKey", "showRecordId",
];

/// The argument of every method that is the field of its command, unless the operation has a limit (CSOT, *Deprecated options*).
pub const MAX_TIME: &str = "maxTimeMS";

/// The arguments of what makes a cursor that say how to read it.
const CURSOR: [&str; 3] = ["cursorType", "maxAwaitTimeMS", "timeoutMode"];

/// The arguments of a change stream that are fields of its stage.
pub const CHANGE_STREAM: [&str; 6] = [
    "fullDocument",
    "fullDocumentBeforeChange",
    "resumeAfter",
    "startAfter",
    "startAtOperationTime",
    "showExpandedEvents",
];

impl Method {
    /// Whether the argument is carried out.
    pub(super) fn takes(self, argument: &str) -> bool {
        let is_of_stream = self == Self::CreateChangeStream && CHANGE_STREAM.contains(&argument);
        let is_of_cursor = self.makes_cursor() && CURSOR.contains(&argument);
        is_of_stream || is_of_cursor || argument == MAX_TIME || self.arguments().contains(&argument)
    }

    /// Whether its cursor can be told how to be read.
    fn makes_cursor(self) -> bool {
        matches!(
            self,
            Self::Aggregate
                | Self::CreateChangeStream
                | Self::CreateFindCursor
                | Self::Find
                | Self::ListCollections
                | Self::ListIndexes
        )
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Aggregate => &["pipeline", "batchSize"],
            Self::Count | Self::CountDocuments => &["filter"],
            Self::CreateChangeStream => &["pipeline", "batchSize", "collation", "comment"],
            Self::DeleteMany | Self::DeleteOne => &["filter", "hint"],
            Self::CreateCollection => &["collection", "capped", "size", "max", "viewOn"],
            Self::DropCollection => &["collection"],
            Self::DropDatabase => &["database"],
            Self::FindOneAndDelete => &["filter", "sort", "hint", "comment"],
            Self::CreateFindCursor | Self::Find => &FIND,
            Self::FindOne => &["filter", "sort"],
            Self::CreateIndex => &["keys", "name"],
            Self::Distinct => &["fieldName", "filter"],
            Self::DropIndex => &["name"],
            Self::Rename => &["to", "dropTarget"],
            Self::ReplaceOne => &["filter", "replacement", "upsert", "sort", "hint"],
            Self::FindOneAndReplace => {
                &["filter", "replacement", "upsert", "sort", "returnDocument", "hint", "comment"]
            }
            Self::FindOneAndUpdate => &["filter", "update", "upsert", "sort", "returnDocument", "hint", "comment"],
            Self::UpdateMany | Self::UpdateOne => &["filter", "update", "upsert", "sort", "hint"],
            // `rawData` is for servers since 8.2.
            Self::InsertMany => &["documents", "ordered", "comment", "rawData"],
            Self::InsertOne => &["document", "comment", "rawData"],
            Self::ListCollections | Self::ListCollectionObjects | Self::ListCollectionNames | Self::ListIndexes => {
                &["filter", "batchSize"]
            }
            Self::ListDatabases | Self::ListDatabaseObjects | Self::ListDatabaseNames => &["filter"],
            Self::DropIndexes | Self::EstimatedDocumentCount | Self::ListIndexNames => &[],
        }
    }
}
