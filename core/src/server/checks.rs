//! What checks and hellos say of a server, and the consequences for its pool and its waiters.

use alloc::sync::Arc;

use super::selection::{SelectionErrorKind, Waiter};
use super::{HeartbeatEvent, Output, Phase, Server, ServerEvent, TopologyDescription, TopologyVersion};
use crate::connection::Fault;
use crate::monitor::{Call, Finding, ServerDescription};
use crate::pool::{ApiMisuse, Cause, Clear};
use crate::time::Instant;

impl<C> Server<C> {
    /// The server's monitor has a finding.
    ///
    /// A description that is older than what is known already is ignored (SDAM-6), unless it is the third in a row:
    /// [`TopologyVersion`] says why. The pool of a usable server becomes ready, and the check-outs that wait for it go
    /// on there (SDAM-1, SDAM-2).
    ///
    /// A check that failed makes the server unknown and clears its pool. Connections in use are interrupted if the
    /// check timed out (MON-9), because they would wait for nothing, too.
    ///
    /// # Errors
    /// The check failed, and the server is load-balanced, and therefore not checked (LB-3).
    pub fn handle_check(&mut self, now: Instant, finding: Finding) -> Result<(), ApiMisuse> {
        self.advance(now);
        match finding {
            Finding::Description(description) => {
                let is_older = self.is_older(&description);
                if self.disbelief.believes(is_older) {
                    self.believe(*description);
                }
            }
            Finding::Failure { .. } if self.pool.options().load_balanced => {
                return Err(ApiMisuse::ClearWithoutService);
            }
            Finding::Failure { fault, cause } => {
                self.mark_unknown(cause.clone(), None);
                let clear = Clear::pool(cause);
                let clear = if fault == Fault::Timeout { clear.interrupting() } else { clear };
                self.call_pool(now, |pool| pool.clear(now, clear))?;
            }
        }
        self.hurry_monitor();
        Ok(())
    }

    /// The server's monitor began or ended a check: its event takes its place among the others. Ignored once the server
    /// is closed.
    pub fn handle_heartbeat(&mut self, now: Instant, event: HeartbeatEvent) {
        self.advance(now);
        if self.phase != Phase::Closed {
            self.emit(ServerEvent::Heartbeat(event));
        }
    }

    /// The hello of an application's connection described the server.
    pub(super) fn learn_from_application(&mut self, description: ServerDescription) {
        if !self.is_older(&description) {
            self.believe(description);
        }
        self.hurry_monitor();
    }

    /// Replaces the server's description, and tells the pool and the waiters (SDAM-3).
    pub(super) fn take_description(&mut self, description: ServerDescription) {
        if matches!(self.phase, Phase::Unmonitored | Phase::Closed) {
            return;
        }
        let description = Arc::new(description);
        let previous = core::mem::replace(&mut self.description, Arc::clone(&description));
        let topology = self.topology.with(Arc::clone(&description));
        let may_use = topology.may_use(description.server_type) && description.incompatibility().is_none();
        self.phase = if may_use { Phase::Usable } else { Phase::Unusable };
        if !previous.is_same(&description) {
            let changed = self.topology_changed(&topology);
            self.emit(ServerEvent::ServerDescriptionChanged { previous, new: description });
            self.emit(changed);
        }
        self.topology = Arc::new(topology);
        if may_use {
            let now = self.now;
            self.call_pool(now, |pool| pool.ready(now));
            while let Some(selection) = self.selections.first()
                && let Some(Waiter { request, .. }) = self.selections.remove(selection)
            {
                let (check_out, delivery) = self.pool.check_out(now, request);
                // In front of the outputs that the pool has just made.
                self.outputs.push_back(Output::Selected { selection, check_out });
                self.collect();
                self.outputs.extend(delivery.map(|delivery| Output::Pool(delivery.into())));
            }
        }
        self.refuse_if_incompatible();
    }

    pub(super) fn mark_unknown(&mut self, cause: Cause, topology_version: Option<TopologyVersion>) {
        let address = Arc::clone(&self.description.address);
        self.take_description(ServerDescription { topology_version, ..ServerDescription::unknown(address, cause) });
    }

    /// No check-out waits for a server that this client cannot talk to.
    pub(super) fn refuse_if_incompatible(&mut self) {
        if let Some(text) = self.description.incompatibility() {
            while let Some(selection) = self.selections.first() {
                self.fail_selection(selection, SelectionErrorKind::Incompatible(text.clone()));
            }
        }
    }

    /// While check-outs wait for the server, the next check is soon, and not after heartbeatFrequencyMS (MON-3):
    /// whatever the last one found, and also if it was cancelled.
    pub(super) fn hurry_monitor(&mut self) {
        if self.selections.len() > 0 {
            self.outputs.push_back(Output::Monitor(Call::RequestCheck));
        }
    }

    pub(super) fn topology_changed(&self, new: &TopologyDescription) -> ServerEvent {
        ServerEvent::TopologyDescriptionChanged { previous: Arc::clone(&self.topology), new: Arc::new(new.clone()) }
    }

    /// Whether `description` is older than what is known (SDAM-6).
    fn is_older(&self, description: &ServerDescription) -> bool {
        TopologyVersion::is_reply_stale(self.description.topology_version, description.topology_version)
    }

    /// Records the server's description of itself, or that it does not match the options. A load balancer stays one
    /// (LB-3).
    fn believe(&mut self, description: ServerDescription) {
        if !self.pool.options().load_balanced {
            self.take_description(TopologyDescription::admit(description, &self.options));
        }
    }
}
