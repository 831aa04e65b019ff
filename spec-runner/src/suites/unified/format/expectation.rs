//! Expectations after a test, or for one of its operations: errors, events, log messages and collections.

use alloc::collections::BTreeMap;

use serde::Deserialize;

use super::{Document, EventKind, ExpectedEvent};
use crate::suites::unified::matching::Pattern;

/// `expectError`: what is expected of an operation's error. Everything given must hold.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct ExpectedError {
    /// `isError`: there is one; always true.
    pub is_error: Option<bool>,
    /// `isClientError`: whether it arose on the client's side, network errors included.
    pub is_client_error: Option<bool>,
    /// `isTimeoutError`: whether time was up.
    pub is_timeout_error: Option<bool>,
    /// `errorContains`: a part of its text, in any case.
    pub error_contains: Option<String>,
    /// `errorCode`: the server's code.
    pub error_code: Option<i32>,
    /// `errorCodeName`: the server's name of the code.
    pub error_code_name: Option<String>,
    /// `errorLabelsContain`: labels that it has.
    #[serde(default)]
    pub error_labels_contain: Vec<String>,
    /// `errorLabelsOmit`: labels that it has not.
    #[serde(default)]
    pub error_labels_omit: Vec<String>,
    /// `errorResponse`: the server's reply.
    pub error_response: Option<Pattern>,
    /// `expectResult`: the result of what was done before it.
    pub expect_result: Option<Pattern>,
    /// `writeErrors`: the errors of single writes, by their places.
    pub write_errors: Option<BTreeMap<String, Pattern>>,
    /// `writeConcernErrors`, in the order of the batches.
    pub write_concern_errors: Option<Vec<Pattern>>,
}

/// One of `expectEvents`: the events of one family that one client had.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct ExpectedEvents {
    /// `client`.
    pub client: String,
    /// `eventType`: the family.
    #[serde(default)]
    pub event_type: EventKind,
    /// `events`, in their order.
    pub events: Vec<ExpectedEvent>,
    /// `ignoreExtraEvents`: whether more may follow.
    #[serde(default)]
    pub ignore_extra_events: bool,
}

/// One of `expectLogMessages`: the log messages of one client.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct ExpectedLogMessages {
    /// `client`.
    pub client: String,
    /// `messages`, in their order.
    pub messages: Vec<ExpectedMessage>,
    /// `ignoreMessages`: messages that do not count.
    #[serde(default)]
    pub ignore_messages: Vec<ExpectedMessage>,
    /// `ignoreExtraMessages`: whether more may follow.
    #[serde(default)]
    pub ignore_extra_messages: bool,
}

/// A log message that a test expects or ignores.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct ExpectedMessage {
    /// `level`.
    pub level: Severity,
    /// `component`.
    pub component: String,
    /// `failureIsRedacted`: whether its field `failure` keeps back what the server said.
    pub failure_is_redacted: Option<bool>,
    /// `data`: its fields, of which there may be more.
    pub data: Pattern,
}

/// One of `expectTracingMessages`: the spans of one client.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct ExpectedSpans {
    /// `client`.
    pub client: String,
    /// `ignoreExtraSpans`: whether there may be more, anywhere in the tree.
    #[serde(default)]
    pub ignore_extra_spans: bool,
    /// `spans`: those without a parent, in their order.
    pub spans: Vec<ExpectedSpan>,
}

/// A span that a test expects.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct ExpectedSpan {
    /// `name`.
    pub name: String,
    /// `attributes`, of which there may be more.
    pub attributes: Pattern,
    /// `nested`: its children, in their order.
    #[serde(default)]
    pub nested: Vec<ExpectedSpan>,
}

/// How severe a log message is (LOG-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "each is the specification's level of this name")]
pub enum Severity {
    Emergency,
    Alert,
    Critical,
    Error,
    Warning,
    Notice,
    Info,
    Debug,
    Trace,
}

/// A collection and its contents.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct CollectionData {
    /// `databaseName`.
    pub database_name: String,
    /// `collectionName`.
    pub collection_name: String,
    /// `createOptions`.
    pub create_options: Option<Document>,
    /// `documents`, by rising `_id`.
    pub documents: Vec<Document>,
}
