//! Queries of a topology. Nothing here changes it.

use alloc::sync::Arc;

#[cfg(feature = "trace")]
use super::SelectionDetail;
use super::{CheckOut, Phase, SelectionId, Topology, TopologyDescription};
use crate::pool::{CheckOutId, Handle, Pool, Statistics, Stats};
use crate::server::{Server, ServerId};
use crate::time::Instant;

impl<C> Topology<C> {
    /// The description of all servers.
    pub fn description(&self) -> &Arc<TopologyDescription> {
        &self.description
    }

    /// A server, to read. One that has left stays until it is drained.
    pub fn server(&self, server: ServerId) -> Option<&Server<C>> {
        self.servers.get(server)
    }

    /// The servers, to read, those included that have left and are not drained yet.
    pub fn servers(&self) -> impl Iterator<Item = (ServerId, &Server<C>)> {
        self.servers.members()
    }

    /// The pools, each by its owner: the servers, and the same for the identities at each.
    pub fn pools(&self) -> impl Iterator<Item = (ServerId, &Pool<C>)> {
        self.servers.iter().map(|(id, server)| (id, &server.pool))
    }

    /// The counts of all pools together, those included of servers that have left. A high water is the sum of those of the
    /// servers that are there, and may never have been reached.
    pub fn stats(&self) -> Stats {
        let pools = self.servers.iter().map(|(_, server)| server.pool.stats());
        pools.fold(self.departed, Stats::merge)
    }

    /// What all pools have done together until `now`, servers that have left included. High-water marks are added, though the
    /// pools may not have reached them at the same time.
    pub fn statistics(&self, now: Instant) -> Statistics {
        let mut durations = self.durations.clone();
        if let Some(all) = &mut durations {
            self.servers.iter().filter_map(|(_, server)| server.pool.durations()).for_each(|own| all.add(own));
        }
        let period = self.now.max(now).saturating_since(Instant::ORIGIN);
        Statistics { period, stats: self.stats(), durations }
    }

    /// Connections whose credential has been replaced since; see [`Pool::outdated`].
    pub fn outdated(&self) -> u32 {
        self.servers.iter().map(|(_, server)| server.pool.outdated()).sum()
    }

    /// How many connections there are, those included that are being established, and those of servers that have left.
    pub fn connections(&self) -> u32 {
        self.servers.iter().map(|(_, server)| server.pool.counts().total()).sum()
    }

    /// The server of a check-out that began in its pool.
    pub fn server_of_check_out(&self, check_out: CheckOutId) -> Option<ServerId> {
        self.servers.id_at(check_out.slot()).map(|pool| self.member_of(pool))
    }

    /// The check-outs that wait for a server, and when they began to, the longest wait first.
    pub fn waiting_for_servers(&self) -> impl Iterator<Item = (SelectionId, Instant)> {
        self.selections.arrivals()
    }

    /// The server of a connection.
    pub fn server_of(&self, connection: Handle) -> Option<ServerId> {
        self.pool_of(connection).map(|pool| self.member_of(pool))
    }

    /// The pool of a connection, as outputs name it: that of its server, or of an identity there.
    pub fn pool_of(&self, connection: Handle) -> Option<ServerId> {
        self.servers.id_at(connection.slot())
    }

    /// The check-out for which a connection is being established; see [`Pool::origin_of`].
    pub fn origin_of(&self, connection: Handle) -> Option<CheckOutId> {
        self.servers.get(self.pool_of(connection)?)?.pool.origin_of(connection)
    }

    /// Whether it produces events, and which of selections.
    #[cfg(feature = "trace")]
    pub(crate) fn observation(&self) -> (bool, SelectionDetail) {
        (self.observed, self.selection_detail)
    }

    /// The latest time that a call has named.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Whether the client was closed.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// When time alone changes something for a check-out that waits, and for those that wait with it; see
    /// [`Pool::next_check_out_timeout`].
    pub fn next_check_out_timeout(&self, check_out: CheckOut) -> Option<Instant> {
        match check_out {
            CheckOut::Started(check_out) => {
                let server = self.servers.id_at(check_out.slot()).and_then(|server| self.servers.get(server));
                server.and_then(|server| server.pool.next_check_out_timeout())
            }
            CheckOut::Selecting(_) => self.selections.next_deadline().map(|(at, _)| at),
        }
    }

    /// How long a connection that becomes available at `now` may stay so; `None` means forever. See [`Pool::idle_until`].
    #[inline]
    pub fn idle_until(&self, connection: Handle, now: Instant) -> Option<Instant> {
        self.servers.peek(connection.slot())?.pool.idle_until(now)
    }

    /// Whether keys have connections, by the option `affinity`.
    pub fn has_affinity(&self) -> bool {
        self.pool_options.affinity.is_some()
    }

    /// How many check-outs wait for a server.
    pub fn selecting(&self) -> usize {
        self.selections.len()
    }
}
