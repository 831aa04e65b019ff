//! What checks and hellos say about a server, and the consequences for all servers, their pools, and the check-outs that wait.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::output::Output;
use super::update::Update;
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

    pub(super) fn mark_unknown(&mut self, server: ServerId, cause: Cause, topology_version: Option<TopologyVersion>) {
        let Some(known) = self.servers.get(server) else { return };
        let address = Arc::clone(&known.description.address);
        let unknown = ServerDescription { topology_version, ..ServerDescription::unknown(address, cause) };
        self.take_description(server, unknown);
    }

    /// Records the server's description of itself. A load balancer stays one (LB-3).
    pub(super) fn believe(&mut self, server: ServerId, description: ServerDescription) {
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
        let replaced = replaced.into_iter().filter_map(|primary| {
            let server = self.servers.find(&primary.address)?;
            self.replace_description(server, primary);
            Some(server)
        });
        let replaced: Vec<ServerId> = replaced.collect();
        // A server that leaves with this description gets none.
        let is_member = topology.server(&description.address).is_some();
        let wants_pool = topology.may_use(description.server_type) && description.incompatibility().is_none();
        let usable = Some(server).filter(|_| is_member && wants_pool);
        self.replace_topology(topology, usable, &replaced);
    }

    /// Makes `new` the description of the topology: its servers join and leave (TOP-41), the pool of the one that is `usable` now is
    /// ready, and the primaries that were `replaced` are checked again.
    pub(super) fn replace_topology(
        &mut self,
        new: TopologyDescription,
        usable: Option<ServerId>,
        replaced: &[ServerId],
    ) {
        let before = Arc::clone(&self.description);
        let (known, remaining) = (before.addresses(), new.addresses());
        for joined in new.servers.iter().filter(|server| !known.contains(&*server.address)) {
            self.begin_server(Arc::clone(&joined.address));
        }
        let left = before.servers.iter().filter(|server| !remaining.contains(&*server.address));
        let ids = self.servers.by_address();
        let left: Vec<ServerId> = left.filter_map(|server| ids.get(&*server.address).copied()).collect();
        left.iter().for_each(|&server| self.emit_of(server, ServerEvent::ServerClosed));
        self.describe(new);
        // First, because check-outs of the pools that are closed may go on there.
        if let Some(server) = usable {
            self.limits_of_role(server).into_iter().for_each(|limits| self.resize_pools(server, limits));
            self.make_ready(server);
        }
        for server in left {
            // First, because a server without connections is forgotten with its pool.
            self.call_monitor(server, MonitorCall::End);
            self.close_pools(server);
        }
        for &server in replaced {
            self.call_monitor(server, MonitorCall::Call(Call::RequestCheck));
        }
        self.serve_waiters();
        replaced.iter().for_each(|&server| self.send_back_unsuited(server));
        self.refuse_if_incompatible();
    }

    /// Begins to use a server (TOP-45).
    pub(super) fn begin_server(&mut self, address: Arc<ServerAddress>) {
        if let Some(server) = self.add_server(Arc::clone(&address), self.pool_options.clone(), Membership::Unused) {
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

    /// Closes the pools of a server that leaves.
    pub(super) fn close_pools(&mut self, server: ServerId) {
        self.pools_of(server).into_iter().for_each(|pool| self.close_pool(pool));
    }

    /// Closes a pool. One that was not needed was never told of.
    pub(super) fn close_pool(&mut self, id: ServerId) {
        let now = self.now;
        let Some(server) = self.servers.get_mut(id) else { return };
        server.pool.close(now);
        if server.membership == Membership::Unused {
            while server.pool.poll_output().is_some() {}
        }
        server.membership = Membership::Left;
        self.collect(id);
    }

    fn make_ready(&mut self, server: ServerId) {
        let now = self.now;
        for id in self.pools_of(server) {
            if let Some(server) = self.servers.get_mut(id) {
                if server.membership == Membership::Unused {
                    server.membership = Membership::Used;
                }
                server.pool.ready(now);
            }
            self.collect(id);
        }
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
pub(super) fn is_older(known: &ServerDescription, new: &ServerDescription) -> bool {
    TopologyVersion::is_reply_stale(known.topology_version, new.topology_version)
}
