//! Clients of a simulation, as the threads of a test hold them.

use alloc::sync::Arc;
use core::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, Document, RawDocument, RawDocumentBuf, Timestamp, doc};
use cmap_core::address::ServerAddress;
use cmap_core::connection::Command;
use cmap_core::options::{ClientOptions, Mechanism};
use cmap_core::pool::Cause;
use cmap_core::session::{TransactionOptions, TransactionState};
use cmap_core::time::Instant;
use cmap_core::topology::{ServerSelector, TopologyDescription};
use cmap_core::wire::{ServerError, WriteError, WriteFailure};
use cmap_sim::{
    CheckOutError, CommandError, CommandErrorKind, CursorOptions, Event, Labelled, Limit, OperationError,
    OperationErrorKind, Session, SessionOptions, SimRuntime, TokenReply, WriteResult,
};

use super::cursor::SimCursor;
use super::servers::TOKEN;
use crate::suites::unified::client::{Client, Items, Operate};
use crate::suites::unified::commands::{End, Held};
use crate::suites::unified::failure::{Failure, FailureKind};
use crate::suites::unified::format::DriverInfo;
use crate::suites::unified::journal::Journal;

/// The labels that tests expect of errors.
const LABELS: [&str; 6] = [
    "RetryableWriteError",
    "NoWritesPerformed",
    "SystemOverloadedError",
    "RetryableError",
    "TransientTransactionError",
    "UnknownTransactionCommitResult",
];

/// How long a closing client waits for its connections.
const PATIENCE: Duration = Duration::from_secs(1);

/// A client in a simulation.
#[derive(Clone)]
pub struct SimClient {
    runtime: SimRuntime,
    client: cmap_sim::Client,
}

/// An error inside of a transaction that is repeated as a whole.
#[derive(Debug)]
enum InTransaction {
    Callback(Failure),
    Client(OperationError),
}

impl SimClient {
    /// A client that begins at once, and notes its events in `journal`.
    pub(super) async fn new(runtime: SimRuntime, options: ClientOptions, journal: Journal) -> Result<Self, Failure> {
        let spans = journal.spans();
        let handler = move |address: &ServerAddress, event: &Event| match event {
            Event::Pool(event) => journal.pool_event(address, event),
            Event::Server(event) => journal.server_event(address, event),
            Event::Topology(event) => journal.topology_event(event),
            Event::Selection(event) => journal.selection_event(event),
            Event::Command(event) => journal.command(address, event),
            Event::Lost(_) | _ => {}
        };
        let credential = options.credential.as_ref();
        let has_tokens = credential.is_some_and(|own| own.mechanism == Some(Mechanism::MongoDbOidc));
        let client = cmap_sim::Client::builder(options).runtime(runtime.clone()).on_event(handler);
        let client = client.observe_commands(true).observe_selections(true).spans(spans);
        let fetch = |_| core::future::ready(Ok::<_, core::convert::Infallible>(TokenReply::new(TOKEN)));
        let client = if has_tokens { client.oidc_callback(fetch) } else { client };
        // The tests count the errors of single check-outs.
        let client = client.reselect(false).build().await;
        let client = client.map_err(|error| Failure::client(Cause::of(&error).to_string()))?;
        Ok(Self { runtime, client })
    }
}

impl SimClient {
    fn prepare<'o>(&'o self, operation: &Operate<'o>, body: &'o RawDocument) -> cmap_sim::Operation<'o> {
        let prepared = self.client.operation((operation.database, body)).on(operation.selector.clone());
        let prepared = if operation.is_once { prepared.once() } else { prepared };
        match operation.end {
            None => prepared,
            // Without an end, and without a limit to the attempts.
            Some(End::Never) => prepared.within(Duration::MAX),
            Some(End::At(end)) => prepared.within(end.saturating_since(now(&self.runtime))),
        }
    }
}

impl From<OperationError> for InTransaction {
    fn from(error: OperationError) -> Self {
        Self::Client(error)
    }
}

impl From<Failure> for InTransaction {
    fn from(failure: Failure) -> Self {
        Self::Callback(failure)
    }
}

