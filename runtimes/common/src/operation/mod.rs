//! Operations: a command with all that surrounds it, on whichever server suits.
//!
//! An [`Operation`] selects a server, checks out a connection, sends the command with the fields that belong to it, and does it
//! again where the rules of retries allow that, within one limit of time. [`cmap_core::retry`] decides; here is what carries it
//! out.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the operation, and its attempts one after the other |
//! | `context` | what operations need of their client |
//! | `attempt` | one attempt: a connection, a session, the command |
//! | `pauses` | the pauses between attempts |
//! | `part` | whether it is part of a transaction, and which part |
//! | `failure` | what an error says about trying again |

mod attempt;
mod context;
mod failure;
mod part;
mod pauses;

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};
use cmap_core::batch::Batches;
use cmap_core::connection::{Addition, Command, Outline};
use cmap_core::retry::{FailedServer, Next, Retry, RetryLimit, Retryability, Which};
use cmap_core::server::{CommandDefaults, is_acknowledged, wants_no_reply, write_concern};
use cmap_core::session::{TransactionCommand, TransactionError};
use cmap_core::time::Instant;
use cmap_core::topology::{Operation as Named, ServerSelector};

pub(crate) use self::attempt::Server;
use self::attempt::{Attempt, Attempted};
pub(crate) use self::context::Context;
pub(crate) use self::pauses::{ClientClosed, Pauses};
use crate::connection::Connection;
use crate::document::{IntoRequest, Reply, Request};
use crate::driver::Driver;
use crate::error::{OperationError, OperationErrorKind};
use crate::runtime::Runtime;
use crate::session::{Borrowed, Session};
use crate::spans::OperationSpan;
use crate::time::{Budget, Limit, SetBy};
use crate::watch::{Label, Tag};

/// A command that is about to run on a server of the deployment. Made by [`Client::operation`](crate::Client::operation).
///
/// ```
/// use std::time::Duration;
/// use cmap_runtime::bson::doc;
/// use cmap_runtime::{Client, OperationError, Runtime};
///
/// /// Counts a visit, exactly once, whatever happens to the servers within ten seconds.
/// async fn count_visit<R: Runtime>(client: &Client<R>) -> Result<(), OperationError> {
///     let update = doc! { "update": "pages", "updates": [{ "q": { "_id": "/" }, "u": { "$inc": { "visits": 1 } } }] };
///     client.operation(("site", update)).within(Duration::from_secs(10)).run().await?;
///     Ok(())
/// }
/// ```
#[must_use = "it does nothing before `run` or `cursor` is awaited"]
pub struct Operation<'a, R: Runtime, S = NoSession> {
    /// A session has one of its own.
    context: Cow<'a, Arc<Context<R>>>,
    /// The user's choice. Without it the command decides.
    selector: Option<ServerSelector>,
    request: Result<Request<'a>, Box<bson::error::Error>>,
    limit: Option<Limit>,
    session: Option<&'a mut Session<R>>,
    is_once: bool,
    /// Whether the client runs it by itself, to end what was given up.
    is_chore: bool,
    /// Whether it ends the session's transaction.
    ending: Option<TransactionCommand>,
    /// Who runs it.
    tag: Tag,
    /// The items that go along with it.
    batch: Option<Batch<'a>>,
    of: PhantomData<S>,
}

/// The items of an operation that is one of several batches.
pub(crate) struct Batch<'a> {
    pub(crate) batches: &'a mut Batches,
    /// The number of the operation that all of them are (BW-9).
    pub(crate) number: u64,
}

/// Marks an [`Operation`] without a session of the user's own.
#[derive(Clone, Copy, Debug)]
pub enum NoSession {}

/// Marks an [`Operation`] in a session of the user's own.
#[derive(Clone, Copy, Debug)]
pub enum InSession {}

/// The session of an operation.
pub(crate) enum SessionOf<'a, R: Runtime> {
    /// One of its own, once it has a connection to a server that has sessions (SES-2).
    Implicit(Option<Borrowed<R>>),
    /// Its user's.
    Explicit(&'a mut Session<R>),
}

