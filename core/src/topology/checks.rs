//! What checks and hellos say about a server, and the consequences for all servers, their pools, and the check-outs that wait.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::output::Output;
use super::selection::SelectionErrorKind;
use super::update::Update;
use super::waiting::SelectionId;
use super::{MonitorCall, Phase, Topology, TopologyDescription, TopologyEvent};
use crate::address::ServerAddress;
use crate::connection::Fault;
use crate::monitor::{Call, Finding, HeartbeatEvent, ServerDescription};
use crate::pool::{ApiMisuse, Cause, Clear};
use crate::server::{Membership, Server, ServerEvent, ServerId};
use crate::time::Instant;
use crate::topology_version::TopologyVersion;

impl<C> Topology<C> {
    /// A server's monitor has a finding. That of a server that has left is ignored (TOP-14).
    ///
    /// A description that is older than what is known already is ignored (SDAM-6), unless it is the third in a row:
    /// [`TopologyVersion`] says why. It may add servers to the topology and remove others, the described one among them.
    /// The pool of a usable server becomes ready, and the check-outs that it suits go on there (SDAM-1, SDAM-2).
    ///
    /// A check that failed makes the server unknown and clears its pool. Connections in use are interrupted if the
    /// check timed out (MON-9), because they would wait for nothing, too.
    ///
    /// A `Monitor` hands over its findings as they are to be; a monitor of your own makes the description from the hello's reply, by
    /// `ServerDescription::of_reply`.
    ///
    /// # Errors
    /// The check failed, and the server is load-balanced, and therefore not checked (LB-3).
    pub fn handle_check(&mut self, now: Instant, server: ServerId, finding: Finding) -> Result<(), ApiMisuse> {
        self.advance(now);
        let Some(known) = self.servers.get_mut(server).filter(|server| !server.has_left()) else { return Ok(()) };
        match finding {
            Finding::Description(description) => {
                let is_older = is_older(&known.description, &description);
                if known.disbelief.believes(is_older) {
                    self.believe(server, *description);
                }
            }
            Finding::Failure { .. } if self.options.load_balanced => return Err(ApiMisuse::ClearWithoutService),
            Finding::Failure { fault, cause } => {
                self.mark_unknown(server, cause.clone(), None);
                let clear = Clear::pool(cause);
                let clear = if fault == Fault::Timeout { clear.interrupting() } else { clear };
                self.clear_pools(server, &clear)?;
            }
        }
        self.hurry_monitor(server);
        Ok(())
    }

    /// A server's monitor began or ended a check: its event takes its place among the others. Ignored once the server has
    /// left.
    pub fn handle_heartbeat(&mut self, now: Instant, server: ServerId, event: HeartbeatEvent) {
        self.advance(now);
        if self.servers.get(server).is_some_and(|server| !server.has_left()) {
            self.emit_of(server, ServerEvent::Heartbeat(event));
        }
    }

    /// The hello of an application's connection described the server.
    pub(super) fn learn_from_application(&mut self, server: ServerId, description: ServerDescription) {
        let known = self.servers.get(server);
        if known.is_some_and(|known| !known.has_left() && !is_older(&known.description, &description)) {
            self.believe(server, description);
        }
        self.hurry_monitor(server);
    }

    pub(super) fn mark_unknown(&mut self, server: ServerId, cause: Cause, topology_version: Option<TopologyVersion>) {
        let Some(known) = self.servers.get(server) else { return };
        let address = Arc::clone(&known.description.address);
        let unknown = ServerDescription { topology_version, ..ServerDescription::unknown(address, cause) };
        self.take_description(server, unknown);
    }

    /// Records the server's description of itself. A load balancer stays one (LB-3).
    fn believe(&mut self, server: ServerId, description: ServerDescription) {
        if !self.options.load_balanced {
            self.take_description(server, description);
            self.send_back_unsuited(server);
        }
    }

