//! The invariants that hold after every call, whatever the calls were.
//!
//! [`Pool::check_invariants`] is for tests, simulations and fuzzing, and for states that were restored: a serialised
//! state that contradicts itself is refused instead of misbehaving later.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use super::Pool;
use super::connections::Stage;
use super::state::PoolState;
use crate::options::Affinity;

/// The state of a pool contradicts itself: a defect of this crate, or a state that was tampered with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the pool's state contradicts itself: {0}")]
pub struct BrokenInvariant(String);

impl<C> Pool<C> {
    /// Checks every invariant. Takes time in proportion to the size of the state.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check_invariants(&self) -> Result<(), BrokenInvariant> {
        self.find_contradiction().map_or(Ok(()), |problem| Err(BrokenInvariant(problem)))
    }

    /// Counts a connection that is not there.
    #[cfg(all(test, feature = "trace"))]
    pub(crate) fn break_invariant(&mut self) {
        self.connections.pending += 1;
    }

    fn find_contradiction(&self) -> Option<String> {
        // Counts first: the checks below add them up.
        self.connections
            .check(&self.generations)
            .and_then(|()| self.check_limits())
            .and_then(|()| self.check_services())
            .and_then(|()| self.check_check_outs())
            .and_then(|()| self.check_affinity())
            .and_then(|()| self.check_progress())
            .err()
            .map(|problem| problem.to_string())
    }

    fn check_limits(&self) -> Result<(), &'static str> {
        if self.options.limits().as_ref() != Ok(&self.limits) {
            return Err("the limits are not those of the options");
        }
        if self.has_surplus() && !self.connections.available.is_empty() {
            return Err("there are more connections than maxPoolSize though one of them is available");
        }
        if self.attention != self.needed_attention() {
            return Err("a call takes another way than it should");
        }
        if !self.check_retirement() {
            return Err("the end of a connection's life is noted wrongly");
        }
        if !self.check_refresh() {
            return Err("the next refresh of a connection is noted wrongly");
        }
        if !self.check_suspects() {
            return Err("a connection that is not available is to be checked before its delivery");
        }
        if !self.check_warm_ups() {
            return Err("a warm-up goes on that has ended");
        }
        if !self.check_backoff() {
            return Err("the connection that the backoff tries is not being established");
        }
        Ok(())
    }

    fn check_services(&self) -> Result<(), &'static str> {
        for (id, service) in self.generations.services() {
            let members = self.connections.slots.iter().filter(|slot| slot.service == Some(id)).count();
            if members != service.connections() as usize || members == 0 {
                return Err("a service has another number of connections than it says");
            }
        }
        for slot in &self.connections.slots {
            let is_known = slot.service.is_some_and(|id| self.generations.service(id).is_some());
            let is_right = match slot.stage {
                Stage::Closed => slot.service.is_none(),
                Stage::Pending { .. } => slot.service.is_none() || (is_known && self.limits.load_balanced),
                Stage::Available { .. } | Stage::Checking { .. } | Stage::Refreshing { .. } | Stage::InUse { .. } => {
                    is_known == self.limits.load_balanced && is_known == slot.service.is_some()
                }
            };
            if !is_right {
                return Err("a connection has a service that it cannot have, or lacks one");
            }
        }
        if self.generations.to_prune.iter().any(|&id| !self.has_stale_available(id)) {
            return Err("a service without stale connections is marked for pruning");
        }
        Ok(())
    }

    fn check_check_outs(&self) -> Result<(), &'static str> {
        self.wait_queue.check(|pending| match self.connections.slots.get(pending as usize)?.stage {
            Stage::Pending { origin, .. } => origin,
            Stage::Closed
            | Stage::Available { .. }
            | Stage::Checking { .. }
            | Stage::Refreshing { .. }
            | Stage::InUse { .. } => None,
        })?;
        let mut holders = BTreeSet::new();
        for (key, slot) in (0..).zip(&self.connections.slots) {
            match slot.stage {
                Stage::InUse { check_out, .. } => {
                    if !self.wait_queue.is_delivered(check_out) || !holders.insert(check_out) {
                        return Err("a connection in use was delivered to no check-out, or to one that has another");
                    }
                }
                Stage::Pending { origin: Some(origin), .. } => {
                    if !self.wait_queue.is_origin(origin, key) {
                        return Err("a pending connection names an origin that does not wait for it");
                    }
                }
                Stage::Closed
                | Stage::Pending { .. }
                | Stage::Available { .. }
                | Stage::Checking { .. }
                | Stage::Refreshing { .. } => {}
            }
        }
        if holders.len() != self.wait_queue.delivered() {
            return Err("a check-out was delivered a connection that is not in use");
        }
        Ok(())
    }

    /// No waiter waits without need: not for an available connection, not for a permit that is free.
    fn check_progress(&self) -> Result<(), &'static str> {
        let waiting = self.wait_queue.len();
        if waiting > 0 && self.state != PoolState::Ready {
            return Err("a check-out waits for a pool that is not ready");
        }
        if self.state == PoolState::Closed && !self.connections.available.is_empty() {
            return Err("a closed pool has available connections");
        }
        // Held connections wait for their keys, unless they are lent.
        if waiting > self.checks() && self.free() > 0 {
            return Err("a check-out waits though a connection is available");
        }
        let is_held_back = self.creation_timeout().is_some();
        if waiting > self.connections.pending + self.checks() && self.may_create() && !is_held_back {
            return Err("a check-out waits though a connection could be created");
        }
        let is_borrowed = matches!(self.limits.affinity, Some(Affinity::Hold { lend: true, .. }));
        let has_held = self.connections.available.len() > self.free();
        if is_borrowed && has_held && waiting > self.connections.pending + self.checks() {
            return Err("a check-out waits though a held connection could be lent");
        }
        Ok(())
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