impl From<InTransaction> for Box<dyn core::error::Error + Send + Sync> {
    fn from(error: InTransaction) -> Self {
        match error {
            InTransaction::Callback(failure) => failure.to_string().into(),
            InTransaction::Client(error) => Box::new(error),
        }
    }
}

impl Labelled for InTransaction {
    fn has_label(&self, label: &str) -> bool {
        match self {
            Self::Callback(failure) => failure.labels.iter().any(|own| own == label),
            Self::Client(error) => error.has_label(label),
        }
    }
}

/// The time on the clock of a simulation.
fn now(runtime: &SimRuntime) -> Instant {
    Instant::ORIGIN + runtime.elapsed()
}

/// A limit as tests write it: zero is none.
pub(super) fn limit(timeout: Duration) -> Limit {
    if timeout.is_zero() { Limit::None } else { Limit::Within(timeout) }
}

impl Client for SimClient {
    type Cursor = SimCursor;
    type Session = Session;

    fn now(&self) -> Instant {
        now(&self.runtime)
    }

    fn start_session(&self, options: SessionOptions) -> Result<Session, Failure> {
        self.client.start_session_with(options).map_err(|error| Failure::client(error.to_string()))
    }

    fn start_transaction(session: &mut Session, options: TransactionOptions) -> Result<(), Failure> {
        session.start_transaction_with(options).map_err(|error| of_operation(&error))
    }

    async fn end_transaction(session: &mut Session, commit: bool, timeout: Option<Duration>) -> Result<(), Failure> {
        let ended = match (commit, timeout.map(limit)) {
            (true, None) => session.commit_transaction().await,
            (true, Some(limit)) => session.commit_transaction_within(limit).await,
            (false, None) => session.abort_transaction().await,
            (false, Some(limit)) => session.abort_transaction_within(limit).await,
        };
        ended.map_err(|error| of_operation(&error))
    }

    async fn with_transaction(
        &self,
        held: &Held<Self>,
        options: TransactionOptions,
        timeout: Option<Duration>,
        mut callback: impl AsyncFnMut() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let taken = held.borrow_mut().take();
        let mut session = taken.ok_or_else(|| Failure::client("the session is in use"))?;
        let timeout = timeout.map_or_else(|| session.transaction_limit(), limit);
        let ended = session
            .with_transaction_on((), options, timeout, async |session, ()| {
                // Another session takes its place while the operations have it.
                let stand_in = self.start_session(SessionOptions::default())?;
                held.replace(Some(core::mem::replace(session, stand_in)));
                let ended = callback().await;
                let taken = held.borrow_mut().take();
                *session = taken.ok_or_else(|| Failure::client("the session is in use"))?;
                ended.map_err(InTransaction::Callback)
            })
            .await;
        held.replace(Some(session));
        ended.map_err(|error| match error {
            InTransaction::Callback(failure) => failure,
            InTransaction::Client(error) => of_operation(&error),
        })
    }

    fn transaction_state(session: &Session) -> TransactionState {
        session.transaction_state()
    }

    fn transaction_options(session: &Session) -> &TransactionOptions {
        session.transaction_options()
    }

    fn is_pinned(session: &Session) -> bool {
        session.is_pinned()
    }

    async fn run_on_pinned(&self, session: &mut Session, command: &Document) -> Result<(), Failure> {
        let body = raw(command)?;
        if let Some(connection) = session.pinned_connection() {
            let ran = connection.exchange(&Command::new("admin", &body)).await;
            return ran.map(drop).map_err(|error| of_command(&error));
        }
        let address = session.pinned_to().cloned().ok_or_else(|| Failure::client("the session is not pinned"))?;
        let selector = ServerSelector::AnyOf([address].into());
        let ran = self.client.operation(("admin", &*body)).on(selector).once().run().await;
        ran.map(drop).map_err(|error| of_operation(&error))
    }

    fn snapshot_time(session: &Session) -> Option<Timestamp> {
        session.snapshot_time()
    }

