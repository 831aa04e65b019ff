//! The span of a command.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use cmap_core::address::ServerAddress;
use cmap_core::connection::Command;
use cmap_core::log::extended_json;
use cmap_core::server::{SentCommand, is_sensitive};
use cmap_core::wire::integer;
use tracing::field::Empty;
use tracing::{Span, info_span};

use super::failure::{GIVEN_UP, record_error, record_failed};
use super::options::Spans;
use super::target::Target;
use crate::error::CommandErrorKind;

/// What a client sends by itself, when nobody waits any more.
const SENT_UNASKED: [&str; 2] = ["killCursors", "endSessions"];

/// Not shown in the text of a command (OTEL-8).
const NOT_SHOWN: [&str; 4] = ["lsid", "$db", "$clusterTime", "signature"];

/// The span of a command that was sent.
pub(crate) struct CommandSpan(Span);

impl Spans {
    /// The span of a command that is about to be sent to the server at `address`. None if the command may hold a secret (OTEL-5).
    /// `declaration` are the fields of the server's API.
    pub(crate) fn command(
        &self,
        address: &ServerAddress,
        sent: &SentCommand,
        command: &Command<'_>,
        declaration: Option<&RawDocument>,
    ) -> Option<CommandSpan> {
        if is_sensitive(command.body) || SENT_UNASKED.contains(&sent.name.as_str()) {
            return None;
        }
        let target = Target::of(command.body, command.database);
        let (host, port, transport) = match address {
            // `tracing-opentelemetry` makes text of numbers without a sign.
            ServerAddress::Tcp { host, port } => (host, Some(i64::from(*port)), "tcp"),
            ServerAddress::Unix { path } => (path, None, "unix"),
        };
        let span = info_span!(
            target: "cmap::command",
            "command",
            otel.name = sent.name,
            otel.kind = "client",
            otel.status_code = Empty,
            otel.status_description = Empty,
            db.system.name = "mongodb",
            db.namespace = target.database,
            db.collection.name = target.collection,
            db.command.name = sent.name,
            db.query.summary = target.summary(target.command),
            db.query.text = Empty,
            db.response.status_code = Empty,
            db.mongodb.server_connection_id = sent.server_connection_id,
            db.mongodb.driver_connection_id = i64::try_from(sent.connection_id.get()).unwrap_or(i64::MAX),
            db.mongodb.lsid = Empty,
            db.mongodb.txn_number = Empty,
            db.mongodb.cursor_id = Empty,
            server.address = host.as_str(),
            server.port = port,
            network.transport = transport,
            exception.message = Empty,
            "exception.type" = Empty,
            exception.stacktrace = Empty,
        );
        if !span.is_disabled() {
            let along = along(command);
            let along = |field| along.get(field).ok().flatten().or_else(|| command.body.get(field).ok().flatten());
            span.record("db.mongodb.lsid", along("lsid").and_then(RawBsonRef::as_document).map(extended_json));
            span.record("db.mongodb.txn_number", along("txnNumber").and_then(integer));
            span.record("db.query.text", self.query_text(sent, command, declaration));
        }
        Some(CommandSpan(span))
    }

    /// The command as its event shows it, without what is the same for many (OTEL-8).
    fn query_text(
        &self,
        sent: &SentCommand,
        command: &Command<'_>,
        declaration: Option<&RawDocument>,
    ) -> Option<String> {
        let most = self.query_text?;
        let document = sent.document(command, declaration);
        let mut shown = RawDocumentBuf::new();
        for field in &document {
            // It was put together just now, and can be read.
            let Ok((name, value)) = field else { break };
            if !NOT_SHOWN.contains(&name.as_str()) {
                shown.append(name, value);
            }
        }
        Some(most.extended_json(&shown))
    }
}

impl CommandSpan {
    /// The server has carried it out.
    pub(crate) fn record_reply(&self, reply: &RawDocument) {
        let id = reply.get_document("cursor").and_then(|cursor| cursor.get_i64("id"));
        // 0 is none.
        if let Some(id) = id.ok().filter(|id| *id != 0) {
            self.0.record("db.mongodb.cursor_id", id);
        }
    }

    /// The server refused it, or there was no usable reply.
    pub(crate) fn record_failure(&self, error: &CommandErrorKind) {
        if let CommandErrorKind::Server(refusal) = error
            && let Some(code) = refusal.code
        {
            self.0.record("db.response.status_code", code.to_string());
        }
        record_error(&self.0, "cmap_runtime::CommandErrorKind", error);
    }

    /// Nobody waits for its reply any more.
    pub(crate) fn record_given_up(&self) {
        record_failed(&self.0, GIVEN_UP);
    }
}

/// The fields that go along with a command.
fn along(command: &Command<'_>) -> RawDocumentBuf {
    let mut along = RawDocumentBuf::new();
    command.fields.iter().for_each(|field| field.append_to(&mut along));
    along
}
