//! A server as a member of a deployment: the log of what it has written, which others carry out as well, and what clients order.
//!
//! The log has commands, not their effects. Stores are deterministic: what has carried out the same commands in the same order has
//! the same documents, and gives the same replies, which is how a write that is sent again is recognised elsewhere.

use std::sync::Arc;
use std::time::Duration;

use bson::{DateTime, RawDocumentBuf, Timestamp};
use cmap_core::time::Instant;

use super::cluster_time::ClusterTime;
use super::document::document;
use super::failure::{Outcome, append_labels, fail};
use super::read_concern;
use super::replica_set::view::View;
use super::replica_set::{Order, ReplicaSet};
use super::request::Request;
use super::service::{Reply, Service};
use super::sessions::{Ended, NumberedWrite, Sessions};
use super::users::Users;
use super::write_concern::{Goal, Progress};
use crate::MemberId;
use crate::store::{Caller, Changes, CommandFailure, Store, StoreCommand, code};

/// An entry of the log, and the time of its operation.
#[derive(Debug)]
pub(crate) struct Timed {
    pub(crate) entry: Entry,
    /// In the cluster, and by the clock.
    time: Timestamp,
    wall: DateTime,
}

/// One entry of the log.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A command on data, whether it succeeded or not.
    Command {
        /// Whether a fail point has taken away its time limit.
        ignores_max_time: bool,
        name: String,
        database: String,
        body: RawDocumentBuf,
        write: Option<NumberedWrite>,
    },
    /// What a transaction has changed, which was committed.
    Transaction { changes: Changes, write: NumberedWrite },
    /// All users, of whom some have changed.
    Users(Users),
    /// The first entry of a new primary.
    Election,
}

/// A server's part in a deployment.
#[derive(Debug)]
pub(crate) struct Membership {
    /// All members, by their hosts.
    pub(crate) hosts: Vec<(String, MemberId)>,
    /// What it wrote since the deployment looked last.
    pub(crate) written: Vec<Timed>,
    /// What clients have ordered of the deployment.
    pub(crate) orders: Vec<Order>,
}

/// Everything of a server that is replicated.
#[derive(Debug)]
pub(crate) struct State {
    store: Store,
    sessions: Sessions,
    users: Users,
    cluster_time: ClusterTime,
}

impl Entry {
    /// The command that a client has given.
    pub(super) fn of(request: &Request<'_>, write: Option<NumberedWrite>, ignores_max_time: bool) -> Self {
        let (name, database) = (request.name.to_owned(), request.database.to_owned());
        Self::Command { ignores_max_time, name, database, body: request.arguments.0.to_owned(), write }
    }

    /// The bytes of its command.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Command { body, .. } => body.as_bytes().len(),
            Self::Transaction { changes, .. } => changes.size(),
            // There are few, and they are small.
            Self::Users(_) | Self::Election => 0,
        }
    }
}

impl Membership {
    pub(crate) fn new(hosts: Vec<(String, MemberId)>) -> Self {
        Self { hosts, written: Vec::new(), orders: Vec::new() }
    }

    /// `testDeployment`, a command of this test server alone: `"kill"`, `"restart"` or `"lag"` of the member at `member`.
    pub(crate) fn order(&mut self, request: &Request<'_>, is_in_set: bool) -> Outcome {
        let arguments = request.arguments;
        let host = arguments.text("member")?.ok_or_else(|| fail(code::FIELD_MISSING, "member is missing"))?;
        let Some((_, member)) = self.hosts.iter().find(|(known, _)| known == host) else {
            return Err(fail(code::NODE_NOT_FOUND, format!("no member of the deployment has the host {host}")));
        };
        let order = match arguments.text(request.name)? {
            Some("kill") => Order::Kill(*member),
            Some("restart") => Order::Restart(*member),
            Some("lag") if is_in_set => {
                let lag = arguments.integer("milliseconds")?.and_then(|lag| u64::try_from(lag).ok());
                let lag =
                    lag.ok_or_else(|| fail(code::BAD_VALUE, "milliseconds has to be a number, and not negative"))?;
                Order::Lag(*member, Duration::from_millis(lag))
            }
            Some("lag") => return Err(fail(code::COMMAND_NOT_SUPPORTED, "only a member of a replica set has a lag")),
            _ => return Err(fail(code::BAD_VALUE, "testDeployment has to be \"kill\", \"restart\" or \"lag\"")),
        };
        self.orders.push(order);
        Ok(document! { "member": host })
    }
}

impl Service {
    /// Makes it a member of a deployment. `set` is its place in a replica set, if the deployment is one.
    pub(super) fn join(&mut self, membership: Membership, set: Option<(MemberId, View)>) {
        self.membership = Some(membership);
        self.replica_set = set.map(|(me, view)| ReplicaSet::member(me, view));
        self.keep_history();
    }

    /// The replica set looks different from now on.
    pub(super) fn see(&mut self, view: View) {
        if self.replica_set.as_mut().is_some_and(|set| set.see(view)) {
            self.topology_counter += 1;
        }
        self.abort_unless_primary();
    }

    /// Has the store keep a history, if this is a server of a cluster.
    pub(super) fn keep_history(&mut self) {
        if self.is_in_cluster() {
            self.store.keep_history();
        }
    }

