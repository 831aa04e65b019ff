//! What happened to a client and its deployment: the few events that make check-outs wait, apart from check-outs themselves.
//!
//! They are found by comparing what is known before and after each call that may change it.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::follow::address;
use crate::monitor::ServerDescription;
use crate::pool::Handle;
use crate::time::Instant;
use crate::topology::{Input, Topology};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Occurrence {
    /// The number of the call that told of it, from 1.
    pub call: u64,
    /// When.
    pub at: Instant,
    /// What.
    pub what: Happening,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Happening {
    /// The error of one connection, in use or being established.
    ConnectionFailed {
        /// The connection.
        connection: u64,
        /// Its server.
        server: String,
        /// The error.
        error: String,
        /// Whether it cleared the pool, and so cost all other connections.
        clears: bool,
    },
    /// What is known of a server has changed.
    ServerChanged {
        /// The server.
        server: String,
        /// Its type before.
        from: String,
        /// Its type from then on.
        to: String,
        /// The error that led to it.
        error: Option<String>,
    },
    /// A server belongs to the deployment from then on.
    ServerFound(String),
    /// A server belongs to it no more.
    ServerLost(String),
    /// The DNS seed list could not be read.
    SeedListUnknown(String),
    /// The application asked for something that concerns many connections.
    Asked(Demand),
}

/// What an application asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Demand {
    /// A clear of the pool.
    Clear,
    /// Other limits.
    Resize,
    /// That all connections retire.
    ReplaceConnections,
    /// That connections are checked after a suspension.
    Resume,
    /// A new credential, which retires the connections of the one before.
    NewCredential,
    /// A new beginning in a forked process.
    ResetAfterFork,
    /// The end of the client.
    Close,
}

/// Watches a topology for occurrences.
#[derive(Clone, Debug)]
pub(super) struct Occurrences {
    /// The last ones, at most [`most`](Self::most).
    found: Vec<Occurrence>,
    most: usize,
    servers: Vec<Arc<ServerDescription>>,
    cleared: u64,
}

/// Most occurrences that a wait names from before it began.
const BEFORE: usize = 3;

/// Most that it names in all.
const NAMED: usize = 16;

/// How long before a wait something may have happened that it names.
const RECENT: core::time::Duration = core::time::Duration::from_secs(10);

impl Occurrences {
    /// Begins with the present state, and keeps the last `most`.
    pub(super) fn new<C>(machine: &Topology<C>, most: usize) -> Self {
        let servers = machine.description().servers.clone();
        Self { found: Vec::new(), most, servers, cleared: machine.stats().cleared }
    }

    /// Looks what a call has changed: its number, its time, and what was called.
    pub(super) fn observe<C>(&mut self, call: u64, at: Instant, input: &Input, machine: &Topology<C>) {
        if is_frequent(input) {
            return;
        }
        if self.found.len() >= self.most {
            self.found.drain(..self.most / 2);
        }
        let cleared = machine.stats().cleared;
        let clears = cleared > core::mem::replace(&mut self.cleared, cleared);
        let failed = |connection: &Handle, error: String| Happening::ConnectionFailed {
            connection: connection.id().get(),
            server: machine.server_of(*connection).map_or_else(String::new, |id| address(machine, id)),
            error,
            clears,
        };
        let told = if let Input::EstablishFailed(connection, error) = input {
            Some(failed(connection, error.to_string()))
        } else if let Input::RefreshFailed(connection, error) | Input::OperationFailed(connection, error) = input {
            // One that clears nothing concerns its own user, or follows from one that did.
            clears.then(|| failed(connection, error.cause.to_string()))
        } else if let Input::Srv(Err(cause)) = input {
            Some(Happening::SeedListUnknown(cause.to_string()))
        } else {
            demand(input).map(Happening::Asked)
        };
        self.found.extend(told.map(|what| Occurrence { call, at, what }));
        self.compare(call, at, &machine.description().servers);
    }

