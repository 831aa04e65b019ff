//! The events of commands: started, succeeded, failed. Documents that may hold a secret are left out (LOG-15).

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;

use bson::raw::CStr;
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};

use crate::connection::Command;
use crate::pool::{Cause, ConnectionId};
use crate::service_id::ServiceId;
use crate::wire::document::command_name;
use crate::wire::{Field, ServerError};

/// Commands whose documents and replies may hold secrets (LOG-15).
const SENSITIVE: [&str; 9] = [
    "authenticate",
    "saslStart",
    "saslContinue",
    "getnonce",
    "createUser",
    "updateUser",
    "copydbgetnonce",
    "copydbSaslStart",
    "copydb",
];

/// Hellos, which may authenticate in advance.
const HELLOS: [&str; 2] = ["hello", "isMaster"];

/// Something that happened to a command.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CommandEvent {
    /// It is about to be sent.
    CommandStarted {
        /// The command.
        sent: Arc<SentCommand>,
        /// The whole document; empty if it may hold a secret.
        document: RawDocumentBuf,
    },
    /// The server has carried it out; single writes may have failed.
    CommandSucceeded {
        /// The command.
        sent: Arc<SentCommand>,
        /// Time since it was started.
        duration: Duration,
        /// The reply; empty if it may hold a secret, and `{ ok: 1 }` if none was wanted.
        reply: RawDocumentBuf,
    },
    /// The server refused it, or there was no usable reply.
    CommandFailed {
        /// The command.
        sent: Arc<SentCommand>,
        /// Time since it was started.
        duration: Duration,
        /// Why.
        failure: Cause,
    },
}

/// A command that was sent, as its events name it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SentCommand {
    /// Its name.
    pub name: String,
    /// Its database.
    pub database: String,
    /// The number of its message on its connection.
    pub request_id: i32,
    /// The number of its operation, the same for all attempts (RTY-13). `None` for a command that was run on a connection.
    pub operation_id: Option<u64>,
    /// The connection's number in events.
    pub connection_id: ConnectionId,
    /// The server's number for the connection.
    pub server_connection_id: Option<i64>,
    /// The service behind a load balancer.
    pub service_id: Option<ServiceId>,
    /// Whether its documents may hold a secret.
    is_sensitive: bool,
}

impl SentCommand {
    /// Describes a command that is about to be sent by a connection with these ids.
    pub fn new(
        command: &Command<'_>,
        operation_id: Option<u64>,
        connection_id: ConnectionId,
        server_connection_id: Option<i64>,
        service_id: Option<ServiceId>,
    ) -> Self {
        Self {
            name: command_name(command.body).unwrap_or_default().to_owned(),
            database: command.database.to_owned(),
            request_id: 0,
            operation_id,
            connection_id,
            server_connection_id,
            service_id,
            is_sensitive: is_sensitive(command.body),
        }
    }

    /// Sets the number of the command's message.
    #[must_use]
    pub fn with_request_id(mut self, request_id: i32) -> Self {
        self.request_id = request_id;
        self
    }

    /// The whole document of `command`, for its event: its sequences are arrays there. `declaration` are the fields of the server's
    /// API.
    pub fn document(&self, command: &Command<'_>, declaration: Option<&RawDocument>) -> RawDocumentBuf {
        if self.is_sensitive {
            return RawDocumentBuf::new();
        }
        let mut document = command.body.to_owned();
        for sequence in command.sequences {
            // An identifier cannot have a NUL: it ends with one.
            let Ok(field) = <&CStr>::try_from(sequence.identifier) else { continue };
            let mut items = RawArrayBuf::new();
            sequence.documents().for_each(|item| items.push(item));
            document.append(field, items);
        }
        document.append(cstr!("$db"), command.database);
        declaration.map(Field::All).iter().chain(command.fields).for_each(|field| field.append_to(&mut document));
        if let Some(limit) = command.max_time {
            document.append(cstr!("maxTimeMS"), i64::try_from(limit.as_millis()).unwrap_or(i64::MAX).max(1));
        }
        document
    }

    /// Why it failed, for its event. Of a refusal by the server it holds only the code if the text may repeat a secret.
    pub fn failure(&self, cause: Cause, refusal: Option<&ServerError>) -> Cause {
        match refusal {
            Some(ServerError { code: Some(code), .. }) if self.is_sensitive => {
                Cause::new(&format!("the server refused it with code {code}; the rest may hold a secret"))
            }
            Some(_) if self.is_sensitive => Cause::new("the server refused it; the rest may hold a secret"),
            _ => cause,
        }
    }

    /// A reply, for its event.
    pub fn reply(&self, reply: &RawDocument) -> RawDocumentBuf {
        if self.is_sensitive { RawDocumentBuf::new() } else { reply.to_owned() }
    }
}

