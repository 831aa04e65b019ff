//! Warm-up in the reference: what is missing is created, and when it ends.

use cmap_core::pool::{PoolState, TimeoutReason};

use super::{Cause, Due, Output, Reference, State};
use crate::model::output::Warmed;

/// A warm-up under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WarmUp {
    pub(crate) number: u64,
    wanted: u32,
}

impl Reference {
    pub(super) fn warm_up(&mut self, connections: Option<u32>) -> u64 {
        self.use_host();
        self.warm_ups_begun += 1;
        let wanted = connections.unwrap_or_else(|| self.min_pool_size() as u32);
        let warm_up = WarmUp { number: self.warm_ups_begun, wanted };
        match self.unready() {
            Some(why) => self.end_warm_up(warm_up, why),
            None => {
                self.population_failed = false;
                self.warm_ups.push(warm_up);
                self.refuse_warm_ups();
                self.settle(Due::Spare);
            }
        }
        warm_up.number
    }

    /// Whether it was still under way.
    pub(super) fn cancel_warm_up(&mut self, number: u64) -> bool {
        let before = self.warm_ups.len();
        self.warm_ups.retain(|warm_up| warm_up.number != number);
        self.warm_ups.len() < before
    }

    /// Every connection that is established counts, idle or in use.
    pub(super) fn warm(&mut self) {
        let established = self.established_count();
        self.end_warm_ups(|warm_up| (warm_up.wanted as usize <= established).then_some(Warmed::Reached));
        while self.lacks_warm_connection() && self.may_create() {
            self.create(None);
        }
    }

    pub(super) fn refuse_warm_ups(&mut self) {
        let max = self.options.max_pool_size;
        self.end_warm_ups(|warm_up| (max > 0 && warm_up.wanted > max).then_some(Warmed::BeyondMaxPoolSize));
    }

    pub(super) fn fail_warm_ups(&mut self, cause: Cause) {
        self.end_warm_ups(|_| Some(Warmed::Establish(cause)));
    }

    pub(super) fn evict_warm_ups(&mut self) {
        if let Some(why) = self.unready() {
            self.end_warm_ups(|_| Some(why));
        }
    }

    /// When a connection that was held back may be created.
    pub(super) fn next_warm_connection(&self) -> Option<(u64, TimeoutReason)> {
        let at = self.allowed_at().filter(|_| self.lacks_warm_connection() && self.has_room())?;
        Some((at.max(self.now), TimeoutReason::WarmUp))
    }

    fn lacks_warm_connection(&self) -> bool {
        let lacks = |warm_up: &WarmUp| self.connections.len() < warm_up.wanted as usize;
        self.has_permit_to_spare() && self.warm_ups.iter().any(lacks)
    }

    fn established_count(&self) -> usize {
        self.connections.len() - self.count(State::Pending)
    }

    fn unready(&self) -> Option<Warmed> {
        match self.state {
            PoolState::Ready => None,
            PoolState::Paused => Some(Warmed::PoolCleared(self.paused_by)),
            PoolState::Closed => Some(Warmed::PoolClosed),
        }
    }

    pub(super) fn end_warm_ups(&mut self, end: impl Fn(&WarmUp) -> Option<Warmed>) {
        let ended: Vec<_> = self.warm_ups.iter().filter_map(|warm_up| Some((*warm_up, end(warm_up)?))).collect();
        self.warm_ups.retain(|warm_up| end(warm_up).is_none());
        for (warm_up, how) in ended {
            self.end_warm_up(warm_up, how);
        }
    }

    fn end_warm_up(&mut self, warm_up: WarmUp, how: Warmed) {
        let counts = [self.established_count(), warm_up.wanted as usize];
        let counts = (how != Warmed::Reached).then_some(counts);
        self.outputs.push(Output::WarmedUp(warm_up.number, how, counts));
    }
}
