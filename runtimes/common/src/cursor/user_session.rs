//! Cursors of operations in a session of the user's own.

use std::fmt;

use bson::RawDocument;
use cmap_core::session::SessionId;

use super::reader::{Reader, Until};
use crate::error::{CursorError, OperationError};
use crate::runtime::Runtime;
use crate::session::Session;
use crate::time::Limit;

/// The documents that a command in a user's session found. Made by
/// [`Operation::cursor`](crate::Operation::cursor) after [`in_session`](crate::Operation::in_session).
///
/// Each step is given the session, which is free for other operations in between. As with a [`Cursor`](crate::Cursor), one batch
/// is in memory, and a cursor that is dropped early is ended on the server. Other than there, a future of
/// [`try_next`](Self::try_next) that is dropped half-way ends the cursor, because the session goes with it; a change stream goes on with
/// another one.
#[must_use = "a cursor that is dropped is ended on the server"]
pub struct SessionCursor<R: Runtime> {
    reader: Reader<R>,
    session: Option<SessionId>,
}

impl<R: Runtime> SessionCursor<R> {
    pub(super) fn new(reader: Reader<R>, session: Option<SessionId>) -> Self {
        Self { reader, session }
    }

    /// The next document, or `None` at the end. `session` is that in which the cursor was made. The end of a tailable cursor does
    /// not come while the server has its collection: this waits for a document, for as long as an iteration may take.
    ///
    /// # Errors
    /// The getMore failed, its batch cannot be read, it is another session, or an earlier getMore was dropped half-way.
    pub async fn try_next(&mut self, session: &mut Session<R>) -> Result<Option<&RawDocument>, OperationError> {
        self.next(session, Until::End).await
    }

    /// The next document if there is one by now: asks the server once at most. As
    /// [`Cursor::next_if_any`](crate::Cursor::next_if_any).
    ///
    /// # Errors
    /// Those of [`try_next`](Self::try_next).
    pub async fn next_if_any(&mut self, session: &mut Session<R>) -> Result<Option<&RawDocument>, OperationError> {
        self.next(session, Until::EmptyBatch).await
    }

    async fn next(&mut self, session: &mut Session<R>, until: Until) -> Result<Option<&RawDocument>, OperationError> {
        self.reader.begin();
        while let Some(fetch) = self.reader.step(until)? {
            if self.session != Some(session.id()) {
                self.reader.take_back(fetch);
                return Err(CursorError::OtherSession.into());
            }
            let fetched = fetch.run(Some(&mut *session)).await;
            self.reader.take_over(fetched)?;
        }
        Ok(self.reader.current())
    }

    /// The place behind the last document of a change stream, also of one that has ended: pass it as `startAfter` or `resumeAfter` to go
    /// on there with another stream. `None` for any other cursor, and before the first document or empty batch of a stream that began
    /// without a token.
    pub fn resume_token(&self) -> Option<&RawDocument> {
        self.reader.resume_token()
    }

    /// Whether there is nothing more to read: the server has exhausted the cursor, or it has failed, and all documents at hand
    /// have been read.
    pub fn is_exhausted(&self) -> bool {
        self.reader.is_exhausted()
    }

    /// Ends the cursor, also on the server, and waits for its answer: for as long as its operation had, ten seconds at most. `session` is
    /// that in which the cursor was made; with another one the cursor is ended as if it were dropped.
    pub async fn close(self, session: &mut Session<R>) {
        self.end(session, None).await;
    }

    /// Ends the cursor as [`close`](Self::close), and waits within a [`Duration`](std::time::Duration) or before a
    /// [`Deadline`](crate::Deadline), ten seconds at most (CSOT-23).
    pub async fn close_within(self, session: &mut Session<R>, limit: impl Into<Limit>) {
        self.end(session, Some(limit.into())).await;
    }

    async fn end(self, session: &mut Session<R>, limit: Option<Limit>) {
        if self.session == Some(session.id()) {
            self.reader.close(Some(session), limit).await;
        }
    }
}

impl<R: Runtime> fmt::Debug for SessionCursor<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionCursor").field("is_exhausted", &self.is_exhausted()).finish_non_exhaustive()
    }
}
