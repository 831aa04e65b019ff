//! The test server's store: databases and collections in memory, and the commands on them.
//!
//! It is a test server, not a database: small, exact where drivers look, and nothing is kept when it ends. A feature of
//! MongoDB that this store lacks is an error that says so, never another answer. The commands are in `commands`, one
//! file each; everything else here is their parts.
//!
//! A command's body is checked as a whole before it is read, so that no bytes make a command panic or recurse without
//! bound. [`StoreLimits`] bound the memory of the documents, of the open cursors and of what one command gathers, and
//! the work of one command. A limit that is reached is an error of the command that would pass it: what is stored stays.
//! What the commands of a cluster's server write is kept in `history` as well, from which each `change_stream` reads.
//!
//! `maxTimeMS` is kept without a clock: a millisecond is [`STEPS_PER_MILLISECOND`] steps of work.
//!
//! ```
//! use bson::rawdoc;
//! use cmap_test_server::store::{Store, StoreCommand};
//!
//! let mut store = Store::default();
//! let insert = rawdoc! { "insert": "pets", "documents": [{ "_id": 1, "name": "Ada" }] };
//! let reply = store.run(&StoreCommand { name: "insert", database: "test", body: &insert }).unwrap()?;
//! assert_eq!(reply, rawdoc! { "n": 1 });
//!
//! let unknown = rawdoc! { "makeCoffee": 1 };
//! assert!(store.run(&StoreCommand { name: "makeCoffee", database: "test", body: &unknown }).is_none());
//! # Ok::<(), cmap_test_server::store::CommandFailure>(())
//! ```

mod arguments;
mod bounds;
mod call;
mod catalog;
mod change_stream;
mod collation;
mod collection;
mod commands;
mod cursor;
mod cursors;
mod edited;
mod expression;
mod failure;
mod filter;
mod hint;
mod history;
mod index;
mod limits;
mod meter;
mod modifier;
mod namespace;
mod nested;
mod number;
mod opened;
mod order;
mod output;
mod owner;
mod path;
mod pattern;
mod pipeline;
mod positional;
mod project;
mod projection;
mod set;
mod sleep;
mod sort;
mod transaction;
mod unsupported;
mod unwind;
mod update;
mod variables;
mod work;
mod write_error;
mod written;

use std::collections::BTreeSet;
use std::time::Duration;

use bson::{DateTime, RawBsonRef, RawDocument, RawDocumentBuf, Timestamp};

pub use self::failure::{CommandFailure, code, code_name};
pub use self::limits::{BYTES_PER_STEP, STEPS_PER_MILLISECOND, StoreLimits};
pub use self::transaction::{Changes, StoreSnapshot, StoreTransaction};
use call::Call;
use catalog::Catalog;
use cmap_core::time::Instant;
use cmap_core::wire;
use cursors::Cursors;
use nested::count_in;
use owner::Owner;
use work::Work;

use crate::ServerVersion;

/// All databases, and the open cursors.
#[derive(Debug, Default)]
pub struct Store {
    catalog: Catalog,
    cursors: Cursors,
    /// The version of MongoDB whose arguments its commands take.
    version: ServerVersion,
}

/// A command to the store.
#[derive(Clone, Copy, Debug)]
pub struct StoreCommand<'a> {
    /// Its name: the first field of the body.
    pub name: &'a str,
    /// The database it is for.
    pub database: &'a str,
    /// Its arguments. The documents of an OP_MSG's sequences are among them, as arrays.
    pub body: &'a RawDocument,
}

/// Who gives a command, and when. A cursor belongs to the session in the command, else to the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caller {
    /// The time.
    pub now: Instant,
    /// The number of the client's connection.
    pub connection: Option<u64>,
    /// Whether the command may take longer than its `maxTimeMS`.
    pub ignores_max_time: bool,
}

/// What a command took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Spent {
    /// The time that its work stands for.
    pub work: Duration,
    /// The time for which it slept (`$where: "sleep(..)"`): its reply comes so much later.
    pub slept: Duration,
}

/// How many values each argument of a command may have that is read into a tree: queries, updates, pipelines.
const MAX_VALUES: usize = 1_000_000;
/// The steps for each value of a command, before it is carried out; more if a tree is made of it.
const STEPS_TO_CHECK: u64 = 2;
const STEPS_TO_PARSE: u64 = 12;

