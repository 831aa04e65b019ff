//! What the connections are at, who holds them, and who waits: read from the state, so that none of it can be
//! wrong by an event that was missed, and nothing has to be noted for it.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::connections::{Perished, Stage};
use super::list::Key;
use super::{Cause, CheckOutId, ConnectionId, ConnectionState, Handle, Pool, PoolState, Purpose};
use crate::connection::Phase;
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

impl<C> Pool<C> {
    /// All connections, in the order of their slots.
    pub fn connections(&self) -> impl Iterator<Item = Kept> {
        (0..).zip(&self.connections.slots).filter_map(|(key, slot)| {
            let state = slot.stage.state();
            let check_out = match slot.stage {
                Stage::InUse { check_out, .. } => Some(self.wait_queue.id(check_out)),
                Stage::Closed
                | Stage::Pending { .. }
                | Stage::Available { .. }
                | Stage::Checking { .. }
                | Stage::Refreshing { .. } => None,
            };
            let kept = || Kept { slot: key, connection: self.handle(key), state, check_out };
            (state != ConnectionState::Closed).then(kept)
        })
    }

    /// Since when the pool is paused, and why; `None` if it is ready or closed.
    pub fn pause(&self) -> Option<(Instant, &Cause)> {
        (self.state() == PoolState::Paused).then(|| self.paused_by())
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
            since: self.wait_queue.in_use_since(check_out),
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
            deadline: self.wait_queue.own_deadline(key),
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
}
