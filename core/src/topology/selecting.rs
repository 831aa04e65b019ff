//! Waiting for a server: how check-outs begin to wait, go on, fail, and come back, because theirs failed them before they were served.
//!
//! A check-out that began in a pool and waits there is remembered with what it wants and how much time it has. If its pool
//! is cleared, its connection cannot be established, or its server is not what it wants any more, it selects a server
//! anew. Its pool reports the failure as the specification has it; its caller waits on. Errors that do not pass
//! end it: a wrong password, a certificate, an option. The pool's backoff holds for it as for any other check-out.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use super::selection::{Criteria, SelectionError, SelectionErrorKind, ServerSelector};
use super::waiting::{Origins, Waiter};
use super::{MonitorCall, Output, Phase, SelectionDetail, SelectionEvent, SelectionEventKind, SelectionId, Topology};
use crate::connection::Fault;
use crate::monitor::Call;
use crate::pool::{self, Action, Cancellation, CheckOutError, CheckOutErrorKind, CheckOutId, CheckOutRequest, Pool};
use crate::server::{ServerId, StateChange};
use crate::time::Instant;

impl<C> Topology<C> {
    /// Lets a check-out that waits for a server want something else, for as long as it may wait still. Does nothing if it
    /// does not wait for one.
    pub fn change_criteria(&mut self, now: Instant, selection: SelectionId, criteria: &Criteria) {
        self.advance(now);
        if self.selections.change(selection, criteria) {
            self.serve_waiters();
        }
    }

    /// Lets a check-out wait for a server, and asks for checks of all servers meanwhile (SEL-15). If as many wait as may, it fails
    ///
    #[cold]
    pub(super) fn select(&mut self, criteria: &Criteria, request: CheckOutRequest) -> SelectionId {
        let waiter = self.waiter(criteria, request);
        let limit = waiter.limit;
        let max_wait_queue_depth = self.pool_options.limits().map_or(u32::MAX, |limits| limits.max_wait_queue_depth);
        let selection = self.selections.add(waiter);
        if self.phase == Phase::Closed {
            self.fail_selection(selection, SelectionErrorKind::Closed);
        } else if limit <= self.now {
            // The check would come too late for it.
            self.fail_selection(selection, SelectionErrorKind::Timeout);
        } else if self.selections.len() > max_wait_queue_depth as usize {
            self.fail_selection(selection, SelectionErrorKind::WaitQueueFull { max_wait_queue_depth });
        } else if self.selections.len() == 1 {
            // The others have asked for checks, and while they wait one follows the other.
            self.hurry_monitors();
        }
        self.refuse_if_incompatible();
        self.tell_waiting(selection);
        selection
    }

    /// Until when a check-out that arrives now may select a server: its deadline, and for serverSelectionTimeoutMS at most (CSOT-4).
    #[inline]
    pub(super) fn end_of_selection(&self, request: &CheckOutRequest) -> Instant {
        let limit = self.now + self.options.server_selection_timeout;
        request.deadline.map_or(limit, |deadline| deadline.min(limit))
    }

    /// A check-out that arrives now.
    pub(super) fn waiter(&self, criteria: &Criteria, request: CheckOutRequest) -> Waiter {
        let limit = self.end_of_selection(&request);
        Waiter { criteria: criteria.clone(), request, arrived_at: self.now, limit, is_told: false }
    }

    pub(super) fn fail_selection(&mut self, selection: SelectionId, kind: SelectionErrorKind) {
        let Some(waiter) = self.selections.remove(selection) else { return };
        let error = self.selection_error(kind, &waiter.criteria, waiter.arrived_at);
        self.emit_selection(&waiter.criteria, SelectionEventKind::Failed { error: Arc::clone(&error) });
        self.outputs.push_back(Output::SelectionFailed { selection, error });
    }

    /// The error of what wanted this, and has waited since then.
    pub(super) fn selection_error(
        &self,
        kind: SelectionErrorKind,
        criteria: &Criteria,
        since: Instant,
    ) -> Arc<SelectionError> {
        let (selector, topology) = (criteria.selector.clone(), Arc::clone(&self.description));
        Arc::new(SelectionError::new(kind, selector, topology, self.now.saturating_since(since)))
    }

    /// No check-out waits for a server any more.
    pub(super) fn fail_selections(&mut self, kind: &SelectionErrorKind) {
        while let Some(selection) = self.selections.first() {
            self.fail_selection(selection, kind.clone());
        }
    }

