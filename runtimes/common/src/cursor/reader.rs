//! Reads a cursor: hands out the documents of its batch, and says which getMore fetches the next one. Its owner sends that.

use bson::RawDocument;

use super::batch::Batch;
use super::server_cursor::{Fetched, Left, ServerCursor};
use crate::error::{CursorError, OperationError};
use crate::runtime::Runtime;
use crate::session::Session;
use crate::time::Budget;

/// The documents of a cursor that have not been read, and the cursor.
pub(super) struct Reader<R: Runtime> {
    batch: Batch,
    /// `None` during a getMore, which may have been dropped.
    left: Option<Left<R>>,
    /// The time of the iteration that has begun.
    budget: Option<Budget>,
    /// Whether the iteration has got a batch.
    has_asked: bool,
}

/// When an iteration ends without a document.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// At the end of the cursor only.
    End,
    /// After an empty batch, too.
    EmptyBatch,
}

/// A getMore that is to be sent.
pub(super) struct GetMore<R: Runtime> {
    pub(super) cursor: Box<ServerCursor<R>>,
    budget: Budget,
    /// Whether the last batch was empty, in the same iteration.
    again: bool,
}

impl<R: Runtime> Reader<R> {
    pub(super) fn new(batch: Batch, left: Left<R>) -> Self {
        Self { batch, left: Some(left), budget: None, has_asked: false }
    }

    /// The next step is the first of an iteration.
    pub(super) fn begin(&mut self) {
        (self.budget, self.has_asked) = (None, false);
    }

    /// Goes on to the next document, or says which getMore is to bring it. `None` is the end of the iteration: there is a
    /// document, or none has come.
    pub(super) fn step(&mut self, until: Until) -> Result<Option<GetMore<R>>, OperationError> {
        match self.batch.advance() {
            Ok(true) => return Ok(None),
            Ok(false) if self.has_asked && until == Until::EmptyBatch => return Ok(None),
            Ok(false) => {}
            Err(error) => {
                self.batch = Batch::default();
                self.left = self.left.take().map(Left::failed);
                return Err(error.into());
            }
        }
        match self.left.take() {
            Some(Left::Open(cursor)) => {
                let budget = *self.budget.get_or_insert_with(|| cursor.time.iteration(&cursor.context));
                Ok(Some(GetMore { cursor, budget, again: self.has_asked }))
            }
            Some(over) => {
                self.left = Some(over);
                Ok(None)
            }
            None => Err(CursorError::CutOff.into()),
        }
    }

    /// The getMore has ended.
    pub(super) fn take_over(&mut self, (batch, left): Fetched<R>) -> Result<(), OperationError> {
        (self.left, self.has_asked) = (Some(left), true);
        self.batch = batch?;
        Ok(())
    }

    /// The getMore is not sent.
    pub(super) fn take_back(&mut self, get_more: GetMore<R>) {
        self.left = Some(Left::Open(get_more.cursor));
    }

    /// The document that the last iteration found.
    pub(super) fn current(&self) -> Option<&RawDocument> {
        self.batch.current()
    }

    /// Whether there is nothing more to read. A getMore that was dropped brings nothing.
    pub(super) fn is_exhausted(&self) -> bool {
        self.batch.is_empty() && !matches!(self.left, Some(Left::Open(_)))
    }

    /// Ends the cursor on the server, if it is open there.
    pub(super) async fn close(self, session: Option<&mut Session<R>>) {
        match self.left {
            Some(Left::Open(cursor) | Left::Failed(cursor)) => cursor.kill(session).await,
            Some(Left::Exhausted) | None => {}
        }
    }
}

impl<R: Runtime> GetMore<R> {
    /// Gets the next batch, in the user's session if there is one.
    pub(super) async fn run(self, session: Option<&mut Session<R>>) -> Fetched<R> {
        self.cursor.get_more(session, self.budget, self.again).await
    }
}
