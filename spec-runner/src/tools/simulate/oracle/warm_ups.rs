//! The laws of warm-ups.

use cmap_core::topology::WarmUpId;

use super::super::ledger::Pool;
use super::super::mark::Mark;
use super::{Broken, Oracle, law};

impl Oracle {
    pub(in super::super) fn warm_up_began(&mut self, warm_up: WarmUpId, connections: Option<u32>) {
        self.warm_ups.push((warm_up, connections));
    }

    pub(in super::super) fn warm_up_cancelled(&mut self, warm_up: WarmUpId) -> Result<(), Broken> {
        self.marks.meet(Mark::WarmUpCancelled);
        self.end_warm_up(warm_up).map(drop)
    }

    pub(super) fn warmed_up(&mut self, warm_up: WarmUpId, is_warm: bool) -> Result<(), Broken> {
        self.marks.meet(if is_warm { Mark::WarmedUp } else { Mark::WarmUpFailed });
        let wanted = self.end_warm_up(warm_up)?;
        let established: u32 = self.pools.iter().map(Pool::established).sum();
        let has_enough = !is_warm || wanted.is_none_or(|wanted| established >= wanted);
        law("a warm-up that succeeds has its connections", has_enough, || format!("{established} of {wanted:?}"))
    }

    fn end_warm_up(&mut self, warm_up: WarmUpId) -> Result<Option<u32>, Broken> {
        let place = self.warm_ups.iter().position(|(known, _)| *known == warm_up);
        law("a warm-up ends once", place.is_some(), || format!("{warm_up:?}"))?;
        Ok(place.and_then(|place| self.warm_ups.swap_remove(place).1))
    }

    pub(in super::super) fn is_warming_up(&self, warm_up: WarmUpId) -> bool {
        self.warm_ups.iter().any(|(known, _)| *known == warm_up)
    }

    /// How many warm-ups have not ended.
    pub(in super::super) fn warm_ups(&self) -> usize {
        self.warm_ups.len()
    }
}
