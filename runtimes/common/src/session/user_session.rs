//! A user's own session.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bson::{RawDocument, Timestamp};
use cmap_core::session::{Causality, ClusterTime, SessionId, Snapshot, Transaction, TransactionOptions};

use super::options::{Consistency, SessionOptions};
use super::sessions::Borrowed;
use super::unfinished::Back;
use crate::client::Client;
use crate::connection::PinnedConnection;
use crate::document::{IntoRequest, Reply};
use crate::error::OperationError;
use crate::operation::{InSession, Operation};
use crate::runtime::Runtime;
use crate::runtime::slot::Slot;
use crate::spans::TransactionSpan;
use crate::time::Deadline;

/// A session of a user's own: its operations belong together, and by default each read sees what the session has seen and
/// written before, on any member. Made by [`Client::start_session`](crate::Client::start_session); used by
/// [`run`](Self::run) and [`Operation::in_session`](crate::Operation::in_session). One operation runs in it at a time.
///
/// Dropping it returns its id to the client, for later sessions, and aborts its transaction in the background. The client stays
/// open as long as one of its sessions lives.
///
/// ```
/// use cmap_runtime::bson::doc;
/// use cmap_runtime::{ReadMode, ReadPreference};
/// use cmap_runtime::{Client, Error, Runtime};
///
/// /// Reads its own write, from a secondary too.
/// async fn write_and_read<R: Runtime>(client: &Client<R>) -> Result<(), Error> {
///     let mut session = client.start_session()?;
///     let insert = doc! { "insert": "orders", "documents": [{ "_id": 1 }], "writeConcern": { "w": "majority" } };
///     session.run(("shop", insert)).await?;
///     let find = doc! { "find": "orders", "readConcern": { "level": "majority" } };
///     let nearest = ReadPreference::new(ReadMode::Nearest);
///     session.operation(("shop", find)).on(nearest).run().await?;
///     Ok(())
/// }
/// ```
pub struct Session<R: Runtime> {
    pub(super) client: Client<R>,
    pub(crate) borrowed: Borrowed<R>,
    pub(crate) causality: Causality,
    /// There in a snapshot session.
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) transaction: Transaction,
    /// The options of its transactions that do not set their own.
    pub(super) transaction_defaults: TransactionOptions,
    /// The connection of its transaction, behind a load balancer (LB-15). Never locked: a stream need not be `Sync`, and a session is.
    pinned: Mutex<Option<PinnedConnection<R>>>,
    /// The end of a transaction that is repeated as a whole, and so of its operations.
    pub(crate) deadline: Option<Deadline>,
    /// The limit of what ends a transaction; zero is none. `None` is timeoutMS.
    pub(super) timeout: Option<Duration>,
    /// Whether its last commit could not be sent, so that the server has an open transaction.
    pub(super) is_commit_unsent: bool,
    /// The span of its transaction, where the client has spans (OTEL-9).
    pub(crate) span: Option<TransactionSpan>,
    /// What a task leaves that ends its transaction.
    pub(super) back: Option<Slot<Back<R>>>,
}

impl<R: Runtime> Session<R> {
    pub(crate) fn new(client: Client<R>, borrowed: Borrowed<R>, options: SessionOptions) -> Self {
        let SessionOptions { consistency, transactions, timeout } = options;
        let snapshot = match consistency {
            Consistency::Causal | Consistency::None => None,
            Consistency::Snapshot { at } => Some(Snapshot::new(at)),
        };
        Self {
            borrowed,
            causality: Causality::new(consistency == Consistency::Causal),
            snapshot,
            transaction: Transaction::default(),
            transaction_defaults: transactions.or(&TransactionOptions::of_client(client.options())),
            pinned: Mutex::new(None),
            deadline: None,
            timeout,
            is_commit_unsent: false,
            span: None,
            back: None,
            client,
        }
    }

    /// Its client.
    pub fn client(&self) -> &Client<R> {
        &self.client
    }

    /// An operation in the session, and part of its transaction: as [`Client::operation`] with
    /// [`in_session`](crate::Operation::in_session).
    #[track_caller]
    pub fn operation<'a>(&'a mut self, command: impl IntoRequest + 'a) -> Operation<'a, R, InSession> {
        Operation::of_session(self, command).by_caller()
    }

    /// Runs a command in the session, for at most timeoutMS: [`operation`](Self::operation) has more settings.
    ///
    /// # Errors
    /// Those of [`Operation::run`].
    #[track_caller]
    pub fn run<'a>(
        &'a mut self,
        command: impl IntoRequest + 'a,
    ) -> impl Future<Output = Result<Reply<'static>, OperationError>> {
        self.operation(command).run()
    }

    /// Its id, as the server knows it.
    pub fn id(&self) -> SessionId {
        self.borrowed.id()
    }

    /// Whether a network error has cut off one of its commands, so that its id will not be used again (SES-8).
    pub fn is_dirty(&self) -> bool {
        self.borrowed.is_dirty()
    }

    /// The greatest cluster time that it has seen: for another session that is to see as much.
    pub fn cluster_time(&self) -> Option<&RawDocument> {
        self.causality.cluster_time().map(ClusterTime::document)
    }

    /// The time of its latest operation.
    pub fn operation_time(&self) -> Option<Timestamp> {
        self.causality.operation_time()
    }

    /// The time of all reads of a snapshot session, known after the first one (SES-17).
    pub fn snapshot_time(&self) -> Option<Timestamp> {
        self.snapshot.as_ref().and_then(Snapshot::at)
    }

    /// Whether a server of this wire version has what the session needs (SES-16).
    pub(crate) fn suits(&self, max_wire_version: i32) -> bool {
        self.snapshot.is_none() || Snapshot::is_supported(max_wire_version)
    }

    /// Whether its transaction of this number is open.
    pub(crate) fn is_in_transaction(&self, number: i64) -> bool {
        self.transaction.is_open() && self.borrowed.transaction_number() == number
    }

    /// An operation outside of a transaction begins: what is left of the last one ends (PIN-5).
    pub(crate) fn leave_transaction(&mut self) {
        self.transaction.leave();
        self.span = None;
        self.release_unpinned();
    }

    /// A write outside of a transaction has taken a number, by which the server aborts the transaction of a smaller one.
    pub(crate) fn handle_numbered_write(&mut self) {
        self.is_commit_unsent = false;
    }

    /// Gives the connection back that its transaction does not keep any more.
    pub(crate) fn release_unpinned(&mut self) {
        if self.transaction.pinned_to().is_none() {
            *self.pinned() = None;
        }
    }

    /// The connection that its transaction keeps.
    pub(crate) fn pinned(&mut self) -> &mut Option<PinnedConnection<R>> {
        self.pinned.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the cluster time of another session (SES-14).
    pub fn advance_cluster_time(&mut self, seen: &RawDocument) {
        self.causality.advance_cluster_time(seen);
    }

    /// Takes over the time of another session's latest operation, so that reads see what it has written.
    pub fn advance_operation_time(&mut self, time: Timestamp) {
        self.causality.advance_operation_time(time);
    }
}

impl<R: Runtime> Drop for Session<R> {
    fn drop(&mut self) {
        self.give_up_transaction();
        self.give_back_after_end();
    }
}

impl<R: Runtime> fmt::Debug for Session<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id()).finish_non_exhaustive()
    }
}
