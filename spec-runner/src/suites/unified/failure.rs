//! How an operation failed, in the terms in which tests expect it.

use core::fmt;

use bson::{Bson, Document};
use cmap_core::connection::{Fault, RETRYABLE_ERROR, SYSTEM_OVERLOADED_ERROR};
use cmap_core::pool::{Cause, CheckOutError, CheckOutErrorKind};
use cmap_sim::WriteResult;

use super::format::ExpectedError;
use super::matching::{Pattern, Saved};
use super::writes::{concern_errors, write_errors};

/// The labels of an error after which an operation may be tried again, but not at once.
const OVERLOAD: [&str; 2] = [SYSTEM_OVERLOADED_ERROR, RETRYABLE_ERROR];

/// The code of an operation that took too long (CSOT-15).
const MAX_TIME_EXPIRED: i32 = 50;

/// An operation failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// How.
    pub kind: FailureKind,
    /// In words, causes included.
    pub message: String,
    /// The error's labels.
    pub labels: Vec<String>,
    /// The result of what was done before it.
    pub result: Option<Box<Bson>>,
    /// What its batches have done, and which of their items have failed.
    pub written: Option<Box<WriteResult>>,
}

/// How an operation failed.
#[derive(Clone, Debug, PartialEq)]
pub enum FailureKind {
    /// The network failed, or the wait for the server took too long.
    Network {
        /// Whether it was the wait.
        timeout: bool,
    },
    /// There was no connection, since time was up.
    CheckOutTimeout,
    /// There was no connection, since the pool was cleared.
    PoolCleared,
    /// Anything else on the client's side.
    Client,
    /// The server said so.
    Server {
        /// Its code.
        code: Option<i32>,
        /// Its whole reply.
        reply: Box<Document>,
    },
}

