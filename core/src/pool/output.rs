//! What comes out of the pool: actions for the driver and events for its listeners, in one order.

use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::CheckOutError;
use super::handle::Handle;
use super::wait_queue::CheckOutId;
use crate::event::{ConnectionClosedReason, Event};

/// One output. Actions and events come in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output<C> {
    /// Something to do.
    Action(Action<C>),
    /// Something that happened.
    Event(Event),
}

/// A connection for whoever asked for it. It comes back by `check_in`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<C> {
    /// The check-out that it is for.
    pub check_out: CheckOutId,
    /// The connection.
    pub connection: Handle,
    /// Its socket.
    pub socket: C,
}

impl<C> From<Delivery<C>> for Output<C> {
    fn from(Delivery { check_out, connection, socket }: Delivery<C>) -> Self {
        Self::Action(Action::Deliver { check_out, connection, socket })
    }
}

/// Something that the driver of the pool has to do. Exhaustive on purpose: an action that a driver does not know would be
/// lost, so a new one has to break its build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action<C> {
    /// Establish a connection (CMAP-23): connect, TLS, hello, authenticate. Report the service id of a load-balanced
    /// hello by `handle_hello`, the end by `handle_established` or `handle_establish_failed`. How long it may take is
    /// the driver's to bound, by connectTimeoutMS.
    Connect {
        /// The connection.
        connection: Handle,
    },
    /// See, without waiting, whether the peer of an available connection has hung up ([`Pool::socket`] lends it), and
    /// answer by `handle_checked`.
    ///
    /// [`Pool::socket`]: super::Pool::socket
    Check {
        /// The connection.
        connection: Handle,
    },
    /// Hand the connection to whoever asked for it. It comes back by `check_in`.
    Deliver {
        /// The check-out that it is for.
        check_out: CheckOutId,
        /// The connection.
        connection: Handle,
        /// Its socket.
        socket: C,
    },
    /// Tell whoever asked that there is no connection for them.
    Fail {
        /// The check-out.
        check_out: CheckOutId,
        /// Why.
        error: Arc<CheckOutError>,
    },
    /// Close the socket, without blocking (CMAP-24). Nothing has to be reported.
    Close {
        /// The connection, which the pool has already forgotten.
        connection: Handle,
        /// Its socket.
        socket: C,
        /// Why.
        reason: ConnectionClosedReason,
    },
    /// Break off what is going on at the connection (CMAP-40 to CMAP-42). An operation fails with a retryable error and
    /// its connection is checked in. An establishment is given up; the pool has already forgotten it, and what is
    /// reported of it later is ignored.
    Interrupt {
        /// The connection.
        connection: Handle,
    },
}