    /// Lets the check-outs go on that wait for a server, and that one suits now.
    pub(super) fn serve_waiters(&mut self) {
        for criteria in self.selections.criteria() {
            while let Some((selection, request)) = self.selections.first_of(&criteria) {
                match self.choose(&criteria, &request) {
                    Ok(Some(server)) => match self.unknown_identity(&request) {
                        Some(identity) => self.fail_selection(selection, SelectionErrorKind::UnknownIdentity(identity)),
                        None => self.begin_selected(selection, server),
                    },
                    Ok(None) => break,
                    Err(kind) => self.fail_selection(selection, kind),
                }
            }
        }
        self.advance_warm_ups();
    }

    /// Begins a check-out that waited for a server in the pool of the one that was chosen.
    fn begin_selected(&mut self, selection: SelectionId, server: ServerId) {
        let (now, Some(mut waiter)) = (self.now, self.selections.remove(selection)) else { return };
        // The pool has what the selection leaves (CSOT-4).
        if let Some(deadline) = &mut waiter.request.deadline {
            *deadline = (*deadline).min(waiter.limit);
        }
        self.selection_succeeded(&waiter.criteria, server);
        let server = self.pool_for(server, waiter.request.identity);
        self.note_waiting_elsewhere(server);
        self.lend_permits(server);
        let Some((known, origins)) = self.servers.with_origins(server) else { return };
        let (check_out, delivery) = known.pool.begin_check_out(now, waiter.request);
        if delivery.is_none() {
            origins.note(check_out, waiter);
        }
        // In front of the outputs that the pool has just made.
        self.outputs.push_back(Output::Selected { selection, check_out });
        self.collect(server);
        self.outputs.extend(delivery.map(|delivery| Output::Pool { server, output: delivery.into() }));
    }

    /// No check-out waits for servers that this client cannot talk to (TOP-37).
    pub(super) fn refuse_if_incompatible(&mut self) {
        if let Err(kind) = self.check_compatibility() {
            self.fail_selections(&kind);
        }
    }

    /// Refuses a deployment with a server that this client cannot talk to (TOP-38).
    pub(super) fn check_compatibility(&self) -> Result<(), SelectionErrorKind> {
        match self.description.incompatibility() {
            Some((address, text)) => Err(SelectionErrorKind::Incompatible(alloc::format!("{address}: {text}"))),
            None => Ok(()),
        }
    }

    /// While check-outs wait for a server, the next check is soon, and not after heartbeatFrequencyMS (MON-3):
    /// whatever the last one found, and also if it was cancelled.
    pub(super) fn hurry_monitor(&mut self, server: ServerId) {
        if self.selections.len() > 0 || self.warm_ups.wait_for_server() {
            self.call_monitor(server, MonitorCall::Call(Call::RequestCheck));
        }
    }

    /// Asks for the next check of every server soon (SEL-15), while check-outs wait for a server.
    pub(super) fn hurry_monitors(&mut self) {
        let servers: Vec<ServerId> = self.servers.present().map(|(id, _)| id).collect();
        servers.into_iter().for_each(|server| self.hurry_monitor(server));
    }

    /// Takes over an output of a pool. A failure that another server may spare the caller sends its check-out back.
    pub(super) fn take_output(&mut self, server: ServerId, mut output: pool::Output<C>) {
        if let pool::Output::Action(Action::Fail { check_out, error }) = &mut output
            && let Some(waiter) = self.servers.origins(server).and_then(|origins| origins.take(*check_out))
        {
            if waiter.limit > self.now && self.may_reselect(error) {
                return self.reselect(*check_out, waiter);
            }
            // Its caller has waited since then, for a server and in other pools, too.
            let waited = self.now.saturating_since(waiter.arrived_at);
            if waited > error.waited {
                Arc::make_mut(error).waited = waited;
            }
        }
        if let pool::Output::Action(Action::WarmedUp { warm_up, result }) = output {
            return self.end_part(server, warm_up, result);
        }
        self.outputs.push_back(Output::Pool { server, output });
    }

    /// Lets the check-outs that came back go on, where a server suits them. Tells once of each of the others that it waits.
    pub(super) fn serve_reselected(&mut self) {
        if !mem::take(&mut self.selections.has_returned) {
            return;
        }
        self.serve_waiters();
        self.hurry_monitors();
        if self.selection_detail != SelectionDetail::None {
            self.selections.untold().into_iter().for_each(|selection| self.tell_waiting(selection));
        }
    }

