//! A cursor on its server: getMore and killCursors. Dropping it ends it there.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bson::{RawDocumentBuf, cstr};
use cmap_core::address::ServerAddress;
use cmap_core::pool::PoolState;
use cmap_core::session::SessionId;
use cmap_core::topology::ServerSelector;

use super::batch::{Batch, CursorReply};
use super::opening::Opening;
use super::options::{TimeoutMode, Wait};
use super::reaper::{self, DoomedCursor, DoomedNamespace};
use crate::connection::Connection;
use crate::error::{CommandErrorKind, CursorError, OperationError, OperationErrorKind};
use crate::operation::{Answer, ClientClosed, Context, Means, Operation, SessionOf};
use crate::runtime::Runtime;
use crate::session::{Borrowed, Session};
use crate::time::Budget;

/// How long a killCursors may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait after an empty batch, where the server does not.
const REST: Duration = Duration::from_millis(500);

/// The server has no such cursor: the code of getMore's error.
const CURSOR_NOT_FOUND: i32 = 43;

/// The cursor was killed.
const CURSOR_KILLED: i32 = 237;

/// A cursor that is open on its server.
pub(super) struct ServerCursor<R: Runtime> {
    /// What it was made with.
    pub(super) opening: Opening<R>,
    /// What replies say about it; its id is 0 if there is nothing to end on the server.
    pub(super) reply: CursorReply,
    /// The server that made it (PIN-1).
    pub(super) address: Arc<ServerAddress>,
    /// The connection that it keeps behind a load balancer, except during a getMore (LB-13).
    pub(super) pinned: Pinned<R>,
    /// Its implicit session, except during a getMore (SES-2).
    pub(super) borrowed: Option<Borrowed<R>>,
    pub(super) lsid: Option<SessionId>,
    /// The number of the transaction that it is part of.
    pub(super) transaction: Option<i64>,
    /// The protocol of its server.
    pub(super) max_wire_version: i32,
}

/// The connection of a cursor.
pub(super) enum Pinned<R: Runtime> {
    /// Any to its server will do (PIN-2).
    Any,
    /// This one; `None` if it is in use, or was lost.
    To(Option<Connection<R>>),
    /// That of its session's transaction, which ends it on the server, too (LB-15).
    OfSession,
}

/// What is left of a cursor after a command.
pub(super) enum Left<R: Runtime> {
    /// It goes on.
    Open(Box<ServerCursor<R>>),
    /// It has failed. It is ended when it is dropped, and keeps its connection till then (LB-14).
    Failed(Box<ServerCursor<R>>),
    /// There is none at present: a change stream opens another one, in this implicit session if it has one (CS-14).
    Interrupted(Option<Borrowed<R>>),
    /// The server has no more of it.
    Exhausted,
}

/// What a getMore leads to: the batch, and what is left of the cursor.
pub(super) type Fetched<R> = (Result<Batch, OperationError>, Left<R>);

impl<R: Runtime> ServerCursor<R> {
    /// Gets the next batch, in the user's session if there is one. `again`: the last one was empty, in the same iteration.
    pub(super) async fn get_more(
        mut self: Box<Self>,
        session: Option<&mut Session<R>>,
        budget: Budget,
        again: bool,
    ) -> Fetched<R> {
        if again && !self.opening.kind.awaits_data && rest(&self.opening.context, REST, budget).await.is_err() {
            return (Err(OperationError::closed_before_it_began()), Left::Failed(self));
        }
        if self.has_lost_its_server() {
            self.reply.id = 0;
            let error = CursorError::ServerGone(Arc::clone(&self.address));
            return (Err(error.into()), Left::Failed(self));
        }
        let context = self.opening.context.clone();
        let (left, wait) = (budget.left(context.driver.clock.runtime()), self.wait());
        let was_short = std::mem::replace(&mut self.opening.time.was_short, again && wait.is_shortened(left));
        if again
            && self.opening.kind.awaits_data
            && let Some(left) = left.filter(|left| was_short || !wait.fits(*left))
        {
            return (Err(CursorError::NothingCame { left, wait: wait.duration() }.into()), Left::Open(self));
        }
        let command = self.get_more_command(wait.told(left));
        let database = self.reply.database.clone();
        let operation =
            Operation::new(&context, (database.as_str(), command)).on(self.selector()).tagged(self.opening.tag);
        let ended = operation.perform(self.means(session, budget)).await;
        self.borrowed = ended.borrowed;
        let (reply, connection) = match ended.result {
            Ok(Answer { reply, connection, .. }) => (Ok(reply), connection),
            Err(error) => (Err(error), ended.connection),
        };
        if let Pinned::To(place) = &mut self.pinned {
            *place = connection;
        }
        match reply.and_then(|reply| Ok(Batch::of(reply.into_document())?)) {
            Ok((batch, said)) => {
                self.reply.id = said.id;
                // The session and the connection of one that is exhausted go back at once (SES-3).
                (Ok(batch), if said.id == 0 { Left::Exhausted } else { Left::Open(self) })
            }
            Err(error) => self.fail(error),
        }
    }

