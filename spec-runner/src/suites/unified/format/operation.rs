//! `operations`: what a test does, to what, and the expected result.

use alloc::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::method::Method;
use super::{Any, Document, Entity, ExpectedError, ExpectedEvent};
use crate::suites::extended_json;
use crate::suites::place::Place;
use crate::suites::problem::read;
use crate::suites::unified::matching::Pattern;

/// One of `operations`.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct Operation {
    /// `name`.
    pub name: String,
    /// `object`: the entity that it is done with, or "testRunner".
    pub object: String,
    /// `name` and `arguments`.
    pub action: Action,
    /// The expected result.
    pub expectation: Expectation,
    /// `saveResultAsEntity`: the name under which its result can be used later.
    pub save_result_as: Option<String>,
}

/// The expected result of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Expectation {
    /// It succeeds.
    Success,
    /// `expectResult`: it succeeds with such a result.
    Result(Pattern),
    /// `expectError`: it fails with such an error.
    Error(Box<ExpectedError>),
    /// `ignoreResultAndError`: any result, or any error.
    Anything,
}

/// What an operation does.
#[derive(Clone, Debug)]
pub enum Action {
    /// Something of the test itself, of a client or of a cursor.
    Special(Special),
    /// A command on data.
    Data(Data),
}

/// The operations that are not just a command on data.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "name", content = "arguments", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[serde(deny_unknown_fields)]
pub enum Special {
    /// Sets a fail point on the server.
    FailPoint {
        /// By which client.
        client: String,
        /// In which session.
        session: Option<String>,
        /// The command.
        fail_point: Document,
    },
    /// Makes entities.
    CreateEntities {
        /// Them, in their order.
        entities: Vec<Entity>,
    },
    /// Waits until a client has had this many matching events.
    WaitForEvent(Occurrences),
    /// A client has had exactly this many matching events.
    AssertEventCount(Occurrences),
    /// Hands an operation to a thread.
    RunOnThread {
        /// The thread.
        thread: String,
        /// The operation.
        operation: Box<Operation>,
    },
    /// Waits until a thread has done all that it was given, and fails as it failed.
    WaitForThread {
        /// The thread.
        thread: String,
    },
    /// Waits.
    Wait {
        /// How long, in milliseconds.
        ms: u64,
    },
    /// A client has this many connections in use.
    AssertNumberConnectionsCheckedOut {
        /// The client.
        client: String,
        /// How many.
        connections: u64,
    },
    /// Keeps what a client knows of its topology.
    RecordTopologyDescription {
        /// The client.
        client: String,
        /// Under this name.
        id: String,
    },
    /// A kept description is of this type.
    AssertTopologyType {
        /// The name of the description.
        topology_description: String,
        /// The type.
        topology_type: String,
    },
    /// Waits until a client knows another primary than a kept description has.
    WaitForPrimaryChange {
        /// The client.
        client: String,
        /// The name of the description.
        prior_topology_description: String,
        /// How long to wait.
        #[serde(rename = "timeoutMS")]
        timeout_ms: Option<u64>,
    },
    /// The last two commands of a client were in one session.
    AssertSameLsidOnLastTwoCommands {
        /// The client.
        client: String,
    },
    /// The last two commands of a client were in two sessions.
    AssertDifferentLsidOnLastTwoCommands {
        /// The client.
        client: String,
    },
    /// A session is dirty.
    AssertSessionDirty {
        /// The session.
        session: String,
    },
    /// A session is not dirty.
    AssertSessionNotDirty {
        /// The session.
        session: String,
    },
    /// Ends a session.
    EndSession {},
    /// Starts a transaction.
    StartTransaction(Box<TransactionArguments>),
    /// Commits a transaction.
    CommitTransaction {
        /// How long it may take.
        #[serde(rename = "timeoutMS")]
        timeout_ms: Option<u64>,
    },
    /// Aborts a transaction.
    AbortTransaction {
        /// How long it may take.
        #[serde(rename = "timeoutMS")]
        timeout_ms: Option<u64>,
    },
    /// Runs operations in a transaction, which is repeated as a whole.
    WithTransaction(Box<WithTransactionArguments>),
    /// The time of a snapshot session's reads.
    GetSnapshotTime {},
    /// A session's transaction is so far.
    AssertSessionTransactionState {
        /// The session.
        session: String,
        /// The name of the state.
        state: String,
    },
    /// A session's transaction keeps to one server.
    AssertSessionPinned {
        /// The session.
        session: String,
    },
    /// No transaction of the session keeps to one server.
    AssertSessionUnpinned {
        /// The session.
        session: String,
    },
    /// Sets a fail point on the server that a session's transaction keeps to.
    TargetedFailPoint {
        /// The session.
        session: String,
        /// The command.
        fail_point: Document,
    },
    /// A collection is there.
    AssertCollectionExists(CollectionName),
    /// A collection is not there.
    AssertCollectionNotExists(CollectionName),
    /// An index is there.
    AssertIndexExists(IndexName),
    /// An index is not there.
    AssertIndexNotExists(IndexName),
    /// Several writes, one after the other.
    BulkWrite {
        /// The writes, in their order.
        requests: Vec<Document>,
        /// Whether the first that fails is the last.
        ordered: Option<bool>,
        /// `comment`, of all commands.
        comment: Option<Any>,
        /// `let`, of updates and deletes.
        #[serde(rename = "let")]
        variables: Option<Document>,
        /// For servers since 8.2.
        #[serde(rename = "rawData")]
        _raw_data: Option<bool>,
        /// How long the whole may take.
        #[serde(rename = "timeoutMS")]
        timeout_ms: Option<u64>,
        /// In which session.
        session: Option<String>,
    },
    /// Several writes in any collections.
    ClientBulkWrite(Box<ClientBulkWrite>),
    /// The content of a file in GridFS.
    Download {
        /// The file's `_id`.
        id: Any,
        /// How long it may take.
        #[serde(rename = "timeoutMS")]
        timeout_ms: Option<u64>,
    },
    /// The content of the newest file of a name in GridFS.
    DownloadByName {
        /// The name.
        filename: String,
    },
    /// Runs a command that makes a cursor; the result are its documents.
    RunCursorCommand(Box<CursorCommand>),
    /// Runs a command that makes a cursor, which is kept.
    CreateCommandCursor(Box<CursorCommand>),
    /// Closes a client or a cursor.
    Close {
        /// How long it may take.
        #[serde(rename = "timeoutMS")]
        timeout_ms: Option<u64>,
    },
    /// Adds a wrapping library to a client's metadata.
    AppendMetadata {
        /// The library.
        driver_info_options: DriverInfo,
    },
    /// Takes the next document of a cursor.
    IterateUntilDocumentOrError {},
    /// Takes the next document of a cursor if one getMore brings it.
    IterateOnce {},
    /// Runs any command on a database.
    #[serde(rename_all = "camelCase")]
    RunCommand {
        /// The command's name.
        command_name: Option<String>,
        /// The command.
        command: Document,
        /// In which session.
        session: Option<String>,
        /// On which members.
        read_preference: Option<ReadPreferenceDocument>,
        /// How long the whole may take.
        #[serde(rename = "timeoutMS")]
        timeout_ms: Option<u64>,
    },
}