/// The commands that a view takes.
const ON_VIEWS: [&str; 2] = ["create", "drop"];

impl Caller {
    /// No client: what is carried out again after another server.
    pub(crate) fn nobody(now: Instant) -> Self {
        Self { now, connection: None, ignores_max_time: false }
    }

    /// The client behind a connection, now.
    pub fn new(now: Instant, connection: u64) -> Self {
        Self { now, connection: Some(connection), ignores_max_time: false }
    }
}

impl Store {
    /// Drops the cursors, and keeps the documents.
    #[must_use]
    pub fn without_cursors(self) -> Self {
        Self { cursors: Cursors::default(), ..self }
    }

    /// A store of its own with the same documents and limits, and no cursors.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { catalog: self.catalog.copy(), cursors: Cursors::default(), version: self.version }
    }

    /// A store with other limits than the default ones.
    pub fn new(limits: StoreLimits) -> Self {
        Self { catalog: Catalog::new(limits), cursors: Cursors::default(), version: ServerVersion::default() }
    }

    /// A store whose commands take the arguments of this version of MongoDB.
    #[must_use]
    pub fn with_version(self, version: ServerVersion) -> Self {
        Self { version, ..self }
    }

    /// Keeps a history of what is written from now on, as the servers of a cluster do: change streams read it.
    pub fn keep_history(&mut self) {
        let limit = self.catalog.limits.history_bytes;
        self.catalog.history.keep(limit);
    }

    /// What is written from now on belongs to an operation of this time of the cluster, and of the clock. Later operations have
    /// later times.
    pub fn begin_operation(&mut self, time: Timestamp, wall: DateTime) {
        self.catalog.history.begin(time, wall);
    }

    /// From now on, change streams show what was written up to the operation with this increment; `None` means everything.
    pub fn show_changes_until(&mut self, operation: Option<u32>) {
        self.catalog.history.show_until(operation);
    }

    /// Whether an open cursor is that of a change stream.
    pub fn is_change_stream(&self, cursor: i64) -> bool {
        self.cursors.is_change_stream(cursor)
    }

    /// Gives cursors that are opened from now on the ids of this seed. Processes need ids of their own: a cursor of one must not be
    /// taken for one of another.
    pub fn seed_cursor_ids(&mut self, seed: u64) {
        self.cursors.seed_ids(seed);
    }

    /// The namespaces, `database.collection`, that commands have opened since the last call; the first call begins to note them. A
    /// command opens what it reads, writes, makes and removes, and what MongoDB would open for a stage or a command that this store
    /// lacks.
    pub fn take_opened(&mut self) -> BTreeSet<String> {
        self.catalog.opened.take()
    }

    /// Whether `name` is a command on data.
    pub fn knows(name: &str) -> bool {
        commands::named(name).is_some()
    }

    /// Carries out a command, of no connection, at the latest time seen.
    ///
    /// `None` if it is not a command on data. The reply has no `ok` yet.
    ///
    /// # Errors
    /// Why the command failed; the reply to it has `ok: 0`. If single writes of a command failed, that is not an error
    /// but a reply with `writeErrors`.
    pub fn run(&mut self, command: &StoreCommand<'_>) -> Option<Result<RawDocumentBuf, CommandFailure>> {
        self.run_as(Caller::default(), command).map(|(outcome, _)| outcome)
    }

    /// Carries out a command of a client, like [`run`](Self::run); also returns what it took.
    pub fn run_as(
        &mut self,
        caller: Caller,
        command: &StoreCommand<'_>,
    ) -> Option<(Result<RawDocumentBuf, CommandFailure>, Spent)> {
        let StoreCommand { name, database, body } = *command;
        opened::open_involved(&self.catalog, name, database, body);
        let run = commands::named(name)?;
        self.cursors.advance(caller.now);
        let owner = Owner::of(body, caller.connection);
        self.cursors.touch(&owner);
        let (work, connection) = (Work::new(&self.catalog.limits), caller.connection);
        let call = Call { name, database, body, work, owner, connection };
        let outcome = check(body, &call.work).and_then(|()| {
            // The maxTimeMS of getMore is how long to wait for documents.
            if name != "getMore"
                && !caller.ignores_max_time
                && let Some(limit) = work::max_time(&call.arguments())?
            {
                call.work.limit(limit);
            }
            if let Ok(namespace) = call.namespace()
                && !ON_VIEWS.contains(&name)
            {
                self.catalog.refuse_view(namespace)?;
            }
            run(self, &call)
        });
        // A command that ran out of work may not have noticed it.
        let outcome = outcome.and_then(|reply| call.work.check().map(|()| reply));
        Some((outcome, Spent { work: call.work.time(), slept: call.work.slept() }))
    }

    /// The sessions have ended, and with them their cursors.
    pub fn end_sessions<'a>(&mut self, ids: impl IntoIterator<Item = &'a [u8]>) {
        ids.into_iter().for_each(|id| self.cursors.end(&Owner::Session(id.to_vec())));
    }

    /// All sessions have ended.
    pub fn end_all_sessions(&mut self) {
        self.cursors.end_sessions();
    }

    /// The sessions are still in use.
    pub fn refresh_sessions<'a>(&mut self, now: Instant, ids: impl IntoIterator<Item = &'a [u8]>) {
        self.cursors.advance(now);
        ids.into_iter().for_each(|id| self.cursors.touch(&Owner::Session(id.to_vec())));
    }

    /// A connection is gone, and with it the cursors that it opened outside of sessions.
    pub fn end_connection(&mut self, connection: u64) {
        self.cursors.end(&Owner::Connection(connection));
    }

    /// A connection is gone, and with it all cursors that it opened, as at the routers behind a load balancer.
    pub fn end_connection_with_sessions(&mut self, connection: u64) {
        self.cursors.end_opened_by(connection);
    }

    /// Whether the getMore of an open cursor waits for documents: it is tailable and has `awaitData`.
    pub fn awaits_data(&self, cursor: i64) -> bool {
        self.cursors.awaits_data(cursor).unwrap_or(false)
    }

    /// Whether the command that opened a cursor had a time limit, which the cursor's getMore share.
    pub fn has_time_limit(&self, cursor: i64) -> bool {
        self.cursors.has_time_limit(cursor)
    }

    /// Whether a cursor is open.
    pub fn has_cursor(&self, cursor: i64) -> bool {
        self.cursors.awaits_data(cursor).is_some()
    }

    /// Closes a cursor.
    pub fn close_cursor(&mut self, cursor: i64) {
        self.cursors.close(cursor);
    }

    /// Closes the cursors that have been idle for too long by now.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.cursors.advance(now);
    }

    /// When the next cursor will have been idle for too long.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.cursors.next_timeout()
    }
}

