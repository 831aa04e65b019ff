//! Warm-ups: connections that are established before anybody needs them.

use cmap_core::topology::{Answer, Input, WarmUpId};

use super::super::machine::Machine;
use super::super::oracle::{Broken, law};
use super::{Deployment, Driver};

impl<M: Machine> Driver<M> {
    /// The warm-up that began last, and has not ended.
    pub(in super::super) fn last_warm_up(&self) -> Option<WarmUpId> {
        self.warm_ups.last().copied()
    }

    pub(in super::super) fn place_warm_up(&self, warm_up: WarmUpId) -> Option<usize> {
        self.warm_ups.iter().position(|known| *known == warm_up)
    }

    pub(super) fn warm_up(&mut self, connections: Option<u32>) -> Result<(), Broken> {
        let answer = self.answer(Input::WarmUp(Box::default(), connections));
        if let Answer::WarmUp(warm_up) = answer {
            // Of several servers, those count that suit.
            let is_single = matches!(self.deployment, Deployment::Standalone | Deployment::LoadBalanced);
            self.oracle.warm_up_began(warm_up, connections.filter(|_| is_single));
            self.warm_ups.push(warm_up);
        }
        self.drain()?;
        self.look()
    }

    pub(super) fn cancel_warm_up(&mut self, nth: usize) -> Result<(), Broken> {
        let Some(warm_up) = super::nth_of(&self.warm_ups, nth) else { return Ok(()) };
        let answer = self.answer(Input::CancelWarmUp(warm_up));
        if matches!(answer, Answer::WarmUpCancelled(Some(_))) {
            self.oracle.warm_up_cancelled(warm_up)?;
            self.warm_ups.retain(|known| *known != warm_up);
        }
        self.drain()?;
        let has_ended = !self.oracle.is_warming_up(warm_up);
        law("a warm-up that was cancelled has ended", has_ended, || format!("{answer:?}"))?;
        self.look()
    }

    /// Cancels the warm-ups that may never end.
    pub(super) fn give_up_warm_ups(&mut self) -> Result<(), Broken> {
        while self.may_stay_cold && !self.warm_ups.is_empty() {
            self.cancel_warm_up(0)?;
        }
        Ok(())
    }
}