/// Several writes in any collections.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct ClientBulkWrite {
    /// The writes, in their order.
    pub models: Vec<Document>,
    /// Whether the results of single writes are wanted.
    pub verbose_results: Option<bool>,
    /// Whether the first that fails is the last.
    pub ordered: Option<bool>,
    /// `bypassDocumentValidation`.
    pub bypass_document_validation: Option<bool>,
    /// `comment`.
    pub comment: Option<Any>,
    /// `let`.
    #[serde(rename = "let")]
    pub variables: Option<Document>,
    /// `writeConcern`.
    pub write_concern: Option<Document>,
    /// For servers since 8.2.
    #[serde(rename = "rawData")]
    _raw_data: Option<bool>,
    /// How long the whole may take.
    #[serde(rename = "timeoutMS")]
    pub timeout_ms: Option<u64>,
    /// In which session.
    pub session: Option<String>,
}

/// The options of a transaction.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct TransactionArguments {
    /// `readConcern`.
    pub read_concern: Option<Document>,
    /// `writeConcern`.
    pub write_concern: Option<Document>,
    /// `readPreference`.
    pub read_preference: Option<ReadPreferenceDocument>,
    /// `maxCommitTimeMS`.
    #[serde(rename = "maxCommitTimeMS")]
    pub max_commit_time_ms: Option<u64>,
}