    /// The increment of the last operation that no election takes back. `None` means every operation: there are no elections.
    pub(super) fn last_committed(&self) -> Option<u32> {
        self.membership.as_ref()?;
        let committed = self.replica_set.as_ref()?.view().committed();
        // Every operation is an entry of the log, and the clock of a cluster begins at 1.
        Some(u32::try_from(committed.0.saturating_add(1)).unwrap_or(u32::MAX))
    }

    /// What clients have ordered of the deployment since the last look.
    pub(super) fn take_orders(&mut self) -> Vec<Order> {
        let membership = self.membership.as_mut().map(|membership| std::mem::take(&mut membership.orders));
        let set = self.replica_set.as_mut().map(|set| std::mem::take(&mut set.orders));
        membership.into_iter().chain(set).flatten().collect()
    }

    /// Whether a read has to wait until more is replicated.
    pub(super) fn must_wait_to_read(&self, request: &Request<'_>) -> bool {
        self.replica_set.as_ref().is_some_and(|set| read_concern::must_wait(request, set, &self.cluster_time))
    }

    /// How far a write has got.
    pub(super) fn progress_of(&self, goal: &Goal, now: Instant) -> Progress {
        self.replica_set.as_ref().map_or(Progress::Reached, |set| goal.progress(set, now))
    }

    /// Whether a write is interrupted, because this member is no longer the primary.
    pub(super) fn is_interrupted(&self, goal: &Goal) -> bool {
        self.replica_set.as_ref().is_some_and(|set| goal.is_interrupted(set))
    }

    /// The reply to a command that is interrupted.
    pub(super) fn interruption(&self, now: Instant, request: &Request<'_>) -> Reply {
        let failure = fail(code::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE, "operation was interrupted");
        self.reply(now, Err(self.explained(request, failure)))
    }

    /// Adds a `writeConcernError` to a reply that has none.
    pub(super) fn add_write_concern_error(
        &self,
        request: &Request<'_>,
        reply: &mut Reply,
        code: i32,
        error: &RawDocumentBuf,
    ) {
        let has_one = |part: &RawDocumentBuf| !part.get("writeConcernError").is_ok_and(|error| error.is_none());
        if reply.is_error || has_one(&reply.body) || has_one(&reply.tail) {
            return;
        }
        reply.tail.append(bson::cstr!("writeConcernError"), error);
        append_labels(&mut reply.tail, &self.labels_of_concern(request, code));
    }

    /// Begins an operation, which counts once it is logged, and returns its time.
    pub(super) fn begin_operation(&mut self, now: Instant) -> (Timestamp, DateTime) {
        let (time, wall) = (self.cluster_time.next(self.clock.unix(now)), self.clock.date(now));
        self.store.begin_operation(time, wall);
        (time, wall)
    }

    /// Records what was written at that time, for the other members.
    pub(super) fn log(&mut self, (time, wall): (Timestamp, DateTime), entry: impl FnOnce() -> Entry) {
        self.cluster_time.count_write(time);
        if let Some(membership) = &mut self.membership {
            membership.written.push(Timed { entry: entry(), time, wall });
            if let Some(set) = &mut self.replica_set {
                set.count();
            }
        }
    }

    /// The write that was carried out just now is not answered before enough members have it.
    pub(super) fn wait_for_members(&mut self, now: Instant, request: &Request<'_>) -> Result<(), CommandFailure> {
        self.goal = self.replica_set.as_ref().map(|set| Goal::of(request, set, now)).transpose()?;
        Ok(())
    }

    /// Carries out what another member did.
    pub(crate) fn apply(&mut self, now: Instant, timed: &Timed) {
        let Timed { entry, time, wall } = timed;
        self.cluster_time.count_write(*time);
        self.store.begin_operation(*time, *wall);
        match entry {
            Entry::Command { ignores_max_time, name, database, body, write } => {
                let mut caller = Caller::nobody(now);
                caller.ignores_max_time = *ignores_max_time;
                let outcome = self.store.run_as(caller, &StoreCommand { name, database, body });
                if let (Some(write), Some((Ok(reply), _))) = (write, outcome) {
                    self.sessions.remember(write.clone(), &reply);
                }
                self.changes += 1;
            }
            Entry::Transaction { changes, write } => {
                // What fits on the primary fits here.
                let _ = self.store.apply(Caller::nobody(now), changes);
                self.sessions.end_transaction(write, Ended::Committed);
                self.changes += 1;
            }
            Entry::Users(users) => self.users = users.clone(),
            Entry::Election => {}
        }
        if let Some(set) = &mut self.replica_set {
            set.count();
        }
    }

    /// A copy of everything that is replicated.
    pub(crate) fn state(&self) -> State {
        State {
            store: self.store.copy(),
            sessions: self.sessions.clone(),
            users: self.users.clone(),
            cluster_time: self.cluster_time.clone(),
        }
    }

    /// Takes the place of everything that is replicated. Cursors end.
    pub(crate) fn replace_state(&mut self, state: State) {
        let State { store, sessions, users, cluster_time } = state;
        (self.store, self.sessions, self.users, self.cluster_time) = (store, sessions, users, cluster_time);
        self.store.seed_cursor_ids(self.random.next_u64());
        self.transactions.abort_all();
        self.snapshots.clear();
        self.changes += 1;
    }

    /// Everything that is replicated, of a process that has ended.
    pub(crate) fn into_state(self) -> State {
        let Self { store, sessions, users, cluster_time, .. } = self;
        State { store: store.without_cursors(), sessions, users, cluster_time }
    }
}

/// The log's entries are shared by the members that carry them out.
pub(crate) type SharedEntry = Arc<Timed>;