    fn fail(mut self: Box<Self>, error: OperationError) -> Fetched<R> {
        let is_early = self.opening.time.mode == TimeoutMode::Iteration && error.is_timeout() && sent_nothing(&error);
        if is_early {
            return (Err(error), Left::Open(self));
        }
        if !is_open_after(&error) {
            self.reply.id = 0;
        }
        (Err(error), Left::Failed(self))
    }

    fn means<'s>(&mut self, session: Option<&'s mut Session<R>>, budget: Budget) -> Means<'s, R> {
        let session = session.map_or_else(|| SessionOf::Implicit(self.borrowed.take()), SessionOf::Explicit);
        Means { session, connection: self.take_connection(), budget: Some(budget), makes_cursor: false }
    }

    /// The connection of its own, if it has one.
    fn take_connection(&mut self) -> Option<Connection<R>> {
        match &mut self.pinned {
            Pinned::Any | Pinned::OfSession => None,
            Pinned::To(place) => place.take(),
        }
    }

    fn selector(&self) -> ServerSelector {
        ServerSelector::Pinned(Arc::clone(&self.address))
    }

    /// Whether its server does not belong to the deployment any more. A closed client has no servers, and says so itself.
    fn has_lost_its_server(&self) -> bool {
        let driver = &self.opening.context.driver;
        driver.description().server(&self.address).is_none() && driver.state() != PoolState::Closed
    }

    /// Whether a getMore would have to wait until its server is known again, or has recovered. One that keeps its connection needs
    /// none but that.
    pub(super) fn is_out_of_reach(&self) -> bool {
        let description = self.opening.context.driver.description();
        let is_there = description.server(&self.address).is_some();
        let suitable = description.suitable_servers(&self.selector(), &[], Duration::ZERO);
        matches!(self.pinned, Pinned::Any) && is_there && suitable.is_ok_and(|servers| servers.is_empty())
    }

    fn wait(&self) -> Wait {
        let description = self.opening.context.driver.description();
        let round_trip = description.server(&self.address).map_or(Duration::ZERO, |server| server.min_round_trip_time);
        Wait { longest: self.opening.options.max_await_time, round_trip }
    }

    fn get_more_command(&self, wait: Option<Duration>) -> RawDocumentBuf {
        let mut command = RawDocumentBuf::new();
        command.append(cstr!("getMore"), self.reply.id);
        command.append(cstr!("collection"), self.reply.collection.as_str());
        if let Some(size) = self.opening.options.batch_size {
            command.append(cstr!("batchSize"), i64::from(size));
        }
        if let Some(wait) = wait {
            command.append(cstr!("maxTimeMS"), i64::try_from(wait.as_millis()).unwrap_or(i64::MAX).max(1));
        }
        if let Some(comment) = &self.opening.options.comment {
            command.append(cstr!("comment"), comment.clone());
        }
        command
    }

    /// Ends it on the server: in the transaction that made it, if that is open in the user's session, and otherwise without that
    /// session, which may have another transaction or a snapshot. Errors do not matter: servers end idle cursors by themselves. If this
    /// is dropped before its end, it goes on in the background.
    pub(super) async fn kill(mut self, session: Option<&mut Session<R>>) {
        let context = Arc::clone(&self.opening.context);
        let limit = self.opening.time.refreshed(&context, PATIENCE);
        let is_part =
            |session: &&mut Session<R>| self.transaction.is_some_and(|number| session.is_in_transaction(number));
        let Some(session) = session.filter(is_part) else {
            if let Some(chore) = self.end_in_background() {
                // However it ends, nobody waits any longer.
                let _ = context.driver.within(Some(limit.0), context.chores.ended(chore)).await;
            }
            return;
        };
        if self.reply.id == 0 || matches!(self.pinned, Pinned::To(None)) {
            return;
        }
        let (ids, connection) = ([self.reply.id], self.take_connection());
        let (namespace, session) = (self.namespace(None), SessionOf::Explicit(session));
        let ended = reaper::kill(&context, &self.address, ids, &namespace, limit, session, connection).await;
        // What could not be sent is sent in the background.
        if !ended.result.is_err_and(|error| error.is_of_check_out()) {
            self.reply.id = 0;
        }
    }

    /// Has it ended on the server in the background, if it may be open there: by the chore of this number.
    fn end_in_background(&mut self) -> Option<RangeInclusive<u64>> {
        let id = std::mem::take(&mut self.reply.id);
        let pinned = std::mem::replace(&mut self.pinned, Pinned::Any);
        if id == 0 {
            return None;
        }
        let (context, borrowed) = (Arc::clone(&self.opening.context), self.borrowed.take());
        let namespace = self.namespace(self.lsid.filter(|_| borrowed.is_none()));
        let (limit, chore) = (self.opening.time.refreshed(&context, PATIENCE), context.chores.begin());
        let number = chore.number();
        match pinned {
            Pinned::Any => {
                let doomed = DoomedCursor { id, namespace, borrowed, limit, _chore: chore };
                reaper::end_on_server(&context, &self.address, doomed);
            }
            // The end of the transaction ends it, or the end of its connection.
            Pinned::OfSession | Pinned::To(None) => {}
            Pinned::To(connection) => {
                let (address, session) = (Arc::clone(&self.address), SessionOf::Implicit(borrowed));
                let killing = async move {
                    let _ = reaper::kill(&context, &address, [id], &namespace, limit, session, connection).await;
                    drop(chore);
                };
                reaper::begin(&self.opening.context, killing);
            }
        }
        Some(number)
    }

    /// Ends it in the background; returns its implicit session, which goes on without it.
    pub(super) fn leave(mut self: Box<Self>) -> Option<Borrowed<R>> {
        let borrowed = self.borrowed.take();
        if borrowed.is_some() {
            // Any session of a user ends the cursors of that user.
            self.lsid = None;
        }
        borrowed
    }

    fn namespace(&self, of_user: Option<SessionId>) -> DoomedNamespace {
        DoomedNamespace { database: self.reply.database.clone(), collection: self.reply.collection.clone(), of_user }
    }
}