/// A transaction that is repeated as a whole. Its options are between its own fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct WithTransactionArguments {
    /// What it consists of.
    pub callback: Vec<Operation>,
    /// `readConcern`.
    pub read_concern: Option<Document>,
    /// `writeConcern`.
    pub write_concern: Option<Document>,
    /// `readPreference`.
    pub read_preference: Option<ReadPreferenceDocument>,
    /// `maxCommitTimeMS`.
    #[serde(rename = "maxCommitTimeMS")]
    pub max_commit_time_ms: Option<u64>,
    /// How long the whole may take.
    #[serde(rename = "timeoutMS")]
    pub timeout_ms: Option<u64>,
}

/// The name of a collection.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct CollectionName {
    /// Its database.
    pub database_name: String,
    /// Its own name.
    pub collection_name: String,
}

/// The name of an index.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct IndexName {
    /// The database of its collection.
    pub database_name: String,
    /// Its collection.
    pub collection_name: String,
    /// Its own name.
    pub index_name: String,
}

/// The arguments of a command that makes a cursor.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct CursorCommand {
    /// The command's name.
    pub command_name: String,
    /// The command.
    pub command: Document,
    /// `cursorType`, which the command says, too.
    pub cursor_type: Option<CursorType>,
    /// `batchSize` of its getMores.
    pub batch_size: Option<u32>,
    /// `maxTimeMS` of its getMores.
    #[serde(rename = "maxTimeMS")]
    pub max_time_ms: Option<u64>,
    /// `comment` of its getMores.
    pub comment: Option<Any>,
    /// How long it may take.
    #[serde(rename = "timeoutMS")]
    pub timeout_ms: Option<u64>,
    /// What that is for.
    pub timeout_mode: Option<TimeoutMode>,
    /// In which session.
    pub session: Option<String>,
}

/// `timeoutMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TimeoutMode {
    /// The whole life of a cursor.
    CursorLifetime,
    /// Each iteration.
    Iteration,
}

/// `cursorType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CursorType {
    /// It ends with the last document.
    NonTailable,
    /// It goes on with later documents.
    Tailable,
    /// The same, and the server waits for them.
    TailableAwait,
}

/// `readPreference`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct ReadPreferenceDocument {
    /// `mode`.
    pub mode: String,
    /// `tagSets`.
    #[serde(default)]
    pub tag_sets: Vec<BTreeMap<String, String>>,
    /// `maxStalenessSeconds`.
    pub max_staleness_seconds: Option<u64>,
}

/// Events to wait for, or to count.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct Occurrences {
    /// `client`: whose.
    pub client: String,
    /// `event`: which.
    pub event: ExpectedEvent,
    /// `count`: how many.
    pub count: usize,
}

/// `driverInfoOptions`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct DriverInfo {
    /// `name`.
    pub name: String,
    /// `version`.
    pub version: Option<String>,
    /// `platform`.
    pub platform: Option<String>,
}

/// A command on data, in the words of a driver's interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// The method.
    pub method: Method,
    /// Its arguments.
    pub arguments: bson::Document,
    /// `timeoutMS`, which every method has: how long it may take.
    pub timeout_ms: Option<u64>,
    /// `session`, which every method has.
    pub session: Option<String>,
}

/// What some operations need that a pool does not have.
const LACKING: [(&str, &[&str]); 2] = [
    ("a server that runs JavaScript (mapReduce)", &["mapReduce"]),
    ("a server with search indexes", &["createSearchIndex", "dropSearchIndex", "updateSearchIndex"]),
];

/// The operations of a bucket but for its downloads, which are two finds.
const OF_BUCKET: [&str; 5] = ["delete", "drop", "find", "rename", "upload"];

