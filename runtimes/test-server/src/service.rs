//! The state that all clients share, and the path of one command through it.
//!
//! A command first meets the fail point, then the checks whether the client may send it and whether this member of a
//! replica set takes it; then it is carried out, here or in the [`Store`].

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawArray, RawDocumentBuf};
use cmap_core::random::Random;
use cmap_core::time::Instant;
use cmap_core::wire::TopologyVersion;

use super::api;
use super::clock::Clock;
use super::cluster_time::ClusterTime;
use super::command_kinds::{ADMIN_ONLY, changes_data, is_for_everybody};
use super::common_arguments;
use super::config::ServerConfig;
use super::diagnostics;
use super::document::document;
use super::fail_command::{Effect, Fate};
use super::fail_points::FailPoints;
use super::failure::{Outcome, append_labels, fail, unknown_command};
use super::hello;
use super::identity::Identity;
use super::ingress::Ingress;
use super::parameters::Parameters;
use super::read_concern;
use super::replica_set::{ReplicaSet, no_replication};
use super::replication::{Entry, Membership};
use super::request::{Arguments, Request};
use super::sasl::Sasl;
use super::sessions::{self, NumberedWrite, Sessions};
use super::snapshots::{Snapshots, reads_from_snapshot};
use super::traffic::Traffic;
use super::transactions::{Part, TRANSIENT, Transactions};
use super::users::{Users, bytes};
use super::write_concern::{self, Goal};
use crate::ServerVersion;
use crate::store::{Caller, CommandFailure, Store, StoreCommand, code};

/// The server behind all connections.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) config: ServerConfig,
    pub(super) clock: Clock,
    pub(super) random: Random,
    pub(super) service_id: ObjectId,
    pub(super) users: Users,
    pub(super) replica_set: Option<ReplicaSet>,
    /// Its part in a deployment, if it is a member of one.
    pub(super) membership: Option<Membership>,
    pub(super) cluster_time: ClusterTime,
    pub(super) traffic: Traffic,
    pub(super) ingress: Ingress,
    /// The current clients, and the number of all so far.
    pub(super) clients: usize,
    pub(super) clients_ever: u64,
    process: ObjectId,
    /// Grows with every change of the replica set.
    pub(super) topology_counter: i64,
    pub(super) fail_points: FailPoints,
    parameters: Parameters,
    pub(super) sessions: Sessions,
    pub(super) transactions: Transactions,
    pub(super) snapshots: Snapshots,
    pub(super) store: Store,
    /// What the commands on data since the last look at it took.
    pub(super) work: Duration,
    /// For how long the last of them sleeps before its reply.
    pub(super) slept: Duration,
    /// What the last write waits for before its reply.
    pub(super) goal: Option<Goal>,
    /// Grows with every change that a getMore may wait for.
    pub(super) changes: u64,
}

/// How long a getMore waits for documents that says nothing of it.
const AWAIT: Duration = Duration::from_secs(1);

/// The reply to a command, in two parts so that a long one is not copied.
#[derive(Debug)]
pub(super) struct Reply {
    /// The command's own part.
    pub(super) body: RawDocumentBuf,
    /// The fields of every reply.
    pub(super) tail: RawDocumentBuf,
    pub(super) is_error: bool,
}

