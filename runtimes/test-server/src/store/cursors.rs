//! The open cursors: whose they are, how much they hold, and when they have been idle for too long.
//!
//! A cursor ends with the session of the command that opened it or, without a session, with its connection. Behind a load balancer it ends
//! with its connection in any case.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bson::RawDocumentBuf;
use cmap_core::random::Random;
use cmap_core::time::Instant;

use super::call::Call;
use super::catalog::Catalog;
use super::collection::Collection;
use super::cursor::{Cursor, Source};
use super::failure::{CommandFailure, code};
use super::limits::StoreLimits;
use super::namespace::Namespace;
use super::owner::Owner;

/// How long a session lives unused, and with it a cursor that is never idle for too long.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The open cursors.
#[derive(Debug)]
pub(super) struct Cursors {
    open: BTreeMap<i64, Open>,
    owners: BTreeMap<Owner, Owned>,
    /// When to look whether a cursor has been idle for too long.
    deadlines: BTreeSet<(Instant, i64)>,
    bytes: usize,
    now: Instant,
    ids: Random,
}

#[derive(Debug)]
struct Open {
    cursor: Cursor,
    owner: Owner,
    /// That of the command that opened it.
    connection: Option<u64>,
    bytes: usize,
    /// Whether the command that opened it had a time limit.
    has_time_limit: bool,
    /// The time limit of its being idle.
    timeout: Option<Duration>,
    deadline: Option<Instant>,
}

/// The cursors of one owner.
#[derive(Debug)]
struct Owned {
    ids: BTreeSet<i64>,
    /// When the owner gave its last command.
    used: Instant,
}

impl Default for Cursors {
    fn default() -> Self {
        let (open, owners, deadlines) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { open, owners, deadlines, bytes: 0, now: Instant::ORIGIN, ids: Random::new(0) }
    }
}

impl Cursors {
    pub(super) fn seed_ids(&mut self, seed: u64) {
        self.ids = Random::new(seed);
    }

    /// The reply that opens a cursor: its first batch, and its id if there may be more.
    pub(super) fn open(
        &mut self,
        call: &Call<'_>,
        catalog: &Catalog,
        mut cursor: Cursor,
        batch_size: usize,
        collection: Option<&Collection>,
    ) -> Result<RawDocumentBuf, CommandFailure> {
        let limits = &catalog.limits;
        let batch = cursor.next_batch(batch_size, catalog, collection, &call.work)?;
        if batch.is_last {
            return Ok(batch.into_reply("firstBatch", &cursor.namespace, 0));
        }
        let bytes = cursor.size();
        self.check_room(limits, bytes)?;
        let id = self.next_id();
        let reply = batch.into_reply("firstBatch", &cursor.namespace, id);
        // The time limit of a command that opens a change stream is its own.
        let is_change_stream = cursor.is_change_stream();
        cursor.time_left = call.work.left().filter(|_| !is_change_stream);
        let timeout = (!cursor.no_timeout).then_some(limits.cursor_timeout);
        let owner = call.owner.clone();
        let used = self.now;
        self.owners.entry(owner.clone()).or_insert(Owned { ids: BTreeSet::new(), used }).ids.insert(id);
        self.bytes += bytes;
        let has_time_limit = call.work.has_limit() && !is_change_stream;
        let connection = call.connection;
        self.open.insert(id, Open { cursor, owner, connection, bytes, has_time_limit, timeout, deadline: None });
        self.rearm(id);
        Ok(reply)
    }

    /// Fails if there may not be another cursor of so many bytes.
    fn check_room(&self, limits: &StoreLimits, bytes: usize) -> Result<(), CommandFailure> {
        let what = if self.open.len() >= limits.cursors {
            format!("{} open cursors", limits.cursors)
        } else if self.bytes.saturating_add(bytes) > limits.cursor_bytes {
            format!("{} bytes in open cursors", limits.cursor_bytes)
        } else {
            return Ok(());
        };
        let message = format!("this test server has at most {what}: read others to their ends, or kill them");
        Err(CommandFailure::new(code::EXCEEDED_MEMORY_LIMIT, message))
    }

    /// The reply to getMore.
    pub(super) fn get_more(
        &mut self,
        call: &Call<'_>,
        id: i64,
        namespace: Namespace<'_>,
        batch_size: usize,
        catalog: &Catalog,
    ) -> Result<RawDocumentBuf, CommandFailure> {
        let collection = catalog.get(namespace);
        let Some(Open { cursor, owner, .. }) = self.open.get_mut(&id) else {
            return Err(CommandFailure::new(code::CURSOR_NOT_FOUND, format!("cursor id {id} not found")));
        };
        owner.lets(id, &call.owner)?;
        let namespace = namespace.full();
        if cursor.namespace != namespace {
            return Err(CommandFailure::new(
                code::UNAUTHORIZED,
                format!(
                    "Requested getMore on namespace '{namespace}', but cursor was created on different namespace '{}'",
                    cursor.namespace
                ),
            ));
        }
        if !cursor.awaits_data && call.arguments().get("maxTimeMS").is_some() {
            return Err(CommandFailure::bad_value(
                "cannot set maxTimeMS on getMore command for a non-awaitData cursor",
            ));
        }
        if let Some(left) = cursor.time_left {
            call.work.limit(left);
        }
        let batch = cursor.next_batch(batch_size, catalog, collection, &call.work);
        cursor.time_left = cursor.time_left.and(call.work.left());
        match &batch {
            Ok(batch) if !batch.is_last => self.rearm(id),
            Ok(_) | Err(_) => self.close(id),
        }
        let batch = batch?;
        let id = if batch.is_last { 0 } else { id };
        Ok(batch.into_reply("nextBatch", &namespace, id))
    }

