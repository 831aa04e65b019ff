//! A command that makes a cursor, and was given up after it was sent: the server makes the cursor all the same. A task reads the reply and
//! ends the cursor over the same connection, which can be used again.

use std::time::Duration;

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};
use cmap_core::connection::Command;
use cmap_core::session::SessionId;
use cmap_core::wire::integer;

use crate::connection::Connection;
use crate::runtime::Runtime;
use crate::socket::cursor_duty::CursorDuty;
use crate::time::TimeLimit;

/// How long the rest of the reply may take, and then the end of the cursor. A command that takes longer is cut off, which its server notices:
/// the caller who gave it up wants no connection kept for it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reads the reply to the command on `connection`, which was given up, and ends its cursor.
pub(crate) fn end<R: Runtime>(duty: CursorDuty, mut connection: Connection<R>, runtime: &R) {
    let chore = duty.chores.begin();
    runtime.spawn(async move {
        read_and_end(duty.session, &mut connection).await;
        drop(connection);
        drop(chore);
    });
}

async fn read_and_end<R: Runtime>(session: Option<SessionId>, connection: &mut Connection<R>) {
    let limit = Some(TimeLimit::Caller(PATIENCE));
    let Ok(reply) = connection.receive_given_up(limit).await else { return };
    let Some((database, command)) = kill_cursor_of(&reply, session) else { return };
    // Its outcome does not matter: servers end idle cursors by themselves.
    let _ = connection.exchange_as_it_is(&Command::new(&database, &command), limit, None).await;
}

/// What ends the cursor of a reply, if it has an open one.
fn kill_cursor_of(reply: &RawDocument, session: Option<SessionId>) -> Option<(String, RawDocumentBuf)> {
    let cursor = reply.get_document("cursor").ok()?;
    let id = cursor.get("id").ok().flatten().and_then(integer).filter(|id| *id != 0)?;
    let (database, collection) = cursor.get_str("ns").ok()?.split_once('.')?;
    Some((database.to_owned(), kill_command(collection, [id], session)))
}

/// The command that ends cursors of a collection, in this session.
pub(crate) fn kill_command(
    collection: &str,
    ids: impl IntoIterator<Item = i64>,
    session: Option<SessionId>,
) -> RawDocumentBuf {
    let ids: RawArrayBuf = ids.into_iter().collect();
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("killCursors"), collection);
    command.append(cstr!("cursors"), ids);
    if let Some(session) = session {
        command.append(cstr!("lsid"), session.document());
    }
    command
}
