//! Reads a cursor: hands out the documents of its batch, and says which command fetches the next one. Its owner sends that.

use std::sync::Arc;
use std::time::Duration;

use bson::RawDocument;
use cmap_core::session::SessionId;

use super::batch::Batch;
use super::change_stream::{Aggregate, Stream};
use super::opening::Opening;
use super::options::CursorTime;
use super::server_cursor::{Fetched, Left, PATIENCE, ServerCursor};
use crate::error::{CursorError, OperationError};
use crate::operation::{Context, SessionOf};
use crate::runtime::Runtime;
use crate::session::Session;
use crate::time::{Budget, Limit};

/// The documents of a cursor that have not been read, and the cursor.
pub(super) struct Reader<R: Runtime> {
    pub(super) context: Arc<Context<R>>,
    /// The session that the cursor is bound to: a user's own, or that of the bulkWrite whose results it has.
    of_user: Option<SessionId>,
    time: CursorTime,
    batch: Batch,
    /// `None` during a getMore, which may have been dropped.
    left: Option<Left<R>>,
    /// The time of the iteration that has begun.
    budget: Option<Budget>,
    /// Whether the last command has a limit of time. Its iteration may have been dropped.
    is_limited: bool,
    /// Whether the iteration has got a batch by a getMore, or none by the second.
    has_asked: bool,
    reopening: Reopening,
    /// Set for a change stream.
    stream: Option<Box<Stream<R>>>,
}

/// How far an iteration is with opening a change stream again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reopening {
    NotNeeded,
    UnderWay,
    Done,
}

/// When an iteration ends without a document.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// At the end of the cursor only.
    End,
    /// After an empty batch, too.
    EmptyBatch,
}

/// A command that is to be sent for the next batch.
pub(super) enum Fetch<R: Runtime> {
    GetMore {
        cursor: Box<ServerCursor<R>>,
        budget: Budget,
        /// Whether the last batch was empty, in the same iteration.
        again: bool,
    },
    /// Opens the cursor of a change stream again.
    Resume(Box<Aggregate<R>>),
}

impl<R: Runtime> Reader<R> {
    pub(super) fn new(opening: &Opening<R>, batch: Batch, left: Left<R>) -> Self {
        Self {
            context: Arc::clone(&opening.context),
            of_user: opening.of_user,
            time: opening.time,
            batch,
            left: Some(left),
            budget: None,
            is_limited: false,
            has_asked: false,
            reopening: Reopening::NotNeeded,
            stream: None,
        }
    }

    /// Opens a change stream.
    pub(super) async fn of_stream(mut stream: Stream<R>, session: SessionOf<'_, R>) -> Result<Self, OperationError> {
        let (batch, left) = stream.open(session).await;
        let batch = batch?;
        batch.reply().into_iter().for_each(|reply| stream.machine.handle_reply(reply));
        let reader = Self::new(stream.opening(), batch, left);
        Ok(Self { stream: Some(Box::new(stream)), ..reader })
    }

    /// Whether the cursor was made in this session of a user's.
    pub(super) fn is_of(&self, session: &Session<R>) -> bool {
        self.of_user == Some(session.id())
    }

    /// The next step is the first of an iteration.
    pub(super) fn begin(&mut self) {
        (self.budget, self.has_asked) = (None, false);
        if self.reopening == Reopening::Done {
            self.reopening = Reopening::NotNeeded;
        }
    }

    /// An iteration, in the user's session if there is one. Returns the document that it finds.
    pub(super) async fn next(
        &mut self,
        mut session: Option<&mut Session<R>>,
        until: Until,
    ) -> Result<Option<&RawDocument>, OperationError> {
        self.begin();
        while let Some(fetch) = self.step(until, session.as_deref())? {
            let fetched = fetch.run(session.as_deref_mut()).await;
            self.take_over(fetched)?;
        }
        Ok(self.current())
    }

