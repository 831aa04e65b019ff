//! Results of the connections of the servers' pools, and what they say about their server.

use core::time::Duration;

use super::checks::is_older;
use super::{MonitorCall, Topology};
use crate::connection::EstablishError;
use crate::monitor::{Call, ServerDescription, ServerType};
use crate::pool::{ApiMisuse, Cause, Clear, ConnectionState, Handle, PhaseTimes, Pool, Reaction, Refused};
use crate::server::reaction::{self, Circumstances, Reactions};
use crate::server::{OperationError, Server, ServerId};
use crate::service_id::ServiceId;
use crate::time::Instant;
use crate::topology_version::TopologyVersion;

impl<C> Topology<C> {
    /// The hello of a connection was answered. Behind a load balancer it names the service, which the connection joins
    /// (LB-7). Elsewhere it describes the server as a check does, but for the round-trip times (MON-5, SDAM-22): those of the
    /// checks stay, and the description's own counts only where there is none, so that no server is taken for near because
    /// nothing is known (SEL-2). A description older than what is known already is ignored (SDAM-6), and so is that of a connection that a clear
    /// has made stale: the reason for the clear is newer.
    ///
    /// `ServerDescription::of_reply` makes the description from the hello's reply.
    ///
    /// # Errors
    /// A service is named outside load-balanced mode; or those of [`Pool::handle_hello`](crate::pool::Pool::handle_hello).
    pub fn handle_hello(
        &mut self,
        now: Instant,
        connection: Handle,
        service_id: Option<ServiceId>,
        mut description: ServerDescription,
    ) -> Result<(), ApiMisuse> {
        self.advance(now);
        if let Some(service_id) = service_id {
            return self.call_pool_of(connection, |pool| pool.handle_hello(now, connection, service_id));
        }
        let (id, owner) = self.owner(connection)?;
        let member = owner.member(id);
        let is_stale = owner.pool.is_stale(connection);
        if let Some(server) = self.servers.get(member).filter(|_| !is_stale) {
            let known = &server.description;
            let is_known = description.server_type != ServerType::Unknown;
            let round_trip_time = known.round_trip_time.or(description.round_trip_time);
            description.round_trip_time = round_trip_time.filter(|_| is_known);
            description.min_round_trip_time = if is_known { known.min_round_trip_time } else { Duration::ZERO };
            description.last_update_time = Some(self.now);
            if !server.has_left() && !is_older(known, &description) {
                self.believe(member, description);
            }
            self.hurry_monitor(member);
        }
        Ok(())
    }

    /// Records how long the phases of an establishment took that has ended well: for all pools together, where durations
    /// are [recorded](Self::record_durations).
    pub fn note_phases(&mut self, times: &PhaseTimes) {
        if let Some(durations) = &mut self.durations {
            durations.record_phases(times);
        }
    }

    /// A connection was established.
    ///
    /// # Errors
    /// Those of [`Pool::handle_established`](crate::pool::Pool::handle_established).
    pub fn handle_established(&mut self, now: Instant, connection: Handle, socket: C) -> Result<(), Refused<C>> {
        self.hand_in(now, connection, socket, |pool, socket| pool.handle_established(now, connection, socket))
    }

    /// Establishing a connection failed. Clears the pool if the error blames the server (SDAM-4 to SDAM-8), or
    /// the service's part of it (LB-9, LB-10).
    ///
    /// # Errors
    /// Those of [`Pool::handle_establish_failed`](crate::pool::Pool::handle_establish_failed).
    pub fn handle_establish_failed(
        &mut self,
        now: Instant,
        connection: Handle,
        error: EstablishError,
    ) -> Result<(), ApiMisuse> {
        self.advance(now);
        let (id, owner) = self.owner(connection)?;
        let topology_version = error.topology_version;
        let mut circumstances = self.circumstances(id, connection, topology_version);
        // That the server refuses an old credential, or this user of several, says nothing about it.
        let acts_for_several_users = owner.of_identity.is_some() || !self.identities.known.is_empty();
        circumstances.is_stale |= owner.pool.is_refused_as_outdated(connection, &error)
            || (acts_for_several_users && error.is_about_the_credential());
        let reactions = reaction::to_establish_error(&error, circumstances);
        let is_pending = owner.pool.find_in(connection, ConnectionState::Pending)?.is_some();
        if reactions.mark_unknown && is_pending {
            self.mark_unknown(self.member_of(id), Cause::of(&error), topology_version);
        }
        let clear = (reactions.clear && is_pending && self.shares_limits()).then(|| Clear::pool(Cause::of(&error)));
        let reaction = if reactions.clear { Reaction::ClearPool } else { Reaction::KeepPool };
        self.call_pool_of(connection, |pool| pool.handle_establish_failed(now, connection, error, reaction))?;
        if let Some(clear) = clear {
            self.clear_siblings(id, &clear);
        }
        self.react(id, reactions);
        Ok(())
    }

    /// The server has answered on a connection that was idle for long.
    ///
    /// # Errors
    /// Those of [`Pool::handle_refreshed`](crate::pool::Pool::handle_refreshed).
    pub fn handle_refreshed(&mut self, now: Instant, connection: Handle, socket: C) -> Result<(), Refused<C>> {
        self.hand_in(now, connection, socket, |pool, socket| pool.handle_refreshed(now, connection, socket))
    }

    /// The server has not answered on a connection that was idle for long. That says about the server what the error of an
    /// operation would: a network error clears the pool, a timeout costs the connection alone.
    ///
    /// # Errors
    /// Those of [`Pool::handle_refresh_failed`](crate::pool::Pool::handle_refresh_failed).
    pub fn handle_refresh_failed(
        &mut self,
        now: Instant,
        connection: Handle,
        error: OperationError,
    ) -> Result<(), ApiMisuse> {
        self.advance(now);
        let (id, owner) = self.owner(connection)?;
        if owner.pool.find_in(connection, ConnectionState::Refreshing)?.is_some() {
            self.weigh_operation_error(id, connection, error)?;
        }
        self.call_pool_of(connection, |pool| pool.handle_refresh_failed(now, connection))
    }

