//! How commands fail: failures with the server's code, its name and message, and the documents that report them to
//! clients.

use bson::RawDocumentBuf;

use super::document::{array, document};
use crate::known::lacks;
use crate::store::{CommandFailure, code};

/// The outcome of a command: the reply's fields without `ok`, or a failure.
pub(super) type Outcome = Result<RawDocumentBuf, CommandFailure>;

/// A failure without labels.
pub(super) fn fail(code: i32, message: impl Into<String>) -> CommandFailure {
    CommandFailure::new(code, message)
}

/// The failure of a command that is no part of MongoDB, or of this server.
pub(super) fn unknown_command(name: &str) -> CommandFailure {
    if lacks(name) {
        return CommandFailure::not_supported(&format!("the command {name}"));
    }
    fail(code::COMMAND_NOT_FOUND, format!("no such command: '{name}'"))
}

/// The failure of every login, which never gives a reason (SRV-6).
pub(super) fn authentication_failed() -> CommandFailure {
    fail(18, "Authentication failed.")
}

/// The reply that reports a failure. It has no topologyVersion (SRV-3).
pub(super) fn reply(failure: &CommandFailure) -> RawDocumentBuf {
    let CommandFailure { code, code_name, message, details, labels } = failure;
    let mut reply = document! { "ok": 0.0, "errmsg": message.as_str(), "code": *code, "codeName": *code_name };
    details.iter().map_while(Result::ok).for_each(|(name, value)| reply.append(name, value));
    append_labels(&mut reply, labels);
    reply
}

/// Appends `errorLabels`, if there are any.
pub(super) fn append_labels(reply: &mut RawDocumentBuf, labels: &[String]) {
    if !labels.is_empty() {
        reply.append(bson::cstr!("errorLabels"), array(labels.iter().map(String::as_str)));
    }
}
