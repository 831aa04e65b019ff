//! From an operation to its cursor; and from a batch of a bulkWrite to its results, read to their end (BW-15).

use std::sync::Arc;

use bson::RawDocument;
use cmap_core::batch::Batches;
use cmap_core::pool::Purpose;
use cmap_core::session::SessionId;
use cmap_core::topology::TopologyType;

use super::batch::Batch;
use super::change_stream::Stream;
use super::cursors::{Cursor, SessionCursor};
use super::options::{CursorKind, CursorOptions, CursorTime};
use super::reader::{Reader, Until};
use super::server_cursor::{Left, Pinned, ServerCursor};
use crate::error::{CursorError, OperationError};
use crate::operation::{Answer, Context, InSession, Means, NoSession, Operation, SessionOf};
use crate::runtime::Runtime;
use crate::session::{Borrowed, Session};
use crate::time::{Budget, Limit};
use crate::watch::Tag;

/// The first server version whose getMore takes a comment: MongoDB 4.4.
const TAKES_COMMENT: i32 = 9;

impl<R: Runtime> Operation<'_, R, NoSession> {
    /// Runs a command that makes a cursor: find, aggregate, listCollections, listIndexes, and any other whose reply has one. Its
    /// getMores take over the command's batch size and comment.
    ///
    /// ```
    /// use cmap_runtime::bson::doc;
    /// use cmap_runtime::{Client, OperationError, Runtime};
    ///
    /// async fn print_orders<R: Runtime>(client: &Client<R>) -> Result<(), OperationError> {
    ///     let find = doc! { "find": "orders", "filter": { "open": true }, "batchSize": 100 };
    ///     let mut orders = client.operation(("shop", find)).cursor().await?;
    ///     while let Some(order) = orders.try_next().await? {
    ///         println!("{order:?}");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and the reply has no cursor.
    pub async fn cursor(self) -> Result<Cursor<R>, OperationError> {
        open(self, None).await.map(Cursor::new)
    }

    /// Runs the command with other options, which replace what it says itself; returns the cursor.
    ///
    /// # Errors
    /// Those of [`cursor`](Self::cursor), and the options do not go together.
    pub async fn cursor_with(self, options: CursorOptions) -> Result<Cursor<R>, OperationError> {
        open(self, Some(options)).await.map(Cursor::new)
    }

    /// Watches changes: runs an aggregate whose first stage is `$changeStream`, and returns a cursor of the changes. Its end does not
    /// come before what is watched is gone: `try_next` waits for a change.
    ///
    /// | to watch | database | command |
    /// |---|---|---|
    /// | a collection | its own | `{ aggregate: "orders", pipeline: [{ $changeStream: {} }] }` |
    /// | a database | its own | `{ aggregate: 1, pipeline: [{ $changeStream: {} }] }` |
    /// | a deployment | `admin` | `{ aggregate: 1, pipeline: [{ $changeStream: { allChangesForCluster: true } }] }` |
    ///
    /// After an error that passes, as a failover's, the stream goes on by itself where it was: on a server that suits the operation,
    /// behind the last change that was handed out (CS-10 to CS-14). [`Cursor::resume_token`] is that place, for another stream that goes
    /// on there: `resumeAfter`, or `startAfter`, which also passes an invalidation. The stream has ended, with an error, if the server
    /// has lost that part of its history, or if the pipeline removes the `_id` of a change, which is its token.
    ///
    /// A limit of time is for each step. One whose time is up leaves the stream as it was: call again, or, if that
    /// happens without a change in between, watch again with a longer limit (CSOT-25). Of a [`Command`](cmap_core::connection::Command)
    /// only its database and its document are sent.
    ///
    /// ```
    /// use cmap_runtime::bson::doc;
    /// use cmap_runtime::{Client, Error, Runtime};
    /// use serde::Deserialize;
    ///
    /// #[derive(Deserialize)]
    /// #[serde(rename_all = "camelCase")]
    /// struct Change {
    ///     operation_type: String,
    /// }
    ///
    /// async fn print_changes<R: Runtime>(client: &Client<R>) -> Result<(), Error> {
    ///     let watch = doc! { "aggregate": "orders", "pipeline": [{ "$changeStream": {} }] };
    ///     let mut changes = client.operation(("shop", watch)).watch().await?.with_type::<Change>();
    ///     while let Some(change) = changes.try_next().await? {
    ///         println!("{} {:?}", change.operation_type, changes.resume_token());
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`cursor`](Self::cursor), and the command is no change stream.
    pub async fn watch(self) -> Result<Cursor<R>, OperationError> {
        open_stream(self, None).await.map(Cursor::new)
    }

    /// Watches changes as [`watch`](Self::watch) does, with other options, which replace what the command says itself.
    ///
    /// # Errors
    /// Those of [`watch`](Self::watch), and the options do not go together.
    pub async fn watch_with(self, options: CursorOptions) -> Result<Cursor<R>, OperationError> {
        open_stream(self, Some(options)).await.map(Cursor::new)
    }
}

