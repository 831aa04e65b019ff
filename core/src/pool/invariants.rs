//! The state of a pool as data: its copy without the sockets, which a file can hold, and the invariants that hold after every call,
//! whatever the calls were.
//!
//! [`Pool::check_invariants`] is for tests, simulations and fuzzing, and for states that were restored: a serialised
//! state that contradicts itself is refused instead of misbehaving later.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use super::Pool;
use super::connections::Stage;
use super::list::ensure;
use super::output::{Action, Delivery, Output};
use super::state::PoolState;
use crate::options::Affinity;

/// The state of a pool contradicts itself: a defect of this crate, or a state that was tampered with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the pool's state contradicts itself: {0}")]
pub struct BrokenInvariant(String);

impl<C> Pool<C> {
    /// A copy without the sockets. Given the same calls it has the same outputs.
    pub fn snapshot(&self) -> Pool<()> {
        Pool {
            id: self.id,
            address: Arc::clone(&self.address),
            options: self.options.clone(),
            limits: self.limits.clone(),
            state: self.state,
            paused_by: self.paused_by.clone(),
            paused_since: self.paused_since,
            now: self.now,
            last_maintenance: self.last_maintenance,
            population_failed: self.population_failed,
            admission: self.admission.clone(),
            retirement: self.retirement.clone(),
            affinity: self.affinity.clone(),
            refresh: self.refresh.clone(),
            suspects: self.suspects.clone(),
            random: self.random.clone(),
            generations: self.generations.clone(),
            outdated_until: self.outdated_until,
            connections: self.connections.snapshot(),
            wait_queue: self.wait_queue.clone(),
            outputs: self.outputs.iter().map(Output::snapshot).collect(),
            observed: self.observed,
            attention: self.attention,
            share: self.share,
            host_use: self.host_use,
            warm_ups: self.warm_ups.clone(),
            totals: self.totals,
            durations: self.durations.clone(),
        }
    }

