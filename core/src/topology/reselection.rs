//! Check-outs that go back to wait for a server, because theirs failed them before they were served.
//!
//! A check-out that began in a pool and waits there is remembered with what it wants and how much time it has. If its pool
//! is cleared, its connection cannot be established, or its server is not what it wants any more, it selects a server
//! anew. Its pool reports the failure as the specification has it; its caller waits on. Errors that do not pass
//! end it: a wrong password, a certificate, an option. The pool's backoff holds for it as for any other check-out.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::waiting::Waiter;
use super::{Criteria, Output, Phase, Topology};
use crate::connection::{EstablishError, Fault};
use crate::pool::{self, Action, Cancellation, CheckOutError, CheckOutErrorKind, CheckOutId, CheckOutRequest};
use crate::server::{ServerId, StateChange};
use crate::time::Instant;

/// The check-outs that wait in a server's pool, by their index there. An entry may be out of date: it counts for its own
/// check-out alone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Origins(Vec<Option<(CheckOutId, Waiter)>>);

impl Origins {
    /// A check-out waits that wants this, arrived then, and has time until a limit.
    pub(super) fn note(
        &mut self,
        check_out: CheckOutId,
        criteria: &Criteria,
        request: CheckOutRequest,
        arrived_at: Instant,
        limit: Instant,
    ) {
        if criteria.is_default() {
            self.note_any_writable(check_out, request, arrived_at, limit);
        } else {
            let criteria = criteria.clone();
            self.note_waiter(check_out, Waiter { criteria, request, arrived_at, limit, is_told: false });
        }
    }

    pub(super) fn note_waiter(&mut self, check_out: CheckOutId, waiter: Waiter) {
        let index = check_out.index();
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        if let Some(entry) = self.0.get_mut(index) {
            *entry = Some((check_out, waiter));
        }
    }

    /// Notes a check-out that any server suits that takes writes: the frequent case, which makes nothing that is there already.
    #[inline(always)]
    pub(super) fn note_any_writable(
        &mut self,
        check_out: CheckOutId,
        request: CheckOutRequest,
        arrived_at: Instant,
        limit: Instant,
    ) {
        match self.0.get_mut(check_out.index()) {
            Some(Some((own, waiter))) if waiter.criteria.is_default() => {
                *own = check_out;
                waiter.request = request;
                waiter.arrived_at = arrived_at;
                waiter.limit = limit;
                waiter.is_told = false;
            }
            _ => {
                let criteria = Criteria::default();
                self.note_waiter(check_out, Waiter { criteria, request, arrived_at, limit, is_told: false });
            }
        }
    }

    /// Takes the entry of a check-out.
    fn take(&mut self, check_out: CheckOutId) -> Option<Waiter> {
        let entry = self.0.get_mut(check_out.index())?;
        entry.take_if(|(own, _)| *own == check_out).map(|(_, waiter)| waiter)
    }

    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// No check-out waits in the pool: the memory of a burst is given back.
    pub(super) fn give_back(&mut self) {
        /// The number of entries that are kept.
        const KEPT: usize = 1024;
        if self.0.len() > KEPT {
            self.0 = Vec::new();
        }
    }
}

impl<C> Topology<C> {
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

    /// Lets the check-outs that came back go on, where a server suits them.
    pub(super) fn serve_reselected(&mut self) {
        if self.selections.take_returned() {
            self.serve_waiters();
            self.hurry_monitors();
            self.tell_all_waiting();
        }
    }

    /// Sends back the check-outs that wait in the pool of a server that is not what they want any more.
    pub(super) fn send_back_unsuited(&mut self, server: ServerId) {
        for pool in self.pools_of(server) {
            self.send_back_unsuited_of(pool);
        }
    }

    fn send_back_unsuited_of(&mut self, server: ServerId) {
        if !self.options.reselect || self.servers.get(server).is_none_or(|server| server.pool.counts().waiting == 0) {
            return;
        }
        let now = self.now;
        let waiting = self.servers.origins(server).map(core::mem::take).unwrap_or_default();
        for (check_out, waiter) in waiting.0.into_iter().flatten() {
            if waiter.limit <= now || self.suits(server, &waiter.criteria) {
                if let Some(origins) = self.servers.origins(server) {
                    origins.note_waiter(check_out, waiter);
                }
            } else if let Some(server) = self.servers.get_mut(server)
                && server.pool.withdraw_check_out(now, check_out) == Cancellation::Cancelled
            {
                self.reselect(check_out, waiter);
            }
        }
        self.collect(server);
    }

    fn reselect(&mut self, check_out: CheckOutId, waiter: Waiter) {
        self.selection_started(&waiter.criteria);
        let selection = self.selections.add_returned(waiter);
        self.outputs.push_back(Output::Reselecting { check_out, selection });
    }

    /// Whether a check-out that failed so may select a server anew.
    fn may_reselect(&self, error: &CheckOutError) -> bool {
        self.options.reselect
            && self.phase == Phase::Monitored
            && match &error.kind {
                // The pool of a server that has left.
                CheckOutErrorKind::PoolClosed | CheckOutErrorKind::PoolCleared { .. } => true,
                CheckOutErrorKind::Establish(error) => may_pass(error),
                CheckOutErrorKind::Timeout(_)
                | CheckOutErrorKind::Cancelled
                | CheckOutErrorKind::WaitQueueFull { .. } => false,
            }
    }
}

/// Whether what kept a connection from being established may pass.
fn may_pass(error: &EstablishError) -> bool {
    match error.fault {
        Fault::Network | Fault::Timeout => true,
        Fault::Server { code } => StateChange::of(code, &error.message).is_some(),
        Fault::Other => false,
    }
}