impl<R: Runtime> Operation<'_, R, InSession> {
    /// Watches changes in the session: runs an aggregate whose first stage is `$changeStream`, and returns a cursor of the changes, each
    /// of whose steps has to be given the session. After an error that passes, and after a step that was dropped half-way, the stream goes
    /// on by itself where it was.
    ///
    /// # Errors
    /// Those of [`cursor`](Self::cursor), and the command is no change stream.
    pub async fn watch(self) -> Result<SessionCursor<R>, OperationError> {
        open_stream(self, None).await.map(SessionCursor::new)
    }

    /// Watches changes in the session with other options, which replace what the command says itself.
    ///
    /// # Errors
    /// Those of [`watch`](Self::watch), and the options do not go together.
    pub async fn watch_with(self, options: CursorOptions) -> Result<SessionCursor<R>, OperationError> {
        open_stream(self, Some(options)).await.map(SessionCursor::new)
    }

    /// Runs a command that makes a cursor, in the session, which each step of the cursor has to be given.
    ///
    /// ```
    /// use cmap_runtime::bson::{doc, rawdoc};
    /// use cmap_runtime::{Client, Error, Runtime};
    ///
    /// async fn ship_orders<R: Runtime>(client: &Client<R>) -> Result<(), Error> {
    ///     let mut session = client.start_session()?;
    ///     let find = doc! { "find": "orders", "filter": { "paid": true } };
    ///     let mut orders = client.operation(("shop", find)).in_session(&mut session).cursor().await?;
    ///     while let Some(order) = orders.try_next(&mut session).await? {
    ///         let shipment = rawdoc! { "insert": "shipments", "documents": [order.to_owned()] };
    ///         client.operation(("shop", shipment)).in_session(&mut session).run().await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and the reply has no cursor.
    pub async fn cursor(self) -> Result<SessionCursor<R>, OperationError> {
        open(self, None).await.map(SessionCursor::new)
    }

    /// Runs the command in the session with other options, which replace what it says itself; returns the cursor.
    ///
    /// # Errors
    /// Those of [`cursor`](Self::cursor), and the options do not go together.
    pub async fn cursor_with(self, options: CursorOptions) -> Result<SessionCursor<R>, OperationError> {
        open(self, Some(options)).await.map(SessionCursor::new)
    }
}

/// What a cursor is made with, apart from the reply to its command.
#[derive(Clone)]
pub(super) struct Opening<R: Runtime> {
    pub(super) context: Arc<Context<R>>,
    pub(super) time: CursorTime,
    pub(super) tag: Tag,
    /// The session that the cursor is bound to from the start: a user's own, or that of the bulkWrite whose results it has.
    pub(super) of_user: Option<SessionId>,
    pub(super) kind: CursorKind,
    pub(super) options: CursorOptions,
    /// Whether the options are the user's, and not the command's.
    pub(super) are_own: bool,
}

/// Runs the operation. Returns what reads its cursor.
async fn open<R: Runtime, S>(
    mut operation: Operation<'_, R, S>,
    options: Option<CursorOptions>,
) -> Result<Reader<R>, OperationError> {
    let (opening, session) = Opening::begin(&mut operation, options)?;
    let means = Means { session, connection: None, budget: Some(opening.time.first), makes_cursor: true };
    let ended = operation.perform(means).await;
    let (batch, left) = opening.open(ended.result?, ended.borrowed)?;
    Ok(Reader::new(&opening, batch, left))
}

/// Runs the operation, whose command is a change stream. Returns what reads it.
async fn open_stream<R: Runtime, S>(
    mut operation: Operation<'_, R, S>,
    options: Option<CursorOptions>,
) -> Result<Reader<R>, OperationError> {
    let (opening, session) = Opening::begin(&mut operation, options)?;
    let stream = Stream::begin(opening, operation.into_parts()?)?;
    Reader::of_stream(stream, session).await
}