/// What an operation is carried out with, beyond what its user says.
pub(crate) struct Means<'a, R: Runtime> {
    pub(crate) session: SessionOf<'a, R>,
    /// The connection to keep to, instead of one that is checked out.
    pub(crate) connection: Option<Connection<R>>,
    /// Its time, where its user's limit does not say it.
    pub(crate) budget: Option<Budget>,
    /// Whether the command makes a cursor, which is to be ended if the operation is dropped.
    pub(crate) makes_cursor: bool,
}

/// An operation without its session and its limit.
pub(crate) struct Parts {
    pub(crate) database: String,
    pub(crate) command: RawDocumentBuf,
    /// The user's choice.
    pub(crate) selector: Option<ServerSelector>,
    pub(crate) is_once: bool,
}

/// An operation that has ended, and what is left of its means.
pub(crate) struct Ended<R: Runtime> {
    pub(crate) result: Result<Answer<R>, OperationError>,
    /// The implicit session.
    pub(crate) borrowed: Option<Borrowed<R>>,
    /// The connection that a failed operation had to keep to.
    pub(crate) connection: Option<Connection<R>>,
    /// What the server has answered to a batch that failed in part.
    pub(crate) answer: Option<Answer<R>>,
    /// Without such an answer to the last attempt, what an earlier one was answered: that much was done.
    pub(crate) known_reply: Option<Reply<'static>>,
}

/// The success of an operation.
pub(crate) struct Answer<R: Runtime> {
    pub(crate) reply: Reply<'static>,
    pub(crate) server: Server,
    /// The connection on which the reply came, unless that stays with the session (LB-15).
    pub(crate) connection: Option<Connection<R>>,
    /// The number of the session's transaction, if it is part of that.
    pub(crate) transaction: Option<i64>,
}

impl<'a, R: Runtime> Operation<'a, R> {
    pub(crate) fn new(context: &'a Arc<Context<R>>, command: impl IntoRequest + 'a) -> Self {
        Self {
            context: Cow::Borrowed(context),
            selector: None,
            request: command.into_request().map_err(Box::new),
            limit: None,
            session: None,
            is_once: false,
            is_chore: false,
            ending: None,
            tag: Tag::default(),
            batch: None,
            of: PhantomData,
        }
    }

    /// Runs it in a session of the user's own, and as part of its transaction, if one was started. The server of a transaction is
    /// the primary, or the mongos of its first operation (TXN-3, PIN-4).
    pub fn in_session(self, session: &'a mut Session<R>) -> Operation<'a, R, InSession> {
        let Self { context, selector, request, limit, session: _, is_once, is_chore, ending, tag, batch, of: _ } = self;
        let session = Some(session);
        Operation { context, selector, request, limit, session, is_once, is_chore, ending, tag, batch, of: PhantomData }
    }
}

impl<'a, R: Runtime> Operation<'a, R, InSession> {
    /// One that its session makes.
    pub(crate) fn of_session(session: &'a mut Session<R>, command: impl IntoRequest + 'a) -> Self {
        Self {
            context: Cow::Owned(Arc::clone(session.client().context())),
            selector: None,
            request: command.into_request().map_err(Box::new),
            limit: None,
            session: Some(session),
            is_once: false,
            is_chore: false,
            ending: None,
            tag: Tag::default(),
            batch: None,
            of: PhantomData,
        }
    }

    /// It ends the transaction of its session.
    pub(crate) fn ending(mut self, ending: TransactionCommand) -> Self {
        self.ending = Some(ending);
        self
    }
}

impl<'a, R: Runtime, S> Operation<'a, R, S> {
    /// Chooses the server: one that suits a read preference, one of some, or one that takes writes. Without it a command that reads
    /// goes by the read preference of the options, and any other to a server that takes writes. In a transaction all go to its server.
    pub fn on(mut self, selector: impl Into<ServerSelector>) -> Self {
        self.selector = Some(selector.into());
        self
    }

