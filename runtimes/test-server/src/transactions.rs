//! Transactions of several commands: which are open, and the commands that begin them, belong to them and end them.
//!
//! A transaction reads from a view of the store that its first command takes, and its writes are carried out when it is committed,
//! in one entry of the log. An error of one of its commands aborts it, and so do a newer number in its session, the end of its
//! session, a minute of life, and the loss of the primary's place. The other side then gets NoSuchTransaction.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::RawDocumentBuf;
use cmap_core::time::Instant;

use super::command_kinds::{opens_change_stream, puts_out};
use super::document::document;
use super::failure::{Outcome, fail, unknown_command};
use super::replication::Entry;
use super::request::Request;
use super::service::Service;
use super::sessions::{Ended, NumberedWrite};
use super::write_concern;
use crate::store::{Caller, CommandFailure, Spent, Store, StoreCommand, StoreTransaction, code};

/// `transactionLifetimeLimitSeconds`: how long a transaction may be open.
const LIFETIME: Duration = Duration::from_secs(60);

/// How many transactions may be open. The oldest one makes way.
const MAX_OPEN: usize = 1000;

/// The label of an error after which the whole transaction may be repeated.
pub(super) const TRANSIENT: &str = "TransientTransactionError";

/// The commands on data that may be part of a transaction.
const ALLOWED: [&str; 13] = [
    "aggregate",
    "bulkWrite",
    "create",
    "createIndexes",
    "delete",
    "distinct",
    "find",
    "findAndModify",
    "findandmodify",
    "getMore",
    "insert",
    "killCursors",
    "update",
];

/// The transactions that are open.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    /// By session.
    open: BTreeMap<Vec<u8>, Open>,
}

#[derive(Debug)]
struct Open {
    number: i64,
    until: Instant,
    store: StoreTransaction,
}

/// The fields of a command by which it is part of a transaction.
#[derive(Clone, Debug)]
pub(super) struct Part {
    write: NumberedWrite,
    starts: bool,
}

impl Part {
    /// The part of a request in a transaction; `None` if it is outside of one.
    pub(super) fn of(request: &Request<'_>) -> Result<Option<Self>, CommandFailure> {
        let arguments = request.arguments;
        let starts = arguments.flag("startTransaction");
        if arguments.get("autocommit").is_none() {
            return match arguments.get("startTransaction") {
                Some(_) => Err(fail(code::INVALID_OPTIONS, "Specifying startTransaction requires autocommit=false")),
                None => Ok(None),
            };
        }
        if arguments.flag("autocommit") {
            return Err(fail(code::INVALID_OPTIONS, "Specifying autocommit=true is not allowed."));
        }
        let write = NumberedWrite::of(request)?;
        let write = write.ok_or_else(|| fail(code::INVALID_OPTIONS, "'autocommit' requires a 'txnNumber'"))?;
        Ok(Some(Self { write, starts }))
    }
}

impl Transactions {
    /// How many are open.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// When the next one has been open for too long.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.open.values().map(|open| open.until).min()
    }

    /// Aborts those that have been open for too long.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.open.retain(|_, open| open.until > now);
    }

    /// Aborts all.
    pub(super) fn abort_all(&mut self) {
        self.open.clear();
    }

    /// Aborts those of these sessions.
    pub(super) fn end_sessions(&mut self, ids: &[&[u8]]) {
        ids.iter().for_each(|id| _ = self.open.remove(*id));
    }

    /// A session goes on with another number: its older transaction is aborted.
    pub(super) fn begin_number(&mut self, write: &NumberedWrite) {
        if self.open.get(&write.session).is_some_and(|open| open.number < write.number) {
            self.open.remove(&write.session);
        }
    }

    fn take(&mut self, write: &NumberedWrite) -> Option<Open> {
        let is_it = self.open.get(&write.session).is_some_and(|open| open.number == write.number);
        if is_it { self.open.remove(&write.session) } else { None }
    }

    fn put(&mut self, write: &NumberedWrite, open: Open) {
        while self.open.len() >= MAX_OPEN {
            let oldest = self.open.iter().min_by_key(|(_, open)| open.until).map(|(session, _)| session.clone());
            let Some(oldest) = oldest else { break };
            self.open.remove(&oldest);
        }
        self.open.insert(write.session.clone(), open);
    }
}