impl Service {
    pub(super) fn new(mut config: ServerConfig, now: Instant) -> Self {
        let mut random = Random::new(config.seed);
        let mut store = Store::new(config.limits.clone()).with_version(config.version);
        store.seed_cursor_ids(!config.seed);
        config.compressors.retain(|id| id.is_built_in());
        let mut service = Self {
            clock: Clock { started: now, time_of_day: config.time_of_day },
            service_id: ObjectId::from_bytes(bytes(&mut random)),
            users: Users::new(&config, &mut random),
            replica_set: config.replica_set.clone().map(|name| ReplicaSet::alone(name, config.address.clone())),
            membership: None,
            cluster_time: ClusterTime::default(),
            traffic: Traffic::default(),
            ingress: Ingress::new(now),
            clients: 0,
            clients_ever: config.first_connection_id.saturating_sub(1),
            process: ObjectId::from_bytes(bytes(&mut random)),
            topology_counter: if config.replica_set.is_some() { 6 } else { 0 },
            fail_points: FailPoints::default(),
            parameters: Parameters::new(config.iterations, config.version),
            sessions: Sessions::default(),
            transactions: Transactions::default(),
            snapshots: Snapshots::default(),
            store,
            work: Duration::ZERO,
            slept: Duration::ZERO,
            goal: None,
            changes: 0,
            random,
            config,
        };
        service.keep_history();
        service
    }

    pub(super) fn keep_documents_of(&mut self, earlier: Self) {
        self.store = earlier.store.without_cursors().with_version(self.config.version);
        self.store.seed_cursor_ids(self.random.next_u64());
        self.keep_history();
        // The times of later operations are later.
        self.cluster_time = earlier.cluster_time;
        // With the documents goes what was written into them by numbered writes, or one that is sent again would be done twice.
        self.sessions = earlier.sessions;
    }

    pub(super) fn topology_version(&self) -> TopologyVersion {
        TopologyVersion { process_id: self.process.bytes(), counter: self.topology_counter }
    }

    /// Whether it is a member of a replica set, or a mongos: the server behind a load balancer is one.
    pub(super) fn is_in_cluster(&self) -> bool {
        self.replica_set.is_some() || self.config.is_mongos()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let election = self.replica_set.as_ref().and_then(ReplicaSet::next_election);
        let ends = [self.store.poll_timeout(), self.transactions.next_timeout(), self.snapshots.next_timeout()];
        election.into_iter().chain(ends.into_iter().flatten()).min()
    }

    /// A connection is gone.
    pub(super) fn forget(&mut self, connection: u64) {
        self.store.end_connection(connection);
        if self.config.load_balanced {
            self.store.end_connection_with_sessions(connection);
        }
    }

