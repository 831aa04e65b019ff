//! Who made each check-out, also when it is called by another name later.

use std::collections::BTreeMap;

use cmap_core::pool::CheckOutId;
use cmap_core::topology::{Answer, CheckOut, Output};
use cmap_core::trace::{Note, Step, Trace};

/// The texts of those who made check-outs.
#[derive(Default)]
pub(super) struct Holders(BTreeMap<CheckOut, u32>);

impl Holders {
    /// Takes what a step tells.
    pub(super) fn take(&mut self, step: &Step<'_>) {
        for note in &step.notes {
            if let (Note::Holder(text), Answer::CheckOut(check_out, _)) = (note, &step.answer) {
                self.0.insert(*check_out, *text);
            }
        }
        for output in &step.outputs {
            let renamed = match output {
                Output::Selected { selection, check_out } => {
                    Some((CheckOut::Selecting(*selection), CheckOut::Started(*check_out)))
                }
                Output::Reselecting { check_out, selection } => {
                    Some((CheckOut::Started(*check_out), CheckOut::Selecting(*selection)))
                }
                Output::Pool { .. }
                | Output::SelectionFailed { .. }
                | Output::WarmedUp { .. }
                | Output::Selection(_)
                | Output::ResolveSrv { .. }
                | Output::Topology(_)
                | Output::Server { .. }
                | Output::Monitor { .. } => None,
            };
            if let Some((from, to)) = renamed
                && let Some(text) = self.0.remove(&from)
            {
                self.0.insert(to, text);
            }
        }
    }

    /// Who made a check-out, where that was noted.
    pub(super) fn of(&self, trace: &Trace, check_out: CheckOutId) -> Option<String> {
        let text = self.0.get(&CheckOut::Started(check_out))?;
        trace.text(*text).map(String::from)
    }
}
