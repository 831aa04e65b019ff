//! `createEntities`: the clients, databases, collections and threads that a test works with.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Document, EventName, ReadPreferenceDocument, Severity, TransactionArguments};

/// One entity.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object with one key")]
pub enum Entity {
    /// A client.
    Client(ClientEntity),
    /// A database, seen by a client.
    Database(DatabaseEntity),
    /// A collection of a database.
    Collection(CollectionEntity),
    /// A bucket of GridFS in a database, with the default name.
    Bucket(BucketEntity),
    /// A thread, on which operations can run beside the others.
    Thread(Named),
    /// A session.
    Session(SessionEntity),
}

/// `client`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct ClientEntity {
    /// `id`: its name.
    pub id: String,
    /// `uriOptions`.
    #[serde(default)]
    pub uri_options: BTreeMap<String, Value>,
    /// `useMultipleMongoses`: whether it reaches several servers behind a load balancer.
    #[serde(default)]
    pub use_multiple_mongoses: bool,
    /// `serverApi`: the Stable API that it declares.
    pub server_api: Option<ServerApiEntity>,
    /// `observeEvents`: the events to note.
    #[serde(default)]
    pub observe_events: Vec<EventName>,
    /// `ignoreCommandMonitoringEvents`: commands whose events are not to be noted.
    #[serde(default)]
    pub ignore_command_monitoring_events: Vec<String>,
    /// `observeSensitiveCommands`: whether to note commands that may hold secrets; without, they are not.
    #[serde(default)]
    pub observe_sensitive_commands: bool,
    /// `observeLogMessages`: the components whose messages to note, and down to which severity.
    #[serde(default)]
    pub observe_log_messages: BTreeMap<String, Severity>,
    /// `observeTracingMessages`: what of its spans to note; without, it has none.
    pub observe_tracing_messages: Option<TracingEntity>,
    /// `awaitMinPoolSizeMS`: how long to wait for minPoolSize connections, and then to forget the events so far.
    #[serde(rename = "awaitMinPoolSizeMS")]
    pub await_min_pool_size_ms: Option<u64>,
}

/// `observeTracingMessages`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct TracingEntity {
    /// `enableCommandPayload`: whether the spans of commands show these.
    #[serde(default)]
    pub enable_command_payload: bool,
}

/// `serverApi`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct ServerApiEntity {
    /// `version`.
    pub version: String,
    /// `strict`.
    pub strict: Option<bool>,
    /// `deprecationErrors`.
    pub deprecation_errors: Option<bool>,
}

/// `database`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct DatabaseEntity {
    /// `id`: its name in the test.
    pub id: String,
    /// `client`: the client through which it is seen.
    pub client: String,
    /// `databaseName`: its name on the server.
    pub database_name: String,
    /// `databaseOptions`.
    #[serde(default)]
    pub database_options: PlaceOptions,
}

/// `databaseOptions` and `collectionOptions`: for commands that take them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct PlaceOptions {
    /// `readConcern`; an empty one is the server's default, which is not sent.
    #[serde(default, deserialize_with = "unless_empty")]
    pub read_concern: Option<Document>,
    /// `readPreference`.
    pub read_preference: Option<ReadPreferenceDocument>,
    /// `writeConcern`; an empty one is the server's default, which is not sent.
    #[serde(default, deserialize_with = "unless_empty")]
    pub write_concern: Option<Document>,
    /// `timeoutMS`: how long an operation may take.
    #[serde(rename = "timeoutMS")]
    pub timeout_ms: Option<u64>,
}

/// `bucket`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct BucketEntity {
    /// `id`: its name in the test.
    pub id: String,
    /// `database`: where it is.
    pub database: String,
}

/// `collection`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct CollectionEntity {
    /// `id`: its name in the test.
    pub id: String,
    /// `database`: where it is.
    pub database: String,
    /// `collectionName`: its name on the server.
    pub collection_name: String,
    /// `collectionOptions`.
    #[serde(default)]
    pub collection_options: PlaceOptions,
}

/// An entity that is nothing but its name.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct Named {
    /// `id`: its name.
    pub id: String,
}

/// `session`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct SessionEntity {
    /// `id`: its name.
    pub id: String,
    /// `client`: whose it is.
    pub client: String,
    /// `sessionOptions`.
    #[serde(default)]
    pub session_options: SessionOptions,
}

/// `sessionOptions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct SessionOptions {
    /// `causalConsistency`.
    pub causal_consistency: Option<bool>,
    /// `snapshot`.
    #[serde(default)]
    pub snapshot: bool,
    /// `snapshotTime`: the name of a saved result.
    pub snapshot_time: Option<String>,
    /// `defaultTimeoutMS`.
    #[serde(rename = "defaultTimeoutMS")]
    pub default_timeout_ms: Option<u64>,
    /// `defaultTransactionOptions`.
    #[serde(default)]
    pub default_transaction_options: TransactionArguments,
}

fn unless_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Document>, D::Error> {
    Option::<Document>::deserialize(deserializer).map(|document| document.filter(|document| !document.0.is_empty()))
}