impl Failure {
    /// A failure of this kind, without labels.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), labels: Vec::new(), result: None, written: None }
    }

    /// What was asked of the client makes no sense.
    pub fn client(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Client, message)
    }

    /// A check-out ended without a connection.
    pub fn of_check_out(error: &CheckOutError) -> Self {
        let establish = if let CheckOutErrorKind::Establish(error) = &error.kind { Some(error) } else { None };
        let kind = match (&error.kind, establish.map(|error| error.fault)) {
            (CheckOutErrorKind::Timeout(_), _) => FailureKind::CheckOutTimeout,
            (CheckOutErrorKind::PoolCleared { .. }, _) => FailureKind::PoolCleared,
            (_, Some(Fault::Network)) => FailureKind::Network { timeout: false },
            (_, Some(Fault::Timeout)) => FailureKind::Network { timeout: true },
            (_, Some(Fault::Server { code })) => FailureKind::Server { code, reply: Box::default() },
            _ => FailureKind::Client,
        };
        let labels = OVERLOAD.iter().filter(|label| establish.is_some_and(|error| error.has_label(label)));
        Self {
            labels: labels.map(|label| (*label).to_owned()).collect(),
            ..Self::new(kind, Cause::of(error).to_string())
        }
    }

    /// The server's error in a reply: that of the command, of its write concern, or of its first write.
    pub fn of_reply(reply: &Document) -> Option<Self> {
        let ok = reply.get_bool("ok").ok().or_else(|| number(reply, "ok").map(|ok| ok != 0));
        let error = if ok == Some(false) {
            reply
        } else {
            let first = reply.get_array("writeErrors").ok().and_then(|errors| errors.first()?.as_document());
            reply.get_document("writeConcernError").ok().or(first)?
        };
        let code = number(error, "code").and_then(|code| i32::try_from(code).ok());
        let message = error.get_str("errmsg").unwrap_or("the server gives no message").to_owned();
        let labels = reply.get_array("errorLabels").map(Vec::as_slice).unwrap_or_default();
        let labels = labels.iter().filter_map(|label| label.as_str().map(str::to_owned)).collect();
        let kind = FailureKind::Server { code, reply: Box::new(reply.clone()) };
        Some(Self { labels, ..Self::new(kind, message) })
    }

    /// Where this leaves what is expected of it, if it does.
    pub fn mismatch(&self, expected: &ExpectedError, saved: Saved<'_>) -> Option<String> {
        let (code, reply) = match &self.kind {
            FailureKind::Server { code, reply } => (*code, Some(reply)),
            FailureKind::Network { .. }
            | FailureKind::CheckOutTimeout
            | FailureKind::PoolCleared
            | FailureKind::Client => (None, None),
        };
        let is_timeout = code == Some(MAX_TIME_EXPIRED)
            || matches!(self.kind, FailureKind::Network { timeout: true } | FailureKind::CheckOutTimeout);
        let has = |label: &String| self.labels.contains(label);
        let contains = |part: &String| self.message.to_lowercase().contains(&part.to_lowercase());
        let code_name = || {
            let reply = reply?;
            let of_concern = || reply.get_document("writeConcernError").ok()?.get_str("codeName").ok();
            reply.get_str("codeName").ok().or_else(of_concern)
        };
        let text = if expected.is_error == Some(false) {
            "none".into()
        } else if expected.is_client_error.is_some_and(|wanted| wanted != reply.is_none()) {
            format!("one of the {}", if reply.is_none() { "server" } else { "client" })
        } else if expected.is_timeout_error.is_some_and(|wanted| wanted != is_timeout) {
            format!("{} timeout", if is_timeout { "no" } else { "a" })
        } else if let Some(part) = expected.error_contains.as_ref().filter(|part| !contains(part)) {
            format!("one that says \"{part}\"")
        } else if let Some(wanted) = expected.error_code.filter(|wanted| Some(*wanted) != code) {
            format!("the code {wanted}")
        } else if let Some(wanted) = expected.error_code_name.as_deref().filter(|wanted| Some(*wanted) != code_name()) {
            format!("the code {wanted}")
        } else if let Some(label) = expected.error_labels_contain.iter().find(|label| !has(label)) {
            format!("the label {label}")
        } else if let Some(label) = expected.error_labels_omit.iter().find(|label| has(label)) {
            format!("no label {label}")
        } else {
            return self.document_mismatch(expected, saved);
        };
        Some(format!("expected an error: {text}; got {self}"))
    }

    /// Where the server's reply, or the result of what was done before, is not as expected.
    fn document_mismatch(&self, expected: &ExpectedError, saved: Saved<'_>) -> Option<String> {
        let reply = match &self.kind {
            FailureKind::Server { reply, .. } => Some(Bson::from(Document::clone(reply))),
            FailureKind::Network { .. }
            | FailureKind::CheckOutTimeout
            | FailureKind::PoolCleared
            | FailureKind::Client => None,
        };
        if let Some(expected) = &expected.error_response
            && let Err(mismatch) = expected.compare(reply.as_ref(), saved)
        {
            return Some(format!("its reply: {mismatch}"));
        }
        if let Some(mismatch) = self.writes_mismatch(expected, saved) {
            return Some(mismatch);
        }
        let expected = expected.expect_result.as_ref()?;
        expected.compare(self.result.as_deref(), saved).err().map(|mismatch| format!("its result: {mismatch}"))
    }

    /// Where the errors of single writes and of write concerns are not as expected.
    fn writes_mismatch(&self, expected: &ExpectedError, saved: Saved<'_>) -> Option<String> {
        let written = self.written.clone().unwrap_or_default();
        if let Some(expected) = &expected.write_errors {
            let found = write_errors(&written);
            if !found.keys().eq(expected.keys()) {
                return Some(format!("the writes that failed are {found:?}"));
            }
            let compare = |(index, expected): (&String, &Pattern)| expected.compare(found.get(index), saved).err();
            if let Some(mismatch) = expected.iter().find_map(compare) {
                return Some(format!("the error of a write: {mismatch}"));
            }
        }
        let expected = expected.write_concern_errors.as_ref()?;
        let found = concern_errors(&written);
        if found.len() != expected.len() {
            return Some(format!("the errors of write concerns are {found:?}"));
        }
        let mismatch =
            expected.iter().zip(&found).find_map(|(expected, found)| expected.compare(Some(found), saved).err());
        mismatch.map(|mismatch| format!("the error of a write concern: {mismatch}"))
    }
}

/// Servers write `ok` and codes as any of the numeric types.
fn number(document: &Document, key: &str) -> Option<i64> {
    let value = document.get(key)?;
    let integer = value.as_i64().or_else(|| value.as_i32().map(i64::from));
    integer.or_else(|| value.as_f64().map(|float| i64::from(float != 0.0)))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            FailureKind::Network { timeout: false } => write!(f, "a network error: ")?,
            FailureKind::Network { timeout: true } => write!(f, "a network timeout: ")?,
            FailureKind::CheckOutTimeout => write!(f, "a timeout of the check-out: ")?,
            FailureKind::PoolCleared => write!(f, "a cleared pool: ")?,
            FailureKind::Client => write!(f, "a client's error: ")?,
            FailureKind::Server { code: Some(code), .. } => write!(f, "the server's error {code}: ")?,
            FailureKind::Server { code: None, .. } => write!(f, "a server's error: ")?,
        }
        f.write_str(&self.message)?;
        if self.labels.is_empty() { Ok(()) } else { write!(f, " [{}]", self.labels.join(", ")) }
    }
}