    /// The answer to [`Action::Check`](crate::pool::Action::Check).
    ///
    /// # Errors
    /// Those of [`Pool::handle_checked`](crate::pool::Pool::handle_checked).
    pub fn handle_checked(&mut self, now: Instant, connection: Handle, alive: bool) -> Result<(), ApiMisuse> {
        self.advance(now);
        self.call_pool_of(connection, |pool| pool.handle_checked(now, connection, alive))
    }

    /// The peer of a connection hung up.
    ///
    /// # Errors
    /// Those of [`Pool::handle_peer_closed`](crate::pool::Pool::handle_peer_closed).
    pub fn handle_peer_closed(&mut self, now: Instant, connection: Handle) -> Result<(), ApiMisuse> {
        self.advance(now);
        self.call_pool_of(connection, |pool| pool.handle_peer_closed(now, connection))
    }

    /// Lends the socket of a connection that is available or being checked.
    pub fn socket(&mut self, connection: Handle) -> Option<&mut C> {
        self.servers.at(connection.slot())?.pool.socket(connection)
    }

    /// An operation on a connection in use failed, or its reply announced a change of the server. Clears the pool if the
    /// error blames the server (SDAM-4 to SDAM-16), or the service's part of it (LB-11). Check the connection in
    /// afterwards: PoolCleared precedes CheckedIn (CMAP-49).
    ///
    /// # Errors
    /// The handle is another pool's, or of a connection that is not in use. An error of a connection that was closed
    /// since is ignored.
    pub fn handle_operation_failed(
        &mut self,
        now: Instant,
        connection: Handle,
        error: OperationError,
    ) -> Result<(), ApiMisuse> {
        self.advance(now);
        let (id, owner) = self.owner(connection)?;
        match owner.pool.find_in(connection, ConnectionState::InUse)? {
            Some(_) => self.weigh_operation_error(id, connection, error),
            None => Ok(()),
        }
    }

    /// Does what an error on an established connection calls for.
    fn weigh_operation_error(
        &mut self,
        id: ServerId,
        connection: Handle,
        error: OperationError,
    ) -> Result<(), ApiMisuse> {
        let reactions =
            reaction::to_operation_error(&error, self.circumstances(id, connection, error.topology_version));
        if reactions.mark_unknown {
            self.mark_unknown(self.member_of(id), error.cause.clone(), error.topology_version);
        }
        if reactions.clear {
            let service_id = self.servers.pool(id).and_then(|pool| pool.service_of(connection));
            let clear = Clear { service_id, ..Clear::pool(error.cause) };
            self.clear_pools(id, &clear)?;
        } else if reactions.mark_unknown {
            self.send_back_unsuited(self.member_of(id));
        }
        self.react(id, reactions);
        Ok(())
    }

    /// The server of a connection, or what stands for an identity there.
    fn owner(&self, connection: Handle) -> Result<(ServerId, &Server<C>), ApiMisuse> {
        let id = self.servers.id_at(connection.slot());
        id.zip(self.servers.peek(connection.slot())).ok_or(ApiMisuse::ForeignConnection)
    }

    /// Makes a call of the connection's pool that takes its socket.
    fn hand_in(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        call: impl FnOnce(&mut Pool<C>, C) -> Result<(), Refused<C>>,
    ) -> Result<(), Refused<C>> {
        self.advance(now);
        let id = self.servers.id_at(connection.slot());
        id.into_iter().for_each(|id| self.lend_permits(id));
        let Some((id, pool)) = id.and_then(|id| Some((id, self.servers.pool_mut(id)?))) else {
            return Err(Refused { socket, misuse: ApiMisuse::ForeignConnection });
        };
        let taken = call(pool, socket);
        self.collect(id);
        taken
    }

    /// Makes a call of the connection's pool.
    fn call_pool_of<T>(
        &mut self,
        connection: Handle,
        call: impl FnOnce(&mut Pool<C>) -> Result<T, ApiMisuse>,
    ) -> Result<T, ApiMisuse> {
        let (server, _) = self.owner(connection)?;
        self.call_pool(server, call).unwrap_or(Err(ApiMisuse::ForeignConnection))
    }

    fn circumstances(
        &self,
        server: ServerId,
        connection: Handle,
        topology_version: Option<TopologyVersion>,
    ) -> Circumstances {
        let member = self.servers.get(self.member_of(server));
        let known_version = member.and_then(|member| member.description.topology_version);
        let is_old = TopologyVersion::is_error_stale(known_version, topology_version);
        let pool = self.servers.pool(server);
        Circumstances {
            is_stale: pool.is_none_or(|pool| is_old || pool.is_stale(connection)),
            load_balanced: self.options.load_balanced,
            service_is_known: pool.is_some_and(|pool| pool.service_of(connection).is_some()),
        }
    }

    fn react(&mut self, pool: ServerId, reactions: Reactions) {
        let server = self.member_of(pool);
        let Reactions { clear: _, mark_unknown, cancel_check, request_check } = reactions;
        let calls =
            [(mark_unknown, Call::MarkUnknown), (cancel_check, Call::CancelCheck), (request_check, Call::RequestCheck)];
        for (_, call) in calls.into_iter().filter(|(is_wanted, _)| *is_wanted) {
            self.call_monitor(server, MonitorCall::Call(call));
        }
        self.hurry_monitor(server);
    }
}