impl<R: Runtime> Opening<R> {
    /// The operation is about to run, in this session.
    fn begin<'a, S>(
        operation: &mut Operation<'a, R, S>,
        options: Option<CursorOptions>,
    ) -> Result<(Self, SessionOf<'a, R>), OperationError> {
        operation.check_limit()?;
        let context = Arc::clone(operation.context());
        let are_own = options.is_some();
        let (kind, options) = operation.read_command(|command| {
            (CursorKind::of_command(command), options.unwrap_or_else(|| CursorOptions::of_command(command)))
        });
        let time = CursorTime::begin(&context, operation.limit(), kind, &options)?;
        let (session, tag) = (operation.take_session(), operation.tag());
        let (of_user, is_limited) = match &session {
            SessionOf::Explicit(session) => (Some(session.id()), session.deadline.is_some()),
            SessionOf::Implicit(_) => (None, false),
        };
        let has_limit = is_limited || operation.limit().is_some() || context.has_timeout;
        if options.timeout_mode.is_some() && !has_limit {
            return Err(CursorError::ModeWithoutLimit.into());
        }
        Ok((Self { context, time, tag, of_user, kind, options, are_own }, session))
    }

    /// The command has succeeded: its documents, and the cursor.
    pub(super) fn open(
        &self,
        answer: Answer<R>,
        borrowed: Option<Borrowed<R>>,
    ) -> Result<(Batch, Left<R>), CursorError> {
        let Answer { reply, server, connection, transaction } = answer;
        let (batch, reply) = Batch::of(reply.into_document())?;
        if reply.id == 0 {
            return Ok((batch, Left::Exhausted));
        }
        let mut opening = self.clone();
        if !self.are_own && server.max_wire_version < TAKES_COMMENT {
            opening.options.comment = None;
        }
        let is_load_balanced = self.context.driver.description().topology_type == TopologyType::LoadBalanced;
        let cursor = ServerCursor {
            opening,
            reply,
            address: server.address,
            lsid: self.of_user.or(borrowed.as_ref().map(Borrowed::id)),
            transaction,
            pinned: match connection {
                Some(connection) if is_load_balanced => {
                    // It counts as a cursor's from here on (LB-16).
                    connection.set_purpose(Purpose::Cursor);
                    Pinned::To(Some(connection))
                }
                Some(_) => Pinned::Any,
                None => Pinned::OfSession,
            },
            borrowed,
            max_wire_version: server.max_wire_version,
        };
        Ok((batch, Left::Open(Box::new(cursor))))
    }
}

/// The results cursor of a batch of an operation.
pub(crate) struct Results<'c, R: Runtime> {
    pub(crate) context: &'c Arc<Context<R>>,
    /// The command, whose comment goes along.
    pub(crate) command: &'c RawDocument,
    /// The time of all batches, and the limit that its user has set.
    pub(crate) time: (Budget, Option<Limit>),
    pub(crate) tag: Tag,
}

impl<R: Runtime> Results<'_, R> {
    /// Reads the results in the reply to a batch, and those behind it, in the session of the batch. The cursor is ended on its server
    /// before this returns.
    ///
    /// # Errors
    /// The reply has no cursor, or a getMore failed.
    pub(crate) async fn read(
        self,
        answer: Answer<R>,
        session: &mut SessionOf<'_, R>,
        batches: &mut Batches,
    ) -> Result<(), OperationError> {
        let mut of_user = None;
        let mut borrowed = None;
        match session {
            SessionOf::Explicit(session) => of_user = Some(&mut **session),
            SessionOf::Implicit(own) => borrowed = own.as_mut(),
        }
        // Of the copy it is not told whether it was cut off.
        let copy = borrowed.as_deref_mut().map(|borrowed| (borrowed.send_id(), borrowed.copy()));
        let lsid = of_user.as_ref().map(|session| session.id()).or(copy.as_ref().map(|(id, _)| *id));
        let Self { context, command, time: (budget, limit), tag } = self;
        let kind = CursorKind { is_tailable: false, awaits_data: false, writes: false };
        let options = CursorOptions::of_command(command);
        let mut time = CursorTime::begin(context, limit, kind, &options)?;
        time.first = budget;
        let opening = Opening { context: Arc::clone(context), time, tag, of_user: lsid, kind, options, are_own: true };
        let (batch, left) = opening.open(answer, copy.map(|(_, copy)| copy))?;
        let mut reader = Reader::new(&opening, batch, left);
        let read = read_all(&mut reader, of_user.as_deref_mut(), batches).await;
        reader.close(of_user, None).await;
        if let Some(borrowed) = borrowed {
            borrowed.end_command(read.is_err());
        }
        read
    }
}

async fn read_all<R: Runtime>(
    reader: &mut Reader<R>,
    mut session: Option<&mut Session<R>>,
    batches: &mut Batches,
) -> Result<(), OperationError> {
    while batches.wants_results() && !reader.is_exhausted() {
        // An iteration of its own: batches that follow each other need no pause.
        if let Some(document) = reader.next(session.as_deref_mut(), Until::EmptyBatch).await? {
            batches.handle_result(document);
        }
    }
    Ok(())
}
