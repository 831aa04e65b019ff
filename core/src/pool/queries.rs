//! What can be asked of a pool: its counts and times, what the connections are at, who holds them, who waits, and for
//! what.
//!
//! All of it is read from the state, so that none can be wrong by an event that was missed, and nothing has to be noted for it. Nothing
//! here changes the pool.

use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::connections::{Perished, Stage};
use super::list::Key;
use super::statistics::Totals;
use super::{
    Cancellation, Cause, CheckOutId, ConnectionId, ConnectionState, Counts, Generation, Handle, InUseBy, Pool,
    PoolState, Purpose, ServiceId, Stats,
};
use crate::address::ServerAddress;
use crate::connection::Phase;
use crate::options::PoolOptions;
use crate::time::Instant;

/// A connection that has not been closed: where its pool keeps it, and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// Its slot, from 0. A slot is used again when its connection is closed, so there are never many more slots than connections.
    pub slot: u32,
    /// The connection.
    pub connection: Handle,
    /// Its state; never closed.
    pub state: ConnectionState,
    /// The check-out that holds it, if it is in use.
    pub check_out: Option<CheckOutId>,
}

/// A connection in use, and the check-out that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InUse {
    /// The connection.
    pub connection: Handle,
    /// The check-out that it was delivered to.
    pub check_out: CheckOutId,
    /// When it was delivered.
    pub since: Instant,
    /// What it is for.
    pub purpose: Purpose,
    /// Whether it was interrupted: its holder knows, and has not given it back yet.
    pub is_interrupted: bool,
}

/// A check-out that waits in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Waiting {
    /// The check-out.
    pub check_out: CheckOutId,
    /// When the check-out began.
    pub since: Instant,
    /// When the check-out fails if it still waits.
    pub deadline: Option<Instant>,
    /// The connection that is being established because of it. It takes whatever comes first.
    pub establishing: Option<ConnectionId>,
}