    fn lsid(session: &Session) -> Document {
        let bytes = session.id().bytes().to_vec();
        doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes } }
    }

    fn is_dirty(session: &Session) -> bool {
        session.is_dirty()
    }

    async fn operate(&self, operation: &Operate<'_>, session: Option<&mut Session>) -> Result<Document, Failure> {
        let body = raw(operation.command)?;
        let prepared = self.prepare(operation, &body);
        let ran = match session {
            None => prepared.run().await,
            Some(session) => prepared.in_session(session).run().await,
        };
        let reply = ran.map_err(|error| of_operation(&error))?;
        Document::try_from(&*reply).map_err(|error| Failure::client(error.to_string()))
    }

    async fn write(
        &self,
        operation: &Operate<'_>,
        sequences: Vec<Items>,
        session: Option<&mut Session>,
    ) -> Result<WriteResult, Failure> {
        let body = raw(operation.command)?;
        let prepared = self.prepare(operation, &body);
        let ran = match session {
            None => write(prepared, sequences).await,
            Some(session) => write(prepared.in_session(session), sequences).await,
        };
        ran.map_err(|error| of_operation(&error))
    }

    async fn cursor(
        &self,
        operation: &Operate<'_>,
        options: Option<CursorOptions>,
        session: Option<&mut Session>,
    ) -> Result<SimCursor, Failure> {
        let body = raw(operation.command)?;
        let prepared = self.prepare(operation, &body);
        let made = match (session, options) {
            (None, None) => prepared.cursor().await.map(SimCursor::Implicit),
            (None, Some(options)) => prepared.cursor_with(options).await.map(SimCursor::Implicit),
            (Some(session), None) => prepared.in_session(session).cursor().await.map(SimCursor::InSession),
            (Some(session), Some(options)) => {
                prepared.in_session(session).cursor_with(options).await.map(SimCursor::InSession)
            }
        };
        made.map_err(|error| of_operation(&error))
    }

    async fn watch(
        &self,
        operation: &Operate<'_>,
        options: Option<CursorOptions>,
        session: Option<&mut Session>,
    ) -> Result<SimCursor, Failure> {
        let body = raw(operation.command)?;
        let prepared = self.prepare(operation, &body);
        let made = match (session, options) {
            (None, None) => prepared.watch().await.map(SimCursor::Implicit),
            (None, Some(options)) => prepared.watch_with(options).await.map(SimCursor::Implicit),
            (Some(session), None) => prepared.in_session(session).watch().await.map(SimCursor::InSession),
            (Some(session), Some(options)) => {
                prepared.in_session(session).watch_with(options).await.map(SimCursor::InSession)
            }
        };
        made.map_err(|error| of_operation(&error))
    }

    fn checked_out(&self) -> u64 {
        self.client.stats().counts.in_use.into()
    }

    fn available(&self) -> u64 {
        self.client.stats().counts.available.into()
    }

    fn description(&self) -> Arc<TopologyDescription> {
        self.client.description()
    }

    fn append_metadata(&self, info: &DriverInfo) -> Result<(), Failure> {
        let (version, platform) = (info.version.as_deref().unwrap_or(""), info.platform.as_deref().unwrap_or(""));
        let appended = self.client.append_metadata(&info.name, version, platform);
        appended.map_err(|error| Failure::client(error.to_string()))
    }

    async fn close(&self) {
        // How many connections were still in use is no matter of the test's.
        let _ = self.client.close(PATIENCE).await;
    }
}

async fn write<S>(operation: cmap_sim::Operation<'_, S>, sequences: Vec<Items>) -> Result<WriteResult, OperationError> {
    let mut sequences = sequences.into_iter();
    let (name, items) = sequences.next().unwrap_or_default();
    let first = operation.sequence(name, items);
    sequences.fold(first, |others, (name, items)| others.sequence(name, items)).run().await
}

fn raw(command: &Document) -> Result<RawDocumentBuf, Failure> {
    RawDocumentBuf::try_from(command).map_err(|error| Failure::client(error.to_string()))
}

