//! The short way of a check-out that waits while all connections are in use, and of the check-in that serves it.
//!
//! Drivers ask for each of them before the call that it shortens, because its result is smaller. The calls themselves take them as well.

use super::Topology;
use super::callers::{bounded, end_of_selection};
use crate::pool::{CheckOutId, CheckOutRequest, Condition, Delivery, Handle};
use crate::time::Instant;

impl<C> Topology<C> {
    /// The short way of a check-out that waits: for the one server that takes writes, where all connections are in use, if nothing else has
    /// to be done. There is nothing to drain then, and no timeout has become an earlier one but for the one that is returned beside the
    /// check-out, which is its [`next_check_out_timeout`](Self::next_check_out_timeout). Otherwise nothing has changed, and
    /// [`check_out`](Self::check_out) has to be called.
    #[inline]
    pub fn check_out_waiting(
        &mut self,
        now: Instant,
        request: CheckOutRequest,
    ) -> Option<(CheckOutId, Option<Instant>)> {
        if self.outputs.is_fast_path_open() { self.wait_for_writer(now, &request) } else { None }
    }

    /// The same where nothing is queued.
    #[inline(always)]
    pub(super) fn wait_for_writer(
        &mut self,
        now: Instant,
        request: &CheckOutRequest,
    ) -> Option<(CheckOutId, Option<Instant>)> {
        if request.identity.is_some() || self.has_budget() {
            return None;
        }
        let (server, origins) = self.servers.with_origins(self.writer?)?;
        let check_out = server.pool.wait_in_line(now, &bounded(now, *request, self.check_out_limit))?;
        self.now = self.now.max(now);
        if self.options.reselect {
            let limit = end_of_selection(self.now, request, self.options.server_selection_timeout);
            origins.note_any_writable(check_out, *request, self.now, limit);
        }
        Some((check_out, server.pool.next_check_out_timeout()))
    }

    /// The short way of a check-in for which a check-out waits: hands the connection to the longest waiter, if nothing else has to be done.
    /// There is nothing to drain then, and no timeout has become an earlier one.
    ///
    /// # Errors
    /// Something else has to be done: nothing has changed, and the socket, which comes back here, is for [`check_in`](Self::check_in).
    #[inline]
    pub fn check_in_to_waiter(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<Delivery<C>, C> {
        if self.outputs.is_fast_path_open() {
            self.hand_to_waiter(now, connection, socket, condition)
        } else {
            Err(socket)
        }
    }

    /// The same where nothing is queued.
    #[inline(always)]
    pub(super) fn hand_to_waiter(
        &mut self,
        now: Instant,
        connection: Handle,
        socket: C,
        condition: Condition,
    ) -> Result<Delivery<C>, C> {
        if self.has_budget() {
            return Err(socket);
        }
        let Some(server) = self.servers.at(connection.slot()) else { return Err(socket) };
        let delivery = server.pool.hand_to_waiter(now, connection, socket, condition)?;
        self.advance(now);
        Ok(delivery)
    }
}