impl Service {
    /// Carries out a command on data that is part of a transaction.
    pub(super) fn run_in_transaction(
        &mut self,
        caller: Caller,
        request: &Request<'_>,
        part: &Part,
    ) -> Result<RawDocumentBuf, CommandFailure> {
        self.check_part(request, part)?;
        let mut open = if part.starts { self.start(caller.now, &part.write)? } else { self.go_on(&part.write)? };
        let command = StoreCommand { name: request.name, database: request.database, body: request.arguments.0 };
        let Some((outcome, spent)) = self.store.run_in(&mut open.store, caller, &command) else {
            return Err(unknown_command(request.name));
        };
        let Spent { work, slept, .. } = spent;
        self.work += work;
        self.slept = slept;
        let has_conflict = open.store.conflicts_with(&self.store)
            || self.transactions.open.values().any(|other| open.store.conflicts_with_other(&other.store));
        let mut reply = match outcome {
            _ if has_conflict => return Err(self.conflict(&part.write)),
            Err(failure) => {
                self.sessions.end_transaction(&part.write, Ended::Aborted);
                return Err(failure);
            }
            Ok(reply) => reply,
        };
        if has_write_errors(&reply) {
            self.sessions.end_transaction(&part.write, Ended::Aborted);
        } else {
            self.transactions.put(&part.write, open);
        }
        if self.config.is_mongos() {
            reply.append(bson::cstr!("recoveryToken"), document! { "recoveryShardId": "shard0" });
        }
        Ok(reply)
    }

    /// `commitTransaction` and `abortTransaction`.
    pub(super) fn end_transaction(&mut self, now: Instant, request: &Request<'_>) -> Outcome {
        let Some(Part { write, .. }) = Part::of(request)? else {
            let message = format!("{} must be run within a transaction", request.name);
            return Err(fail(code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION, message));
        };
        match &self.replica_set {
            None if !self.config.is_mongos() => return Err(not_in_cluster()),
            None => {}
            Some(set) => set.refusal(request, true).map_or(Ok(()), Err)?,
        }
        if request.arguments.document("recoveryToken")?.is_some() && !self.config.is_mongos() {
            return Err(fail(code::UNKNOWN_FIELD, "BSON field 'recoveryToken' is an unknown field."));
        }
        self.sessions.check_number(&write)?;
        let open = self.transactions.take(&write);
        if request.name == "abortTransaction" {
            return match open {
                Some(_) => {
                    self.sessions.end_transaction(&write, Ended::Aborted);
                    Ok(RawDocumentBuf::new())
                }
                None => Err(self.no_such_transaction(&write)),
            };
        }
        match open {
            Some(open) => self.commit(now, &write, open)?,
            None if self.sessions.has_committed(&write) => {}
            None => return Err(self.no_such_transaction(&write)),
        }
        self.wait_for_members(now, request)?;
        let mut reply = RawDocumentBuf::new();
        let error = match &self.replica_set {
            Some(set) => write_concern::error(request, set.view())?,
            None => write_concern::error_at_shards(request)?,
        };
        if let Some(error) = error {
            self.goal = None;
            reply.append(bson::cstr!("writeConcernError"), error);
        }
        if self.config.is_mongos() {
            reply.append(bson::cstr!("recoveryToken"), document! { "recoveryShardId": "shard0" });
        }
        Ok(reply)
    }

    fn commit(&mut self, now: Instant, write: &NumberedWrite, open: Open) -> Result<(), CommandFailure> {
        if open.store.conflicts_with(&self.store) {
            return Err(self.conflict(write));
        }
        let changes = open.store.changes().of_transaction(&write.session, write.number);
        let time = self.begin_operation(now);
        match self.store.apply(Caller::nobody(now), &changes) {
            Ok(()) => {}
            Err(failure) if failure.code == code::WRITE_CONFLICT => return Err(self.conflict(write)),
            Err(failure) => {
                self.sessions.end_transaction(write, Ended::Aborted);
                return Err(failure);
            }
        }
        self.sessions.end_transaction(write, Ended::Committed);
        self.changes += u64::from(!changes.is_empty());
        let write = write.clone();
        self.log(time, || Entry::Transaction { changes, write });
        Ok(())
    }

