//! What tests need of a client, on any engine.
//!
//! An [`Engine`] makes clients that reach the servers of a test, lets its threads run and its time pass. A client gives out
//! connections, each of which takes one command at a time; errors go through the rules of SDAM before they come back.
//! What is built on them (commands on data, cursors, their events) is the same for all engines and lies in [`data`] and
//! [`operations`].
//!
//! [`data`]: super::data
//! [`operations`]: super::operations

use core::future::Future;
use core::pin::Pin;
use core::time::Duration;

use bson::Document;
use cmap_core::options::ClientOptions;
use cmap_core::pool::Purpose;
use cmap_core::time::Instant;

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

    /// What is in a collection, by rising `_id`.
    ///
    /// # Errors
    /// What the server said.
    fn content(&self, database: &str, collection: &str) -> Result<Vec<Document>, Failure>;
}

/// A client: its pool and its monitor, if it has one.
pub trait Client: Clone + 'static {
    /// Its connections.
    type Connection: Connection;

    /// What time it is.
    fn now(&self) -> Instant;

    /// A connection, for `purpose`; `deadline` bounds the wait beside the client's own options.
    fn check_out(
        &self,
        purpose: Purpose,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Result<Self::Connection, Failure>>;

    /// How many connections are checked out.
    fn checked_out(&self) -> u64;

    /// How many connections are available.
    fn available(&self) -> u64;

    /// The least of the server's last round-trip times (MON-11).
    fn min_round_trip_time(&self) -> Duration;

    /// What the client knows of its topology: the type, as SDAM has it.
    fn topology_type(&self) -> String;

    /// Adds a wrapping library to the metadata (HS-14).
    ///
    /// # Errors
    /// The metadata cannot be so.
    fn append_metadata(&self, info: &DriverInfo) -> Result<(), Failure>;

    /// Closes the client.
    fn close(&self) -> impl Future<Output = ()>;
}

/// A connection that is checked out. It is checked in when it is dropped.
pub trait Connection: 'static {
    /// What commands' events say about it: `serverConnectionId`, `serviceId`.
    fn identity(&self) -> Document;

    /// Runs a command; `Ok` is a reply with `ok: 1`. Errors have been judged by the rules of SDAM when they come back.
    /// `deadline` replaces the client's own limit on the wait for the reply (CSOT-12).
    fn run(
        &mut self,
        database: &str,
        command: &Document,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Result<Document, Failure>>;
}
