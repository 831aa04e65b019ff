//! Queries of a topology, among them what a check-out lacks that waits. Nothing here changes it.

use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

#[cfg(feature = "trace")]
use super::SelectionDetail;
use super::usage::Usage;
use super::{CheckOut, Output, Phase, SelectionId, Topology, TopologyDescription};
#[cfg(feature = "trace")]
use crate::options::PoolOptions;
use crate::pool::{Cause, CheckOutId, Handle, Pool, Statistics, Stats, WaitBound};
use crate::server::{Server, ServerId};
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
        self.servers.peek(connection.slot())?.pool.origin_of(connection)
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
            CheckOut::Started(check_out) => self.servers.peek(check_out.slot())?.pool.next_check_out_timeout(),
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

    /// What a check-out lacks; `None` if it does not wait. Looks at every connection of its pool.
    pub fn binding(&self, check_out: CheckOut) -> Option<Binding> {
        let check_out = match check_out {
            CheckOut::Selecting(selection) => return self.selections.has(selection).then_some(Binding::Server),
            CheckOut::Started(check_out) => check_out,
        };
        let id = self.servers.id_at(check_out.slot())?;
        let pool = self.servers.pool(id)?;
        let bound = pool.bound_of(check_out)?;
        let server = self.member_of(id);
        Some(match pool.pause() {
            Some((since, cause)) if !matches!(bound, WaitBound::Establishment(_)) => {
                Binding::Paused { server, since, cause: cause.clone() }
            }
            _ => Binding::Pool { server, bound },
        })
    }

    /// The options of each server's pool, as they are now.
    #[cfg(feature = "trace")]
    pub(crate) fn pool_options(&self) -> &PoolOptions {
        &self.pool_options
    }

    /// A copy without the sockets. Given the same calls it has the same outputs.
    pub fn snapshot(&self) -> Topology<()> {
        Topology {
            options: self.options.clone(),
            pool_options: self.pool_options.clone(),
            description: Arc::clone(&self.description),
            servers: self.servers.snapshot(),
            identities: self.identities.clone(),
            usage: Usage::default(),
            departed: self.departed,
            durations: self.durations.clone(),
            phase: self.phase,
            writer: self.writer,
            check_out_limit: self.check_out_limit,
            selections: self.selections.clone(),
            warm_ups: self.warm_ups.clone(),
            windows: self.windows.clone(),
            random: self.random.clone(),
            now: self.now,
            polling: self.polling.clone(),
            outputs: self.outputs.iter().map(Output::snapshot).collect(),
            observed: self.observed,
            selection_detail: self.selection_detail,
        }
    }
}