    /// Makes a member that stepped down the primary again, once its time is over, and closes idle cursors.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.store.handle_timeout(now);
        self.transactions.handle_timeout(now);
        self.snapshots.handle_timeout(now);
        if let Some(set) = &mut self.replica_set
            && set.next_election().is_some_and(|at| at <= now)
        {
            set.step_up();
            self.topology_counter += 1;
        }
    }

    /// Carries out a command, hit by the fail point or not.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        identity: &mut Identity,
        request: &Request<'_>,
        effect: &Effect,
    ) -> Reply {
        let outcome = match &effect.fate {
            Fate::Error { code, labels } => {
                let message = "Failing command via 'failCommand' failpoint";
                let labels = labels.clone().unwrap_or_else(|| self.default_labels(request, *code));
                Err(CommandFailure { labels, ..CommandFailure::new(*code, message) })
            }
            Fate::Proceed | Fate::CloseConnection => {
                self.carry_out(now, identity, request).map_err(|failure| self.explained(request, failure))
            }
        };
        let mut reply = self.reply(now, outcome);
        if effect.hit
            && !reply.is_error
            && reply.body.get("writeConcernError").is_ok_and(|error| error.is_none())
            && let Some(error) = self.fail_points.write_concern_error()
        {
            let labels = error.labels.clone().unwrap_or_else(|| self.labels_of_concern(request, error.code));
            reply.tail.append(bson::cstr!("writeConcernError"), &error.document);
            append_labels(&mut reply.tail, &labels);
        }
        reply
    }

    /// A failure that says what a member adds to errors about its state: the label of a write that may be sent again, and its
    /// topologyVersion, so that a client knows whether it has heard of the change.
    pub(super) fn explained(&self, request: &Request<'_>, mut failure: CommandFailure) -> CommandFailure {
        if self.replica_set.is_some() && STATE_CHANGES.contains(&failure.code) {
            let version = hello::topology_document(self.topology_version());
            failure.details.append(bson::cstr!("topologyVersion"), version);
            failure.labels.extend(self.default_labels(request, failure.code));
        }
        failure
    }

    /// The reply that reports `outcome`.
    pub(super) fn reply(&self, now: Instant, outcome: Outcome) -> Reply {
        let (body, mut tail, is_error) = match outcome {
            Ok(body) => (body, document! { "ok": 1.0 }, false),
            Err(failure) => (super::failure::reply(&failure), RawDocumentBuf::new(), true),
        };
        if self.is_in_cluster() {
            let unix = self.clock.unix(now);
            let complete_until = self.replica_set.as_ref().map_or(unix, |set| set.complete_until(now, unix));
            self.cluster_time.stamp(&mut tail, unix, complete_until);
        }
        Reply { body, tail, is_error }
    }

    fn carry_out(&mut self, now: Instant, identity: &mut Identity, request: &Request<'_>) -> Outcome {
        api::check(request, self.parameters.require_api_version())?;
        // The other commands of the store read. An `aggregate` may end in a stage that writes, and takes one without, too.
        let takes_write_concern = !Store::knows(request.name) || request.name == "aggregate" || changes_data(request);
        common_arguments::check(request, takes_write_concern)?;
        if self.config.authorization && !identity.may_act() && !is_for_everybody(request.name) {
            return Err(fail(13, format!("Command {} requires authentication", request.name)));
        }
        if ADMIN_ONLY.contains(&request.name) && request.database != "admin" {
            return Err(fail(13, format!("{} may only be run against the admin database.", request.name)));
        }
        match self.run(now, identity, request) {
            Some(outcome) => outcome,
            None if Store::knows(request.name)
                && self.config.authorization
                && !identity.peer.is_operator
                && !self.users.open(identity.logins(), request.database) =>
            {
                let Request { name, database, .. } = request;
                Err(fail(13, format!("not authorized on {database} to execute command {{ {name} }}")))
            }
            None => {
                let goes_on = self.goes_on_with_change_stream(request);
                self.run_on_data(now, identity, request).map_err(|failure| match goes_on {
                    true => resumable(failure),
                    false => failure,
                })
            }
        }
    }

    /// The commands that are not about data.
    fn run(&mut self, now: Instant, identity: &mut Identity, request: &Request<'_>) -> Option<Outcome> {
        let Request { database, arguments, .. } = *request;
        Some(match request.name {
            "hello" | "isMaster" | "ismaster" => self.hello(now, identity, request),
            "ping" => Ok(RawDocumentBuf::new()),
            "buildInfo" | "buildinfo" => Ok(diagnostics::build_info(self.config.version)),
            "getCmdLineOpts" => Ok(self.command_line()),
            "serverStatus" => Ok(self.status(now)),
            "hostInfo" => Ok(diagnostics::host_info(&self.config.address)),
            "getLog" => Ok(diagnostics::log()),
            "whatsmyuri" => Ok(document! { "you": identity.peer.address.as_str() }),
            "getParameter" => self.parameters.get(&self.ingress, request),
            "setParameter" => self.parameters.set(now, &mut self.ingress, request),
            "configureFailPoint" => self.fail_points.configure(request),

            "saslStart" => Sasl { users: &self.users, random: &mut self.random }.start(identity, database, arguments),
            "saslContinue" => Sasl::go_on(identity, arguments),
            "authenticate" => {
                Sasl { users: &self.users, random: &mut self.random }.authenticate(identity, database, arguments)
            }
            "logout" => {
                identity.log_out(database);
                Ok(RawDocumentBuf::new())
            }
            "connectionStatus" => Ok(diagnostics::connection_status(identity, &self.users)),
            "usersInfo" => self.users.info(request),
            "createUser" | "updateUser" | "dropUser" | "dropAllUsersFromDatabase" => self.change_users(now, request),

            "commitTransaction" | "abortTransaction" => self.end_transaction(now, request),

            "startSession" => Ok(sessions::start(bytes(&mut self.random))),
            "endSessions" | "killSessions" | "refreshSessions" | "killAllSessions" | "killAllSessionsByPattern" => {
                self.run_on_sessions(now, request)
            }

            "replSetGetStatus" | "replSetGetConfig" | "replSetStepDown" | "replSetStepUp" | "replSetFreeze"
            | "replSetReconfig" => self.run_on_replica_set(now, request),
            "testDeployment" => match &mut self.membership {
                Some(membership) => membership.order(request, self.replica_set.is_some()),
                None => Err(fail(code::COMMAND_NOT_SUPPORTED, "testDeployment needs a deployment of several servers")),
            },
            _ => return None,
        })
    }

    /// Sessions that end take their cursors with them.
    fn run_on_sessions(&mut self, now: Instant, request: &Request<'_>) -> Outcome {
        match request.name {
            "refreshSessions" => self.store.refresh_sessions(now, sessions::ids(request)?),
            "endSessions" | "killSessions" => {
                let ids = sessions::ids(request)?;
                // A session that is killed goes on, and its client may send its last write again.
                if request.name == "endSessions" {
                    self.sessions.end(&ids);
                }
                self.transactions.end_sessions(&ids);
                self.store.end_sessions(ids);
            }
            // An empty list means all; whose a session is, is not known here.
            _ if request.arguments.array(request.name)?.is_none_or(RawArray::is_empty) => {
                self.store.end_all_sessions();
                self.transactions.abort_all();
            }
            _ => {}
        }
        // A getMore that waits may have lost its cursor.
        self.changes += 1;
        Ok(RawDocumentBuf::new())
    }

    /// The other members get all users, of which there are few.
    fn change_users(&mut self, now: Instant, request: &Request<'_>) -> Outcome {
        if let Some(set) = &self.replica_set {
            set.refusal(request, true).map_or(Ok(()), Err)?;
        }
        let reply = match request.name {
            "createUser" => self.users.create(&mut self.random, request),
            "updateUser" => self.users.update(&mut self.random, request),
            "dropUser" => self.users.drop_user(request),
            _ => self.users.drop_all(request.database),
        }?;
        if self.membership.is_some() {
            let time = self.begin_operation(now);
            let users = self.users.clone();
            self.log(time, || Entry::Users(users));
            self.wait_for_members(now, request)?;
        }
        Ok(reply)
    }

    fn run_on_replica_set(&mut self, now: Instant, request: &Request<'_>) -> Outcome {
        let set = self.replica_set.as_mut().ok_or_else(no_replication)?;
        let was_primary = set.is_primary();
        let outcome = match request.name {
            "replSetGetStatus" => {
                let unix = self.clock.unix(now);
                let complete_until = set.complete_until(now, unix);
                Ok(set.status(self.cluster_time.at(complete_until), unix))
            }
            "replSetGetConfig" => Ok(set.config()),
            "replSetStepDown" => set.step_down(now, request),
            "replSetStepUp" => set.ask_for_election(),
            "replSetReconfig" => set.reconfigure(request),
            _ => set.freeze(request),
        };
        if set.is_primary() != was_primary {
            self.topology_counter += 1;
        }
        self.abort_unless_primary();
        outcome
    }

    /// A member that is not the primary has no transactions.
    pub(super) fn abort_unless_primary(&mut self) {
        if self.replica_set.as_ref().is_some_and(|set| !set.is_primary()) {
            self.transactions.abort_all();
        }
    }

    /// The commands of the store. A repeated write gets its earlier answer (SRV-8).
    fn run_on_data(&mut self, now: Instant, identity: &mut Identity, request: &Request<'_>) -> Outcome {
        let goes_on = request.name == "getMore"
            && request.arguments.integer("getMore")?.is_some_and(|cursor| self.store.has_time_limit(cursor));
        if self.fail_points.times_out(request, goes_on) {
            return Err(fail(50, "operation exceeded time limit"));
        }
        let is_missing = match request.name {
            "checkMetadataConsistency" | "shardCollection" => !self.config.is_mongos(),
            "bulkWrite" => self.config.version < ServerVersion::V8_0,
            _ => false,
        };
        if is_missing {
            return Err(fail(code::COMMAND_NOT_FOUND, format!("no such command: '{}'", request.name)));
        }
        let part = Part::of(request)?;
        if part.is_none() {
            read_concern::check(request, self.is_in_cluster())?;
        }
        let writes = changes_data(request);
        let write = NumberedWrite::of(request)?;
        match &self.replica_set {
            // The server behind a load balancer is a mongos, which knows transaction numbers.
            None if write.is_some() && !self.config.is_mongos() => {
                return Err(fail(20, "Transaction numbers are only allowed on a replica set member or mongos"));
            }
            None if writes && !self.config.is_mongos() => write_concern::check_alone(request)?,
            None => {}
            Some(set) => {
                set.refusal(request, writes || part.is_some()).map_or(Ok(()), Err)?;
                read_concern::check_member(request, set)?;
            }
        }
        let mut caller = Caller::new(now, identity.number());
        caller.ignores_max_time = self.fail_points.never_times_out();
        if let Some(part) = part {
            return self.run_in_transaction(caller, request, &part);
        }
        if reads_from_snapshot(request) {
            return self.read_from_snapshot(caller, request);
        }
        let write = write.filter(|_| writes);
        if let Some(write) = &write {
            if let Some(reply) = self.sessions.repeated(write)? {
                self.wait_for_members(now, request)?;
                return Ok(reply);
            }
            self.transactions.begin_number(write);
        }
        if write.is_some() {
            let fault = self.fail_points.on_transactional_write(request);
            identity.has_ended |= fault.closes_connection;
            if let Some(code) = fault.error_code {
                return Err(fail(code, "Failing write due to failpoint. The write must not be reflected."));
            }
        }
        if let Some(failure) = self.fail_get_more(identity, request)? {
            return Err(failure);
        }
        let command = StoreCommand { name: request.name, database: request.database, body: request.arguments.0 };
        let time = writes.then(|| self.begin_operation(now));
        self.store.show_changes_until(self.last_committed());
        let Some((outcome, spent)) = self.store.run_as(caller, &command) else {
            return Err(unknown_command(request.name));
        };
        self.work += spent.work;
        self.slept = spent.slept;
        if let Some(time) = time {
            let ignores_max_time = caller.ignores_max_time;
            self.log(time, || Entry::of(request, write.clone(), ignores_max_time));
            self.wait_for_members(now, request)?;
        }
        // A cursor that was killed has no more documents to wait for.
        self.changes += u64::from(writes || request.name == "killCursors");
        let mut reply = outcome?;
        if writes
            && let Some(set) = &self.replica_set
            && let Some(error) = write_concern::error(request, set.view())?
        {
            self.goal = None;
            reply.append(bson::cstr!("writeConcernError"), error);
        }
        if let Some(write) = write {
            self.sessions.remember(write, &reply);
        }
        Ok(reply)
    }

    /// Whether a getMore reads a change stream.
    fn goes_on_with_change_stream(&self, request: &Request<'_>) -> bool {
        let cursor = request.arguments.integer("getMore").ok().flatten();
        request.name == "getMore" && cursor.is_some_and(|cursor| self.store.is_change_stream(cursor))
    }

    /// The failure of a getMore that finds its cursor and is hit by a fail point; the cursor is closed.
    fn fail_get_more(
        &mut self,
        identity: &mut Identity,
        request: &Request<'_>,
    ) -> Result<Option<CommandFailure>, CommandFailure> {
        if request.name != "getMore" {
            return Ok(None);
        }
        let Some(id) = request.arguments.integer("getMore")?.filter(|id| self.store.has_cursor(*id)) else {
            return Ok(None);
        };
        let Some(fault) = self.fail_points.on_get_more() else { return Ok(None) };
        self.store.close_cursor(id);
        identity.has_ended |= fault.closes_connection;
        Ok(Some(fail(fault.error_code, "Hit the 'failGetMoreAfterCursorCheckout' failpoint")))
    }

    /// How long a getMore that found nothing waits for documents: for `maxTimeMS`, and by default for a second. `None` if it
    /// does not wait.
    pub(super) fn wait_for_data(&self, request: &Request<'_>, reply: &Reply) -> Option<Duration> {
        if request.name != "getMore" || reply.is_error {
            return None;
        }
        let cursor = Arguments(&reply.body).document("cursor").ok()??;
        let is_empty = cursor.array("nextBatch").ok()?.is_none_or(RawArray::is_empty);
        let awaits = is_empty && self.store.awaits_data(cursor.integer("id").ok()??);
        let limit = request.arguments.integer("maxTimeMS").ok()?.and_then(|limit| u64::try_from(limit).ok());
        awaits.then(|| limit.filter(|limit| *limit > 0).map_or(AWAIT, Duration::from_millis))
    }

    /// The labels that a server gives the error of a write concern on its own. It does not say that a transaction failed.
    pub(super) fn labels_of_concern(&self, request: &Request<'_>, code: i32) -> Vec<String> {
        let labels = self.default_labels(request, code);
        labels.into_iter().filter(|label| label != TRANSIENT).collect()
    }

    /// The labels that a server gives an error on its own (SRV-8): that a write or the end of a transaction may be sent again, or
    /// that the whole transaction may be repeated.
    pub(super) fn default_labels(&self, request: &Request<'_>, code: i32) -> Vec<String> {
        let is_numbered = self.is_in_cluster() && request.arguments.get("txnNumber").is_some();
        let is_part = request.arguments.get("autocommit").is_some();
        let ends = matches!(request.name, "commitTransaction" | "abortTransaction");
        let is_retryable = RETRYABLE_CODES.contains(&code);
        let is_transient = TRANSIENT_CODES.contains(&code) || is_retryable && !ends;
        let label = if is_part && is_transient {
            Some(TRANSIENT)
        } else {
            is_retryable.then_some("RetryableWriteError").filter(|_| !is_part || ends)
        };
        label.filter(|_| is_numbered).map(Into::into).into_iter().collect()
    }
}

