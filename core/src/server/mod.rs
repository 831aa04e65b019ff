//! One server of a topology: its pool, its description, and what errors say about it.
//!
//! An error of a connection may mean that the server is gone, or only that this connection is. [`reaction`] decides
//! which by the rules of SDAM. The [`Topology`](crate::topology::Topology) that a server belongs to makes all calls: what
//! happens to one server may concern the others. A [`Server`] is there to be read.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the server, its name and its events, and how often an outdated answer is ignored |
//! | `reaction`, `operation_error` | what an error says about the server |
//! | `command_event` | the events of commands |
//! | `command_defaults` | the concerns and the read preference of a client's options |

pub mod reaction;

#[cfg(feature = "wire")]
mod command_defaults;
#[cfg(feature = "wire")]
mod command_event;
mod operation_error;

use alloc::sync::Arc;
use core::fmt;

use serde::{Deserialize, Serialize};

#[cfg(feature = "wire")]
pub use self::command_defaults::{
    CommandDefaults, is_acknowledged, sent_read_preference, wants_no_reply, write_concern, write_concern_document,
};
#[cfg(feature = "wire")]
pub use self::command_event::{CommandEvent, SentCommand, is_sensitive};
pub use self::operation_error::{OperationError, StateChange};
pub use crate::monitor::{HeartbeatEvent, MonitorConnection, ServerDescription, ServerType};
use crate::pool::{IdentityId, Pool, PoolOwner};
pub use crate::topology_version::TopologyVersion;
pub use crate::wire_version::{MAX_WIRE_VERSION, MIN_WIRE_VERSION};

/// A server of a topology; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerId {
    number: u32,
    slot: u32,
}

impl ServerId {
    /// The `number`-th server of a topology, from 1, which is kept in `slot`. Slots are used again; numbers are not.
    pub(crate) fn new(number: u32, slot: u32) -> Self {
        Self { number, slot }
    }

    /// The number of servers that its topology had had with this one: from 1.
    pub fn number(self) -> u32 {
        self.number
    }

    /// The place in which it is kept.
    #[inline]
    pub(crate) fn slot(self) -> u32 {
        self.slot
    }

    /// The server's number and slot, as its pool keeps them.
    pub(crate) fn pool_owner(self) -> PoolOwner {
        PoolOwner { number: self.number, slot: self.slot }
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

/// One server as the client knows it: its pool and its description.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "C: Serialize", deserialize = "C: Deserialize<'de>"))]
pub struct Server<C> {
    pub(crate) pool: Pool<C>,
    pub(crate) description: Arc<ServerDescription>,
    pub(crate) disbelief: Disbelief,
    pub(crate) membership: Membership,
    /// Where this is but the pool of an identity at a server.
    pub(crate) of_identity: Option<IdentityOfServer>,
}

/// The identity that a pool is for, and the server that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IdentityOfServer {
    pub(crate) server: ServerId,
    pub(crate) identity: IdentityId,
}

/// Where a server stands in its topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Membership {
    /// It belongs to the topology, and has not needed its pool yet. The pool is not told of.
    Unused,
    /// It belongs to the topology, and its pool has an event.
    Used,
    /// It has left, or the client was closed. It is kept until its last connection came back.
    Left,
}

impl<C> Server<C> {
    /// A server of which nothing is known.
    pub(crate) fn new(pool: Pool<C>, membership: Membership) -> Self {
        let address = Arc::clone(pool.shared_address());
        let description = Arc::new(ServerDescription::new(address, ServerType::Unknown));
        Self { pool, description, disbelief: Disbelief::default(), membership, of_identity: None }
    }

    /// The pool, to read.
    pub fn pool(&self) -> &Pool<C> {
        &self.pool
    }

    /// The description of the server.
    pub fn description(&self) -> &Arc<ServerDescription> {
        &self.description
    }

    /// The server that its pool belongs to: `own`, its id, unless it is an identity's.
    pub(crate) fn member(&self, own: ServerId) -> ServerId {
        self.of_identity.map_or(own, |of_identity| of_identity.server)
    }

    /// A copy without the sockets.
    pub(crate) fn snapshot(&self) -> Server<()> {
        Server {
            pool: self.pool.snapshot(),
            description: Arc::clone(&self.description),
            disbelief: self.disbelief,
            membership: self.membership,
            of_identity: self.of_identity,
        }
    }

    /// Whether the server has left its topology. It is drained then: no check-out reaches it any more.
    pub fn has_left(&self) -> bool {
        self.membership == Membership::Left
    }
}

/// Something that happened to a server or its monitor, in the past tense. Names and fields are the specification's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ServerEvent {
    /// The server joined the topology.
    ServerOpening,
    /// The server's description changed.
    ServerDescriptionChanged {
        /// Before.
        previous: Arc<ServerDescription>,
        /// Now.
        new: Arc<ServerDescription>,
    },
    /// The server left the topology.
    ServerClosed,
    /// A check of the server began or ended.
    Heartbeat(HeartbeatEvent),
}

impl ServerEvent {
    /// The specification's name of the event.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ServerOpening => "ServerOpening",
            Self::ServerDescriptionChanged { .. } => "ServerDescriptionChanged",
            Self::ServerClosed => "ServerClosed",
            Self::Heartbeat(event) => event.name(),
        }
    }
}

/// Counts the checks in a row that found something older than what was known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Disbelief(u8);

impl Disbelief {
    /// The number of older checks in a row at which one is believed.
    const MOST: u8 = 3;

    /// Records whether a check found something `older` than what is known; returns whether to believe it.
    pub(crate) fn believes(&mut self, older: bool) -> bool {
        self.0 = if older { self.0.saturating_add(1) } else { 0 };
        let believes = !older || self.0 >= Self::MOST;
        if believes {
            self.0 = 0;
        }
        believes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_older_check_in_a_row_is_believed() {
        let mut disbelief = Disbelief::default();

        let believed = [true, true, false, true, true, true, true].map(|older| disbelief.believes(older));

        assert_eq!(believed, [false, false, true, false, false, true, false]);
    }
}
