//! What a check-out lacks that waits: the one limit that binds it now, from the state alone.

use serde::{Deserialize, Serialize};

use super::{CheckOut, Topology};
use crate::pool::{Cause, CheckOutId, Pool, PoolState, WaitBound};
use crate::server::ServerId;
use crate::time::Instant;

/// What a check-out lacks that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Binding {
    /// A server that suits.
    Server,
    /// Its pool's being ready.
    Paused {
        /// The server of the pool.
        server: ServerId,
        /// Since when the pool is paused.
        since: Instant,
        /// Why.
        cause: Cause,
    },
    /// Something in its pool.
    Pool {
        /// The server of the pool.
        server: ServerId,
        /// What.
        bound: WaitBound,
    },
}

impl<C> Topology<C> {
    /// What a check-out lacks; `None` if it does not wait. Looks at every connection of its pool.
    pub fn binding(&self, check_out: CheckOut) -> Option<Binding> {
        match check_out {
            CheckOut::Selecting(selection) => self.selections.request(selection).map(|_| Binding::Server),
            CheckOut::Started(check_out) => self.binding_in_pool(check_out),
        }
    }

    fn binding_in_pool(&self, check_out: CheckOutId) -> Option<Binding> {
        let id = self.servers.id_at(check_out.slot())?;
        let pool: &Pool<C> = &self.servers.get(id)?.pool;
        let bound = pool.bound_of(check_out)?;
        let server = self.member_of(id);
        let is_paused = pool.state() == PoolState::Paused && !matches!(bound, WaitBound::Establishment(_));
        Some(if is_paused {
            let (since, cause) = pool.paused_by();
            Binding::Paused { server, since, cause: cause.clone() }
        } else {
            Binding::Pool { server, bound }
        })
    }
}