    /// Closes a cursor; returns whether it was open.
    pub(super) fn kill(&mut self, id: i64, namespace: &str) -> bool {
        let is_open = self.open.get(&id).is_some_and(|open| open.cursor.namespace == namespace);
        if is_open {
            self.close(id);
        }
        is_open
    }

    /// Closes the cursors of an owner.
    pub(super) fn end(&mut self, owner: &Owner) {
        let ids = self.owners.get(owner).map(|owned| owned.ids.clone());
        ids.into_iter().flatten().for_each(|id| self.close(id));
    }

    /// Closes the cursors that a connection opened, whatever their sessions.
    pub(super) fn end_opened_by(&mut self, connection: u64) {
        let opened = self.open.iter().filter(|(_, open)| open.connection == Some(connection));
        let ids: Vec<_> = opened.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.close(id));
    }

    /// Closes the cursors of all sessions.
    pub(super) fn end_sessions(&mut self) {
        let sessions: Vec<_> = self.owners.keys().filter(|owner| matches!(owner, Owner::Session(_))).cloned().collect();
        sessions.iter().for_each(|session| self.end(session));
    }

    /// Collections were dropped: the next getMore of each of their cursors fails.
    pub(super) fn drop_collections(&mut self, are_dropped: impl Fn(&str) -> bool) {
        let is_dropped = |open: &&mut Open| !open.cursor.is_change_stream() && are_dropped(&open.cursor.namespace);
        for open in self.open.values_mut().filter(is_dropped) {
            open.cursor.source = Source::Dropped;
            let bytes = open.cursor.size();
            self.bytes = self.bytes + bytes - open.bytes;
            open.bytes = bytes;
        }
    }

    /// Whether a cursor waits for documents; `None` if it is not open.
    pub(super) fn awaits_data(&self, id: i64) -> Option<bool> {
        self.open.get(&id).map(|open| open.cursor.awaits_data)
    }

    /// Whether an open cursor hands out changes.
    pub(super) fn is_change_stream(&self, id: i64) -> bool {
        self.open.get(&id).is_some_and(|open| open.cursor.is_change_stream())
    }

    /// Whether an open cursor has a time limit.
    pub(super) fn has_time_limit(&self, id: i64) -> bool {
        self.open.get(&id).is_some_and(|open| open.has_time_limit)
    }

    /// The number of open cursors.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// The owner gives a command.
    pub(super) fn touch(&mut self, owner: &Owner) {
        if let Some(owned) = self.owners.get_mut(owner) {
            owned.used = self.now;
        }
    }

    /// Closes the cursors that have been idle for too long by `now`.
    pub(super) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while let Some((at, id)) = self.deadlines.first().copied().filter(|(at, _)| *at <= self.now) {
            self.deadlines.remove(&(at, id));
            let Some(open) = self.open.get(&id) else { continue };
            // Its session may have been used in the meantime.
            let is_in_use = open.timeout.is_none()
                && self.owners.get(&open.owner).is_some_and(|owned| owned.used + SESSION_TIMEOUT > self.now);
            match is_in_use {
                true => self.rearm(id),
                false => self.close(id),
            }
        }
    }

    /// When to look at the next cursor.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Sets the time at which a cursor, if it is not used, will have been idle for too long.
    fn rearm(&mut self, id: i64) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let session = matches!(open.owner, Owner::Session(_)).then(|| self.owners.get(&open.owner)).flatten();
        let deadline = match open.timeout {
            Some(timeout) => Some(self.now + timeout),
            None => session.map(|session| session.used + SESSION_TIMEOUT),
        };
        if let Some(old) = std::mem::replace(&mut open.deadline, deadline) {
            self.deadlines.remove(&(old, id));
        }
        self.deadlines.extend(deadline.map(|at| (at, id)));
    }

    /// Closes a cursor, if it is open.
    pub(super) fn close(&mut self, id: i64) {
        let Some(open) = self.open.remove(&id) else { return };
        self.bytes -= open.bytes;
        if let Some(deadline) = open.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        if let Some(owned) = self.owners.get_mut(&open.owner) {
            owned.ids.remove(&id);
            if owned.ids.is_empty() {
                self.owners.remove(&open.owner);
            }
        }
    }

    fn next_id(&mut self) -> i64 {
        loop {
            // Positive, because that is easier to read in a log.
            let id = i64::try_from(self.ids.next_u64() >> 1).unwrap_or(0);
            if id != 0 && !self.open.contains_key(&id) {
                return id;
            }
        }
    }
}