    /// What a transaction may consist of.
    fn check_part(&self, request: &Request<'_>, part: &Part) -> Result<(), CommandFailure> {
        if self.replica_set.is_none() && !self.config.is_mongos() {
            return Err(not_in_cluster());
        }
        if opens_change_stream(request) {
            let message = "Stage not supported inside of a multi-document transaction: $changeStream";
            return Err(fail(code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION, message));
        }
        let name = request.name;
        if !ALLOWED.contains(&name) || Store::knows(name) && puts_out(request) {
            let message = format!("Cannot run '{name}' in a multi-document transaction.");
            return Err(fail(code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION, message));
        }
        if part.starts && name == "killCursors" {
            let message = "Cannot run killCursors as the first operation in a multi-document transaction.";
            return Err(fail(code::OPERATION_NOT_SUPPORTED_IN_TRANSACTION, message));
        }
        if request.arguments.get("writeConcern").is_some() {
            return Err(fail(
                code::INVALID_OPTIONS,
                "writeConcern is not allowed within a multi-statement transaction",
            ));
        }
        if request.arguments.get("readConcern").is_some() && !request.arguments.flag("startTransaction") {
            let message = "Only the first command in a transaction may specify a readConcern";
            return Err(fail(code::INVALID_OPTIONS, message));
        }
        Ok(())
    }

    fn start(&mut self, now: Instant, write: &NumberedWrite) -> Result<Open, CommandFailure> {
        self.sessions.check_number(write)?;
        self.transactions.begin_number(write);
        if self.transactions.open.contains_key(&write.session) || self.sessions.knows(write) {
            let message = format!("Cannot start a transaction with the number {} again", write.number);
            return Err(fail(code::CANNOT_START_TRANSACTION, message));
        }
        self.sessions.begin_transaction(write);
        Ok(Open { number: write.number, until: now + LIFETIME, store: self.store.begin(origin(write))? })
    }

    fn go_on(&mut self, write: &NumberedWrite) -> Result<Open, CommandFailure> {
        self.sessions.check_number(write)?;
        self.transactions.take(write).ok_or_else(|| self.no_such_transaction(write))
    }

    fn no_such_transaction(&self, write: &NumberedWrite) -> CommandFailure {
        if self.sessions.has_committed(write) {
            // To repeat it would do it twice.
            return fail(code::TRANSACTION_COMMITTED, format!("Transaction {} has been committed", write.number));
        }
        let message = format!("Given transaction number {} does not match any in-progress transactions", write.number);
        let labels = vec![TRANSIENT.into()];
        CommandFailure { labels, ..fail(code::NO_SUCH_TRANSACTION, message) }
    }

    fn conflict(&mut self, write: &NumberedWrite) -> CommandFailure {
        self.sessions.end_transaction(write, Ended::Aborted);
        let message = "Caused by :: Write conflict during plan execution and yielding is disabled. :: \
                       Please retry your operation or multi-document transaction.";
        CommandFailure { labels: vec![TRANSIENT.into()], ..fail(code::WRITE_CONFLICT, message) }
    }
}

/// Whether single writes of a command have failed.
fn has_write_errors(reply: &RawDocumentBuf) -> bool {
    reply.get("writeErrors").is_ok_and(|errors| errors.is_some())
        || reply.get_i32("nErrors").is_ok_and(|count| count > 0)
}

fn not_in_cluster() -> CommandFailure {
    fail(code::ILLEGAL_OPERATION, "Transaction numbers are only allowed on a replica set member or mongos")
}

/// A number that differs between transactions, by FNV-1a.
fn origin(write: &NumberedWrite) -> u64 {
    let number = write.number.to_le_bytes();
    let bytes = write.session.iter().chain(&number);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
