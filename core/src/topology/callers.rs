//! Calls of a topology's users: its beginning, check-outs and check-ins, what concerns all servers at once, and its end.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::description::unknown;
use super::seed_list::SrvPolling;
use super::selection::{Criteria, SelectionErrorKind};
use super::waiting::Origins;
use super::{CheckOut, Output, Phase, SelectionEventKind, Topology};
use super::{TopologyDescription, TopologyEvent, TopologyType};
use crate::monitor::{ServerDescription, ServerType};
use crate::pool::{
    AffinityKey, ApiMisuse, Cancellation, Cause, CheckOutId, CheckOutRequest, CheckedIn, Clear, Condition, Delivery,
    Handle, IdentityId, Pool, Purpose, Refused,
};
use crate::server::{ServerEvent, ServerId};
use crate::time::Instant;

/// A check-out that has begun, and the connection that it was delivered at once.
type Begun<C> = (CheckOut, Option<Delivery<C>>);

impl<C> Topology<C> {
    /// The client begins: the topology opens, with its seeds in it (TOP-40). A load balancer is known from the start, and
    /// never checked (LB-3, LB-4). Does nothing the second time.
    pub fn open(&mut self, now: Instant) {
        self.advance(now);
        if self.phase != Phase::Unopened {
            return;
        }
        self.phase = Phase::Monitored;
        let description = self.initial_description();
        let polled = self.options.polled_seed_list.clone();
        self.polling = polled.map(|polled| SrvPolling::new(polled, self.options.heartbeat_frequency, self.now));
        self.emit(TopologyEvent::TopologyOpening);
        self.describe(description.clone());
        for seed in self.options.seeds.clone() {
            self.begin_server(Arc::new(seed));
        }
        if self.options.load_balanced
            && let Some(seed) = description.servers.first()
            && let Some(server) = self.servers.find(&seed.address)
        {
            self.take_description(server, ServerDescription::new(Arc::clone(&seed.address), ServerType::LoadBalancer));
        }
    }

    /// Asks for a connection to a server that meets `criteria`: from its pool, if one is known; otherwise as soon as one is, for
    /// at most serverSelectionTimeoutMS. That limit bounds the whole of a request with a deadline (CSOT-4).
    ///
    /// Returns the check-out and, if it was served at once, the delivery. Otherwise the answer comes through the queue;
    /// so does the delivery if outputs were queued before the call.
    #[must_use = "a delivered connection has to be checked in"]
    #[inline(always)]
    pub fn check_out(
        &mut self,
        now: Instant,
        criteria: &Criteria,
        request: CheckOutRequest,
    ) -> (CheckOut, Option<Delivery<C>>) {
        let limit = self.check_out_limit;
        if criteria.is_default()
            && self.outputs.is_empty()
            && let Some(pool) = self.writers_pool(request.identity)
            && let Some(delivery) = pool.check_out_fast(now, bounded(now, request, limit))
        {
            return (CheckOut::Started(delivery.check_out), Some(delivery));
        }
        self.begin_check_out(now, criteria, request)
    }

    /// The pool that requests of this identity go to, if a server takes writes.
    #[inline(always)]
    fn writers_pool(&mut self, identity: Option<IdentityId>) -> Option<&mut Pool<C>> {
        let writer = self.writer?;
        if identity.is_none() {
            return self.servers.pool_mut(writer);
        }
        let pool = self.known_pool(writer, identity)?;
        self.servers.pool_mut(pool)
    }

    /// Out of line, so that the code inlined into a caller stays small.
    #[inline(never)]
    fn begin_check_out(&mut self, now: Instant, criteria: &Criteria, request: CheckOutRequest) -> Begun<C> {
        self.advance(now);
        self.emit_selection(criteria, SelectionEventKind::Started);
        let chosen = match self.unknown_identity(&request) {
            Some(identity) => Err(SelectionErrorKind::UnknownIdentity(identity)),
            None => self.choose(criteria, &request),
        };
        match chosen {
            Ok(Some(server)) => {
                self.selection_succeeded(criteria, server);
                let server = self.pool_for(server, request.identity);
                self.begin_in_pool(server, criteria, request)
            }
            Ok(None) => (CheckOut::Selecting(self.select(criteria, request)), None),
            Err(kind) => {
                let selection = self.selections.add(self.waiter(criteria, request));
                self.fail_selection(selection, kind);
                (CheckOut::Selecting(selection), None)
            }
        }
    }