    /// Goes on to the next document, or says which command is to bring it, in the user's session if there is one. `None` is the end of
    /// the iteration: there is a document, or none has come.
    pub(super) fn step(
        &mut self,
        until: Until,
        session: Option<&Session<R>>,
    ) -> Result<Option<Fetch<R>>, OperationError> {
        match self.advance() {
            Ok(true) => return Ok(None),
            Ok(false) if self.has_asked && until == Until::EmptyBatch => return Ok(None),
            Ok(false) => {}
            Err(error) => {
                self.batch = Batch::default();
                self.left = Some(self.left.take().map_or(Left::Exhausted, Left::failed));
                return Err(error.into());
            }
        }
        if session.is_some_and(|session| !self.is_of(session)) && !self.is_exhausted() {
            return Err(CursorError::OtherSession.into());
        }
        let borrowed = match (self.left.take(), &self.stream) {
            (Some(Left::Open(cursor)), Some(_)) if cursor.is_out_of_reach() => cursor.leave(),
            (Some(Left::Open(cursor)), _) => {
                let budget = *self.budget.get_or_insert_with(|| cursor.opening.time.iteration(&self.context));
                self.is_limited = budget.until.is_some();
                return Ok(Some(Fetch::GetMore { cursor, budget, again: self.has_asked }));
            }
            (Some(Left::Interrupted(borrowed)), Some(_)) => borrowed,
            // What was dropped may have brought documents, which come again behind the last one that was handed out.
            (None, Some(_)) => None,
            (None, None) => return Err(CursorError::CutOff.into()),
            (Some(over), _) => {
                self.left = Some(over);
                return Ok(None);
            }
        };
        let Some(stream) = &mut self.stream else { return Ok(None) };
        let budget = *self.budget.get_or_insert_with(|| stream.opening().time.iteration(&self.context));
        (self.is_limited, self.reopening) = (budget.until.is_some(), Reopening::UnderWay);
        Ok(Some(Fetch::Resume(Box::new(stream.resume(borrowed, budget)))))
    }

    /// Goes on to the next document of the batch; returns whether there is one.
    fn advance(&mut self) -> Result<bool, CursorError> {
        let advanced = self.batch.advance()?;
        if let (Some(stream), Some(document)) = (&mut self.stream, self.batch.current().filter(|_| advanced)) {
            stream.machine.hand_out(document, self.batch.is_empty())?;
        }
        Ok(advanced)
    }

    /// The command has ended.
    pub(super) fn take_over(&mut self, (batch, left): Fetched<R>) -> Result<(), OperationError> {
        match (batch, &mut self.stream) {
            (Ok(batch), stream) => {
                if let (Some(stream), Some(reply)) = (stream, batch.reply()) {
                    stream.machine.handle_reply(reply);
                }
                (self.batch, self.left) = (batch, Some(left));
                // A stream that was opened again has not been asked for documents that come now.
                match self.reopening {
                    Reopening::UnderWay => self.reopening = Reopening::Done,
                    Reopening::NotNeeded | Reopening::Done => self.has_asked = true,
                }
                Ok(())
            }
            (Err(error), None) => {
                (self.left, self.has_asked) = (Some(left), true);
                Err(error)
            }
            (Err(error), Some(stream)) => {
                let (reported, left) = stream.handle_error(error, left, self.is_limited);
                self.left = Some(left);
                self.has_asked |= self.reopening == Reopening::Done;
                reported.map_or(Ok(()), Err)
            }
        }
    }

    /// The place of a change stream behind what was handed out.
    pub(super) fn resume_token(&self) -> Option<&RawDocument> {
        self.stream.as_ref()?.machine.resume_token()
    }

    /// The document that the last iteration found.
    pub(super) fn current(&self) -> Option<&RawDocument> {
        self.batch.current()
    }

    /// Whether there is nothing more to read. A getMore that was dropped brings nothing, unless a change stream goes on behind it.
    pub(super) fn is_exhausted(&self) -> bool {
        let goes_on = match self.left {
            Some(Left::Open(_) | Left::Interrupted(_)) => true,
            Some(Left::Failed(_) | Left::Exhausted) => false,
            None => self.stream.is_some(),
        };
        self.batch.is_empty() && !goes_on
    }

    /// How long the end of the cursor may take: its operation's limit, or this one.
    pub(super) fn limit_of_close(&self, limit: Option<Limit>) -> Duration {
        let mut time = self.time;
        time.set_limit(&self.context, limit);
        time.refreshed(&self.context, PATIENCE).0
    }

    /// Ends the cursor on the server, if it is open there: within its operation's limit, or this one.
    pub(super) async fn close(self, session: Option<&mut Session<R>>, limit: Option<Limit>) {
        if let Some(Left::Open(mut cursor) | Left::Failed(mut cursor)) = self.left {
            cursor.opening.time.set_limit(&self.context, limit);
            cursor.kill(session).await;
        }
    }
}

impl<R: Runtime> Fetch<R> {
    /// Gets the next batch, in the user's session if there is one.
    pub(super) async fn run(self, session: Option<&mut Session<R>>) -> Fetched<R> {
        match self {
            Self::GetMore { cursor, budget, again } => cursor.get_more(session, budget, again).await,
            // Boxed, so that the futures of getMores stay small.
            Self::Resume(aggregate) => Box::pin(aggregate.run(session)).await,
        }
    }
}