impl CommandEvent {
    /// The specification's name of the event.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CommandStarted { .. } => "CommandStarted",
            Self::CommandSucceeded { .. } => "CommandSucceeded",
            Self::CommandFailed { .. } => "CommandFailed",
        }
    }

    /// The command.
    pub fn sent(&self) -> &SentCommand {
        match self {
            Self::CommandStarted { sent, .. }
            | Self::CommandSucceeded { sent, .. }
            | Self::CommandFailed { sent, .. } => sent,
        }
    }
}

/// Whether a command's document, its reply or its error may hold a secret (LOG-15).
pub fn is_sensitive(body: &RawDocument) -> bool {
    // Without its value, which need not be readable.
    let name = command_name(body).unwrap_or_default();
    let is_one_of = |names: &[&str]| names.iter().any(|own| own.eq_ignore_ascii_case(name));
    let speculates = || body.get("speculativeAuthenticate").map_or(true, |field| field.is_some());
    is_one_of(&SENSITIVE) || is_one_of(&HELLOS) && speculates()
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;
    use alloc::vec::Vec;

    use bson::rawdoc;

    use super::*;
    use crate::wire::{CommandReply, Flags, Limits, Message, MessageIds, MessageWriter};

    fn sent(body: &RawDocument) -> SentCommand {
        SentCommand::new(&Command::new("db", body), None, serde_json::from_str("1").unwrap(), None, None)
    }

    /// The document, with a byte that is not UTF-8 in place of each `~`.
    fn not_utf8(document: RawDocumentBuf) -> RawDocumentBuf {
        let bytes = document.into_bytes().into_iter().map(|byte| if byte == b'~' { 0xff } else { byte }).collect();
        RawDocumentBuf::from_bytes(bytes).unwrap()
    }

    #[test]
    fn a_command_is_shown_with_all_that_goes_along() {
        let (ping, lsid) = (rawdoc! { "ping": 1 }, rawdoc! { "lsid": 5 });
        let mut command = Command::new("db", &ping);
        let fields = [Field::All(&lsid)];
        command.fields = &fields;
        command.max_time = Some(Duration::from_millis(7));

        let document = sent(&ping).document(&command, Some(&rawdoc! { "apiVersion": "1" }));

        assert_eq!(document, rawdoc! { "ping": 1, "$db": "db", "apiVersion": "1", "lsid": 5, "maxTimeMS": 7_i64 });
    }

    #[test]
    fn the_document_sequences_of_a_command_are_shown_as_arrays() {
        let (insert, mut bytes) = (rawdoc! { "insert": "c" }, Vec::new());
        let (limits, ids) = (Limits::DEFAULT, MessageIds::request(1));
        let mut writer = MessageWriter::begin(&mut bytes, ids, Flags::NONE, &insert, &[], &limits).unwrap();
        writer.sequence("documents", [&*rawdoc! { "_id": 1 }, &*rawdoc! { "_id": 2 }]).unwrap();
        writer.finish();
        let message = Message::decode(&bytes, &limits).unwrap();
        let sequences: Vec<_> = message.sequences().collect();
        let command = Command { sequences: &sequences, ..Command::new("db", &insert) };

        let document = sent(&insert).document(&command, None);

        assert_eq!(document, rawdoc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 2 }], "$db": "db" });
    }

    #[test]
    fn what_may_hold_a_secret_is_not_shown_log_15() {
        for body in [
            rawdoc! { "saslStart": 1, "payload": "x" },
            rawdoc! { "CREATEUSER": "u", "pwd": "x" },
            rawdoc! { "hello": 1, "speculativeAuthenticate": { "saslStart": 1 } },
            not_utf8(rawdoc! { "createUser": "~", "pwd": "x" }),
            not_utf8(rawdoc! { "hello": 1, "speculativeAuthenticate": "~" }),
        ] {
            assert_eq!(sent(&body).document(&Command::new("db", &body), None), rawdoc! {}, "{body:?}");
            assert_eq!(sent(&body).reply(&rawdoc! { "payload": "x" }), rawdoc! {});
        }
        let refusal = CommandReply::read(&rawdoc! { "ok": 0, "errmsg": "no x", "code": 51003 }).failure().unwrap();
        let create = rawdoc! { "createUser": "u", "pwd": "x" };
        let failure = sent(&create).failure(Cause::of(&refusal), Some(&refusal)).to_string();
        assert_eq!(failure, "the server refused it with code 51003; the rest may hold a secret");
        let hello = rawdoc! { "hello": 1 };
        assert_eq!(sent(&hello).reply(&rawdoc! { "ok": 1 }), rawdoc! { "ok": 1 });
    }
}