    /// Limits the time of the whole, retries and pauses included, instead of by timeoutMS. Within a limit the operation is repeated as
    /// often as its time and the rules allow. Without one (`None`) it is repeated once (RTY-1). `Duration::MAX` sets no end, and no limit
    /// to the number of attempts.
    pub fn within(mut self, limit: impl Into<Limit>) -> Self {
        self.limit = Some(limit.into());
        self
    }

    /// Says what it is for, in a few words: `"checkout page"`. The status of the client, errors and traces name it where
    /// [holders are watched](crate::Builder::watch_holders); the limits of [`CheckOut::label`](crate::CheckOut::label) hold.
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.tag.label = self.context.driver.label(label.as_ref());
        self
    }

    /// Says what it is for by a label that was [made before](crate::Connections::label): for operations that are many. One of
    /// another client counts as none.
    pub fn labelled(mut self, label: Label) -> Self {
        self.tag.label = self.context.driver.own_label(label);
        self
    }

    /// Notes the caller of this as who runs it.
    #[track_caller]
    pub(crate) fn by_caller(self) -> Self {
        self.tagged(Tag::here())
    }

    pub(crate) fn tagged(self, tag: Tag) -> Self {
        Self { tag, ..self }
    }

    pub(crate) fn tag(&self) -> Tag {
        self.tag
    }

    /// Does not repeat it after errors. Refusals by an overloaded server are repeated as ever (BP-9).
    pub fn once(mut self) -> Self {
        self.is_once = true;
        self
    }

    /// Nobody waits for it but a client that is closed: it goes on meanwhile.
    pub(crate) fn into_chore(mut self) -> Self {
        self.is_chore = true;
        self
    }