/// A failure of a getMore with the label that says that another change stream can go on from the same place, if it can.
fn resumable(mut failure: CommandFailure) -> CommandFailure {
    if RESUMABLE_CODES.contains(&failure.code) {
        failure.labels.push("ResumableChangeStreamError".into());
    }
    failure
}

/// The codes that say that a member is not, or no longer, what the command needs.
const STATE_CHANGES: [i32; 5] = [
    code::NOT_WRITABLE_PRIMARY,
    code::NOT_PRIMARY_NO_SECONDARY_OK,
    code::NOT_PRIMARY_OR_SECONDARY,
    code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE,
    code::PRIMARY_STEPPED_DOWN,
];

/// The codes on which a client may try a write again.
const RETRYABLE_CODES: [i32; 13] = [6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];

/// The codes on which a change stream may be resumed.
const RESUMABLE_CODES: [i32; 17] =
    [6, 7, 63, 89, 91, 133, 150, 189, 234, 262, 9001, 10107, 11600, 11602, 13388, 13435, 13436];

/// The codes on which a client may repeat a whole transaction: those of its operations that may be tried again are others.
const TRANSIENT_CODES: [i32; 5] = [
    code::LOCK_TIMEOUT,
    code::WRITE_CONFLICT,
    code::SNAPSHOT_UNAVAILABLE,
    code::NO_SUCH_TRANSACTION,
    code::PREPARED_TRANSACTION,
];
