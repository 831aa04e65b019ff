//! Results of the connections of a server's pool, and what they say about the server.

use super::reaction::{self, Circumstances, Reactions};
use super::{OperationError, Output, Server, TopologyVersion};
use crate::connection::EstablishError;
use crate::monitor::{Call, ServerDescription};
use crate::pool::{ApiMisuse, Cause, Clear, Handle, Reaction, Refused};
use crate::service_id::ServiceId;
use crate::time::Instant;

impl<C> Server<C> {
    /// The hello of a connection was answered. Behind a load balancer it names the service, which the connection joins
    /// (LB-7). Elsewhere it describes the server as a check does, but for the round-trip times (MON-5, SDAM-22). A
    /// description older than what is known already is ignored (SDAM-6), and so is that of a connection that a clear
    /// has made stale: the reason for the clear is newer.
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
        if let Some(service_id) = service_id {
            return self.call_pool(now, |pool| pool.handle_hello(now, connection, service_id));
        }
        self.advance(now);
        if !self.pool.is_stale(connection) {
            description.round_trip_time = self.description.round_trip_time;
            description.min_round_trip_time = self.description.min_round_trip_time;
            self.learn_from_application(description);
        }
        Ok(())
    }

    /// A connection was established.
    ///
    /// # Errors
    /// Those of [`Pool::handle_established`](crate::pool::Pool::handle_established).
    pub fn handle_established(&mut self, now: Instant, connection: Handle, socket: C) -> Result<(), Refused<C>> {
        self.call_pool(now, |pool| pool.handle_established(now, connection, socket))
    }

    /// Establishing a connection failed. Clears the pool if the error speaks against the server (SDAM-4 to SDAM-8), or
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
        let topology_version = error.topology_version;
        let reactions = reaction::to_establish_error(&error, self.circumstances(connection, topology_version));
        if reactions.mark_unknown && self.pool.is_pending(connection)? {
            self.mark_unknown(Cause::of(&error), topology_version);
        }
        let reaction = if reactions.clear { Reaction::ClearPool } else { Reaction::KeepPool };
        self.call_pool(now, |pool| pool.handle_establish_failed(now, connection, error, reaction))?;
        self.call_monitor(reactions);
        Ok(())
    }

    /// The answer to [`Action::Check`](crate::pool::Action::Check).
    ///
    /// # Errors
    /// Those of [`Pool::handle_checked`](crate::pool::Pool::handle_checked).
    pub fn handle_checked(&mut self, now: Instant, connection: Handle, alive: bool) -> Result<(), ApiMisuse> {
        self.call_pool(now, |pool| pool.handle_checked(now, connection, alive))
    }

    /// The peer of a connection hung up.
    ///
    /// # Errors
    /// Those of [`Pool::handle_peer_closed`](crate::pool::Pool::handle_peer_closed).
    pub fn handle_peer_closed(&mut self, now: Instant, connection: Handle) -> Result<(), ApiMisuse> {
        self.call_pool(now, |pool| pool.handle_peer_closed(now, connection))
    }

    /// Lends the socket of a connection that is available or being checked.
    pub fn socket(&mut self, connection: Handle) -> Option<&mut C> {
        self.pool.socket(connection)
    }

    /// An operation on a connection in use failed, or its reply announced a change of the server. Clears the pool if the
    /// error speaks against the server (SDAM-4 to SDAM-16), or the service's part of it (LB-11). Check the connection in
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
        if !self.pool.in_use(connection)? {
            return Ok(());
        }
        let reactions = reaction::to_operation_error(&error, self.circumstances(connection, error.topology_version));
        if reactions.mark_unknown {
            self.mark_unknown(error.cause.clone(), error.topology_version);
        }
        if reactions.clear {
            let service_id = self.pool.service_of(connection);
            self.call_pool(now, |pool| pool.clear(now, Clear { service_id, ..Clear::pool(error.cause) }))?;
        }
        self.call_monitor(reactions);
        Ok(())
    }

    fn circumstances(&self, connection: Handle, topology_version: Option<TopologyVersion>) -> Circumstances {
        let is_old_news = TopologyVersion::is_error_stale(self.description.topology_version, topology_version);
        Circumstances {
            is_stale: self.pool.is_stale(connection) || is_old_news,
            load_balanced: self.pool.options().load_balanced,
            service_is_known: self.pool.service_of(connection).is_some(),
        }
    }

    fn call_monitor(&mut self, reactions: Reactions) {
        let Reactions { clear: _, mark_unknown, cancel_check, request_check } = reactions;
        for (is_wanted, call) in
            [(mark_unknown, Call::MarkUnknown), (cancel_check, Call::CancelCheck), (request_check, Call::RequestCheck)]
        {
            if is_wanted {
                self.outputs.push_back(Output::Monitor(call));
            }
        }
        self.hurry_monitor();
    }
}
