//! Warm-up of a deployment: connections to every server that suits, before anybody needs them.
//!
//! It warms up the pool of each server that suits, as soon as that is found. It ends once each of them has what was asked for and
//! every server has been checked, so that no other one may suit; or with the first error of a pool. A server that leaves meanwhile
//! does not count; if it was the last, the warm-up waits for another one.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Criteria, Output, Phase, SelectionError, SelectionErrorKind, ServerSelector, Topology, TopologyType};
use crate::address::ServerAddress;
use crate::options::ReadMode;
use crate::pool::{self, WarmUpErrorKind};
use crate::server::{ServerDescription, ServerId, ServerType};
use crate::time::Instant;

/// One warm-up of a deployment; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WarmUpId(u64);

/// A warm-up of a deployment has not reached its goal.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum WarmUpError {
    /// No server was there to warm up.
    #[error(transparent)]
    Selection(#[from] Arc<SelectionError>),
    /// A server's pool does not have what was asked for.
    #[error(transparent)]
    Pool(#[from] Arc<pool::WarmUpError>),
}

/// The warm-ups that have not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WarmUps {
    begun: u64,
    open: BTreeMap<WarmUpId, WarmUp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct WarmUp {
    criteria: Criteria,
    connections: Option<u32>,
    begun_at: Instant,
    /// The pools that lack something.
    parts: Vec<(ServerId, pool::WarmUpId)>,
    /// The pools that have what was asked for.
    warm: Vec<ServerId>,
}

impl WarmUp {
    fn has_server(&self) -> bool {
        !self.parts.is_empty() || !self.warm.is_empty()
    }

    fn has(&self, server: ServerId) -> bool {
        self.parts.iter().any(|&(known, _)| known == server) || self.warm.contains(&server)
    }
}

impl WarmUps {
    /// Whether one waits for a server, which every check may find.
    pub(super) fn wait_for_server(&self) -> bool {
        self.open.values().any(|warm_up| !warm_up.has_server())
    }
}

impl<C> Topology<C> {
    /// Has as many connections established to every server that suits `criteria` as `connections` says, or as minPoolSize
    /// does where it says nothing. With no connections at all it ends as soon as a server suits. [`Output::WarmedUp`] follows,
    /// exactly once, unless the warm-up is cancelled; it has no time limit of its own.
    pub fn warm_up(&mut self, now: Instant, criteria: &Criteria, connections: Option<u32>) -> WarmUpId {
        self.advance(now);
        self.warm_ups.begun = self.warm_ups.begun.saturating_add(1);
        let id = WarmUpId(self.warm_ups.begun);
        let criteria = criteria.clone();
        let warm_up = WarmUp { criteria, connections, begun_at: self.now, parts: Vec::new(), warm: Vec::new() };
        self.warm_ups.open.insert(id, warm_up);
        if self.phase == Phase::Closed {
            self.fail_warm_ups(&SelectionErrorKind::Closed);
        } else {
            self.advance_warm_up(id);
            if self.warm_ups.open.get(&id).is_some_and(|warm_up| !warm_up.has_server()) {
                self.hurry_monitors();
            }
        }
        id
    }

    /// Ends a warm-up whose time is up: with the servers that are warm, if no server was found that lacks anything. `None` if it has
    /// ended before: then its [`Output::WarmedUp`] has come, or is among the outputs.
    pub fn cancel_warm_up(&mut self, now: Instant, id: WarmUpId) -> Option<Result<Vec<ServerAddress>, WarmUpError>> {
        self.advance(now);
        let warm_up = self.warm_ups.open.remove(&id)?;
        if let Some(lacks) = self.cancel_parts(&warm_up) {
            return Some(Err(lacks));
        }
        let warm = self.warm_servers(&warm_up);
        let nothing = || self.selection_error_of(&warm_up, SelectionErrorKind::Timeout);
        Some(if warm.is_empty() { Err(nothing()) } else { Ok(warm) })
    }

    /// The description has changed: other servers may suit those that have not ended.
    pub(super) fn advance_warm_ups(&mut self) {
        for id in self.warm_ups.open.keys().copied().collect::<Vec<_>>() {
            self.advance_warm_up(id);
        }
    }

    /// Ends those that no server can come for any more.
    pub(super) fn fail_warm_ups(&mut self, kind: &SelectionErrorKind) {
        while let Some((&id, warm_up)) = self.warm_ups.open.first_key_value() {
            let error = self.selection_error_of(warm_up, kind.clone());
            self.end_warm_up(id, Err(error));
        }
    }

    /// The part of a warm-up in a server's pool has ended.
    pub(super) fn end_part(
        &mut self,
        server: ServerId,
        part: pool::WarmUpId,
        result: Result<(), Arc<pool::WarmUpError>>,
    ) {
        let own = |warm_up: &WarmUp| warm_up.parts.iter().position(|&known| known == (server, part));
        let found = self.warm_ups.open.iter().find_map(|(&id, warm_up)| Some((id, own(warm_up)?)));
        let Some((id, place)) = found else { return };
        let Some(warm_up) = self.warm_ups.open.get_mut(&id) else { return };
        warm_up.parts.swap_remove(place);
        let has_left = self.servers.get(server).is_none_or(|server| server.has_left());
        match result {
            Err(error) if error.kind == WarmUpErrorKind::PoolClosed && has_left && self.phase != Phase::Closed => {
                self.advance_warm_up(id);
            }
            Err(error) => self.end_warm_up(id, Err(error.into())),
            Ok(()) => {
                warm_up.warm.push(server);
                self.end_if_warm(id);
            }
        }
    }

    fn end_warm_up(&mut self, id: WarmUpId, result: Result<Vec<ServerAddress>, WarmUpError>) {
        if let Some(warm_up) = self.warm_ups.open.remove(&id) {
            let _ = self.cancel_parts(&warm_up);
            self.outputs.push_back(Output::WarmedUp { warm_up: id, result });
        }
    }

    /// Ends a warm-up whose servers are warm, if no other one may suit.
    fn end_if_warm(&mut self, id: WarmUpId) {
        let Some(warm_up) = self.warm_ups.open.get(&id) else { return };
        if !warm_up.parts.is_empty() || self.may_find_others(warm_up) {
            return;
        }
        let warm = self.warm_servers(warm_up);
        if !warm.is_empty() {
            self.end_warm_up(id, Ok(warm));
        }
    }

    /// Whether a server that was not checked yet may suit as well.
    fn may_find_others(&self, warm_up: &WarmUp) -> bool {
        if self.phase != Phase::Monitored || warm_up.connections == Some(0) {
            return false;
        }
        let has_primary = self.description.topology_type == TopologyType::ReplicaSetWithPrimary;
        let selector = &warm_up.criteria.selector;
        let is_for_the_primary = *selector == ServerSelector::Writable
            || selector.read_preference().is_some_and(|preference| preference.mode() == ReadMode::Primary);
        let is_unchecked = |server: &ServerDescription| {
            server.server_type == ServerType::Unknown && server.error.is_none() && server.last_update_time.is_none()
        };
        !(has_primary && is_for_the_primary) && self.description.servers.iter().any(|server| is_unchecked(server))
    }

    fn warm_servers(&self, warm_up: &WarmUp) -> Vec<ServerAddress> {
        let known = warm_up.warm.iter().filter_map(|&id| self.servers.get(id)).filter(|server| !server.has_left());
        known.map(|server| ServerAddress::clone(&server.description.address)).collect()
    }

    /// Begins a warm-up in the pools of the servers that suit it and that it has not begun in, and ends it if nothing is left to do.
    fn advance_warm_up(&mut self, id: WarmUpId) {
        let now = self.now;
        let Some(warm_up) = self.warm_ups.open.get(&id) else { return };
        let connections = warm_up.connections;
        let servers = match self.suitable_pools(&warm_up.criteria) {
            Ok(servers) => servers,
            Err(kind) => {
                let error = self.selection_error_of(warm_up, kind);
                return self.end_warm_up(id, Err(error));
            }
        };
        let new: Vec<ServerId> = servers.into_iter().filter(|&server| !warm_up.has(server)).collect();
        // All of them first: one that ends at once must not end the whole.
        let mut begun = Vec::new();
        for server in new {
            self.lend_permits(server);
            let part = self.servers.pool_mut(server).map(|pool| pool.warm_up(now, connections));
            self.note_call(server);
            begun.extend(part.map(|part| (server, part)));
        }
        if let Some(warm_up) = self.warm_ups.open.get_mut(&id) {
            warm_up.parts.extend(&begun);
        }
        begun.into_iter().for_each(|(server, _)| self.collect(server));
        self.end_if_warm(id);
    }

    fn suitable_pools(&self, criteria: &Criteria) -> Result<Vec<ServerId>, SelectionErrorKind> {
        if self.phase == Phase::Unmonitored {
            return Ok(self.writer.into_iter().collect());
        }
        if self.phase != Phase::Monitored {
            return Ok(Vec::new());
        }
        self.check_compatibility()?;
        let suitable = self.suitable_servers(criteria).map_err(SelectionErrorKind::MaxStaleness)?;
        let ids = suitable.iter().filter_map(|server| self.servers.find(&server.address));
        Ok(ids.filter(|&id| self.takes_check_outs(id)).collect())
    }

    /// What the first of the pools lacks that are not done.
    fn cancel_parts(&mut self, warm_up: &WarmUp) -> Option<WarmUpError> {
        let parts = warm_up.parts.iter();
        let cancelled = parts.filter_map(|&(server, part)| self.servers.pool_mut(server)?.give_up_warm_up(part));
        cancelled.collect::<Vec<_>>().into_iter().next().map(|error| Arc::new(error).into())
    }

    fn selection_error_of(&self, warm_up: &WarmUp, kind: SelectionErrorKind) -> WarmUpError {
        self.selection_error(kind, &warm_up.criteria, warm_up.begun_at).into()
    }
}