    /// Those that a wait names.
    pub(super) fn around(&self, from: Instant, to: Instant) -> Vec<Occurrence> {
        around(&self.found, from, to)
    }

    /// All that are kept, in their order.
    pub(super) fn all(&self) -> &[Occurrence] {
        &self.found
    }

    fn compare(&mut self, call: u64, at: Instant, servers: &[Arc<ServerDescription>]) {
        let before = core::mem::replace(&mut self.servers, servers.to_vec());
        let mut tell = |what| self.found.push(Occurrence { call, at, what });
        for now in servers {
            match before.iter().find(|before| before.address == now.address) {
                Some(before) if before.server_type != now.server_type => tell(Happening::ServerChanged {
                    server: now.address.to_string(),
                    from: alloc::format!("{:?}", before.server_type),
                    to: alloc::format!("{:?}", now.server_type),
                    error: now.error.as_ref().map(ToString::to_string),
                }),
                Some(_) => {}
                None => tell(Happening::ServerFound(now.address.to_string())),
            }
        }
        for before in before {
            if !servers.iter().any(|now| now.address == before.address) {
                tell(Happening::ServerLost(before.address.to_string()));
            }
        }
    }
}

/// Those, of some in their order, that a wait from `from` to `to` names.
pub(super) fn around(found: &[Occurrence], from: Instant, to: Instant) -> Vec<Occurrence> {
    let first = found.partition_point(|found| found.at < from);
    let recent = |found: &&Occurrence| from.saturating_since(found.at) <= RECENT;
    let before = found.get(first.saturating_sub(BEFORE)..first).unwrap_or_default().iter().filter(recent);
    let during = found.get(first..).unwrap_or_default().iter().take_while(|found| found.at <= to);
    before.chain(during).take(NAMED).cloned().collect()
}

/// Whether a call is of those that change nothing which occurrences tell of.
fn is_frequent(input: &Input) -> bool {
    matches!(
        input,
        Input::CheckOut(..)
            | Input::CheckIn(..)
            | Input::CancelCheckOut(_)
            | Input::SetPurpose(..)
            | Input::Established(_)
            | Input::Checked(..)
            | Input::Phases(_)
            | Input::Observe(_)
            | Input::ObserveSelections(_)
    )
}

fn demand(input: &Input) -> Option<Demand> {
    Some(match input {
        Input::Clear(_) => Demand::Clear,
        Input::Resize(_) => Demand::Resize,
        Input::ReplaceConnections(_) => Demand::ReplaceConnections,
        Input::Resume => Demand::Resume,
        Input::RenewCredential(_) => Demand::NewCredential,
        Input::ResetAfterFork => Demand::ResetAfterFork,
        Input::Close => Demand::Close,
        // All others.
        Input::Timeout | _ => return None,
    })
}

impl core::fmt::Display for Happening {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::ConnectionFailed { connection, server, error, clears } => {
                let consequence = if *clears { ", which cleared its pool" } else { "" };
                write!(f, "connection {connection} to {server} failed{consequence}: {error}")
            }
            Self::ServerChanged { server, from, to, error: Some(error) } => {
                write!(f, "{server} was {from} and is {to}: {error}")
            }
            Self::ServerChanged { server, from, to, error: None } => write!(f, "{server} was {from} and is {to}"),
            Self::ServerFound(server) => write!(f, "{server} was found"),
            Self::ServerLost(server) => write!(f, "{server} belongs to the deployment no more"),
            Self::SeedListUnknown(error) => write!(f, "the DNS seed list could not be read: {error}"),
            Self::Asked(demand) => f.write_str(match demand {
                Demand::Clear => "the application cleared the pool",
                Demand::Resize => "the application changed the limits",
                Demand::ReplaceConnections => "the application retired all connections",
                Demand::Resume => "connections are checked after a suspension",
                Demand::NewCredential => "a new credential retires the connections of the one before",
                Demand::ResetAfterFork => "the client begins anew in a forked process",
                Demand::Close => "the client was closed",
            }),
        }
    }
}
