//! A connection that a cursor or a transaction keeps (LB-12 to LB-16).
//!
//! It is checked out once and checked in once, however many operations use it meanwhile. The pool counts its
//! connections by what keeps them, and reports the counts when a check-out behind a load balancer times out.

use std::fmt;
use std::ops::{Deref, DerefMut};

use cmap_core::pool::Purpose;

use crate::connection::Connection;
use crate::runtime::Runtime;

/// A connection that is kept for a cursor or a transaction. Dropping it checks the connection in.
pub struct PinnedConnection<R: Runtime> {
    connection: Connection<R>,
    purpose: Purpose,
}

impl<R: Runtime> PinnedConnection<R> {
    pub(crate) fn new(connection: Connection<R>, purpose: Purpose) -> Self {
        connection.set_purpose(purpose);
        Self { connection, purpose }
    }

    /// Whether a cursor or a transaction keeps the connection.
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// The cursor or the transaction has ended: returns the connection for ordinary use.
    pub fn unpin(self) -> Connection<R> {
        self.connection.set_purpose(Purpose::Other);
        self.connection
    }
}

impl<R: Runtime> Deref for PinnedConnection<R> {
    type Target = Connection<R>;

    fn deref(&self) -> &Connection<R> {
        &self.connection
    }
}

impl<R: Runtime> DerefMut for PinnedConnection<R> {
    fn deref_mut(&mut self) -> &mut Connection<R> {
        &mut self.connection
    }
}

impl<R: Runtime> fmt::Debug for PinnedConnection<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedConnection")
            .field("connection", &self.connection)
            .field("purpose", &self.purpose)
            .finish()
    }
}
