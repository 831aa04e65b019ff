//! How many connections the pools have together that share limits: those of each server, and of the client.

use alloc::vec::Vec;
use core::fmt;

use super::servers::Servers;
use crate::pool::Counts;
use crate::server::ServerId;

/// The connections of several pools.
#[derive(Clone, Copy, Default)]
pub(super) struct Used {
    pub(super) total: u32,
    /// Those that are being established.
    pub(super) pending: u32,
}

/// The connections of all pools, counted together: one look at each pool answers for all servers. It holds as long as no pool creates
/// or closes one.
#[derive(Clone, Default)]
pub(super) struct Usage {
    /// Those of each server, in its slot.
    of_servers: Vec<Used>,
    of_client: u32,
}

impl Used {
    /// Counts a pool in.
    pub(super) fn with(self, pool: Counts) -> Self {
        Self { total: self.total.saturating_add(pool.total()), pending: self.pending.saturating_add(pool.pending) }
    }
}

impl Usage {
    /// Counts anew. The pools of identities at a server that is forgotten share no limits any more.
    pub(super) fn count<C>(&mut self, servers: &Servers<C>) {
        self.of_client = 0;
        self.of_servers.clear();
        self.of_servers.resize(servers.slots() as usize, Used::default());
        for (id, server) in servers.iter() {
            let counts = server.pool.counts();
            self.of_client = self.of_client.saturating_add(counts.total());
            let member = server.member(id);
            if servers.get(member).is_some()
                && let Some(used) = self.of_servers.get_mut(member.slot() as usize)
            {
                *used = used.with(counts);
            }
        }
    }

    /// The connections of a server's pools.
    pub(super) fn of_server(&self, server: ServerId) -> Used {
        self.of_servers.get(server.slot() as usize).copied().unwrap_or_default()
    }

    /// The connections of all pools.
    pub(super) fn of_client(&self) -> u32 {
        self.of_client
    }
}

impl fmt::Debug for Usage {
    /// What was counted last makes no difference between topologies.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Usage")
    }
}
