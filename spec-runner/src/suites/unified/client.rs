//! What tests need of a client, on any engine.
//!
//! An [`Engine`] makes clients that reach the servers of a test, lets its threads run and its time pass. A client runs
//! operations and gives out cursors. What is built on them (commands on data, their events) is the same for all engines and
//! lies in [`data`] and [`operations`].
//!
//! [`data`]: super::data
//! [`operations`]: super::operations

use alloc::sync::Arc;
use core::future::Future;
use core::pin::Pin;
use core::time::Duration;

use bson::{Document, Timestamp};
use cmap_core::options::ClientOptions;
use cmap_core::session::{TransactionOptions, TransactionState};
use cmap_core::time::Instant;
use cmap_core::topology::{ServerSelector, TopologyDescription};
use cmap_sim::{CursorOptions, SessionOptions, WriteResult};

use super::commands::{End, Held};
use super::failure::Failure;
use super::format::{CollectionData, DriverInfo};
use super::journal::Journal;

/// Runs tests against one deployment of servers.
pub trait Engine: Clone + 'static {
    /// Its clients.
    type Client: Client;

    /// The connection string of the deployment; behind a load balancer, of the one with several servers if `multiple`.
    fn uri(&self, multiple: bool) -> String;

    /// A client with these options, which notes what it does in `journal`.
    ///
    /// # Errors
    /// There can be no such client.
    fn client(&self, options: ClientOptions, journal: Journal) -> impl Future<Output = Result<Self::Client, Failure>>;

    /// Lets `thread` run beside the others.
    fn spawn(&self, thread: Pin<Box<dyn Future<Output = ()>>>);

    /// Lets time pass.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()>;

    /// Waits until the journals hold what has happened.
    fn settle(&self) -> impl Future<Output = ()>;

    /// Waits until `condition` holds, as long as `patience` lasts. Returns whether it does.
    fn wait(&self, patience: Duration, condition: impl FnMut() -> bool) -> impl Future<Output = bool>;

    /// Puts these documents, and no others, into a collection, on every server.
    ///
    /// # Errors
    /// What the server said.
    fn fill(&self, data: &CollectionData) -> Result<(), Failure>;

    /// The reply of a server to a command, in no time.
    ///
    /// # Errors
    /// What the server said.
    fn ask(&self, database: &str, command: &Document) -> Result<Document, Failure>;

    /// What is in a collection, by rising `_id`.
    ///
    /// # Errors
    /// What the server said.
    fn content(&self, database: &str, collection: &str) -> Result<Vec<Document>, Failure>;
}

/// An operation of a client.
#[derive(Clone, Debug)]
pub struct Operate<'o> {
    /// The database.
    pub database: &'o str,
    /// The command.
    pub command: &'o Document,
    /// Which servers may do it.
    pub selector: ServerSelector,
    /// When its time is up, if it says so itself.
    pub end: Option<End>,
    /// Whether it is one of the helpers that run any command, and are not repeated (RTY-2).
    pub is_once: bool,
}

