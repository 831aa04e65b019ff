//! Spans of the crate `tracing` (feature `tracing`), for a program's own traces: where a request's time went.
//!
//! A command that is told of has a span from its sending to its reply, a child of the span in which it was run. Its fields have the
//! names of the log records (LOG-6), and `failure` says why it failed.

use cmap_core::address::ServerAddress;
use cmap_core::server::SentCommand;
use tracing::Span;
use tracing::field::Empty;

/// The target of command spans, and of the log records of commands.
const TARGET: &str = "cmap::command";

/// The span of a command that is about to be sent.
pub(crate) fn of_command(address: &ServerAddress, sent: &SentCommand) -> Span {
    let SentCommand { name, database, operation_id, connection_id, .. } = sent;
    let (host, port) = match address {
        ServerAddress::Tcp { host, port } => (host, Some(*port)),
        ServerAddress::Unix { path } => (path, None),
    };
    let span = tracing::debug_span!(
        target: TARGET,
        "command",
        commandName = name.as_str(),
        databaseName = database.as_str(),
        serverHost = host.as_str(),
        serverPort = port,
        driverConnectionId = connection_id.get(),
        operationId = Empty,
        failure = Empty,
    );
    if let Some(operation) = operation_id {
        span.record("operationId", operation);
    }
    span
}
