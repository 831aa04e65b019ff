//! Ends cursors on their servers that nobody reads any more: one task for each server, which waits for a connection behind those who asked
//! before, and ends all that are there by then, many with one command.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Waker};
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::session::SessionId;
use cmap_core::topology::{Criteria, ServerSelector};

use crate::connection::{CheckOut, Connection, kill_command};
use crate::operation::{Context, Ended, Means, Operation, SessionOf};
use crate::runtime::Runtime;
use crate::runtime::chores::Chore;
use crate::session::Borrowed;
use crate::time::{Budget, Limit};

/// How long it waits for a connection.
const PATIENCE: Duration = Duration::from_secs(10);

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

/// The task of a server.
struct Reaper<R: Runtime> {
    context: Arc<Context<R>>,
    server: Arc<ServerAddress>,
    /// Whether it has ended all that there were.
    is_done: bool,
}

/// Ends a cursor in the background.
pub(super) fn end_on_server<R: Runtime>(
    context: &Arc<Context<R>>,
    server: &Arc<ServerAddress>,
    cursor: DoomedCursor<R>,
) {
    if context.doomed.add(server, cursor) {
        begin(context, Reaper { context: Arc::clone(context), server: Arc::clone(server), is_done: false }.run());
    }
}

/// Goes on with `work` in a task. If nothing keeps its command, it is on its way when this returns, even if the runtime ends next.
pub(super) fn begin<R: Runtime>(context: &Context<R>, work: impl Future<Output = ()> + Send + 'static) {
    let mut work = Box::pin(work);
    let first = pin!(&mut work).poll(&mut TaskContext::from_waker(Waker::noop()));
    if first.is_pending() {
        context.driver.clock.runtime().spawn(work);
    }
}

impl<R: Runtime> Reaper<R> {
    async fn run(mut self) {
        loop {
            let selector = ServerSelector::Pinned(Arc::clone(&self.server));
            let criteria = Criteria { selector, ..Criteria::default() };
            let connection = CheckOut::of(&self.context.driver, criteria, Limit::Within(PATIENCE)).await;
            // Servers end idle cursors by themselves.
            let Ok(connection) = connection else { return };
            let mut connection = Some(connection);
            while let Some(usable) = connection.take() {
                let Some(cursors) = self.context.doomed.take(&self.server) else {
                    self.is_done = true;
                    return;
                };
                connection = self.kill(cursors, usable).await;
            }
        }
    }

    /// Kills cursors by one command; returns the connection, if it can be used again.
    async fn kill(&self, mut cursors: Vec<DoomedCursor<R>>, connection: Connection<R>) -> Option<Connection<R>> {
        let namespace = cursors.first()?.namespace.clone();
        let limit = cursors.iter().map(|cursor| cursor.limit.0).min()?;
        let is_told = cursors.iter().any(|cursor| cursor.limit.1);
        // That of one of them stands for all: a server lets every session of a user end the user's cursors.
        let borrowed = cursors.iter_mut().find_map(|cursor| cursor.borrowed.take());
        let (ids, session) = (cursors.iter().map(|cursor| cursor.id), SessionOf::Implicit(borrowed));
        let (limit, connection) = ((limit, is_told), Some(connection));
        let killing = kill(&self.context, &self.server, ids, &namespace, limit, session, connection);
        let Ended { result, connection, .. } = killing.await;
        result.map_or(connection, |answer| answer.connection).filter(Connection::is_between_commands)
    }
}

/// Ends these cursors, over the connection if there is one. `limit` begins now; with it, whether the server learns it.
pub(super) async fn kill<R: Runtime>(
    context: &Arc<Context<R>>,
    server: &Arc<ServerAddress>,
    ids: impl IntoIterator<Item = i64>,
    namespace: &DoomedNamespace,
    (limit, is_told): (Duration, bool),
    session: SessionOf<'_, R>,
    connection: Option<Connection<R>>,
) -> Ended<R> {
    let command = kill_command(&namespace.collection, ids, namespace.of_user);
    let selector = ServerSelector::Pinned(Arc::clone(server));
    let operation = Operation::new(context, (namespace.database.as_str(), command)).on(selector).once();
    // The user of a session waits; without one it goes on in the background.
    let operation = if matches!(session, SessionOf::Implicit(_)) { operation.into_chore() } else { operation };
    let budget = Some(Budget { is_told, ..context.budget(Some(Limit::Within(limit))) });
    operation.carry_out(Means { session, connection, budget, makes_cursor: false }).await
}

impl<R: Runtime> Drop for Reaper<R> {
    fn drop(&mut self) {
        if !self.is_done {
            self.context.doomed.forget(&self.server);
        }
    }
}

impl<R: Runtime> Doomed<R> {
    /// Adds a cursor. Returns whether a task has to begin to end those of its server.
    pub(super) fn add(&self, server: &Arc<ServerAddress>, cursor: DoomedCursor<R>) -> bool {
        let mut of_server = self.lock();
        let is_first = !of_server.contains_key(server);
        of_server.entry(Arc::clone(server)).or_default().push(cursor);
        is_first
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
