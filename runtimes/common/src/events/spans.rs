//! Spans of the crate `tracing` (feature `tracing`), for a program's own traces: where a request's time went.
//!
//! A command with events has a span from its sending to its reply, and a check-out that waits and is watched has one for its
//! wait: both are children of the span of their caller. Their fields have the names of the log records (LOG-6), and `failure` says
//! why it failed.

use cmap_core::address::ServerAddress;
use cmap_core::server::SentCommand;
use tracing::Span;
use tracing::field::Empty;

use crate::watch::Place;

/// The target of command spans, and of the log records of commands.
const TARGET: &str = "cmap::command";

/// The target of the spans of check-outs, and of the log records of connections.
const CHECK_OUT_TARGET: &str = "cmap::connection";

/// The span of a check-out that begins to wait.
pub(crate) fn of_check_out(label: Option<&str>, place: Option<Place>) -> Span {
    tracing::debug_span!(
        target: CHECK_OUT_TARGET,
        "check_out",
        label,
        place = place.map(display),
        driverConnectionId = Empty,
        failure = Empty,
    )
}

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
