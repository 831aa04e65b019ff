//! The cursors that are to be ended on their servers: by server, because one task for each ends them, many with one command.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::session::SessionId;

use crate::runtime::Runtime;
use crate::runtime::chores::Chore;
use crate::session::Borrowed;

/// The most cursors that one killCursors names.
const MOST_IDS: usize = 1000;

/// A client's cursors that are to be ended.
pub(crate) struct Doomed<R: Runtime> {
    /// By server, where a task is at it.
    of_server: Mutex<BTreeMap<Arc<ServerAddress>, Vec<DoomedCursor<R>>>>,
}

/// A cursor that is to be ended.
pub(super) struct DoomedCursor<R: Runtime> {
    pub(super) id: i64,
    pub(super) namespace: DoomedNamespace,
    /// Its implicit session, which goes back when it has ended.
    pub(super) borrowed: Option<Borrowed<R>>,
    /// How long its killCursors may take, and whether the server learns it.
    pub(super) limit: (Duration, bool),
    pub(super) _chore: Chore,
}

/// What the cursors of one killCursors have in common.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct DoomedNamespace {
    pub(super) database: String,
    pub(super) collection: String,
    /// The session that it was made in, if that is a user's own.
    pub(super) of_user: Option<SessionId>,
}

impl<R: Runtime> Doomed<R> {
    /// Adds a cursor. Returns whether a task has to begin to end those of its server.
    pub(super) fn add(&self, server: &Arc<ServerAddress>, cursor: DoomedCursor<R>) -> bool {
        let mut of_server = self.lock();
        match of_server.get_mut(server) {
            Some(cursors) => {
                cursors.push(cursor);
                false
            }
            None => {
                of_server.insert(Arc::clone(server), vec![cursor]);
                true
            }
        }
    }

    /// Takes cursors of a server that one command can end. If there are none left, the task is over.
    pub(super) fn take(&self, server: &ServerAddress) -> Option<Vec<DoomedCursor<R>>> {
        let mut of_server = self.lock();
        let cursors = of_server.get_mut(server)?;
        let Some(first) = cursors.first() else {
            of_server.remove(server);
            return None;
        };
        let namespace = first.namespace.clone();
        let mut room = MOST_IDS;
        let (taken, rest) = std::mem::take(cursors).into_iter().partition(|cursor| {
            let is_taken = cursor.namespace == namespace && room > 0;
            room -= usize::from(is_taken);
            is_taken
        });
        *cursors = rest;
        Some(taken)
    }

    /// The task has ended, and what is left is not tried again.
    pub(super) fn forget(&self, server: &ServerAddress) {
        // Dropped without the lock.
        let _left = self.lock().remove(server);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<ServerAddress>, Vec<DoomedCursor<R>>>> {
        // Nothing under the lock panics.
        self.of_server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Runtime> Default for Doomed<R> {
    fn default() -> Self {
        Self { of_server: Mutex::default() }
    }
}