    /// Runs the operation; returns the reply.
    ///
    /// # Errors
    /// No server suited, none could be reached, the server refused the command, or there was no usable reply; and for commands
    /// that write or take a write concern, single writes failed or the write concern was not satisfied. Of several attempts the error
    /// that says most is returned (RTY-10, RTY-11).
    pub async fn run(mut self) -> Result<Reply<'static>, OperationError> {
        self.check_limit()?;
        let means = Means::of(self.take_session());
        self.perform(means).await.result.map(|answer| answer.reply)
    }

    /// Runs the operation; returns the reply and the connection on which it came: for further commands that have to go to the same
    /// server, and behind a load balancer over the same connection. [`cursor`](Self::cursor) does that by itself.
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and in a transaction behind a load balancer, whose connection is its session's.
    pub async fn run_keeping(self) -> Result<(Reply<'static>, Connection<R>), OperationError> {
        let (reply, connection) = self.run_held().await?;
        Ok((reply, connection.ok_or_else(OperationError::connection_of_session)?))
    }

    /// Runs the operation; returns the reply and its connection. In a transaction behind a load balancer there is none, because the
    /// session keeps it (LB-15): further operations in the session use it.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub async fn run_held(mut self) -> Result<(Reply<'static>, Option<Connection<R>>), OperationError> {
        self.check_limit()?;
        let means = Means::of(self.take_session());
        self.perform(means).await.result.map(|Answer { reply, connection, .. }| (reply, connection))
    }

    /// # Errors
    /// Its user has set a limit, and `with_transaction` has one (CSOT-27).
    pub(crate) fn check_limit(&self) -> Result<(), OperationError> {
        let is_limited =
            self.session.as_ref().is_some_and(|session| session.transaction.is_open() && session.deadline.is_some());
        if is_limited && self.limit.is_some() && self.ending.is_none() {
            return Err(OperationError::transaction(TransactionError::OwnLimit));
        }
        Ok(())
    }

    pub(crate) fn session(&self) -> Option<&Session<R>> {
        self.session.as_deref()
    }

    pub(crate) fn take_session(&mut self) -> SessionOf<'a, R> {
        SessionOf::of(self.session.take())
    }

    pub(crate) fn context(&self) -> &Arc<Context<R>> {
        &self.context
    }

    /// The limit that its user has set.
    pub(crate) fn limit(&self) -> Option<Limit> {
        self.limit
    }

    /// Its command.
    ///
    /// # Errors
    /// It cannot be written as a document.
    pub(crate) fn take_request(&mut self) -> Result<Request<'a>, OperationError> {
        let taken = std::mem::replace(&mut self.request, Ok(Request::empty()));
        taken.map_err(OperationError::unwritable)
    }

    /// The next batch of it: `command` with items of `batch`.
    pub(crate) fn of_batch<'b>(&'b self, command: &'b Command<'b>, batch: Batch<'b>) -> Operation<'b, R, S> {
        Operation {
            context: Cow::Borrowed(&*self.context),
            selector: self.selector.clone(),
            request: command.into_request().map_err(Box::new),
            limit: self.limit,
            session: None,
            is_once: self.is_once,
            is_chore: self.is_chore,
            ending: None,
            tag: self.tag,
            batch: Some(batch),
            of: PhantomData,
        }
    }

    /// What `read` makes of its command.
    pub(crate) fn read_command<T>(&self, read: impl FnOnce(&RawDocument) -> T) -> T {
        match &self.request {
            Ok(request) => read(request.command().body),
            // It fails before it is sent.
            Err(_) => read(&RawDocumentBuf::new()),
        }
    }

    /// What is left of it without its session: for an operation that is carried out several times, as that of a change stream.
    ///
    /// # Errors
    /// The command cannot be written as a document.
    pub(crate) fn into_parts(self) -> Result<Parts, OperationError> {
        let request = self.request.map_err(OperationError::unwritable)?;
        let Command { database, body, .. } = request.command();
        let (database, command) = (database.to_owned(), body.to_owned());
        Ok(Parts { database, command, selector: self.selector, is_once: self.is_once })
    }

    /// Carries it out with these means, in a span of its own where the client has spans (OTEL-2).
    pub(crate) async fn perform(self, means: Means<'_, R>) -> Ended<R> {
        let session = if let SessionOf::Explicit(session) = &means.session { Some(&**session) } else { None };
        match self.open_span(session) {
            None => self.carry_out(means).await,
            // Boxed, so that the futures of other operations stay small.
            Some(span) => Box::pin(span.around(self.carry_out(means), |ended| ended.result.as_ref().err())).await,
        }
    }

    /// Its span, within that of its session's transaction.
    pub(crate) fn open_span(&self, session: Option<&Session<R>>) -> Option<OperationSpan> {
        let command = self.request.as_ref().ok()?.command();
        let session = session.filter(|session| session.transaction.is_open() || self.ending.is_some());
        let transaction = session.and_then(|session| session.span.as_ref());
        self.context
            .driver
            .settings
            .spans
            .as_ref()
            .map(|spans| spans.operation(command.body, command.database, transaction))
    }

    /// Carries it out with these means.
    pub(crate) async fn carry_out(self, mut means: Means<'_, R>) -> Ended<R> {
        let Self { context, selector, request, limit, session: _, is_once, is_chore, ending, tag, batch, of: _ } = self;
        let (driver, sessions) = (&context.driver, &context.sessions);
        let request = match request {
            Ok(request) => request,
            Err(error) => return Ended::before_it_began(means, OperationError::unwritable(error)),
        };
        if let SessionOf::Explicit(session) = &means.session
            && !session.borrowed.is_of(sessions)
        {
            return Ended::before_it_began(means, OperationError::foreign_session());
        }
        let mut budget = means.budget.unwrap_or_else(|| context.budget(limit));
        if let SessionOf::Explicit(session) = &mut means.session
            && session.is_being_ended()
        {
            // The wait is part of the operation's time.
            let left = budget.inheriting(session.deadline).left(driver.clock.runtime());
            // Boxed, so that the futures of other operations stay small.
            Box::pin(session.wait_for_end(left)).await;
        }
        let mut command = request.command();
        let outline = Outline::of(&command);
        let is_in_transaction =
            means.session.explicit().is_some_and(|session| session.transaction.is_open()) || ending.is_some();
        let selector = selector.unwrap_or_else(|| {
            let elsewhere = driver.settings.command_defaults.as_ref().and_then(CommandDefaults::reads_elsewhere);
            let elsewhere = elsewhere.filter(|_| outline.reads() && !is_in_transaction);
            elsewhere.map_or(ServerSelector::Writable, |preference| preference.clone().into())
        });
        let part = match part::of(means.session.explicit(), ending, &outline, &selector) {
            Ok(part) => part,
            Err(error) => return Ended::before_it_began(means, error),
        };
        if part.is_some() {
            budget = budget.inheriting(means.session.explicit().and_then(|session| session.deadline));
        }
        // A write with w: 0 waits for no reply (MSG-7).
        let defaults = driver.settings.command_defaults.as_ref();
        command.acknowledged = part.is_some() || is_acknowledged(&command, &outline, defaults);
        if !command.acknowledged {
            let concern = write_concern(&outline, defaults);
            if let Err(kind) = check_unacknowledged(concern, means.session.explicit().is_some()) {
                return Ended::before_it_began(means, OperationError::not_sent(kind));
            }
            if let Some(Err(error)) = batch.as_ref().map(|batch| batch.batches.check_unacknowledged()) {
                return Ended::before_it_began(means, OperationError::not_sent(error.into()));
            }
        }
        let mut policy = context.policy;
        let retryability = Retryability::of_command(&outline, command.acknowledged);
        let is_end = matches!(part, Some(TransactionCommand::Commit | TransactionCommand::Abort));
        let writes = is_end || retryability.writes() || outline.takes(Addition::WriteConcern);
        let retryability = part::retryability(part, is_once, retryability);
        // TXN-6.
        policy.retry_writes |= is_end;
        if budget.set_by == SetBy::Caller {
            policy.limit = if budget.until.is_some() { RetryLimit::WhileTimeLasts } else { RetryLimit::Once };
        }
        let ends_at = budget.until.and_then(|deadline| driver.clock.instant_of(deadline));
        let number = batch.as_ref().map_or_else(|| sessions.next_operation(), |batch| batch.number);
        let mut retry = Retry::new(policy, retryability, ends_at, sessions.seed_of(number));
        let mut attempt = Attempt {
            driver,
            sessions,
            command,
            outline,
            selector: &selector,
            tag,
            budget,
            has_limit: budget.set_by == SetBy::Caller || context.has_timeout,
            // A transaction ends its cursors.
            cursor_duty: (means.makes_cursor && part.is_none()).then_some(&context.chores),
            writes,
            session: means.session,
            part,
            is_once,
            is_pinned: means.connection.is_some(),
            pinned: means.connection,
            batch,
            answer: None,
            known_reply: None,
            number,
            transaction_number: None,
            named: driver.tells_selections().then(|| named(command.body, number)),
        };
        let pauses = if is_chore { &context.chore_pauses } else { &context.pauses };
        let result = attempt.make_all(&mut retry, pauses).await;
        let borrowed = match attempt.session {
            SessionOf::Implicit(borrowed) => borrowed,
            SessionOf::Explicit(_) => None,
        };
        let Attempt { pinned: connection, answer, known_reply, .. } = attempt;
        Ended { result, borrowed, connection, answer, known_reply }
    }
}