    fn begin_in_pool(&mut self, id: ServerId, criteria: &Criteria, request: CheckOutRequest) -> Begun<C> {
        let now = self.now;
        let was_drained = self.outputs.is_empty();
        let bounded = bounded(now, request, self.check_out_limit);
        self.note_waiting_elsewhere(id);
        self.lend_permits(id);
        let Some(pool) = self.servers.pool_mut(id) else {
            return (CheckOut::Selecting(self.select(criteria, request)), None);
        };
        let (check_out, delivery) = pool.begin_check_out(now, bounded);
        let has_outputs = !pool.is_drained() || self.has_budget();
        if delivery.is_none() && self.options.reselect {
            let limit = self.end_of_selection(&request);
            if let Some(origins) = self.servers.origins(id) {
                origins.begin(check_out, criteria, request, now, limit);
            }
        }
        let delivery = if has_outputs || !was_drained { self.hand_over(id, was_drained, delivery) } else { delivery };
        (CheckOut::Started(check_out), delivery)
    }

    /// Takes over what a call of a pool led to. The delivery that it returned is for its caller, unless outputs had been
    /// queued before.
    fn hand_over(&mut self, server: ServerId, was_drained: bool, delivery: Option<Delivery<C>>) -> Option<Delivery<C>> {
        self.take_outputs(server);
        self.share_budget();
        if !self.outputs.is_empty() {
            // Otherwise no timeout may become an earlier one.
            self.follow_min_pool_sizes();
        }
        if was_drained {
            return delivery;
        }
        self.outputs.extend(delivery.map(|delivery| Output::Pool { server, output: delivery.into() }));
        None
    }

    /// Gives up a check-out in any state. One that waits for a server never began, and ends without an event.
    #[must_use = "a delivered connection has to be checked in"]
    pub fn cancel_check_out(&mut self, now: Instant, check_out: CheckOut) -> Cancellation {
        self.advance(now);
        match check_out {
            CheckOut::Started(id) => {
                let server = self.servers.id_at(id.slot());
                let cancelled = server.and_then(|server| self.call_pool(server, |pool| pool.cancel_check_out(now, id)));
                cancelled.unwrap_or(Cancellation::Finished)
            }
            CheckOut::Selecting(selection) => match self.selections.remove(selection) {
                Some(_) => Cancellation::Cancelled,
                None => Cancellation::Finished,
            },
        }
    }