impl<R: Runtime> Drop for ServerCursor<R> {
    fn drop(&mut self) {
        self.end_in_background();
    }
}

impl<R: Runtime> Left<R> {
    /// The batch cannot be read.
    pub(super) fn failed(self) -> Self {
        match self {
            Self::Open(cursor) => Self::Failed(cursor),
            Self::Interrupted(_) => Self::Exhausted,
            Self::Failed(_) | Self::Exhausted => self,
        }
    }
}

/// Waits for `rest`, within the iteration.
pub(super) async fn rest<R: Runtime>(context: &Context<R>, rest: Duration, budget: Budget) -> Result<(), ClientClosed> {
    let rest = budget.left(context.driver.clock.runtime()).map_or(rest, |left| left.min(rest));
    context.pauses.pause(&context.driver, rest).await
}

/// Whether nothing of the getMore was sent.
fn sent_nothing(error: &OperationError) -> bool {
    error.is_of_check_out()
        || matches!(&error.kind, OperationErrorKind::Command(error) if matches!(error.kind, CommandErrorKind::NoTimeLeft { .. }))
}

/// Whether the server may still have the cursor, and can be told to end it. After a network error it is left to end it by
/// itself; after a time-out a command ends it, since the server may go on working.
fn is_open_after(error: &OperationError) -> bool {
    let OperationErrorKind::Command(error) = &error.kind else { return true };
    if let CommandErrorKind::Server(refusal) = &error.kind {
        return !matches!(refusal.code, Some(CURSOR_NOT_FOUND | CURSOR_KILLED));
    }
    !matches!(
        error.kind,
        CommandErrorKind::Network(_)
            | CommandErrorKind::Interrupted(_)
            | CommandErrorKind::Protocol(_)
            | CommandErrorKind::Closed
            | CommandErrorKind::RuntimeGone(_)
    )
}