/// The items of a sequence, and its name.
pub type Items = (&'static str, Vec<Document>);

/// A client: its pool and its monitor, if it has one.
pub trait Client: Clone + 'static {
    /// Its cursors.
    type Cursor: Cursor<Session = Self::Session>;

    /// Its sessions.
    type Session: 'static;

    /// A session of the client.
    ///
    /// # Errors
    /// There can be none.
    fn start_session(&self, options: SessionOptions) -> Result<Self::Session, Failure>;

    /// Starts a transaction.
    ///
    /// # Errors
    /// That makes no sense in the session.
    fn start_transaction(session: &mut Self::Session, options: TransactionOptions) -> Result<(), Failure>;

    /// Commits a transaction, or aborts it: within the client's limit, or this one.
    fn end_transaction(
        session: &mut Self::Session,
        commit: bool,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<(), Failure>>;

    /// Runs `callback` in a transaction, which is repeated as a whole. What it returns as an error is raised, unless the
    /// transaction is repeated. The session is in `held` meanwhile.
    fn with_transaction(
        &self,
        held: &Held<Self>,
        options: TransactionOptions,
        timeout: Option<Duration>,
        callback: impl AsyncFnMut() -> Result<(), Failure>,
    ) -> impl Future<Output = Result<(), Failure>>;

    /// How far a session's transaction is.
    fn transaction_state(session: &Self::Session) -> TransactionState;

    /// The options of a session's transaction.
    fn transaction_options(session: &Self::Session) -> &TransactionOptions;

    /// Whether a session's transaction keeps to one server.
    fn is_pinned(session: &Self::Session) -> bool;

    /// Runs a command on the server that a session's transaction keeps to, outside of the transaction.
    fn run_on_pinned(
        &self,
        session: &mut Self::Session,
        command: &Document,
    ) -> impl Future<Output = Result<(), Failure>>;

    /// The time of a snapshot session's reads.
    fn snapshot_time(session: &Self::Session) -> Option<Timestamp>;

    /// The value of a session's `lsid`.
    fn lsid(session: &Self::Session) -> Document;

    /// Whether a session is dirty (SES-8).
    fn is_dirty(session: &Self::Session) -> bool;

    /// Runs an operation, in this session or one of its own, with the retries that the client's options allow. Returns the
    /// reply.
    fn operate(
        &self,
        operation: &Operate<'_>,
        session: Option<&mut Self::Session>,
    ) -> impl Future<Output = Result<Document, Failure>>;

    /// Runs a write whose items are in sequences, in this session or one of its own.
    fn write(
        &self,
        operation: &Operate<'_>,
        sequences: Vec<Items>,
        session: Option<&mut Self::Session>,
    ) -> impl Future<Output = Result<WriteResult, Failure>>;

    /// Runs an operation that makes a cursor, in this session or one of its own. `options` replace what the command says of its
    /// getMores.
    fn cursor(
        &self,
        operation: &Operate<'_>,
        options: Option<CursorOptions>,
        session: Option<&mut Self::Session>,
    ) -> impl Future<Output = Result<Self::Cursor, Failure>>;

    /// Runs an operation that is a change stream, in this session or one of its own. `options` replace what the command says of its
    /// getMores.
    fn watch(
        &self,
        operation: &Operate<'_>,
        options: Option<CursorOptions>,
        session: Option<&mut Self::Session>,
    ) -> impl Future<Output = Result<Self::Cursor, Failure>>;

    /// What time it is.
    fn now(&self) -> Instant;

    /// How many connections are checked out.
    fn checked_out(&self) -> u64;

    /// How many connections are available.
    fn available(&self) -> u64;

    /// What the client knows of its topology.
    fn description(&self) -> Arc<TopologyDescription>;

    /// Adds a wrapping library to the metadata (HS-14).
    ///
    /// # Errors
    /// The metadata cannot be so.
    fn append_metadata(&self, info: &DriverInfo) -> Result<(), Failure>;

    /// Closes the client.
    fn close(&self) -> impl Future<Output = ()>;
}

/// A cursor. It is ended when it is dropped.
pub trait Cursor: 'static {
    /// The sessions of its client.
    type Session;

    /// The next document, or none at the end. `session` is that of its operation, if that had one.
    fn next(&mut self, session: Option<&mut Self::Session>) -> impl Future<Output = Result<Option<Document>, Failure>>;

    /// The same with one getMore at most.
    fn next_if_any(
        &mut self,
        session: Option<&mut Self::Session>,
    ) -> impl Future<Output = Result<Option<Document>, Failure>>;

    /// Ends it, and waits for that: within its operation's limit, or this one.
    fn close(self, session: Option<&mut Self::Session>, timeout: Option<Duration>) -> impl Future<Output = ()>;
}
