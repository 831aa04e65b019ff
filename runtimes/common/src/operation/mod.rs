//! Operations: a command with all that surrounds it, on whichever server suits.
//!
//! An [`Operation`] selects a server, checks out a connection, sends the command with the fields that belong to it, and does it
//! again where the rules of retries allow that, within one limit of time. [`cmap_core::retry`] decides; here is what carries it
//! out.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the operation, and its attempts one after the other |
//! | `attempt` | one attempt: a connection, a session, the command |
//! | `fields` | what goes along with the command |
//! | `part` | whether it is part of a transaction, and which part |
//! | `failure` | what an error says about trying again |
//! | `error` | the error of an operation |

mod attempt;
mod error;
mod failure;
mod fields;
mod part;

use std::sync::Arc;

use bson::RawDocument;
use cmap_core::options::ReadPreference;
use cmap_core::retry::{FailedServer, Next, Retry, RetryLimit, RetryPolicy, Retryability, Which};
use cmap_core::session::TransactionCommand;
use cmap_core::time::Instant;
use cmap_core::topology::{Operation as Named, ServerSelector};

use self::attempt::{Attempt, Attempted};
pub use self::error::{OperationError, OperationErrorKind};
use crate::client::Client;
use crate::connection::Connection;
use crate::deadline::{Deadline, Limit};
use crate::document::{IntoRequest, Reply, Request};
use crate::runtime::Runtime;
use crate::session::{Lent, Session};
use crate::socket::abort::Abort;
use crate::topology::Topology;

/// A command that is about to run on a server of the deployment. Made by [`Client::operation`].
///
/// ```
/// use std::time::Duration;
/// use cmap_runtime::bson::doc;
/// use cmap_runtime::core::topology::ServerSelector;
/// use cmap_runtime::{Client, OperationError, Runtime};
///
/// /// Counts a visit, exactly once, whatever happens to the servers within ten seconds.
/// async fn count_visit<R: Runtime>(client: &Client<R>) -> Result<(), OperationError> {
///     let update = doc! { "update": "pages", "updates": [{ "q": { "_id": "/" }, "u": { "$inc": { "visits": 1 } } }] };
///     client.operation(ServerSelector::Writable, ("site", update)).within(Duration::from_secs(10)).run().await?;
///     Ok(())
/// }
/// ```
#[must_use = "it does nothing before `run` is awaited"]
pub struct Operation<'a, R: Runtime> {
    origin: Origin<'a, R>,
    selector: ServerSelector,
    request: Result<Request<'a>, Box<bson::error::Error>>,
    limit: Option<Limit>,
    is_once: bool,
    /// Whether it ends the session's transaction.
    ending: Option<TransactionCommand>,
}

/// Where an operation comes from.
enum Origin<'a, R: Runtime> {
    /// A client, and the user's session that it runs in, if it does.
    Client(&'a Client<R>, Option<&'a mut Session<R>>),
    /// A session, which has a client.
    Session(&'a mut Session<R>),
}

/// The session of an operation.
enum SessionOf<'a, R: Runtime> {
    /// One of its own, once it has a connection to a server that has sessions (SES-2).
    Implicit(Option<Lent<R>>),
    /// Its user's.
    Explicit(&'a mut Session<R>),
}

impl<'a, R: Runtime> Operation<'a, R> {
    pub(crate) fn new(client: &'a Client<R>, selector: ServerSelector, command: impl IntoRequest + 'a) -> Self {
        Self::from(Origin::Client(client, None), selector, command)
    }

    /// One in a session.
    pub(crate) fn of_session(
        session: &'a mut Session<R>,
        selector: ServerSelector,
        command: impl IntoRequest + 'a,
    ) -> Self {
        Self::from(Origin::Session(session), selector, command)
    }

    fn from(origin: Origin<'a, R>, selector: ServerSelector, command: impl IntoRequest + 'a) -> Self {
        let request = command.into_request().map_err(Box::new);
        Self { origin, selector, request, limit: None, is_once: false, ending: None }
    }

    /// It ends the transaction of its session.
    pub(crate) fn ending(mut self, ending: TransactionCommand) -> Self {
        self.ending = Some(ending);
        self
    }

    /// Limits the time of the whole, retries and pauses included, instead of by timeoutMS. While it lasts the operation is tried
    /// again as often as the rules allow; without any limit, once (RTY-1).
    pub fn within(mut self, limit: impl Into<Limit>) -> Self {
        self.limit = Some(limit.into());
        self
    }

    /// Runs it in a session of the user's own, and as part of its transaction, if one was started. The server of a transaction is
    /// the primary, or the mongos of its first operation (TXN-3, PIN-4).
    pub fn in_session(mut self, session: &'a mut Session<R>) -> Self {
        self.origin = match self.origin {
            Origin::Client(client, _) => Origin::Client(client, Some(session)),
            Origin::Session(_) => Origin::Session(session),
        };
        self
    }

    /// Runs it once, unless an overloaded server refuses it (BP-9).
    pub fn once(mut self) -> Self {
        self.is_once = true;
        self
    }