/// What a test needs that does not exist here, if anything, as the names and arguments of its operations show.
pub(super) fn lack(test: &Value) -> Option<String> {
    let operations = test.get("operations")?.as_array()?;
    let names = operations.iter().filter_map(|operation| operation.get("name")?.as_str());
    let by_name = |name| LACKING.iter().find(|(_, names)| names.contains(&name)).map(|(what, _)| *what);
    let what = names.into_iter().find_map(by_name);
    let is_of_bucket = |operation: &Value| {
        let is =
            |key, values: &[&str]| operation.get(key).and_then(Value::as_str).is_some_and(|own| values.contains(&own));
        is("object", &["bucket"]) && is("name", &OF_BUCKET)
    };
    let what = what.or_else(|| operations.iter().any(is_of_bucket).then_some("GridFS"));
    let what = what.or_else(|| has_key(test, "$where").then_some("a server that runs JavaScript ($where)"));
    what.map(|what| format!("needs {what}"))
}

fn has_key(value: &Value, key: &str) -> bool {
    match value {
        Value::Object(entries) => entries.iter().any(|(own, value)| own == key || has_key(value, key)),
        Value::Array(items) => items.iter().any(|item| has_key(item, key)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

impl ClientBulkWrite {
    /// The fields of the command.
    pub fn fields(&self) -> bson::Document {
        let errors_only = self.verbose_results.map(|verbose| !verbose);
        let (comment, variables) = (self.comment.as_ref(), self.variables.as_ref());
        let fields: [(&str, Option<bson::Bson>); 6] = [
            ("errorsOnly", errors_only.map(Into::into)),
            ("ordered", self.ordered.map(Into::into)),
            ("bypassDocumentValidation", self.bypass_document_validation.map(Into::into)),
            ("comment", comment.map(|comment| comment.0.clone())),
            ("let", variables.map(|variables| variables.0.clone().into())),
            ("writeConcern", self.write_concern.as_ref().map(|concern| concern.0.clone().into())),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// An operation as it is written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
struct Written {
    name: String,
    object: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    expect_result: Option<Pattern>,
    expect_error: Option<Box<ExpectedError>>,
    #[serde(default)]
    ignore_result_and_error: bool,
    save_result_as_entity: Option<String>,
}

impl TryFrom<Map<String, Value>> for Operation {
    type Error = String;

    fn try_from(operation: Map<String, Value>) -> Result<Self, String> {
        let written: Written = read(&Place::top(), Value::Object(operation)).map_err(|problem| problem.to_string())?;
        let expectation = match (written.expect_result, written.expect_error, written.ignore_result_and_error) {
            (None, None, false) => Expectation::Success,
            (Some(result), None, false) => Expectation::Result(result),
            (None, Some(error), false) => Expectation::Error(error),
            (None, None, true) => Expectation::Anything,
            _ => return Err("expects several things at once".into()),
        };
        Ok(Self {
            action: Action::read(&written.name, written.arguments)?,
            name: written.name,
            object: written.object,
            expectation,
            save_result_as: written.save_result_as_entity,
        })
    }
}

impl Action {
    fn read(name: &str, mut arguments: Map<String, Value>) -> Result<Self, String> {
        let Ok(method) = Method::deserialize(Value::from(name)) else {
            let value = json!({ "name": name, "arguments": arguments });
            return read(&Place::top(), value).map(Self::Special).map_err(|problem| problem.to_string());
        };
        let timeout_ms = arguments.remove("timeoutMS");
        let timeout_ms = timeout_ms.map(|timeout| timeout.as_u64().ok_or("timeoutMS is not a number of milliseconds"));
        let timeout_ms = timeout_ms.transpose()?;
        let session =
            arguments.remove("session").map(|session| session.as_str().map(str::to_owned).ok_or("session is no name"));
        let session = session.transpose()?;
        if let Some(unknown) = arguments.keys().find(|key| !method.takes(key)) {
            return Err(format!("unknown argument `{unknown}` of {name}"));
        }
        let arguments = extended_json::document(Value::Object(arguments));
        let arguments = arguments.map_err(|problem| format!("the arguments of {name}: {problem}"))?;
        Ok(Self::Data(Data { method, arguments, timeout_ms, session }))
    }
}
