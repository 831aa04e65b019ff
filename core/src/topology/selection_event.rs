//! What happens while servers are selected, for the log (SEL-41, SEL-42).
//!
//! A check-out leads to two or more of these events, so they are made only as far as somebody asks for them. A check-out that goes back
//! to wait for a server begins a new selection; that it waits is one event.

use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::selection::{SelectionError, ServerSelector};
use super::waiting::{SelectionId, Waiter};
use super::{Criteria, Output, Phase, Topology, TopologyDescription};
use crate::address::ServerAddress;
use crate::server::ServerId;
use crate::time::Instant;

/// Which events of selections are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SelectionDetail {
    /// None.
    #[default]
    None,
    /// Those of selections that wait.
    Waiting,
    /// All: two for each check-out at least.
    All,
}

/// The operation that a check-out is for, as the log names it (SEL-41). A check-out that a user makes by hand has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its number, which is the same for all attempts, and for the events of their commands.
    pub id: i64,
    /// The name of its command.
    pub name: String,
}

/// Something that happened to the selection of a server, in the past tense.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SelectionEvent {
    /// What happened.
    pub kind: SelectionEventKind,
    /// What was wanted.
    pub selector: ServerSelector,
    /// What the server is selected for, if the caller said so.
    pub operation: Option<Arc<Operation>>,
    /// What was known of the servers.
    pub topology: Arc<TopologyDescription>,
}

/// The kinds of [`SelectionEvent`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SelectionEventKind {
    /// A selection began.
    Started,
    /// A server was selected.
    Succeeded {
        /// Its address.
        server: Arc<ServerAddress>,
    },
    /// No server was selected.
    Failed {
        /// Why.
        error: Arc<SelectionError>,
    },
    /// No server is suitable yet.
    Waiting {
        /// The time until the selection fails; `None` if there is no limit.
        remaining: Option<Duration>,
    },
}

impl SelectionEvent {
    /// The name of the event.
    pub fn name(&self) -> &'static str {
        match self.kind {
            SelectionEventKind::Started => "ServerSelectionStarted",
            SelectionEventKind::Succeeded { .. } => "ServerSelectionSucceeded",
            SelectionEventKind::Failed { .. } => "ServerSelectionFailed",
            SelectionEventKind::Waiting { .. } => "ServerSelectionWaiting",
        }
    }
}

impl<C> Topology<C> {
    /// Which of [`Output::Selection`] are produced, whether or not other events [are](Self::observe). None at first.
    pub fn observe_selections(&mut self, detail: SelectionDetail) {
        if self.selection_detail != detail {
            self.selection_detail = detail;
            if self.phase == Phase::Monitored {
                self.forget_choices();
            }
        }
    }

    pub(super) fn selection_started(&mut self, criteria: &Criteria) {
        self.emit_selection(SelectionDetail::All, criteria, || SelectionEventKind::Started);
    }

    pub(super) fn selection_succeeded(&mut self, criteria: &Criteria, server: ServerId) {
        let address = self.servers.get(server).map(|server| Arc::clone(&server.description.address));
        if let Some(server) = address {
            self.emit_selection(SelectionDetail::All, criteria, || SelectionEventKind::Succeeded { server });
        }
    }

    pub(super) fn selection_failed(&mut self, criteria: &Criteria, error: &Arc<SelectionError>) {
        self.emit_selection(SelectionDetail::All, criteria, || SelectionEventKind::Failed { error: Arc::clone(error) });
    }

    /// Tells once of a check-out that it waits for a server.
    pub(super) fn tell_waiting(&mut self, selection: SelectionId) {
        if self.selection_detail == SelectionDetail::None {
            return;
        }
        let waiter = self.selections.get_mut(selection).filter(|waiter| !waiter.is_told);
        let Some(Waiter { criteria, limit, is_told, .. }) = waiter else { return };
        *is_told = true;
        let (criteria, limit) = (criteria.clone(), *limit);
        let remaining = (limit != Instant::END).then(|| limit.saturating_since(self.now));
        self.emit_selection(SelectionDetail::Waiting, &criteria, || SelectionEventKind::Waiting { remaining });
    }

    /// Emits the event once for each check-out that waits for a server.
    pub(super) fn tell_all_waiting(&mut self) {
        if self.selection_detail != SelectionDetail::None {
            self.selections.untold().into_iter().for_each(|selection| self.tell_waiting(selection));
        }
    }

    fn emit_selection(
        &mut self,
        least: SelectionDetail,
        criteria: &Criteria,
        kind: impl FnOnce() -> SelectionEventKind,
    ) {
        // Nothing is selected for an operation that keeps to its server (PIN-1).
        let is_selection = !matches!(criteria.selector, ServerSelector::Pinned(_));
        if is_selection && self.selection_detail >= least && self.phase != Phase::Unmonitored {
            self.outputs.push_back(Output::Selection(SelectionEvent {
                kind: kind(),
                selector: criteria.selector.clone(),
                operation: criteria.operation.clone(),
                topology: Arc::clone(&self.description),
            }));
        }
    }
}
