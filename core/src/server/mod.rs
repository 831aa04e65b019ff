//! One endpoint: its pool, and what errors say about the server behind it.
//!
//! An error of a connection may mean that the server is gone, or only that this connection is. [`reaction`] decides which
//! by the rules of SDAM; [`Server`] carries it out in one call, so that nobody sees the one without the other (SDAM-3), and
//! in the order that can be observed: the pool is cleared, then the failed connection is closed, and last its check-out
//! fails (CMAP-49).

pub mod reaction;

use serde::{Deserialize, Serialize};

use self::reaction::{Circumstances, Reactions};
use crate::connection::{EstablishError, Fault};
use crate::pool::{ApiMisuse, Cause, Clear, Handle, Pool, Reaction};
use crate::time::Instant;

/// One server as the client knows it: a pool, and whether the server answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "C: Serialize", deserialize = "C: Deserialize<'de>"))]
pub struct Server<C> {
    pool: Pool<C>,
    knowledge: Knowledge,
}

/// What is known of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Knowledge {
    /// It was not checked yet, or an error spoke against it.
    Unknown,
    /// The last check succeeded, and nothing spoke against it since.
    Known,
}

/// An operation on a connection in use failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationError {
    /// Whose fault it was.
    pub fault: Fault,
    /// What happened, for the errors of the check-outs that are evicted because of it.
    pub cause: Cause,
}

impl<C> Server<C> {
    /// A server that was not checked yet.
    pub fn new(pool: Pool<C>) -> Self {
        Self { pool, knowledge: Knowledge::Unknown }
    }

    /// The pool. Drive it by its own rule: drain after every call.
    pub fn pool(&self) -> &Pool<C> {
        &self.pool
    }

    /// The pool, for the calls that say nothing about the server.
    pub fn pool_mut(&mut self) -> &mut Pool<C> {
        &mut self.pool
    }

    /// Whether the server is known to answer.
    pub fn knowledge(&self) -> Knowledge {
        self.knowledge
    }

    /// A check of the server succeeded: it is known, and its pool ready (SDAM-1). Load-balanced servers are never
    /// checked; they are known from the start (LB-3), which this call says, too.
    pub fn handle_check_succeeded(&mut self, now: Instant) {
        self.knowledge = Knowledge::Known;
        self.pool.ready(now);
    }

    /// A check of the server failed: it is unknown, its pool cleared. Connections in use are interrupted if the check
    /// timed out (MON-9): they would wait in vain as well.
    ///
    /// # Errors
    /// The server is load-balanced, and therefore not checked (LB-3).
    pub fn handle_check_failed(&mut self, now: Instant, fault: Fault, cause: Cause) -> Result<(), ApiMisuse> {
        let clear = Clear::pool(cause);
        self.pool.clear(now, if fault == Fault::Timeout { clear.interrupting() } else { clear })?;
        self.knowledge = Knowledge::Unknown;
        Ok(())
    }

    /// Establishing a connection failed. Clears the pool if the error speaks against the server (SDAM-4 to SDAM-8), or
    /// the service's part of it (LB-9, LB-10). Returns what else is to be done.
    ///
    /// # Errors
    /// Those of [`Pool::handle_establish_failed`].
    pub fn handle_establish_failed(
        &mut self,
        now: Instant,
        connection: Handle,
        error: EstablishError,
    ) -> Result<Reactions, ApiMisuse> {
        let reactions = reaction::to_establish_error(&error, self.circumstances(connection));
        let reaction = if reactions.clear { Reaction::ClearPool } else { Reaction::KeepPool };
        self.pool.handle_establish_failed(now, connection, error, reaction)?;
        self.note(reactions);
        Ok(reactions)
    }

    /// An operation on a connection in use failed. Clears the pool if the error speaks against the server (SDAM-4,
    /// SDAM-9, SDAM-10), or the service's part of it (LB-11). Check the connection in afterwards: PoolCleared precedes
    /// CheckedIn (CMAP-49). Returns what else is to be done.
    ///
    /// # Errors
    /// The handle is another pool's, or of a connection that is not in use. An error of one that was closed since is old
    /// news.
    pub fn handle_operation_failed(
        &mut self,
        now: Instant,
        connection: Handle,
        error: OperationError,
    ) -> Result<Reactions, ApiMisuse> {
        if !self.pool.in_use(connection)? {
            return Ok(Reactions::default());
        }
        let reactions = reaction::to_operation_error(error.fault, self.circumstances(connection));
        if reactions.clear {
            let service_id = self.pool.service_of(connection);
            self.pool.clear(now, Clear { service_id, ..Clear::pool(error.cause) })?;
        }
        self.note(reactions);
        Ok(reactions)
    }

    fn circumstances(&self, connection: Handle) -> Circumstances {
        Circumstances {
            is_stale: self.pool.is_stale(connection),
            load_balanced: self.pool.options().load_balanced,
            service_is_known: self.pool.service_of(connection).is_some(),
        }
    }

    fn note(&mut self, reactions: Reactions) {
        if reactions.mark_unknown {
            self.knowledge = Knowledge::Unknown;
        }
    }
}