pub(super) fn of_operation(error: &OperationError) -> Failure {
    let mut failure = match &error.kind {
        OperationErrorKind::CheckOut(error) => of_check_out(error),
        OperationErrorKind::Command(error) => of_command(error),
        OperationErrorKind::Writes(result) => of_result(result),
        kind @ (OperationErrorKind::TransactionTimeout(_) | OperationErrorKind::Cursor(_)) if error.is_timeout() => {
            Failure::new(FailureKind::CheckOutTimeout, kind.to_string())
        }
        error @ (OperationErrorKind::Unwritable(_)
        | OperationErrorKind::NoSessions
        | OperationErrorKind::ForeignSession
        | OperationErrorKind::Transaction(_)
        | OperationErrorKind::ConnectionOfSession
        | OperationErrorKind::NoSnapshots
        | _) => Failure::client(error.to_string()),
    };
    failure.written = error.written().map(|written| Box::new(written.clone()));
    for label in LABELS.iter().filter(|label| error.has_label(label)) {
        if !failure.labels.iter().any(|own| own == label) {
            failure.labels.push((*label).to_owned());
        }
    }
    failure
}

fn of_check_out(error: &CheckOutError) -> Failure {
    match error {
        CheckOutError::Pool(error) => Failure::of_check_out(error),
        CheckOutError::Selection(error) => Failure::new(FailureKind::CheckOutTimeout, Cause::of(&**error).to_string()),
        error @ (CheckOutError::NoAffinity | CheckOutError::RuntimeGone(_) | _) => Failure::client(error.to_string()),
    }
}

fn of_command(error: &CommandError) -> Failure {
    let kind = match &error.kind {
        CommandErrorKind::Server(error) => return of_server(error),
        CommandErrorKind::Writes(failure) => return of_writes(failure),
        CommandErrorKind::Network(_) => FailureKind::Network { timeout: false },
        CommandErrorKind::Timeout(_) | CommandErrorKind::Interrupted(_) => FailureKind::Network { timeout: true },
        CommandErrorKind::NoTimeLeft { .. } => FailureKind::CheckOutTimeout,
        CommandErrorKind::NotSent(_)
        | CommandErrorKind::Unwritable(_)
        | CommandErrorKind::Protocol(_)
        | CommandErrorKind::Closed
        | CommandErrorKind::RuntimeGone(_)
        | _ => FailureKind::Client,
    };
    Failure::new(kind, error.to_string())
}

/// The errors of batches.
fn of_result(result: &WriteResult) -> Failure {
    let mut reply = doc! { "ok": 1 };
    let errors: Vec<Document> = result.errors.iter().map(write_error).collect();
    if !errors.is_empty() {
        reply.insert("writeErrors", errors);
    }
    if let Some(concern) = result.concern_errors.first() {
        reply.insert("writeConcernError", concern_error(&concern.error));
    }
    Failure::of_reply(&reply).unwrap_or_else(|| Failure::client(result.to_string()))
}

/// The errors of single writes, with what a client keeps of the reply.
fn of_writes(failure: &WriteFailure) -> Failure {
    let mut reply = doc! { "ok": 1 };
    if let Some(n) = failure.n {
        reply.insert("n", n);
    }
    let errors: Vec<Document> = failure.writes.iter().map(write_error).collect();
    if !errors.is_empty() {
        reply.insert("writeErrors", errors);
    }
    if let Some(concern) = &failure.write_concern {
        reply.insert("writeConcernError", concern_error(concern));
    }
    if !failure.labels.is_empty() {
        reply.insert("errorLabels", failure.labels.clone());
    }
    Failure::of_reply(&reply).unwrap_or_else(|| Failure::client(failure.to_string()))
}

fn concern_error(concern: &ServerError) -> Document {
    let mut error = doc! { "code": concern.code, "errmsg": concern.message.as_str() };
    error.extend(concern.code_name.as_deref().map(|name| ("codeName".to_owned(), name.into())));
    error
}

fn write_error(error: &WriteError) -> Document {
    doc! { "index": error.index.map(i64::from), "code": error.code, "errmsg": error.message.as_str() }
}

/// The server's error, with what a client keeps of the reply.
fn of_server(error: &ServerError) -> Failure {
    let mut reply = doc! { "ok": 0.0, "errmsg": error.message.as_str() };
    if let Some(code) = error.code {
        reply.insert("code", code);
    }
    if let Some(name) = &error.code_name {
        reply.insert("codeName", name.as_str());
    }
    if !error.labels.is_empty() {
        reply.insert("errorLabels", error.labels.clone());
    }
    Failure::of_reply(&reply).unwrap_or_else(|| Failure::client(error.to_string()))
}