/// A connection that is being established.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Establishing {
    /// The connection.
    pub connection: ConnectionId,
    /// For how long.
    pub elapsed: Duration,
    /// What its driver is at, if the driver says so: the pool does not know.
    pub phase: Option<Phase>,
}

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
    /// The address of the pool's server.
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    pub(crate) fn shared_address(&self) -> &Arc<ServerAddress> {
        &self.address
    }

    /// The options, as they were given.
    pub fn options(&self) -> &PoolOptions {
        &self.options
    }

    /// Paused, ready or closed.
    pub fn state(&self) -> PoolState {
        self.state
    }

    /// How often the pool was cleared. Load-balanced pools have a generation per service instead.
    pub fn generation(&self) -> Generation {
        self.generations.pool
    }

    /// How often a service's part of a load-balanced pool was cleared; `None` if it has no connections.
    pub fn generation_of(&self, service_id: ServiceId) -> Option<Generation> {
        self.generations.services.get(&service_id).map(|service| service.generation)
    }

    /// The service of a connection, in load-balanced mode and after its hello.
    pub fn service_of(&self, connection: Handle) -> Option<ServiceId> {
        self.connections.slot(self.own(connection)?).service
    }

    /// The check-out for which a connection is being established. `None` if it is established, or none has to wait for it: another
    /// connection served its check-out, or it is one of minPoolSize.
    pub fn origin_of(&self, connection: Handle) -> Option<CheckOutId> {
        let origin = self.connections.slot(self.own(connection)?).stage.origin()?;
        Some(self.wait_queue.id(origin))
    }

    /// Whether a clear has made the connection stale (SDAM-4). A closed connection counts as stale.
    pub fn is_stale(&self, connection: Handle) -> bool {
        self.own(connection).is_none_or(|key| self.is_stale_at(key))
    }

    /// The handle of the connection with this number, if it has not been closed. Searches all connections.
    pub fn find(&self, connection_id: u64) -> Option<Handle> {
        self.connections.search(ConnectionId(connection_id)).map(|key| self.handle(key))
    }

    /// Lends the socket of a connection that is available or being checked.
    pub fn socket(&mut self, connection: Handle) -> Option<&mut C> {
        let key = self.own(connection)?;
        let (Stage::Available { socket, .. } | Stage::Checking { socket }) = &mut self.connections.slot_mut(key).stage
        else {
            return None;
        };
        Some(socket)
    }

    /// The current counts.
    pub fn counts(&self) -> Counts {
        Counts {
            pending: self.connections.pending,
            available: self.connections.available.len() + self.connections.checking + self.connections.refreshing,
            in_use: self.connections.in_use,
            waiting: self.waiting(),
        }
    }

    /// When time alone changes something for the check-outs that wait: the first of them times out, or a pause after an
    /// overload, or one for the limit of new connections, ends and a connection is created. Also, with a host timeout,
    /// what a use of the host brings about. `None` if none of this comes.
    #[inline]
    pub fn next_check_out_timeout(&self) -> Option<Instant> {
        if !self.is_restrained() && !self.has_host_timeout() && self.affinity.is_none() {
            return self.wait_queue.next_deadline();
        }
        self.next_timeout_of_waiters()
    }

    #[inline(never)]
    fn next_timeout_of_waiters(&self) -> Option<Instant> {
        let first = self.wait_queue.next_deadline();
        let look = self.host_timeout();
        // A check-out that uses the host again brings back its minimum pool size, too.
        let minimum = look.and_then(|_| self.maintenance_timeout());
        let others = [self.creation_timeout(), look, minimum, self.hold_timeout()].into_iter().flatten();
        first.into_iter().chain(others.map(|timeout| timeout.at)).min()
    }

    /// How long a connection that becomes available at `now` may stay so (maxIdleTimeMS, CMAP-3), or until when something
    /// happens to it or for it; `None` means forever.
    #[inline]
    pub fn idle_until(&self, now: Instant) -> Option<Instant> {
        let max_idle = self.limits.max_idle;
        let idle = (max_idle != u64::MAX).then(|| now.after(max_idle));
        if !self.attention.idle {
            return idle;
        }
        let hold = self.limits.hold_time().map(|time| now.after(time));
        let idle = idle.into_iter().chain(hold).min();
        if self.retirement.is_none() && self.refresh.is_none() {
            return idle;
        }
        // It may wait for its replacement.
        idle.into_iter().chain(self.poll_timeout().map(|timeout| timeout.at)).min()
    }

    /// Connections in use by their purpose (LB-16).
    pub fn in_use_by(&self) -> InUseBy {
        let (cursors, transactions) = (self.connections.kept_by_cursors, self.connections.kept_by_transactions);
        InUseBy { cursors, transactions, others: self.connections.in_use.saturating_sub(cursors + transactions) }
    }

    /// Counts, totals and high-water marks.
    pub fn stats(&self) -> Stats {
        let counts = self.counts();
        let Totals { high_water, high_water_total, established, closed, check_outs_failed, cancelled, cleared } =
            self.totals;
        let check_outs_started = self.wait_queue.last_sequence;
        let ended = check_outs_started.saturating_sub(counts.waiting.into());
        let checked_out = ended.saturating_sub(check_outs_failed.total());
        Stats {
            counts,
            high_water,
            high_water_total,
            created: self.connections.last_id,
            established,
            closed,
            check_outs_started,
            checked_out,
            check_outs_failed,
            cancelled,
            checked_in: checked_out.saturating_sub(counts.in_use.into()),
            cleared,
        }
    }

    /// All connections, in the order of their slots.
    pub fn connections(&self) -> impl Iterator<Item = Kept> {
        (0..).zip(&self.connections.slots).filter_map(|(key, slot)| {
            let state = slot.stage.state();
            let check_out = slot.stage.user().map(|check_out| self.wait_queue.id(check_out));
            let kept = || Kept { slot: key, connection: self.handle(key), state, check_out };
            (state != ConnectionState::Closed).then(kept)
        })
    }

    /// Since when the pool is paused, and why; `None` if it is ready or closed.
    pub fn pause(&self) -> Option<(Instant, &Cause)> {
        (self.state == PoolState::Paused).then_some((self.paused_since, &self.paused_by))
    }

    /// The connections in use, in no particular order.
    pub fn connections_in_use(&self) -> impl Iterator<Item = InUse> {
        (0..).zip(&self.connections.slots).filter_map(|(key, _)| self.in_use_at(key))
    }

    /// The use of a connection; `None` if it is not in use.
    pub fn use_of(&self, connection: Handle) -> Option<InUse> {
        self.in_use_at(self.own(connection)?)
    }

    fn in_use_at(&self, key: Key) -> Option<InUse> {
        let Stage::InUse { check_out, perished, purpose } = self.connections.slot(key).stage else { return None };
        Some(InUse {
            connection: self.handle(key),
            check_out: self.wait_queue.id(check_out),
            since: self.wait_queue.started_at(check_out),
            purpose,
            is_interrupted: perished == Some(Perished::Interrupted),
        })
    }

    /// The check-outs that wait: those in the queue in the order in which they are served, then those that wait for the
    /// connection of their key alone.
    pub fn waiting_check_outs(&self) -> impl Iterator<Item = Waiting> {
        self.wait_queue.waiters().chain(self.sticky_waiters()).map(|key| Waiting {
            check_out: self.wait_queue.id(key),
            since: self.wait_queue.started_at(key),
            deadline: self.wait_queue.due_at(key),
            establishing: self.wait_queue.pending(key).map(|pending| self.connections.slot(pending).id),
        })
    }

    /// The connections that are being established, in no particular order.
    pub fn establishing(&self) -> impl Iterator<Item = Establishing> {
        (0..).zip(&self.connections.slots).filter_map(|(key, _)| self.establishing_at(key))
    }

    pub(super) fn establishing_at(&self, key: Key) -> Option<Establishing> {
        let slot = self.connections.slot(key);
        let Stage::Pending { created_at, .. } = slot.stage else { return None };
        Some(Establishing { connection: slot.id, elapsed: self.now.saturating_since(created_at), phase: None })
    }

    /// What a check-out lacks; `None` if it does not wait here.
    pub(crate) fn bound_of(&self, check_out: CheckOutId) -> Option<WaitBound> {
        let waits = self.wait_queue.progress(check_out) == Cancellation::Cancelled;
        waits.then(|| self.wait_bound_of(check_out.key, self.wait_bound()))
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
            let held = self.in_use_at(awaited);
            let in_use_for = held.map_or(Duration::ZERO, |held| self.now.saturating_since(held.since));
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
