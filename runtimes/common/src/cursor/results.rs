//! The results of a bulkWrite, read to their end (BW-15).

use std::sync::Arc;

use bson::RawDocument;
use cmap_core::batch::Batches;
use cmap_core::session::SessionId;

use super::opening::Opening;
use super::options::{CursorKind, CursorOptions};
use super::reader::{Reader, Until};
use super::time::CursorTime;
use crate::error::OperationError;
use crate::operation::{Answer, Context, SessionOf};
use crate::runtime::Runtime;
use crate::session::{Borrowed, Session};
use crate::time::{Budget, Limit};
use crate::watch::Tag;

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
        let mut reader = self.open(answer, copy.map(|(_, copy)| copy), lsid)?;
        let read = read_all(&mut reader, of_user.as_deref_mut(), batches).await;
        reader.close(of_user, None).await;
        if let Some(borrowed) = borrowed {
            borrowed.end_command(read.is_err());
        }
        read
    }

    fn open(
        self,
        answer: Answer<R>,
        borrowed: Option<Borrowed<R>>,
        lsid: Option<SessionId>,
    ) -> Result<Reader<R>, OperationError> {
        let Self { context, command, time: (budget, limit), tag } = self;
        let kind = CursorKind { is_tailable: false, awaits_data: false, writes: false };
        let options = CursorOptions::of_command(command);
        let mut time = CursorTime::begin(context, limit, kind, &options)?;
        time.first = budget;
        let context = Arc::clone(context);
        let opening = Opening { context, time, tag, of_user: lsid, kind, options, are_own: true };
        let (batch, left) = opening.open(answer, borrowed)?;
        Ok(Reader::new(&opening, batch, left))
    }
}

async fn read_all<R: Runtime>(
    reader: &mut Reader<R>,
    mut session: Option<&mut Session<R>>,
    batches: &mut Batches,
) -> Result<(), OperationError> {
    while batches.wants_results() && !reader.is_exhausted() {
        // Batches that follow each other need no pause.
        if let Some(document) = reader.next(session.as_deref_mut(), Until::EmptyBatch).await? {
            batches.handle_result(document);
        }
    }
    Ok(())
}