impl<'a, R: Runtime> SessionOf<'a, R> {
    /// It, for one of several operations.
    pub(crate) fn lend(&mut self) -> SessionOf<'_, R> {
        match self {
            Self::Implicit(borrowed) => SessionOf::Implicit(borrowed.take()),
            Self::Explicit(session) => SessionOf::Explicit(session),
        }
    }

    /// Takes the implicit session back that was lent.
    pub(crate) fn take_back(&mut self, back: Option<Borrowed<R>>) {
        if let Self::Implicit(borrowed) = self {
            *borrowed = back;
        }
    }

    fn of(session: Option<&'a mut Session<R>>) -> Self {
        session.map_or(Self::Implicit(None), Self::Explicit)
    }

    fn explicit(&mut self) -> Option<&mut Session<R>> {
        match self {
            Self::Implicit(_) => None,
            Self::Explicit(session) => Some(session),
        }
    }
}

impl<'a, R: Runtime> Means<'a, R> {
    pub(crate) fn of(session: SessionOf<'a, R>) -> Self {
        Self { session, connection: None, budget: None, makes_cursor: false }
    }
}

impl<R: Runtime> Ended<R> {
    fn before_it_began(means: Means<'_, R>, error: OperationError) -> Self {
        let borrowed = match means.session {
            SessionOf::Implicit(borrowed) => borrowed,
            SessionOf::Explicit(_) => None,
        };
        Self { result: Err(error), borrowed, connection: means.connection, answer: None, known_reply: None }
    }
}

