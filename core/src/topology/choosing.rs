//! The choice of a server for a check-out, from what is known of all of them.
//!
//! Which servers suit an operation, and which of those are fast, changes only with the description; so it is computed once
//! for each description and each thing that is wanted, and kept in a [`LatencyWindow`]. A write usually has only one server
//! to go to, which the topology knows without any of this.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::iter;

use serde::{Deserialize, Serialize};

use super::selection::{Criteria, LatencyWindow, MaxStalenessError, SelectionErrorKind, ServerSelector};
use super::{Phase, SelectionDetail, Topology};
use crate::address::ServerAddress;
use crate::monitor::ServerDescription;
use crate::pool::{CheckOutRequest, Pool, PoolState};
use crate::server::ServerId;

/// The servers to choose from, for what was wanted lately.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Windows {
    recent: Vec<(Criteria, LatencyWindow)>,
    /// The ids of the description's servers, in their order.
    servers: Vec<Option<ServerId>>,
}

/// How many windows are kept.
const MOST_WINDOWS: usize = 16;

impl<C> Topology<C> {
    /// The servers that suit a check-out now, before the latency window narrows them down. A custom choice is made among these (SEL-11).
    ///
    /// # Errors
    /// maxStalenessSeconds is too small for a replica set (SEL-24).
    pub fn suitable_servers(&self, criteria: &Criteria) -> Result<Vec<Arc<ServerDescription>>, MaxStalenessError> {
        let suitable = self.suitable(&criteria.selector, &criteria.deprioritized)?;
        Ok(suitable.into_iter().filter_map(|at| self.description.servers.get(at).map(Arc::clone)).collect())
    }

    /// Servers that suit, as positions in the description.
    fn suitable(&self, selector: &ServerSelector, avoided: &[ServerAddress]) -> Result<Vec<usize>, MaxStalenessError> {
        self.description.suitable_servers(selector, avoided, self.options.heartbeat_frequency)
    }

    /// The server for a check-out: where several are fast enough, the one that has a connection of its key. `None` if
    /// there is none now.
    ///
    /// # Errors
    /// No server can suit it: maxStalenessSeconds is too small for a replica set (SEL-24), or the server has left to which it is
    /// pinned.
    pub(super) fn choose(
        &mut self,
        criteria: &Criteria,
        request: &CheckOutRequest,
    ) -> Result<Option<ServerId>, SelectionErrorKind> {
        if self.writer.is_some() && criteria.wants_any_writable() {
            return Ok(self.writer.filter(|&writer| self.takes_check_outs(writer)));
        }
        if self.phase != Phase::Monitored || !self.description.is_compatible() {
            return Ok(None);
        }
        if let ServerSelector::Pinned(address) = &criteria.selector
            && self.description.server(address).is_none()
        {
            return Err(SelectionErrorKind::ServerLeft);
        }
        let at = match self.windows.recent.iter().position(|(own, _)| own.wants_same(criteria)) {
            Some(at) => at,
            None => self.add_window(criteria).map_err(SelectionErrorKind::MaxStaleness)?,
        };
        let Windows { recent, servers: ids } = &self.windows;
        let Some((_, window)) = recent.get(at) else { return Ok(None) };
        let servers = &self.servers;
        let server_at = |position: usize| ids.get(position).copied().flatten();
        if let Some(key) = request.affinity {
            let ids = window.servers().iter().filter_map(|&position| server_at(position));
            let mut suitable = ids.filter(|&id| self.takes_check_outs(id));
            let pool = |id: ServerId| self.known_pool(id, request.identity).and_then(|pool| servers.pool(pool));
            if let Some(own) = suitable.find(|&id| pool(id).is_some_and(|pool| pool.is_bound(key))) {
                return Ok(Some(own));
            }
        }
        let identities = &self.identities;
        let operation_count = |position| {
            let pools = server_at(position).into_iter().flat_map(|id| iter::once(id).chain(identities.pools_at(id)));
            let counts = pools.filter_map(|pool| servers.pool(pool)).map(Pool::counts);
            counts.map(|counts| u64::from(counts.in_use) + u64::from(counts.waiting)).sum()
        };
        let chosen = window.choose(&mut self.random, operation_count).and_then(server_at);
        Ok(chosen.filter(|&chosen| self.takes_check_outs(chosen)))
    }

    /// Whether a check-out that begins in the server's pool now can wait there. It could not in one that is paused, and would
    /// come back at once.
    pub(super) fn takes_check_outs(&self, server: ServerId) -> bool {
        self.phase != Phase::Monitored || self.servers.pool(server).map(Pool::state) == Some(PoolState::Ready)
    }

    /// Whether a server is still what a check-out wants that was sent there.
    pub(super) fn suits(&self, server: ServerId, criteria: &Criteria) -> bool {
        let Some(server) = self.servers.get(server).filter(|server| !server.has_left()) else { return false };
        let suitable = self.suitable(&criteria.selector, &[]).unwrap_or_default();
        let mut suitable = suitable.into_iter().filter_map(|at| self.description.servers.get(at));
        suitable.any(|suitable| suitable.address == server.description.address)
    }

    /// The description has changed.
    pub(super) fn forget_choices(&mut self) {
        self.windows.recent.clear();
        let ids = self.servers.by_address();
        let servers = self.description.servers.iter().map(|known| ids.get(&*known.address).copied());
        self.windows.servers = servers.collect();
        self.writer = self.find_writer();
    }

    /// The server that takes all writes, if there is exactly one.
    fn find_writer(&self) -> Option<ServerId> {
        // The fast path tells nobody of a selection.
        if !self.description.is_compatible() || self.selection_detail == SelectionDetail::All {
            return None;
        }
        match self.suitable(&ServerSelector::Writable, &[]).as_deref() {
            Ok(&[only]) => self.windows.servers.get(only).copied().flatten(),
            _ => None,
        }
    }

    fn add_window(&mut self, criteria: &Criteria) -> Result<usize, MaxStalenessError> {
        let suitable = self.suitable(&criteria.selector, &criteria.deprioritized)?;
        let window = LatencyWindow::new(&self.description, &suitable, self.options.local_threshold);
        if self.windows.recent.len() >= MOST_WINDOWS {
            self.windows.recent.remove(0);
        }
        self.windows.recent.push((criteria.clone(), window));
        Ok(self.windows.recent.len() - 1)
    }
}