    /// Ends a use of a connection, as [`Pool::check_in`](crate::pool::Pool::check_in) does. Returns the delivery to the
    /// next waiter, unless outputs were queued before the call or the call led to further outputs.
    ///
    /// # Errors
    /// Those of [`Pool::check_in`](crate::pool::Pool::check_in).
    #[inline(always)]
    pub fn check_in(
        &mut self,
        now: Instant,
        check_out: CheckOutId,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<CheckedIn<C>, Refused<C>> {
        match self.servers.at(connection.slot()) {
            Some(server) if self.outputs.is_empty() => {
                match server.pool.check_in_fast(now, check_out, connection, socket, condition) {
                    Ok(()) => Ok(CheckedIn::Done),
                    Err(socket) => self.begin_check_in(now, check_out, connection, socket, condition),
                }
            }
            _ => self.begin_check_in(now, check_out, connection, socket, condition),
        }
    }

    /// Out of line, so that the code inlined into a caller stays small.
    #[inline(never)]
    fn begin_check_in(
        &mut self,
        now: Instant,
        check_out: CheckOutId,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<CheckedIn<C>, Refused<C>> {
        self.advance(now);
        let was_drained = self.outputs.is_empty();
        let id = self.servers.id_at(connection.slot());
        let has_budget = self.has_budget();
        if has_budget && let Some(id) = id {
            self.yield_if_due(id);
        }
        let Some((id, server)) = id.and_then(|id| Some((id, self.servers.get_mut(id)?))) else {
            return Err(Refused { socket, misuse: ApiMisuse::ForeignConnection });
        };
        let checked_in = server.pool.begin_check_in(now, check_out, connection, socket, condition);
        if was_drained && server.pool.is_drained() && !server.has_left() && !has_budget {
            return checked_in;
        }
        let (delivery, refused) = match checked_in {
            Ok(checked_in) => (checked_in.delivery(), None),
            Err(refused) => (None, Some(refused)),
        };
        let delivery = self.hand_over(id, was_drained, delivery);
        refused.map_or_else(|| Ok(delivery.map_or(CheckedIn::Done, CheckedIn::Delivered)), Err)
    }

    /// Changes the purpose of a connection in use, as [`Pool::set_purpose`](crate::pool::Pool::set_purpose) does.
    ///
    /// # Errors
    /// The handle is another client's, its connection is not in use, or another check-out uses it.
    pub fn set_purpose(
        &mut self,
        check_out: CheckOutId,
        connection: Handle,
        purpose: Purpose,
    ) -> Result<(), ApiMisuse> {
        let server = self.servers.at(connection.slot()).ok_or(ApiMisuse::ForeignConnection)?;
        server.pool.set_purpose(check_out, connection, purpose)
    }

    /// Makes the pool of a server without a monitor ready.
    ///
    /// # Errors
    /// The servers are monitored.
    pub fn ready(&mut self, now: Instant) -> Result<(), ApiMisuse> {
        self.advance(now);
        let server = self.unmonitored_server()?;
        for pool in self.pools_of(server) {
            self.call_pool(pool, |pool| pool.ready(now));
        }
        Ok(())
    }

    /// Clears the pool of a server without a monitor.
    ///
    /// # Errors
    /// The servers are monitored; or those of [`Pool::clear`](crate::pool::Pool::clear).
    pub fn clear(&mut self, now: Instant, clear: Clear) -> Result<(), ApiMisuse> {
        self.advance(now);
        let server = self.unmonitored_server()?;
        self.clear_pools(server, &clear)
    }

    /// Ends the lives of all connections over a time, as [`Pool::replace_connections`](crate::pool::Pool::replace_connections) does, those
    /// of each server by themselves.
    pub fn replace_connections(&mut self, now: Instant, over: Duration) {
        self.advance(now);
        self.call_all_pools(|pool| pool.replace_connections(now, over));
    }

    /// Lets the pools of all servers forget the connection of a key, as
    /// [`Pool::end_affinity`](crate::pool::Pool::end_affinity) does.
    pub fn end_affinity(&mut self, now: Instant, key: AffinityKey) {
        self.advance(now);
        self.call_all_pools(|pool| pool.end_affinity(now, key));
    }

    /// The process goes on after its machine was suspended, as [`Pool::resume`](crate::pool::Pool::resume).
    pub fn resume(&mut self, now: Instant) {
        self.advance(now);
        self.call_all_pools(|pool| pool.resume(now));
    }

    /// Closes all servers and their pools; every waiter fails (TOP-42). Close the monitors first: TopologyClosed is the
    /// last event (MON-14).
    pub fn close(&mut self, now: Instant) {
        self.advance(now);
        let before = core::mem::replace(&mut self.phase, Phase::Closed);
        if before == Phase::Closed {
            return;
        }
        self.polling = None;
        let members: Vec<ServerId> = self.servers.present().map(|(id, _)| id).collect();
        members.iter().for_each(|&server| self.close_pools(server));
        self.fail_selections(&SelectionErrorKind::Closed);
        self.fail_warm_ups(&SelectionErrorKind::Closed);
        if before == Phase::Monitored {
            members.into_iter().for_each(|server| self.emit_of(server, ServerEvent::ServerClosed));
            self.describe(TopologyDescription::of_servers(TopologyType::Unknown, Vec::new()));
            self.emit(TopologyEvent::TopologyClosed);
        }
    }

    /// Call this in a process that was forked, as [`Pool::reset_after_fork`](crate::pool::Pool::reset_after_fork)
    /// (FORK-2): all check-outs that wait fail, and the servers are unknown until their next checks.
    pub fn reset_after_fork(&mut self, now: Instant) {
        self.advance(now);
        self.fail_selections(&SelectionErrorKind::Forked);
        self.fail_warm_ups(&SelectionErrorKind::Forked);
        if let Some(polling) = &mut self.polling {
            polling.abandon_request(self.now);
        }
        self.for_each(|topology, id| {
            topology.servers.origins(id).into_iter().for_each(Origins::forget);
            if topology.phase == Phase::Monitored && !topology.options.load_balanced && topology.member_of(id) == id {
                topology.mark_unknown(id, Cause::new("the process was forked"), None);
            }
            topology.call_pool(id, |pool| pool.reset_after_fork(now));
        });
    }

    /// The server whose owner makes the pool ready and clears it. A closed pool stays as it is.
    fn unmonitored_server(&self) -> Result<ServerId, ApiMisuse> {
        match (self.phase, self.writer) {
            (Phase::Unmonitored | Phase::Closed, Some(server)) => Ok(server),
            _ => Err(ApiMisuse::Monitored),
        }
    }

    /// The topology that a client with these options begins with (TOP-4).
    fn initial_description(&self) -> TopologyDescription {
        let options = &self.options;
        let topology_type = match &options.replica_set {
            _ if options.load_balanced => TopologyType::LoadBalanced,
            _ if options.direct_connection => TopologyType::Single,
            Some(_) => TopologyType::ReplicaSetNoPrimary,
            None => TopologyType::Unknown,
        };
        let servers = options.seeds.iter().map(unknown).collect();
        let set_name = options.replica_set.clone();
        TopologyDescription { set_name, ..TopologyDescription::of_servers(topology_type, servers) }
    }
}

/// A request with a deadline ends within serverSelectionTimeoutMS at the latest (CSOT-4).
#[inline]
pub(super) fn bounded(now: Instant, mut request: CheckOutRequest, limit: Duration) -> CheckOutRequest {
    if let Some(deadline) = &mut request.deadline {
        *deadline = (*deadline).min(now + limit);
    }
    request
}
