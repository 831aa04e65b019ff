//! Cursors of operations in a session of the user's own.

use std::fmt;

use bson::RawDocument;
use cmap_core::session::SessionId;

use super::batch::Batch;
use super::server_cursor::{Left, Until};
use crate::error::{CursorError, OperationError};
use crate::runtime::Runtime;
use crate::session::Session;

/// The documents that a command in a user's session found. Made by
/// [`Operation::cursor`](crate::Operation::cursor) after [`in_session`](crate::Operation::in_session).
///
/// Each step is given the session, which is free for other operations in between. As with a [`Cursor`](crate::Cursor), one batch
/// is in memory, and a cursor that is dropped early is ended on the server. Other than there, a future of
/// [`try_next`](Self::try_next) that is dropped half-way ends the cursor, because the session goes with it.
#[must_use = "a cursor that is dropped is ended on the server"]
pub struct SessionCursor<R: Runtime> {
    batch: Batch,
    stage: Stage<R>,
    session: Option<SessionId>,
}

enum Stage<R: Runtime> {
    Here(Left<R>),
    /// In the future of a getMore, which may have been dropped.
    Away,
}

impl<R: Runtime> SessionCursor<R> {
    pub(super) fn new(batch: Batch, left: Left<R>, session: Option<SessionId>) -> Self {
        Self { batch, stage: Stage::Here(left), session }
    }

    /// The next document, or `None` at the end. `session` is that in which the cursor was made. The end of a tailable cursor does
    /// not come while the server has its collection: this waits for a document, for as long as an iteration may take.
    ///
    /// # Errors
    /// The getMore failed, its batch cannot be read, it is another session, or an earlier getMore was dropped half-way.
    pub async fn try_next(&mut self, session: &mut Session<R>) -> Result<Option<&RawDocument>, OperationError> {
        let found = self.advance(session, Until::End).await?;
        Ok(if found { self.batch.current() } else { None })
    }

    /// The next document if there is one by now: asks the server once at most. As
    /// [`Cursor::next_if_any`](crate::Cursor::next_if_any).
    ///
    /// # Errors
    /// Those of [`try_next`](Self::try_next).
    pub async fn next_if_any(&mut self, session: &mut Session<R>) -> Result<Option<&RawDocument>, OperationError> {
        let found = self.advance(session, Until::EmptyBatch).await?;
        Ok(if found { self.batch.current() } else { None })
    }

    /// Goes on to the next document; returns whether there is one.
    async fn advance(&mut self, session: &mut Session<R>, until: Until) -> Result<bool, OperationError> {
        let mut has_asked = false;
        let mut iteration = None;
        loop {
            match self.batch.advance() {
                Ok(true) => return Ok(true),
                Ok(false) if has_asked && until == Until::EmptyBatch => return Ok(false),
                Ok(false) => {}
                Err(error) => {
                    self.batch = Batch::default();
                    self.fail();
                    return Err(error.into());
                }
            }
            let cursor = match std::mem::replace(&mut self.stage, Stage::Away) {
                Stage::Here(Left::Open(cursor)) => cursor,
                Stage::Away => return Err(CursorError::CutOff.into()),
                over @ Stage::Here(Left::Failed(_) | Left::Exhausted) => {
                    self.stage = over;
                    return Ok(false);
                }
            };
            if self.session != Some(session.id()) {
                self.stage = Stage::Here(Left::Open(cursor));
                return Err(CursorError::OtherSession.into());
            }
            let ends = *iteration.get_or_insert_with(|| cursor.time.iteration(&cursor.context));
            let (batch, left) = cursor.get_more(Some(&mut *session), ends, has_asked).await;
            self.stage = Stage::Here(left);
            self.batch = batch?;
            has_asked = true;
        }
    }

    /// Whether there is nothing more to read: the server has exhausted the cursor, or it has failed, and all documents at hand
    /// have been read.
    pub fn is_exhausted(&self) -> bool {
        self.batch.is_empty() && !matches!(self.stage, Stage::Here(Left::Open(_)))
    }

    /// Ends the cursor, also on the server, and waits for its answer, for at most ten seconds. `session` is that in which the
    /// cursor was made; with another one the cursor is ended as if it were dropped.
    pub async fn close(self, session: &mut Session<R>) {
        match self.stage {
            Stage::Here(left) if self.session == Some(session.id()) => left.close(Some(session)).await,
            Stage::Here(_) | Stage::Away => {}
        }
    }

    fn fail(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Away) {
            Stage::Here(Left::Open(cursor)) => Stage::Here(Left::Failed(cursor)),
            other @ (Stage::Here(Left::Failed(_) | Left::Exhausted) | Stage::Away) => other,
        };
    }
}

impl<R: Runtime> fmt::Debug for SessionCursor<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionCursor").field("is_exhausted", &self.is_exhausted()).finish_non_exhaustive()
    }
}