    /// Sends back the check-outs that wait in the pools of a server that is not what they want any more.
    pub(super) fn send_back_unsuited(&mut self, server: ServerId) {
        let now = self.now;
        for server in self.pools_of(server) {
            let has_waiters = self.servers.pool(server).is_some_and(|pool| pool.counts().waiting > 0);
            let origins = self.servers.origins(server).filter(|_| has_waiters && self.options.reselect);
            let Some(waiting) = origins.map(Origins::take_all) else { continue };
            // They came by their places in the pool, and go on in the order of their arrival.
            let mut waiting: Vec<_> = waiting.collect();
            waiting.sort_by_key(|(check_out, waiter)| (waiter.arrived_at, check_out.sequence));
            for (check_out, waiter) in waiting {
                let stays = waiter.limit <= now || self.suits(server, &waiter.criteria);
                let Some((known, origins)) = self.servers.with_origins(server) else { continue };
                if stays {
                    origins.note(check_out, waiter);
                } else if known.pool.withdraw_check_out(now, check_out) == Cancellation::Cancelled {
                    self.reselect(check_out, waiter);
                }
            }
            // The others may want a connection that those did not.
            self.call_pool(server, Pool::serve_queue);
        }
    }

    fn reselect(&mut self, check_out: CheckOutId, waiter: Waiter) {
        self.emit_selection(&waiter.criteria, SelectionEventKind::Started);
        self.selections.has_returned = true;
        let selection = self.selections.add(waiter);
        self.outputs.push_back(Output::Reselecting { check_out, selection });
    }

    /// Whether a check-out that failed so may select a server anew.
    fn may_reselect(&self, error: &CheckOutError) -> bool {
        self.options.reselect
            && self.phase == Phase::Monitored
            && match &error.kind {
                // The pool of a server that has left.
                CheckOutErrorKind::PoolClosed | CheckOutErrorKind::PoolCleared { .. } => true,
                CheckOutErrorKind::Establish(error) => match error.fault {
                    Fault::Network | Fault::Timeout => true,
                    Fault::Server { .. } => StateChange::of_establish_error(error).is_some(),
                    Fault::Other => false,
                },
                CheckOutErrorKind::Timeout(_)
                | CheckOutErrorKind::Cancelled
                | CheckOutErrorKind::WaitQueueFull { .. } => false,
            }
    }

    /// Which of [`Output::Selection`] are produced, whether or not other events [are](Self::observe). None at first.
    pub fn observe_selections(&mut self, detail: SelectionDetail) {
        if self.selection_detail != detail {
            self.selection_detail = detail;
            if self.phase == Phase::Monitored {
                self.forget_choices();
            }
        }
    }

    pub(super) fn selection_succeeded(&mut self, criteria: &Criteria, server: ServerId) {
        if let Some(server) = self.servers.pool(server).map(|pool| Arc::clone(pool.shared_address())) {
            self.emit_selection(criteria, SelectionEventKind::Succeeded { server });
        }
    }

    /// Tells once of a check-out that it waits for a server.
    fn tell_waiting(&mut self, selection: SelectionId) {
        if self.selection_detail == SelectionDetail::None {
            return;
        }
        let waiter = self.selections.get_mut(selection).filter(|waiter| !waiter.is_told);
        let Some(Waiter { criteria, limit, is_told, .. }) = waiter else { return };
        *is_told = true;
        let remaining = (*limit != Instant::END).then(|| limit.saturating_since(self.now));
        let criteria = criteria.clone();
        self.emit_selection(&criteria, SelectionEventKind::Waiting { remaining });
    }

    #[inline]
    pub(super) fn emit_selection(&mut self, criteria: &Criteria, kind: SelectionEventKind) {
        if self.selection_detail != SelectionDetail::None {
            self.emit_wanted_selection(criteria, kind);
        }
    }

    /// Out of line, since most clients want no such events.
    #[inline(never)]
    fn emit_wanted_selection(&mut self, criteria: &Criteria, kind: SelectionEventKind) {
        let is_wanted =
            self.selection_detail == SelectionDetail::All || matches!(kind, SelectionEventKind::Waiting { .. });
        // Nothing is selected for an operation that keeps to its server (PIN-1).
        let is_selection = !matches!(criteria.selector, ServerSelector::Pinned(_));
        if is_wanted && is_selection && self.phase != Phase::Unmonitored {
            let Criteria { selector, operation, .. } = criteria.clone();
            let topology = Arc::clone(&self.description);
            self.outputs.push_back(Output::Selection(SelectionEvent { kind, selector, operation, topology }));
        }
    }
}