    /// Checks every invariant. Takes time in proportion to the size of the state.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check_invariants(&self) -> Result<(), BrokenInvariant> {
        self.find_contradiction().map_err(|problem| BrokenInvariant(problem.to_string()))
    }

    /// Counts a connection that is not there.
    #[cfg(all(test, feature = "trace"))]
    pub(crate) fn break_invariant(&mut self) {
        self.connections.pending += 1;
    }

    fn find_contradiction(&self) -> Result<(), &'static str> {
        // Counts first: the checks below add them up.
        self.connections.check(&self.generations)?;
        self.check_limits()?;
        self.check_services()?;
        self.check_check_outs()?;
        self.check_affinity()?;
        self.check_progress()
    }

    fn check_limits(&self) -> Result<(), &'static str> {
        let are_limits = self.options.limits().as_ref() == Ok(&self.limits);
        ensure(are_limits, "the limits are not those of the options")?;
        let is_within = !self.has_surplus() || self.connections.available.is_empty();
        ensure(is_within, "there are more connections than maxPoolSize though one of them is available")?;
        ensure(self.attention == self.needed_attention(), "a call takes another way than it should")?;
        ensure(self.check_retirement(), "the end of a connection's life is noted wrongly")?;
        ensure(self.check_refresh(), "the next refresh of a connection is noted wrongly")?;
        let are_available = self.suspects.iter().all(|&key| self.connections.is_available(key));
        ensure(are_available, "a connection that is not available is to be checked before its delivery")?;
        ensure(self.check_warm_ups(), "a warm-up goes on that has ended")?;
        ensure(self.check_backoff(), "the connection that the backoff tries is not being established")
    }

    fn check_services(&self) -> Result<(), &'static str> {
        for (&id, service) in &self.generations.services {
            let members = self.connections.slots.iter().filter(|slot| slot.service == Some(id)).count();
            let is_right = members == service.connections as usize && members > 0;
            ensure(is_right, "a service has another number of connections than it says")?;
        }
        for slot in &self.connections.slots {
            let is_known = slot.service.is_some_and(|id| self.generations.services.contains_key(&id));
            let is_right = match slot.stage {
                Stage::Closed => slot.service.is_none(),
                Stage::Pending { .. } => slot.service.is_none() || (is_known && self.limits.load_balanced),
                Stage::Available { .. } | Stage::Checking { .. } | Stage::Refreshing { .. } | Stage::InUse { .. } => {
                    is_known == self.limits.load_balanced && is_known == slot.service.is_some()
                }
            };
            ensure(is_right, "a connection has a service that it cannot have, or lacks one")?;
        }
        let are_stale = self.generations.to_prune.iter().all(|&id| self.has_stale_available(id));
        ensure(are_stale, "a service without stale connections is marked for pruning")
    }

    fn check_check_outs(&self) -> Result<(), &'static str> {
        self.wait_queue.check(|pending| self.connections.slots.get(pending as usize)?.stage.origin())?;
        let mut holders = BTreeSet::new();
        for (key, slot) in (0..).zip(&self.connections.slots) {
            if let Some(user) = slot.stage.user() {
                let has_it_alone = self.wait_queue.is_delivered(user) && holders.insert(user);
                ensure(has_it_alone, "a connection in use was delivered to no check-out, or to one that has another")?;
            }
            let waits = slot.stage.origin().is_none_or(|origin| self.wait_queue.is_origin(origin, key));
            ensure(waits, "a pending connection names an origin that does not wait for it")?;
        }
        let all_hold = holders.len() == self.wait_queue.delivered();
        ensure(all_hold, "a check-out was delivered a connection that is not in use")
    }

    /// No waiter waits without need: not for an available connection, not for a permit that is free.
    fn check_progress(&self) -> Result<(), &'static str> {
        let waiting = self.wait_queue.len();
        let may_wait = waiting == 0 || self.state == PoolState::Ready;
        ensure(may_wait, "a check-out waits for a pool that is not ready")?;
        let may_have_available = self.state != PoolState::Closed || self.connections.available.is_empty();
        ensure(may_have_available, "a closed pool has available connections")?;
        // Held connections wait for their keys, unless they are lent.
        let is_served = waiting <= self.checks() || self.free() == 0;
        ensure(is_served, "a check-out waits though a connection is available")?;
        let all_expect_one = waiting <= self.connections.pending + self.checks();
        let is_held_back = self.creation_timeout().is_some();
        let is_created_for = all_expect_one || !self.may_create() || is_held_back;
        ensure(is_created_for, "a check-out waits though a connection could be created")?;
        let lends = matches!(self.limits.affinity, Some(Affinity::Hold { lend: true, .. }));
        let has_held = self.connections.available.len() > self.free();
        ensure(all_expect_one || !lends || !has_held, "a check-out waits though a held connection could be lent")
    }
}

impl<C: Serialize> Serialize for Pool<C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de, C: Deserialize<'de>> Deserialize<'de> for Pool<C> {
    /// Refuses a state that contradicts itself.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pool = Self::deserialize(deserializer)?;
        pool.check_invariants().map_err(de::Error::custom)?;
        Ok(pool)
    }
}

impl<C> Output<C> {
    /// The output without its socket.
    pub fn snapshot(&self) -> Output<()> {
        match self {
            Self::Action(action) => Output::Action(action.snapshot()),
            Self::Event(event) => Output::Event(event.clone()),
        }
    }
}

impl<C> Action<C> {
    fn snapshot(&self) -> Action<()> {
        match *self {
            Self::Connect { connection } => Action::Connect { connection },
            Self::Check { connection } => Action::Check { connection },
            Self::Refresh { connection, timeout, .. } => Action::Refresh { connection, socket: (), timeout },
            Self::Deliver { check_out, connection, .. } => Action::Deliver { check_out, connection, socket: () },
            Self::Fail { check_out, ref error } => Action::Fail { check_out, error: Arc::clone(error) },
            Self::Close { connection, reason, .. } => Action::Close { connection, socket: (), reason },
            Self::Interrupt { connection } => Action::Interrupt { connection },
            Self::WarmedUp { warm_up, ref result } => Action::WarmedUp { warm_up, result: result.clone() },
        }
    }
}

impl<C> Delivery<C> {
    /// The delivery without its socket.
    pub fn snapshot(&self) -> Delivery<()> {
        Delivery { check_out: self.check_out, connection: self.connection, socket: () }
    }
}
