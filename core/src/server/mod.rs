//! One server of a topology: its pool, its description, and what errors say about it.
//!
//! An error of a connection may mean that the server is gone, or only that this connection is. [`reaction`] decides
//! which by the rules of SDAM. The [`Topology`](crate::topology::Topology) that a server belongs to makes all calls: what
//! happens to one server may concern the others. A [`Server`] is there to be read.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the server |
//! | `server_id`, `event` | its name, and its events |
//! | `reaction`, `operation_error` | what an error says about the server |
//! | `disbelief` | how often an outdated answer is ignored |
//! | `command_event` | the events of commands |
//! | `command_defaults` | the concerns and the read preference of a client's options |

pub mod reaction;

#[cfg(feature = "wire")]
mod command_defaults;
#[cfg(feature = "wire")]
mod command_event;
mod disbelief;
mod event;
mod operation_error;
mod server_id;

use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

#[cfg(feature = "wire")]
pub use self::command_defaults::{
    CommandDefaults, is_acknowledged, sent_read_preference, wants_no_reply, write_concern, write_concern_document,
};
#[cfg(feature = "wire")]
pub use self::command_event::{CommandEvent, SentCommand, is_sensitive};
pub(crate) use self::disbelief::Disbelief;
pub use self::event::ServerEvent;
pub use self::operation_error::{OperationError, StateChange};
pub use self::server_id::ServerId;
pub use crate::monitor::{HeartbeatEvent, MonitorConnection, ServerDescription, ServerType};
use crate::pool::{IdentityId, Pool};
pub use crate::topology_version::TopologyVersion;
pub use crate::wire_version::{MAX_WIRE_VERSION, MIN_WIRE_VERSION};

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
