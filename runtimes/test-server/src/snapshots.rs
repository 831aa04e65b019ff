//! Reads of an earlier time: the states of the store that `readConcern: {level: "snapshot"}` has read, for as long as others may.
//!
//! A state is kept once it was read, so that writes cost nothing where nobody reads so. A time at which nobody has read can be read
//! while it is the latest one, and is too old afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, Timestamp};
use cmap_core::time::Instant;

use super::command_kinds::puts_out;
use super::failure::{fail, unknown_command};
use super::request::Request;
use super::service::Service;
use crate::store::{Caller, CommandFailure, Spent, StoreCommand, StoreSnapshot, code};

/// `minSnapshotHistoryWindowInSeconds`: how long a state is kept.
const WINDOW: Duration = Duration::from_secs(300);

/// How many states are kept. The oldest one makes way.
const MAX_KEPT: usize = 64;

/// The states that were read, by the number of operations before them.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    kept: BTreeMap<u32, (Instant, StoreSnapshot)>,
}

impl Snapshots {
    /// When the next one has been kept for long enough.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.kept.values().map(|(until, _)| *until).min()
    }

    /// Forgets those that have been kept for long enough.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.kept.retain(|_, (until, _)| *until > now);
    }

    /// Forgets all: the documents are others.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }
}

/// Whether a request chooses a snapshot to read from, outside of a transaction.
pub(super) fn reads_from_snapshot(request: &Request<'_>) -> bool {
    if request.name == "getMore" {
        return false;
    }
    let concern = request.arguments.document("readConcern").ok().flatten();
    concern.and_then(|concern| concern.text("level").ok().flatten()) == Some("snapshot")
}

impl Service {
    /// Carries out a read from the snapshot that it names, or else from the latest state. The reply names the time.
    pub(super) fn read_from_snapshot(
        &mut self,
        caller: Caller,
        request: &Request<'_>,
    ) -> Result<RawDocumentBuf, CommandFailure> {
        if puts_out(request) {
            // It would write to the snapshot, which nobody else sees.
            return Err(CommandFailure::not_supported("$out with the read concern snapshot"));
        }
        let concern = request.arguments.document("readConcern")?;
        let latest = self.cluster_time.at(self.clock.unix(caller.now));
        let at = match concern.and_then(|concern| concern.get("atClusterTime")) {
            Some(RawBsonRef::Timestamp(at)) => at,
            Some(_) => return Err(fail(code::TYPE_MISMATCH, "atClusterTime has to be a timestamp")),
            None => latest,
        };
        // Times are told apart by their increments, which count operations.
        let key = at.increment.min(latest.increment);
        if !self.snapshots.kept.contains_key(&key) {
            if key < latest.increment {
                return Err(fail(
                    code::SNAPSHOT_TOO_OLD,
                    "Read timestamp is older than the oldest available timestamp",
                ));
            }
            while self.snapshots.kept.len() >= MAX_KEPT {
                self.snapshots.kept.pop_first();
            }
            self.snapshots.kept.insert(key, (caller.now + WINDOW, self.store.snapshot()?));
        }
        let command = StoreCommand { name: request.name, database: request.database, body: request.arguments.0 };
        let ran = match self.snapshots.kept.get_mut(&key) {
            Some((_, snapshot)) => self.store.run_on(snapshot, caller, &command),
            None => None,
        };
        let Some((outcome, spent)) = ran else {
            return Err(unknown_command(request.name));
        };
        let Spent { work, slept, .. } = spent;
        self.work += work;
        self.slept = slept;
        Ok(with_time(&outcome?, at))
    }
}

/// The reply with `atClusterTime`, in its cursor if it has one.
fn with_time(reply: &RawDocument, at: Timestamp) -> RawDocumentBuf {
    let mut with_time = RawDocumentBuf::new();
    let mut has_cursor = false;
    for (name, value) in reply.iter().map_while(Result::ok) {
        if let ("cursor", RawBsonRef::Document(cursor)) = (name.as_str(), value) {
            let mut cursor = cursor.to_owned();
            cursor.append(bson::cstr!("atClusterTime"), at);
            with_time.append(name, cursor);
            has_cursor = true;
        } else {
            with_time.append(name, value);
        }
    }
    if !has_cursor {
        with_time.append(bson::cstr!("atClusterTime"), at);
    }
    with_time
}
