//! The events that the pool has reported: in order, and counted by type.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cmap_core::address::ServerAddress;
use cmap_core::pool::{Event, PoolState, ServiceId, Stats};
use serde_json::Value;

use super::signal::Signal;
use crate::suites::cmap::engine::event;
use crate::suites::cmap::format::{Case, Profile};

/// The events of a test's pool.
pub(super) struct Journal {
    case: Arc<Case>,
    signal: Arc<Signal>,
    /// The ids of the services that the test names, if they are known beforehand.
    service_ids: Vec<ServiceId>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    events: Vec<Value>,
    counts: BTreeMap<&'static str, usize>,
    /// The pool's state, as the events say.
    state: Option<PoolState>,
}

impl Journal {
    pub(super) fn new(case: Arc<Case>, signal: Arc<Signal>, service_ids: Vec<ServiceId>) -> Self {
        Self { case, signal, service_ids, told: Mutex::default() }
    }

    /// The id of the service that the test calls `name`, if it is known beforehand.
    pub(super) fn service_named(&self, name: &str) -> Option<ServiceId> {
        let place = self.case.server.service_ids.iter().position(|service| service == name)?;
        self.service_ids.get(place).copied()
    }

    fn name_of(&self, service: ServiceId) -> Option<&str> {
        // Where the ids are not known beforehand, there is one service.
        let place = self.service_ids.iter().position(|&id| id == service).unwrap_or_default();
        self.case.server.service_ids.get(place).map(String::as_str)
    }

    /// Notes an event.
    pub(super) fn note(&self, address: &ServerAddress, event: &Event) {
        let json = event::to_json(event, &address.to_string(), &self.case, |service| self.name_of(service));
        let mut told = self.told();
        told.events.push(json);
        *told.counts.entry(event.name()).or_default() += 1;
        if let Some(state) = state_after(event) {
            // That edition's pools never pause.
            let is_older = self.case.pool_options.profile == Some(Profile::Cmap1_1);
            told.state = Some(if is_older && state == PoolState::Paused { PoolState::Ready } else { state });
        }
        drop(told);
        self.signal.give();
    }

    /// How often the type of event called `name` has happened.
    pub(super) fn count(&self, name: &str) -> usize {
        self.told().counts.get(name).copied().unwrap_or_default()
    }

    /// Whether all events that led to `stats` and `state` have been noted: the task that makes an event happen may leave it
    /// to another task to report it.
    pub(super) fn has_caught_up(&self, stats: &Stats, state: PoolState) -> bool {
        let happened = [
            ("ConnectionCreated", stats.created),
            ("ConnectionReady", stats.established),
            ("ConnectionClosed", stats.closed.total()),
            ("ConnectionCheckOutStarted", stats.check_outs_started),
            ("ConnectionCheckedOut", stats.checked_out),
            ("ConnectionCheckOutFailed", stats.check_outs_failed.total()),
            ("ConnectionCheckedIn", stats.checked_in),
            ("ConnectionPoolCleared", stats.cleared),
        ];
        let told = self.told();
        let count = |name| told.counts.get(name).copied().unwrap_or_default() as u64;
        told.state == Some(state) && happened.into_iter().all(|(name, happened)| count(name) >= happened)
    }

    /// All events so far.
    pub(super) fn events(&self) -> Vec<Value> {
        self.told().events.clone()
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state that `event` says the pool is in, if it says that.
fn state_after(event: &Event) -> Option<PoolState> {
    if let Event::PoolCreated { .. } | Event::PoolCleared { service_id: None, .. } = event {
        Some(PoolState::Paused)
    } else if let Event::PoolReady = event {
        Some(PoolState::Ready)
    } else if let Event::PoolClosed = event {
        Some(PoolState::Closed)
    } else {
        None
    }
}