impl<R: Runtime> Attempt<'_, R> {
    /// Makes attempts until one succeeds, or no further one is allowed.
    async fn make_all(&mut self, retry: &mut Retry, pauses: &Pauses) -> Result<Answer<R>, OperationError> {
        let driver = self.driver;
        let (mut reported, mut was_sent) = (None, false);
        loop {
            let failed = match self.make(retry).await {
                Attempted::Done(answer) => return Ok(answer),
                Attempted::Failed(failed) => failed,
                // The earlier error stands, since the write may have been carried out.
                Attempted::Refused => return Err(OperationError::of_earlier(reported, retry)),
            };
            let now = driver.clock.now();
            let server = failed.server.as_ref().map(|server| FailedServer {
                address: &server.address,
                is_mongos: server.is_mongos,
                max_wire_version: server.max_wire_version,
            });
            let labels = self.labels(&failed.failure, retry.labels(&failed.failure, server));
            let topology_type = driver.description().topology_type;
            let decision = retry.handle_failure(now, &failed.failure, server, topology_type);
            was_sent |= failed.failure.is_of_sent_command();
            let earlier = match decision.report {
                Which::This => None,
                Which::Earlier => reported.take(),
            };
            let error = earlier.unwrap_or((failed.kind, labels));
            let is_over = matches!(decision.next, Next::GiveUp(_));
            self.unpin_after(&failed.failure, labels, is_over);
            match decision.next {
                Next::GiveUp(reason) => {
                    // The caller sees the labels of this one.
                    self.unpin_after(&failed.failure, error.1, is_over);
                    return Err(OperationError::new(error, retry.retries(), reason));
                }
                Next::RetryAt(at) => {
                    reported = Some(error);
                    // No connection is held meanwhile (BP-7).
                    if let Some(Answer { reply, .. }) = self.answer.take() {
                        self.known_reply = Some(reply);
                    }
                    if pause(pauses, driver, now, at).await == Err(ClientClosed) {
                        return Err(match was_sent {
                            // RTY-10, RTY-11.
                            true => OperationError::of_earlier(reported, retry),
                            false => OperationError::closed(retry),
                        });
                    }
                }
            }
        }
    }
}

async fn pause<R: Runtime>(
    pauses: &Pauses,
    driver: &Arc<Driver<R>>,
    now: Instant,
    at: Instant,
) -> Result<(), ClientClosed> {
    if at <= now {
        return Ok(());
    }
    pauses.pause(driver, at.saturating_since(now)).await
}

/// Whether a command with this write concern can go without a reply.
///
/// # Errors
/// It asks for the journal, or is run in a session of the user's.
fn check_unacknowledged(concern: Option<&RawDocument>, in_session: bool) -> Result<(), OperationErrorKind> {
    let asks_for_journal = |concern: &RawDocument| concern.get_bool("j").is_ok_and(|journal| journal);
    if concern.is_some_and(|concern| wants_no_reply(concern) && asks_for_journal(concern)) {
        return Err(OperationErrorKind::UnacknowledgedJournal);
    }
    if in_session { Err(OperationErrorKind::UnacknowledgedInSession) } else { Ok(()) }
}

/// An operation as the log of selections names it (SEL-41).
fn named(body: &RawDocument, number: u64) -> Arc<Named> {
    let name = body.iter().next().and_then(Result::ok).map_or("", |(name, _)| name.as_str());
    Arc::new(Named { id: i64::try_from(number).unwrap_or(i64::MAX), name: name.into() })
}
