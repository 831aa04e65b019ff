//! A change stream, whose cursor is opened again after an error that passes. [`cmap_core::change_stream`] decides; here is what carries it
//! out.

use std::sync::Arc;
use std::time::Duration;

use bson::RawDocumentBuf;
use cmap_core::change_stream::{ChangeStream, Decision, StreamFailure};
use cmap_core::pool::CheckOutErrorKind;
use cmap_core::topology::{SelectionErrorKind, ServerSelector};

use super::opening::Opening;
use super::server_cursor::{Fetched, Left, rest};
use crate::error::{CheckOutError, CommandErrorKind, CursorError, OperationError, OperationErrorKind};
use crate::operation::{Means, Operation, Parts, SessionOf};
use crate::runtime::Runtime;
use crate::session::{Borrowed, Session};
use crate::time::Budget;

/// A change stream: its place, and what its cursor is opened with.
pub(super) struct Stream<R: Runtime> {
    pub(super) machine: ChangeStream,
    source: Arc<Source<R>>,
}

/// What the cursor of a stream is opened with, each time.
struct Source<R: Runtime> {
    opening: Opening<R>,
    database: String,
    /// The user's choice.
    selector: Option<ServerSelector>,
    is_once: bool,
}

/// An aggregate that opens the cursor of a stream.
pub(super) struct Aggregate<R: Runtime> {
    source: Arc<Source<R>>,
    command: RawDocumentBuf,
    /// How long to wait before it.
    rest: Duration,
    /// The implicit session.
    borrowed: Option<Borrowed<R>>,
    budget: Budget,
}

impl<R: Runtime> Stream<R> {
    /// A stream that is about to be opened.
    ///
    /// # Errors
    /// The command is no change stream.
    pub(super) fn begin(opening: Opening<R>, parts: Parts) -> Result<Self, CursorError> {
        let Parts { database, command, selector, is_once } = parts;
        let sessions = &opening.context.sessions;
        let seed = sessions.seed_of(sessions.next_operation());
        let machine = ChangeStream::of_command(&command, seed).ok_or(CursorError::NoChangeStream)?;
        Ok(Self { machine, source: Arc::new(Source { opening, database, selector, is_once }) })
    }

    /// Opens the cursor for the first time.
    pub(super) async fn open(&self, session: SessionOf<'_, R>) -> Fetched<R> {
        let command = self.machine.command().to_owned();
        self.source.open(command, session, self.source.opening.time.first).await
    }

    /// The aggregate that opens it again, in the implicit session if it has one.
    pub(super) fn resume(&mut self, borrowed: Option<Borrowed<R>>, budget: Budget) -> Aggregate<R> {
        let (command, rest) = self.machine.resume();
        // The server learns the time of an aggregate, though not that of a getMore (CSOT-21).
        let budget = Budget { is_told: true, ..budget };
        Aggregate { source: Arc::clone(&self.source), command, rest, borrowed, budget }
    }

    /// What its cursor is opened with, apart from the command.
    pub(super) fn opening(&self) -> &Opening<R> {
        &self.source.opening
    }

    /// A getMore or an aggregate has failed, in a step with or without a limit. Returns the error to report, and what is left.
    pub(super) fn handle_error(
        &self,
        error: OperationError,
        left: Left<R>,
        is_limited: bool,
    ) -> (Option<OperationError>, Left<R>) {
        let (failure, is_late) = (failure_of(&error), is_limited && error.is_timeout());
        let (decision, left) = match left {
            // It waits for as long as the server would, and nothing was sent.
            Left::Open(cursor) if matches!(error.kind, OperationErrorKind::Cursor(CursorError::NothingCame { .. })) => {
                return (Some(error), Left::Open(cursor));
            }
            Left::Open(cursor) | Left::Failed(cursor) => {
                let decision = self.machine.handle_failed_get_more(failure, cursor.max_wire_version, is_late);
                match decision {
                    Decision::Close => (decision, Left::Failed(cursor)),
                    Decision::Resume | Decision::Report => (decision, Left::Interrupted(cursor.leave())),
                }
            }
            left @ (Left::Interrupted(_) | Left::Exhausted) => {
                (self.machine.handle_failed_resume(failure, is_late), left)
            }
        };
        match decision {
            Decision::Resume => (None, left),
            Decision::Report => (Some(error), left),
            Decision::Close => (Some(error), left.failed()),
        }
    }
}

impl<R: Runtime> Source<R> {
    async fn open(&self, command: RawDocumentBuf, session: SessionOf<'_, R>, budget: Budget) -> Fetched<R> {
        let mut operation = Operation::new(&self.opening.context, (self.database.as_str(), command));
        if let Some(selector) = &self.selector {
            operation = operation.on(selector.clone());
        }
        if self.is_once {
            operation = operation.once();
        }
        let means = Means { session, connection: None, budget: Some(budget), makes_cursor: true };
        let ended = operation.tagged(self.opening.tag).perform(means).await;
        match ended.result {
            Err(error) => (Err(error), Left::Interrupted(ended.borrowed)),
            Ok(answer) => match self.opening.open(answer, ended.borrowed) {
                Ok((batch, left)) => (Ok(batch), left),
                Err(error) => (Err(error.into()), Left::Interrupted(None)),
            },
        }
    }
}

impl<R: Runtime> Aggregate<R> {
    /// Runs it, in the user's session if there is one.
    pub(super) async fn run(self, session: Option<&mut Session<R>>) -> Fetched<R> {
        let Self { source, command, rest: pause, borrowed, budget } = self;
        if !pause.is_zero() && rest(&source.opening.context, pause, budget).await.is_err() {
            return (Err(OperationError::closed_before_it_began()), Left::Interrupted(borrowed));
        }
        let session = session.map_or(SessionOf::Implicit(borrowed), SessionOf::Explicit);
        source.open(command, session, budget).await
    }
}

/// What the error says about going on.
fn failure_of(error: &OperationError) -> StreamFailure {
    if let OperationErrorKind::Command(command) = &error.kind
        && let CommandErrorKind::Server(refusal) = &command.kind
    {
        return StreamFailure::of_server(refusal.code, |label| command.has_label(label));
    }
    if is_unreached(error) { StreamFailure::Unreached } else { StreamFailure::Client }
}

/// Whether no server was reached, or its answer did not come whole. All other errors are the client's own.
fn is_unreached(error: &OperationError) -> bool {
    if let OperationErrorKind::CheckOut(error) = &error.kind {
        return passes(error);
    }
    if let OperationErrorKind::Command(error) = &error.kind {
        return error.is_network()
            || matches!(
                error.kind,
                CommandErrorKind::Timeout(_) | CommandErrorKind::Protocol(_) | CommandErrorKind::NoTimeLeft { .. }
            );
    }
    matches!(error.kind, OperationErrorKind::Cursor(CursorError::ServerGone(_)))
}

/// Whether the reason of a failed check-out passes. A closed client and an ended runtime stay so. A pool may have been closed because its
/// server has left.
fn passes(error: &CheckOutError) -> bool {
    match error {
        CheckOutError::Pool(error) => error.kind != CheckOutErrorKind::Cancelled,
        CheckOutError::Selection(error) => !matches!(
            error.kind,
            SelectionErrorKind::Closed
                | SelectionErrorKind::Incompatible(_)
                | SelectionErrorKind::MaxStaleness(_)
                | SelectionErrorKind::UnknownIdentity(_)
        ),
        CheckOutError::NoAffinity | CheckOutError::RuntimeGone(_) => false,
    }
}
