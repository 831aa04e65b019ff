//! Waiting for the server to become usable (CSOT-4), for check-outs that came while it was unknown.
//!
//! Check-outs wait in the order of their arrival, each for at most serverSelectionTimeoutMS and until its own deadline.
//! As soon as a check finds the server usable, all of them go on in the pool, in that order. The server's last error is
//! the cause of those that fail.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::address::ServerAddress;
use crate::error_text::readable_debug;
use crate::pool::{Cause, CheckOutRequest};
use crate::time::Instant;

/// One check-out's wait for the server; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SelectionId(u64);

/// A check-out ended before it reached the pool: the server was not usable.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SelectionError {
    /// Why.
    pub kind: SelectionErrorKind,
    /// The server's address.
    pub address: Arc<ServerAddress>,
    /// The last error that spoke against the server.
    pub cause: Option<Cause>,
    /// How long the check-out waited.
    pub waited: Duration,
}

readable_debug!(SelectionError);

/// Why a check-out did not reach the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SelectionErrorKind {
    /// serverSelectionTimeoutMS, or the request's own deadline, was over.
    Timeout,
    /// The server and this client speak different versions of the protocol (SDAM-19); in words for the user.
    Incompatible(String),
    /// The client was closed.
    Closed,
    /// The process was forked: the callers that waited are in the parent.
    Forked,
}

/// The waiters.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Selections {
    last: u64,
    waiting: BTreeMap<SelectionId, Waiter>,
    deadlines: BTreeSet<(Instant, SelectionId)>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Waiter {
    pub(super) request: CheckOutRequest,
    pub(super) arrived_at: Instant,
    deadline: Instant,
}

impl Selections {
    /// Adds a waiter, until `deadline`.
    pub(super) fn add(&mut self, now: Instant, request: CheckOutRequest, deadline: Instant) -> SelectionId {
        self.last = self.last.wrapping_add(1);
        let id = SelectionId(self.last);
        self.waiting.insert(id, Waiter { request, arrived_at: now, deadline });
        self.deadlines.insert((deadline, id));
        id
    }

    /// Removes a waiter.
    pub(super) fn remove(&mut self, id: SelectionId) -> Option<Waiter> {
        let waiter = self.waiting.remove(&id)?;
        self.deadlines.remove(&(waiter.deadline, id));
        Some(waiter)
    }

    /// The longest waiter.
    pub(super) fn first(&self) -> Option<SelectionId> {
        self.waiting.keys().next().copied()
    }

    /// The waiter whose deadline comes first, and that deadline.
    pub(super) fn next_deadline(&self) -> Option<(Instant, SelectionId)> {
        self.deadlines.first().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl SelectionId {
    /// The number itself.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for SelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, address, cause, waited } = self;
        match kind {
            SelectionErrorKind::Timeout => {
                write!(f, "the server {address} did not become usable within {waited:?}")?;
                match cause {
                    Some(cause) => write!(f, "; it failed with: {cause}"),
                    None => {
                        f.write_str("; it has not answered yet: see whether the address is right and the server runs")
                    }
                }
            }
            SelectionErrorKind::Incompatible(text) => write!(f, "{address}: {text}"),
            SelectionErrorKind::Closed => f.write_str("the client was closed: make a new one"),
            SelectionErrorKind::Forked => f.write_str("the process was forked while this waited: ask again"),
        }
    }
}

impl core::error::Error for SelectionError {}
