//! Why a check-out ran out of time: the limit that kept it waiting, from the state alone.

use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::holders::Establishing;
use super::list::Key;
use super::{Cancellation, Cause, CheckOutId, Pool};
use crate::time::Instant;

/// What a check-out lacked when its time was up: the one limit that kept it waiting at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitBound {
    /// Time: it had none left when it began.
    NoTime,
    /// A permit of maxPoolSize: there are as many connections as it allows, those in use for so long at most.
    MaxPoolSize {
        /// The longest present use; zero if none is in use.
        longest_use: Duration,
    },
    /// The end of an establishment: its own connection is under way.
    Establishment(Establishing),
    /// A permit of maxConnecting: as many connections as it allows are being established.
    MaxConnecting {
        /// How many.
        establishing: u32,
        /// The one that takes longest.
        longest: Establishing,
    },
    /// The end of a pause after the refusal of an overloaded server.
    Backoff,
    /// A token of maxNewConnectionsPerSecond.
    CreationRate,
    /// A permit of a limit that pools share: that of a client, or that of a server's users.
    MaxConnections,
    /// Its turn: connections are there or may be created, and others are before it, or its driver came late.
    Turn,
    /// The connection of its key.
    Affinity {
        /// How long that has been in use; zero if it is being checked.
        in_use_for: Duration,
    },
}

/// Connections in use of one kind, as an adapter knows them that watches their holders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBy {
    /// Who holds them: a label, a place in the source, or both.
    pub holder: Arc<str>,
    /// How many.
    pub connections: u32,
    /// The longest present use.
    pub longest: Duration,
}

/// Most holders that a text names.
const NAMED: usize = 3;

impl<C> Pool<C> {
    /// Fails the check-outs whose time is up.
    #[cold]
    pub(super) fn fail_overdue(&mut self) {
        let bound = self.wait_bound();
        while let Some((key, limit)) = self.wait_queue.overdue(self.now) {
            self.fail_at_its_time(key, limit, self.wait_bound_of(key, bound));
        }
    }

    /// What a check-out lacks; `None` if it does not wait here.
    pub(crate) fn bound_of(&self, check_out: CheckOutId) -> Option<WaitBound> {
        let waits = self.wait_queue.progress(check_out) == Cancellation::Cancelled;
        waits.then(|| self.wait_bound_of(check_out.key, self.wait_bound()))
    }

    /// Since when the pool is paused, and why.
    pub(crate) fn paused_by(&self) -> (Instant, &Cause) {
        (self.paused_since, &self.paused_by)
    }

    /// What a check-out lacks that waits and has no pending connection of its own. Looks at every connection.
    #[cold]
    pub(super) fn wait_bound(&self) -> WaitBound {
        let total = self.connections.total();
        if total >= self.limits.max_pool_size && total > self.connections.pending {
            let uses = self.connections_in_use().map(|held| self.now.saturating_since(held.since));
            return WaitBound::MaxPoolSize { longest_use: uses.max().unwrap_or_default() };
        }
        let pending = self.connections.pending;
        if (pending >= self.limits.max_connecting || total >= self.limits.max_pool_size)
            && let Some(longest) = self.establishing().max_by_key(|pending| pending.elapsed)
        {
            return WaitBound::MaxConnecting { establishing: pending, longest };
        }
        if self.backoff_allows_at().is_none_or(|at| at > self.now) {
            WaitBound::Backoff
        } else if self.rate_allows_at() > self.now {
            WaitBound::CreationRate
        } else if !self.has_permit() {
            WaitBound::MaxConnections
        } else {
            WaitBound::Turn
        }
    }

    /// What keeps a check-out waiting, where `others` is what those lack that have no pending connection.
    pub(super) fn wait_bound_of(&self, check_out: Key, others: WaitBound) -> WaitBound {
        if let Some(awaited) = self.wait_queue.awaited(check_out) {
            let awaited = self.handle(awaited);
            let since = self.connections_in_use().find(|held| held.connection == awaited).map(|held| held.since);
            let in_use_for = since.map_or(Duration::ZERO, |since| self.now.saturating_since(since));
            return WaitBound::Affinity { in_use_for };
        }
        let own = self.wait_queue.pending(check_out).and_then(|pending| self.establishing_at(pending));
        own.map_or(others, WaitBound::Establishment)
    }
}

impl WaitBound {
    /// What bound, with those who hold the connections, the longest use first.
    pub(super) fn write(self, f: &mut fmt::Formatter<'_>, held_by: &[HeldBy]) -> fmt::Result {
        match self {
            Self::NoTime | Self::Turn => Ok(()),
            Self::MaxPoolSize { longest_use } => {
                write!(f, "; maxPoolSize bound: the longest use has lasted for {longest_use:?}")?;
                write_holders(f, held_by)
            }
            Self::Establishment(own) => write!(f, "; waited for {own}"),
            Self::MaxConnecting { establishing, longest } => {
                write!(f, "; maxConnecting bound: {establishing} under way, the longest of them {longest}")
            }
            Self::Backoff => f.write_str("; the pause after the refusal of an overloaded server bound"),
            Self::CreationRate => f.write_str("; maxNewConnectionsPerSecond bound"),
            Self::MaxConnections => f.write_str("; the limit of connections that pools share bound"),
            Self::Affinity { in_use_for: Duration::ZERO } => {
                f.write_str("; affinity bound: the connection of its key was being checked")
            }
            Self::Affinity { in_use_for } => {
                write!(f, "; affinity bound: the connection of its key has been in use for {in_use_for:?}")
            }
        }
    }

    /// What to do about it, where the limit itself is the answer.
    pub(super) fn advice(self) -> Option<&'static str> {
        match self {
            Self::Affinity { .. } => Some(
                "check in the connection of a key before its next check-out, allow more time, or take any connection by \
                 Affinity::Prefer",
            ),
            Self::CreationRate => {
                Some("raise maxNewConnectionsPerSecond, keep connections ready by minPoolSize, or allow more time")
            }
            Self::MaxConnections => Some(
                "raise the limit that pools share (max_connections, or maxPoolSize for the users of a server), or look for \
                 connections that are kept too long",
            ),
            Self::NoTime
            | Self::MaxPoolSize { .. }
            | Self::Establishment(_)
            | Self::MaxConnecting { .. }
            | Self::Backoff
            | Self::Turn => None,
        }
    }
}

fn write_holders(f: &mut fmt::Formatter<'_>, held_by: &[HeldBy]) -> fmt::Result {
    for (number, HeldBy { holder, connections, longest }) in held_by.iter().take(NAMED).enumerate() {
        let lead = if number == 0 { "; held by" } else { "," };
        write!(f, "{lead} {holder} ({connections}, up to {longest:?})")?;
    }
    match held_by.len().saturating_sub(NAMED) {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}

impl fmt::Display for Establishing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}, under way for {:?}", self.connection, self.elapsed)?;
        match self.phase {
            Some(phase) => write!(f, " ({phase})"),
            None => Ok(()),
        }
    }
}