    /// Replaces a server's description, and does all that follows for the topology in the same step (SDAM-3): first the
    /// events (TOP-41), then the pools.
    pub(super) fn take_description(&mut self, server: ServerId, description: ServerDescription) {
        // A server that has left says nothing, though another one may be at its address (TOP-14).
        let has_left = self.servers.get(server).is_none_or(Server::has_left);
        if self.phase != Phase::Monitored || has_left {
            return;
        }
        let seeds = self.options.seeds.len();
        let Some(Update { topology, server: description, replaced }) = self.description.update(description, seeds)
        else {
            return;
        };
        self.replace_description(server, Arc::clone(&description));
        let replaced: Vec<ServerId> = replaced.into_iter().filter_map(|primary| self.replace(primary)).collect();
        let left = self.join_and_leave(&topology);
        // A server that leaves with this description gets none.
        let is_member = topology.server(&description.address).is_some();
        let wants_pool = topology.wants_pool(description.server_type) && description.incompatibility().is_none();
        self.describe(topology);
        // First, because check-outs of the pools that are closed may go on there.
        if is_member && wants_pool {
            self.resize_by_role(server);
            self.make_ready(server);
        }
        self.end_servers(left);
        for &server in &replaced {
            self.call_monitor(server, MonitorCall::Call(Call::RequestCheck));
        }
        self.serve_waiters();
        replaced.into_iter().for_each(|server| self.send_back_unsuited(server));
        self.refuse_if_incompatible();
    }

    /// Begins to use the servers that `new` has and the description has not. Returns those that it has no more: they are
    /// for [`end_servers`](Self::end_servers), once `new` is the description (TOP-41).
    pub(super) fn join_and_leave(&mut self, new: &TopologyDescription) -> Vec<ServerId> {
        let before = Arc::clone(&self.description);
        let (known, remaining) = (before.addresses(), new.addresses());
        for joined in new.servers.iter().filter(|server| !known.contains(&*server.address)) {
            self.begin_server(Arc::clone(&joined.address));
        }
        let left = before.servers.iter().filter(|server| !remaining.contains(&*server.address));
        let ids = self.servers.by_address();
        let left: Vec<ServerId> = left.filter_map(|server| ids.get(&*server.address).copied()).collect();
        left.iter().for_each(|&server| self.emit_of(server, ServerEvent::ServerClosed));
        left
    }

    /// Ends the use of servers that have left.
    pub(super) fn end_servers(&mut self, left: Vec<ServerId>) {
        for server in left {
            // First, because a server without connections is forgotten with its pool.
            self.call_monitor(server, MonitorCall::End);
            self.close_pool(server);
        }
    }

    /// Begins to use a server (TOP-45).
    pub(super) fn begin_server(&mut self, address: Arc<ServerAddress>) {
        if let Some(server) = self.add_server(Arc::clone(&address), Membership::Unused) {
            self.emit_of(server, ServerEvent::ServerOpening);
            let is_checked = !self.options.load_balanced;
            self.call_monitor(server, MonitorCall::Begin { address, is_checked });
        }
    }

    /// Makes this the description of the topology.
    pub(super) fn describe(&mut self, new: TopologyDescription) {
        let new = Arc::new(new);
        let previous = core::mem::replace(&mut self.description, Arc::clone(&new));
        let lacks_servers = new.servers.is_empty() && self.phase == Phase::Monitored;
        if !previous.is_same(&new) {
            self.emit(TopologyEvent::TopologyDescriptionChanged { previous, new });
        }
        if lacks_servers {
            self.outputs.push_back(Output::Topology(TopologyEvent::ServersMissing));
        }
        self.forget_choices();
    }

    /// Lets the check-outs go on that wait for a server, and that one suits now.
    pub(super) fn serve_waiters(&mut self) {
        for criteria in self.selections.criteria() {
            while let Some(selection) = self.selections.first_of(&criteria) {
                let request = self.selections.request(selection).unwrap_or_default();
                match self.choose(&criteria, &request) {
                    Ok(Some(server)) => self.begin_selected(selection, server),
                    Ok(None) => break,
                    Err(kind) => self.fail_selection(selection, kind),
                }
            }
        }
        self.advance_warm_ups();
    }