    /// Runs the operation; returns the reply.
    ///
    /// # Errors
    /// No server suited, none could be reached, the server refused the command, or there was no usable reply; and for commands
    /// that write, single writes failed or the write concern was not satisfied. Of several attempts the error that says most
    /// is returned (RTY-10, RTY-11).
    pub async fn run(self) -> Result<Reply<'static>, OperationError> {
        self.run_held().await.map(|(reply, _)| reply)
    }

    /// The same; returns the connection, too, on which the reply came: for a cursor that is left open or a transaction, whose
    /// further commands have to go to the same server, and behind a load balancer over the same connection (LB-13).
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and in a transaction behind a load balancer, whose connection is its session's.
    pub async fn run_keeping(self) -> Result<(Reply<'static>, Connection<R>), OperationError> {
        let (reply, connection) = self.run_held().await?;
        Ok((reply, connection.ok_or_else(OperationError::connection_of_session)?))
    }

    /// The same, without a connection where the session keeps it: in a transaction behind a load balancer (LB-15). Further
    /// operations in the session use it.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub async fn run_held(self) -> Result<(Reply<'static>, Option<Connection<R>>), OperationError> {
        let Self { origin, selector, request, limit, is_once, ending } = self;
        let of_session;
        let (client, mut session) = match origin {
            Origin::Client(client, session) => (client, session),
            Origin::Session(session) => {
                of_session = session.client().clone();
                (&of_session, Some(session))
            }
        };
        let request = request.map_err(OperationError::unwritable)?;
        let mut command = request.command();
        let (topology, sessions) = (client.topology(), client.sessions());
        if session.as_ref().is_some_and(|session| !session.lent.is_of(sessions)) {
            return Err(OperationError::foreign_session());
        }
        let part = part::of(session.as_deref_mut(), ending, &command, &selector)?;
        let inherited = session.as_ref().filter(|_| part.is_some()).and_then(|session| session.limit());
        let limit = limit.or(inherited);
        // A write with w: 0 waits for no reply (MSG-7).
        command.acknowledged = part.is_some() || fields::is_acknowledged(&command, topology.command_defaults());
        let deadline = match limit {
            None => client.timeout().map(|timeout| client.deadline(timeout)),
            Some(Limit::None) => None,
            Some(Limit::Within(limit)) => Some(client.deadline(limit)),
            Some(Limit::Until(deadline)) => Some(deadline),
        };
        let mut policy = RetryPolicy::of_client(client.options());
        let retryability = Retryability::of_command(command.body, command.acknowledged);
        let retryability = match part {
            None if is_once => retryability.once(),
            None => retryability,
            Some(TransactionCommand::Operation) => retryability.in_transaction(),
            Some(TransactionCommand::Commit | TransactionCommand::Abort) => {
                // TXN-6.
                policy.retry_writes = true;
                Retryability::Write
            }
        };
        if limit.is_some() {
            policy.limit = if deadline.is_some() { RetryLimit::WhileTimeLasts } else { RetryLimit::Once };
        }
        let ends_at = deadline.and_then(Deadline::at).map(|at| topology.clock().instant(at));
        let number = sessions.next_operation();
        let mut retry = Retry::new(policy, retryability, ends_at, sessions.seed_of(number));
        let session = session.map_or(SessionOf::Implicit(None), SessionOf::Explicit);
        let mut attempt = Attempt {
            topology,
            sessions,
            command,
            preference: read_preference(&selector),
            selector: &selector,
            limit,
            deadline,
            writes: fields::writes(command.body, retryability),
            session,
            part,
            number,
            transaction_number: None,
            named: topology.tells_selections().then(|| named(command.body, number)),
        };
        let mut reported = None;
        loop {
            let failed = match attempt.make(&mut retry).await {
                Attempted::Done(reply, connection) => return Ok((reply, connection)),
                Attempted::Failed(failed) => failed,
                // The earlier error stands, since the write may have been carried out.
                Attempted::Refused => return Err(OperationError::of_refused(reported, &retry)),
            };
            let now = topology.clock().now();
            let server = failed.server.as_ref().map(|server| FailedServer {
                address: &server.address,
                is_mongos: server.is_mongos,
                max_wire_version: server.max_wire_version,
            });
            let labels = attempt.label(&failed.failure, retry.labels(&failed.failure, server));
            let topology_type = topology.description().topology_type;
            let decision = retry.handle_failure(now, &failed.failure, server, topology_type);
            let earlier = match decision.report {
                Which::This => None,
                Which::Earlier => reported.take(),
            };
            let error = earlier.unwrap_or((failed.kind, labels));
            match decision.next {
                Next::GiveUp(reason) => return Err(OperationError::new(error, retry.retries(), reason)),
                Next::RetryAt(at) => {
                    reported = Some(error);
                    attempt.pause(now, at).await;
                }
            }
        }
    }
}

impl<R: Runtime> Attempt<'_, R> {
    /// Waits until `at`. No connection is held meanwhile (BP-7).
    async fn pause(&self, now: Instant, at: Instant) {
        pause(self.topology, now, at).await;
    }
}

/// Waits until `at`.
pub(crate) async fn pause<R: Runtime>(topology: &Arc<Topology<R>>, now: Instant, at: Instant) {
    if at <= now {
        return;
    }
    let end = Arc::new(Abort::default());
    let limit = topology.limit(Some(at.saturating_since(now)), &end);
    // It always ends by being aborted: by its limit, or with the runtime.
    let _ = end.during(std::future::pending::<()>()).await;
    drop(limit);
}

/// An operation as the log of selections names it (SEL-41).
fn named(body: &RawDocument, number: u64) -> Arc<Named> {
    let name = body.iter().next().and_then(Result::ok).map_or("", |(name, _)| name.as_str());
    Arc::new(Named { id: i64::try_from(number).unwrap_or(i64::MAX), name: name.into() })
}

/// The read preference that a selector stands for.
fn read_preference(selector: &ServerSelector) -> Option<&ReadPreference> {
    match selector {
        ServerSelector::ReadPreference(preference) => Some(preference),
        ServerSelector::Writable | ServerSelector::AnyOf(_) | _ => None,
    }
}
