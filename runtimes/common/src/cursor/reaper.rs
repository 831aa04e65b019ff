//! Ends cursors on their servers that nobody reads any more: one task for each server, which waits for a connection behind those who asked
//! before, and ends all that are there by then.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Waker};
use std::time::Duration;

use bson::{RawArrayBuf, RawDocumentBuf, cstr};
use cmap_core::address::ServerAddress;
use cmap_core::topology::{Criteria, ServerSelector};

use super::doomed::{DoomedCursor, DoomedNamespace};
use crate::connection::{CheckOut, Connection};
use crate::operation::{Answer, Context, Ended, Means, Operation, SessionOf};
use crate::runtime::Runtime;
use crate::time::{Budget, Limit};

/// How long it waits for a connection.
const PATIENCE: Duration = Duration::from_secs(10);

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
        context.driver.clock().runtime().spawn(work);
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
        match result {
            Ok(Answer { connection, .. }) => connection,
            Err(_) => connection,
        }
        .filter(Connection::is_between_commands)
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
    let (command, selector) = (kill_command(ids, namespace), ServerSelector::Pinned(Arc::clone(server)));
    let operation = Operation::new(context, (namespace.database.as_str(), command)).on(selector);
    let budget = Some(Budget { is_told, ..context.budget(Some(Limit::Within(limit))) });
    operation.once().carry_out(Means { session, connection, budget, makes_cursor: false }).await
}

/// The command that ends these.
fn kill_command(ids: impl IntoIterator<Item = i64>, namespace: &DoomedNamespace) -> RawDocumentBuf {
    let ids: RawArrayBuf = ids.into_iter().collect();
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("killCursors"), namespace.collection.as_str());
    command.append(cstr!("cursors"), ids);
    if let Some(of_user) = namespace.of_user {
        command.append(cstr!("lsid"), of_user.document());
    }
    command
}

impl<R: Runtime> Drop for Reaper<R> {
    fn drop(&mut self) {
        if !self.is_done {
            self.context.doomed.forget(&self.server);
        }
    }
}