/// Whether one of `bulkWrite`'s operations inserts a document, of which no tree is made.
fn is_insertion(operation: RawBsonRef<'_>) -> bool {
    operation.as_document().is_some_and(|operation| operation.get("insert").is_ok_and(|insert| insert.is_some()))
}

/// Whether a body can be read: well-formed, not too deep, its texts UTF-8, of not too many values.
fn check(body: &RawDocument, work: &Work) -> Result<(), CommandFailure> {
    let invalid = |error: &dyn std::fmt::Display| CommandFailure::invalid_bson(format!("{error}"));
    wire::document::validate(body.as_bytes()).map_err(|error| invalid(&error))?;
    let mut parsed = 0;
    for field in body.iter() {
        let (name, value) = field.map_err(|error| invalid(&error))?;
        let array = value.as_array().and_then(|array| RawDocument::from_bytes(array.as_bytes()).ok());
        let count = |value| count_in(value).map_err(|error| invalid(&error));
        match (name.as_str(), array) {
            ("documents", Some(_)) => work.step(STEPS_TO_CHECK * count(value)? as u64),
            // Each statement is read when its turn comes.
            ("updates" | "deletes" | "ops", Some(array)) => {
                for statement in array.iter() {
                    let (_, statement) = statement.map_err(|error| invalid(&error))?;
                    let values = count(statement)?;
                    if name.as_str() == "ops" && is_insertion(statement) {
                        work.step(STEPS_TO_CHECK * values as u64);
                        continue;
                    }
                    work.step(STEPS_TO_PARSE * values as u64);
                    parsed = parsed.max(values);
                }
            }
            _ => {
                let values = 1 + count(value)?;
                work.step(STEPS_TO_PARSE * values as u64);
                parsed = parsed.max(values);
            }
        }
    }
    if parsed > MAX_VALUES {
        let message = format!("a query, an update or a pipeline has at most {MAX_VALUES} values on this test server");
        return Err(CommandFailure::new(code::EXCEEDED_MEMORY_LIMIT, message));
    }
    work.check()
}
