//! Makes a plan smaller that breaks a law: operations, faults and options are left out as long as a law breaks.

use super::plan::{Patience, Plan};
use super::run::run;

/// The most plans that are tried.
const TRIES: u32 = 3000;

/// The smallest plan found that breaks a law.
pub(super) fn shrink(plan: Plan) -> Plan {
    let mut shrinker = Shrinker { best: plan, tries: 0 };
    loop {
        let before = shrinker.best.clone();
        shrinker.leave_out(|plan| plan.operations.len(), |plan, from, to| drop(plan.operations.drain(from..to)));
        shrinker.leave_out(|plan| plan.faults.len(), |plan, from, to| drop(plan.faults.drain(from..to)));
        shrinker.leave_out(|plan| plan.options.len(), |plan, from, to| drop(plan.options.drain(from..to)));
        shrinker.be_patient();
        if shrinker.best == before || shrinker.tries >= TRIES {
            return shrinker.best;
        }
    }
}

struct Shrinker {
    best: Plan,
    tries: u32,
}

impl Shrinker {
    /// Keeps `plan` if it breaks a law.
    fn keep(&mut self, plan: Plan) {
        self.tries += 1;
        if run(&plan, false).result.is_err() {
            self.best = plan;
        }
    }

    /// Leaves out as many as it can of what a plan has several of: at first halves, at last single ones.
    fn leave_out(&mut self, count: impl Fn(&Plan) -> usize, remove: impl Fn(&mut Plan, usize, usize)) {
        let mut size = count(&self.best).div_ceil(2);
        while size > 0 {
            let mut end = count(&self.best);
            while end > 0 && self.tries < TRIES {
                let begin = end.saturating_sub(size);
                let mut plan = self.best.clone();
                remove(&mut plan, begin, end);
                self.keep(plan);
                end = begin;
            }
            size /= 2;
        }
    }

    /// Lets callers go on to the end.
    fn be_patient(&mut self) {
        for at in 0..self.best.operations.len() {
            let mut plan = self.best.clone();
            let Some(operation) = plan.operations.get_mut(at) else { return };
            if operation.patience != Patience::ToTheEnd && self.tries < TRIES {
                operation.patience = Patience::ToTheEnd;
                self.keep(plan);
            }
        }
    }
}
