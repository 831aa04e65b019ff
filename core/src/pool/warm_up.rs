//! Warm-up: connections that are established before anybody needs them, and the moment at which they are.
//!
//! A warm-up asks for a number of established connections, idle or in use, and ends once there are as many. Until then the
//! pool creates what is missing as a population does: for no check-out, with permits that nobody needs more, and no sooner
//! than backoff and rate allow; but it waits for no interval, and works without maintenance. Afterwards the connections
//! are like any others: maxIdleTimeMS and the rest decide how long they stay.
//!
//! It ends in an error as soon as the pool cannot do it: when one of the connections that no check-out waits for fails, when
//! the pool is paused or closed, or when maxPoolSize is too small.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::output::{Action, Output};
use super::settle::Due;
use super::timer::{Timeout, TimeoutReason};
use super::{Pool, PoolState, WarmUpError, WarmUpErrorKind, WarmUpId};
use crate::time::Instant;

/// The warm-ups of a pool that have not ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct WarmUps {
    /// Those ever begun.
    begun: u64,
    /// The oldest first.
    goals: Vec<Goal>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Goal {
    number: u64,
    /// How many connections have to be established.
    connections: u32,
}

impl<C> Pool<C> {
    /// Has as many connections established as `connections` says, or as minPoolSize does where it says nothing.
    /// [`Action::WarmedUp`] follows, exactly once, unless the warm-up is cancelled.
    pub fn warm_up(&mut self, now: Instant, connections: Option<u32>) -> WarmUpId {
        self.advance(now);
        self.use_host();
        self.warm_ups.begun = self.warm_ups.begun.saturating_add(1);
        let goal =
            Goal { number: self.warm_ups.begun, connections: connections.unwrap_or_else(|| self.min_pool_size()) };
        match self.refusal_of_warm_ups() {
            Some(kind) => self.end_warm_up(goal, Err(kind)),
            None => {
                self.warm_ups.goals.push(goal);
                self.population_failed = false;
                self.refuse_warm_ups();
                self.settle(Due::Spare);
            }
        }
        WarmUpId { pool: self.id, number: goal.number }
    }

    /// Gives up a warm-up. Connections that are being established for it stay in the pool. Returns how far it came, unless
    /// it has ended: then its [`Action::WarmedUp`] has come, or is among the outputs.
    pub fn cancel_warm_up(&mut self, now: Instant, id: WarmUpId) -> Option<WarmUpError> {
        self.advance(now);
        self.give_up_warm_up(id)
    }

    /// Gives up a warm-up without a look at the time, so that there are no outputs.
    pub(crate) fn give_up_warm_up(&mut self, id: WarmUpId) -> Option<WarmUpError> {
        let is_it = |goal: &Goal| id.pool == self.id && goal.number == id.number;
        let place = self.warm_ups.goals.iter().position(is_it)?;
        let goal = self.warm_ups.goals.remove(place);
        Some(self.warm_up_error(goal, WarmUpErrorKind::GivenUp))
    }

    /// Connections that are established, in use or not.
    pub fn established(&self) -> u32 {
        self.connections.total().saturating_sub(self.connections.pending)
    }

    /// Ends the warm-ups that have what they asked for, and creates what the others lack.
    pub(super) fn warm(&mut self) {
        if self.warm_ups.goals.is_empty() {
            return;
        }
        let established = self.established();
        self.end_warm_ups(|goal| (goal.connections <= established).then_some(Ok(())));
        while self.lacks_warm_connection() && self.may_create() {
            self.create(None);
        }
    }

    /// When to go on with a warm-up that something held back.
    pub(super) fn warm_up_timeout(&self) -> Option<Timeout> {
        if self.warm_ups.goals.is_empty() || !self.lacks_warm_connection() {
            return None;
        }
        let allowed = self.creation_allowed_at().filter(|_| self.has_room() && self.may_ask_for_permit())?;
        Some(Timeout { at: allowed.max(self.now), reason: TimeoutReason::WarmUp })
    }

    /// Whether a warm-up goes on, which is a use of the host.
    pub(super) fn is_warming(&self) -> bool {
        !self.warm_ups.goals.is_empty()
    }

    /// Ends all warm-ups in an error.
    pub(super) fn fail_warm_ups(&mut self, kind: &WarmUpErrorKind) {
        self.end_warm_ups(|_| Some(Err(kind.clone())));
    }

    /// Ends the warm-ups that maxPoolSize does not allow.
    pub(super) fn refuse_warm_ups(&mut self) {
        let max_pool_size = self.limits.max_pool_size;
        let kind = WarmUpErrorKind::BeyondMaxPoolSize { max_pool_size };
        self.end_warm_ups(|goal| (goal.connections > max_pool_size).then(|| Err(kind.clone())));
    }

    /// Whether warm-ups that cannot be fulfilled have ended, and those that are fulfilled.
    pub(super) fn check_warm_ups(&self) -> bool {
        let established = self.established();
        let is_open = |goal: &Goal| goal.connections > established && goal.connections <= self.limits.max_pool_size;
        self.warm_ups.goals.is_empty()
            || (self.refusal_of_warm_ups().is_none() && self.warm_ups.goals.iter().all(is_open))
    }

    fn lacks_warm_connection(&self) -> bool {
        let most = self.warm_ups.goals.iter().map(|goal| goal.connections).max();
        self.has_permit_to_spare() && most.is_some_and(|most| self.connections.total() < most)
    }

    /// Why the pool warms up no connections, if it is paused or closed.
    pub(super) fn refusal_of_warm_ups(&self) -> Option<WarmUpErrorKind> {
        match self.state {
            PoolState::Ready => None,
            PoolState::Paused => Some(WarmUpErrorKind::PoolCleared { cause: self.paused_by.clone() }),
            PoolState::Closed => Some(WarmUpErrorKind::PoolClosed),
        }
    }

    fn end_warm_ups(&mut self, result: impl Fn(&Goal) -> Option<Result<(), WarmUpErrorKind>>) {
        for goal in core::mem::take(&mut self.warm_ups.goals) {
            match result(&goal) {
                Some(result) => self.end_warm_up(goal, result),
                None => self.warm_ups.goals.push(goal),
            }
        }
    }

    fn end_warm_up(&mut self, goal: Goal, result: Result<(), WarmUpErrorKind>) {
        let warm_up = WarmUpId { pool: self.id, number: goal.number };
        let result = result.map_err(|kind| Arc::new(self.warm_up_error(goal, kind)));
        self.outputs.push_back(Output::Action(Action::WarmedUp { warm_up, result }));
    }

    fn warm_up_error(&self, goal: Goal, kind: WarmUpErrorKind) -> WarmUpError {
        let address = Arc::clone(&self.address);
        WarmUpError { kind, address, established: self.established(), wanted: goal.connections }
    }
}