    /// Begins a check-out that waited for a server in the pool of the one that was chosen.
    fn begin_selected(&mut self, selection: SelectionId, server: ServerId) {
        let request = self.selections.request(selection);
        if let Some(identity) = request.and_then(|request| self.unknown_identity(&request)) {
            return self.fail_selection(selection, SelectionErrorKind::UnknownIdentity(identity));
        }
        let (now, Some(mut waiter)) = (self.now, self.selections.remove(selection)) else { return };
        // The pool has what the selection leaves (CSOT-4).
        if let Some(deadline) = &mut waiter.request.deadline {
            *deadline = (*deadline).min(waiter.limit);
        }
        self.selection_succeeded(&waiter.criteria, server);
        let server = self.pool_for(server, waiter.request.identity);
        self.note_waiting_elsewhere(server);
        let Some((known, origins)) = self.servers.with_origins(server) else { return };
        let (check_out, delivery) = known.pool.begin_check_out(now, waiter.request);
        if delivery.is_none() {
            origins.note_waiter(check_out, waiter);
        }
        // In front of the outputs that the pool has just made.
        self.outputs.push_back(Output::Selected { selection, check_out });
        self.collect(server);
        self.outputs.extend(delivery.map(|delivery| Output::Pool { server, output: delivery.into() }));
    }

    /// No check-out waits for servers that this client cannot talk to (TOP-37).
    pub(super) fn refuse_if_incompatible(&mut self) {
        if let Some((address, text)) = self.description.incompatibility() {
            let kind = SelectionErrorKind::Incompatible(alloc::format!("{address}: {text}"));
            while let Some(selection) = self.selections.first() {
                self.fail_selection(selection, kind.clone());
            }
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
        for slot in 0..self.servers.slots() {
            if let Some(server) = self.servers.id_at(slot)
                && self.servers.get(server).is_some_and(|server| !server.has_left() && server.of_identity.is_none())
            {
                self.hurry_monitor(server);
            }
        }
    }

    /// Closes the pools of a server that leaves. A pool that was not needed was never told of.
    pub(super) fn close_pool(&mut self, id: ServerId) {
        for id in self.pools_of(id) {
            self.close_single_pool(id);
        }
    }

    pub(super) fn close_single_pool(&mut self, id: ServerId) {
        let now = self.now;
        let Some(server) = self.servers.get_mut(id) else { return };
        server.pool.close(now);
        if server.membership == Membership::Unused {
            while server.pool.poll_output().is_some() {}
        }
        server.membership = Membership::Left;
        self.collect(id);
    }

    fn make_ready(&mut self, id: ServerId) {
        for id in self.pools_of(id) {
            self.make_single_ready(id);
        }
    }

    fn make_single_ready(&mut self, id: ServerId) {
        let now = self.now;
        if let Some(server) = self.servers.get_mut(id) {
            if server.membership == Membership::Unused {
                server.membership = Membership::Used;
            }
            server.pool.ready(now);
        }
        self.collect(id);
    }

    /// Replaces the description of the server that it describes.
    fn replace(&mut self, description: Arc<ServerDescription>) -> Option<ServerId> {
        let server = self.servers.find(&description.address)?;
        self.replace_description(server, description);
        Some(server)
    }

    fn replace_description(&mut self, id: ServerId, new: Arc<ServerDescription>) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let previous = core::mem::replace(&mut server.description, Arc::clone(&new));
        if !previous.is_same(&new) {
            self.emit_of(id, ServerEvent::ServerDescriptionChanged { previous, new });
        }
    }
}

/// Whether `new` is older than what is known (SDAM-6).
fn is_older(known: &ServerDescription, new: &ServerDescription) -> bool {
    TopologyVersion::is_reply_stale(known.topology_version, new.topology_version)
}
