//! From an operation to its cursor.

use std::sync::Arc;

use cmap_core::pool::Purpose;
use cmap_core::session::SessionId;
use cmap_core::topology::TopologyType;

use super::batch::Batch;
use super::implicit_session::Cursor;
use super::options::{CursorKind, CursorOptions};
use super::reader::Reader;
use super::server_cursor::{Left, Pinned, ServerCursor};
use super::time::CursorTime;
use super::user_session::SessionCursor;
use crate::connection::Connection;
use crate::error::OperationError;
use crate::operation::{Answer, InSession, Means, NoSession, Operation, SessionOf};
use crate::runtime::Runtime;
use crate::session::Lent;

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
        let (reader, _) = open(self, None).await?;
        Ok(Cursor::new(reader))
    }

    /// Runs the command with other options, which replace what it says itself; returns the cursor.
    ///
    /// # Errors
    /// Those of [`cursor`](Self::cursor), and the options do not go together.
    pub async fn cursor_with(self, options: CursorOptions) -> Result<Cursor<R>, OperationError> {
        let (reader, _) = open(self, Some(options)).await?;
        Ok(Cursor::new(reader))
    }
}

impl<R: Runtime> Operation<'_, R, InSession> {
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
        let (reader, lsid) = open(self, None).await?;
        Ok(SessionCursor::new(reader, lsid))
    }

    /// Runs the command in the session with other options, which replace what it says itself; returns the cursor.
    ///
    /// # Errors
    /// Those of [`cursor`](Self::cursor), and the options do not go together.
    pub async fn cursor_with(self, options: CursorOptions) -> Result<SessionCursor<R>, OperationError> {
        let (reader, lsid) = open(self, Some(options)).await?;
        Ok(SessionCursor::new(reader, lsid))
    }
}

/// Runs the operation. Returns what reads its cursor, and the user's session.
async fn open<R: Runtime, S>(
    mut operation: Operation<'_, R, S>,
    options: Option<CursorOptions>,
) -> Result<(Reader<R>, Option<SessionId>), OperationError> {
    operation.check_limit()?;
    let context = Arc::clone(operation.context());
    let are_own = options.is_some();
    let (kind, said) = operation.read_command(|command| {
        (CursorKind::of_command(command), options.unwrap_or_else(|| CursorOptions::of_command(command)))
    });
    let time = CursorTime::begin(&context, operation.limit(), kind, &said)?;
    let (session, tag) = (operation.take_session(), operation.tag());
    let of_user = match &session {
        SessionOf::Explicit(session) => Some(session.id()),
        SessionOf::Implicit(_) => None,
    };
    let means = Means { session, connection: None, budget: Some(time.first), makes_cursor: true };
    let ended = operation.carry_out(means).await;
    let Answer { reply, server, connection } = ended.result?;
    let (batch, reply) = Batch::of(reply.into_document())?;
    if reply.id == 0 {
        return Ok((Reader::new(batch, Left::Exhausted), of_user));
    }
    let mut options = said;
    if !are_own && server.max_wire_version < TAKES_COMMENT {
        options.comment = None;
    }
    let is_load_balanced = context.driver.description().topology_type == TopologyType::LoadBalanced;
    let cursor = ServerCursor {
        id: reply.id,
        database: reply.database,
        collection: reply.collection,
        address: server.address,
        tag,
        lsid: of_user.or(ended.lent.as_ref().map(Lent::id)),
        pinned: match connection {
            Some(connection) if is_load_balanced => Pinned::To(Some(kept(connection))),
            Some(_) => Pinned::Any,
            None => Pinned::OfSession,
        },
        context,
        lent: ended.lent,
        kind,
        options,
        time,
    };
    Ok((Reader::new(batch, Left::Open(Box::new(cursor))), of_user))
}

/// The connection, which counts as a cursor's from here on (LB-16).
pub(super) fn kept<R: Runtime>(connection: Connection<R>) -> Connection<R> {
    connection.set_purpose(Purpose::Cursor);
    connection
}
