//! Warm-up of a deployment: connections to every server that suits, before anybody needs them.
//!
//! It waits until a server suits, and then warms up the pools of all that do at that moment. It ends once each of them has
//! what was asked for, or with the first error of one. A server that leaves meanwhile does not count; if it was the last,
//! the warm-up waits for another one.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Criteria, Output, Phase, SelectionError, SelectionErrorKind, Topology};
use crate::pool::{self, WarmUpErrorKind};
use crate::server::ServerId;
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
    /// The pools that lack something. None at all: it waits for a server.
    parts: Vec<(ServerId, pool::WarmUpId)>,
}

impl WarmUps {
    /// Whether one waits for a server, which every check may find.
    pub(super) fn wait_for_server(&self) -> bool {
        self.open.values().any(|warm_up| warm_up.parts.is_empty())
    }
}

impl<C> Topology<C> {
    /// Has as many connections established to every server that suits `criteria` as `connections` says, or as minPoolSize
    /// does where it says nothing. [`Output::WarmedUp`] follows, exactly once, unless the warm-up is cancelled; it
    /// has no time limit of its own.
    pub fn warm_up(&mut self, now: Instant, criteria: &Criteria, connections: Option<u32>) -> WarmUpId {
        self.advance(now);
        self.warm_ups.begun = self.warm_ups.begun.saturating_add(1);
        let id = WarmUpId(self.warm_ups.begun);
        let warm_up = WarmUp { criteria: criteria.clone(), connections, begun_at: self.now, parts: Vec::new() };
        if self.phase == Phase::Closed {
            let error = self.selection_error_of(&warm_up, SelectionErrorKind::Closed);
            self.outputs.push_back(Output::WarmedUp { warm_up: id, result: Err(error) });
        } else {
            self.warm_ups.open.insert(id, warm_up);
            self.begin_warm_up(id);
            if self.warm_ups.open.get(&id).is_some_and(|warm_up| warm_up.parts.is_empty()) {
                self.hurry_monitors();
            }
        }
        id
    }

    /// Gives up a warm-up, whose time was up: returns what it lacks. `None` if it has ended: then its [`Output::WarmedUp`]
    /// has come, or is among the outputs.
    pub fn cancel_warm_up(&mut self, now: Instant, id: WarmUpId) -> Option<WarmUpError> {
        self.advance(now);
        let warm_up = self.warm_ups.open.remove(&id)?;
        let lacks = self.cancel_parts(&warm_up);
        Some(lacks.unwrap_or_else(|| self.selection_error_of(&warm_up, SelectionErrorKind::Timeout)))
    }

    /// Begins those that waited for a server, where one suits now.
    pub(super) fn begin_warm_ups(&mut self) {
        let waiting = self.warm_ups.open.iter().filter(|(_, warm_up)| warm_up.parts.is_empty()).map(|(&id, _)| id);
        for id in waiting.collect::<Vec<_>>() {
            self.begin_warm_up(id);
        }
    }

    /// Ends those that no server can come for any more.
    pub(super) fn fail_warm_ups(&mut self, kind: &SelectionErrorKind) {
        for (id, warm_up) in core::mem::take(&mut self.warm_ups.open) {
            let _ = self.cancel_parts(&warm_up);
            let error = self.selection_error_of(&warm_up, kind.clone());
            self.outputs.push_back(Output::WarmedUp { warm_up: id, result: Err(error) });
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
                self.begin_warm_up(id);
            }
            Err(error) => self.end_warm_up(id, Err(error.into())),
            Ok(()) if warm_up.parts.is_empty() => self.end_warm_up(id, Ok(())),
            Ok(()) => {}
        }
    }

    fn end_warm_up(&mut self, id: WarmUpId, result: Result<(), WarmUpError>) {
        if let Some(warm_up) = self.warm_ups.open.remove(&id) {
            let _ = self.cancel_parts(&warm_up);
            self.outputs.push_back(Output::WarmedUp { warm_up: id, result });
        }
    }

    /// Begins a warm-up in the pools of the servers that suit it, if there are any.
    fn begin_warm_up(&mut self, id: WarmUpId) {
        let now = self.now;
        let Some(warm_up) = self.warm_ups.open.get(&id).filter(|warm_up| warm_up.parts.is_empty()) else { return };
        let connections = warm_up.connections;
        let servers = match self.suitable_pools(&warm_up.criteria) {
            Ok(servers) => servers,
            Err(kind) => {
                let error = self.selection_error_of(warm_up, kind);
                return self.end_warm_up(id, Err(error));
            }
        };
        // All of them first: one that ends at once must not end the whole.
        let mut begun = Vec::new();
        for server in servers {
            self.lend_permits(server);
            let part = self.servers.get_mut(server).map(|server| server.pool.warm_up(now, connections));
            self.note_call(server);
            begun.extend(part.map(|part| (server, part)));
        }
        if let Some(warm_up) = self.warm_ups.open.get_mut(&id) {
            warm_up.parts.clone_from(&begun);
        }
        begun.into_iter().for_each(|(server, _)| self.collect(server));
    }

    fn suitable_pools(&self, criteria: &Criteria) -> Result<Vec<ServerId>, SelectionErrorKind> {
        if self.phase == Phase::Unmonitored {
            return Ok(self.writer.into_iter().collect());
        }
        if self.phase != Phase::Monitored || !self.description.is_compatible() {
            return Ok(Vec::new());
        }
        let suitable = self.suitable_servers(criteria).map_err(SelectionErrorKind::MaxStaleness)?;
        let ids = suitable.iter().filter_map(|server| self.servers.find(&server.address));
        Ok(ids.filter(|&id| self.takes_check_outs(id)).collect())
    }

    /// What the first of the pools lacks that are not done.
    fn cancel_parts(&mut self, warm_up: &WarmUp) -> Option<WarmUpError> {
        let cancelled = warm_up.parts.iter().filter_map(|&(server, part)| {
            self.servers.get_mut(server).and_then(|server| server.pool.give_up_warm_up(part))
        });
        cancelled.collect::<Vec<_>>().into_iter().next().map(|error| Arc::new(error).into())
    }

    fn selection_error_of(&self, warm_up: &WarmUp, kind: SelectionErrorKind) -> WarmUpError {
        let waited = self.now.saturating_since(warm_up.begun_at);
        let selector = warm_up.criteria.selector.clone();
        Arc::new(SelectionError::new(kind, selector, Arc::clone(&self.description), waited)).into()
    }
}
