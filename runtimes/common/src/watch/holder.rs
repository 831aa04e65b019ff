//! Those who hold connections, and those who wait for one, as users see them.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::pool::{ConnectionId, Establishing, Purpose};
use serde::Serialize;

/// A connection in use, and who holds it.
///
/// Label, place and command are known where [`Builder::watch_holders`](crate::Builder::watch_holders) is on; all the rest always.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Holder {
    /// The server.
    pub address: Arc<ServerAddress>,
    /// The connection's number in events and log messages.
    pub connection_id: ConnectionId,
    /// The connection's number at the server, in its log and in `currentOp`: with it an operation can be killed there.
    pub server_connection_id: Option<i64>,
    /// Time since its delivery.
    pub held_for: Duration,
    /// What it is for.
    pub purpose: Purpose,
    /// The check-out's [label](crate::CheckOut::label).
    pub label: Option<Arc<str>>,
    /// Where in the source it was checked out. Operations have none: [`Client::run`](crate::Client::run) checks out for them.
    pub place: Option<Place>,
    /// The last command on it, since it was checked out; none if there was none.
    pub command: Option<CommandInUse>,
}

/// The last command of a holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CommandInUse {
    /// Its name.
    pub name: Arc<str>,
    /// Time since it was sent.
    pub began: Duration,
    /// Time since its end; `None` while it runs. One that its caller gave up half-way has no end.
    pub ended: Option<Duration>,
}

/// A check-out that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WaitingCheckOut {
    /// Time since it began to wait there.
    pub waited: Duration,
    /// What it waits for.
    pub waits_for: WaitsFor,
    /// The check-out's [label](crate::CheckOut::label), where holders are watched.
    pub label: Option<Arc<str>>,
    /// Where in the source it began, where holders are watched.
    pub place: Option<Place>,
}

/// What a check-out waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum WaitsFor {
    /// A server that suits.
    Server,
    /// A connection to this server.
    Connection {
        /// The server.
        address: Arc<ServerAddress>,
        /// The connection that is being established because of this check-out. It takes whatever comes first.
        establishing: Option<Establishing>,
    },
}

/// A place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Place {
    /// The file.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl From<&'static Location<'static>> for Place {
    fn from(location: &'static Location<'static>) -> Self {
        Self { file: location.file(), line: location.line(), column: location.column() }
    }
}

/// Who: a label, a place, both, or what to say where neither is known.
pub(crate) struct Who<'a> {
    pub(crate) label: Option<&'a str>,
    pub(crate) place: Option<Place>,
}

impl fmt::Display for Who<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.label, self.place) {
            (Some(label), Some(place)) => write!(f, "\"{label}\" at {place}"),
            (Some(label), None) => write!(f, "\"{label}\""),
            (None, Some(place)) => place.fmt(f),
            (None, None) => f.write_str("somebody without a label"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} connection {}", self.address, self.connection_id)?;
        if let Some(id) = self.server_connection_id {
            write!(f, " (at the server {id})")?;
        }
        write!(f, " for {:.3?} by {}", self.held_for, Who { label: self.label.as_deref(), place: self.place })?;
        match self.purpose {
            Purpose::Other => {}
            Purpose::Cursor => f.write_str(", for a cursor")?,
            Purpose::Transaction => f.write_str(", for a transaction")?,
        }
        match &self.command {
            Some(command) => write!(f, ", {command}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for CommandInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ended {
            None => write!(f, "{} runs for {:.3?}", self.name, self.began),
            Some(ended) => write!(f, "idle for {ended:.3?} after {}", self.name),
        }
    }
}

impl fmt::Display for WaitingCheckOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = Who { label: self.label.as_deref(), place: self.place };
        write!(f, "{who} for {:.3?}, for {}", self.waited, self.waits_for)
    }
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str("a server"),
            Self::Connection { address, establishing: None } => write!(f, "a connection to {address}"),
            Self::Connection { address, establishing: Some(own) } => write!(f, "a connection to {address}: {own}"),
        }
    }
}
