//! One command upstream: its turn, a server, the exchange, and again where that is safe.
//!
//! Between two attempts nothing is held: neither the connection nor the place in the queue.

use core::time::Duration;
use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};
use cmap_core::address::ServerAddress;
use cmap_core::connection::{Command, Outline, Role};
use cmap_core::pool::{CheckOutErrorKind, IdentityId};
use cmap_core::retry::{
    Decision, ErrorLabel, FailedServer, Failure, FailureKind, Labels, Next, Retry, RetryLimit, RetryPolicy,
    Retryability,
};
use cmap_core::time::Instant;
use cmap_core::topology::{Criteria, ServerSelector, TopologyType};
use cmap_core::wire::{CommandReply, ServerError};
use cmap_tokio::{CheckOutError, CommandError, CommandErrorKind, Connection};

use super::activity::Reason;
use super::gate::NoPlace;
use super::shared::Shared;
use super::track::{Phase, Track};
use super::turn::{self, Claim, NoTurn, Patience};
use crate::protocol::{Forward, Refusal, Request, Route, pass, unanswered};

/// How long a cursor's server may be gone. Without a hub its driver would lose the cursor with the connection.
const FOR_ITS_SERVER: Duration = Duration::from_secs(5);

/// How often a command is repeated whose reply was lost. It may be what has killed the server, or hung it, and would do so to the next one.
const MOST_AFTER_LOSSES: u32 = 2;

/// The end of a command.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The server that answered.
    pub(super) server: Option<Arc<ServerAddress>>,
    pub(super) reply: RawDocumentBuf,
    pub(super) ok: bool,
}

/// On whose behalf a command runs.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    /// The user's name; where nobody logs in, the address.
    pub(super) user: Arc<str>,
    pub(super) identity: Option<IdentityId>,
    /// Who asks, for the server's log.
    pub(super) introduction: Option<Arc<RawDocumentBuf>>,
}

/// The end of an attempt that failed, and the reply that its client would get.
struct Failed {
    failure: Failure,
    server: Option<Server>,
    outcome: Outcome,
    /// Whether the hub may repeat what its driver could.
    may_repeat: bool,
    /// What only the log gets: addresses, users and settings upstream are the operator's.
    for_operator: Option<String>,
}

struct Server {
    address: Arc<ServerAddress>,
    is_mongos: bool,
    max_wire_version: i32,
}

/// Runs a command. Dropping the future cuts it off: the connection that it uses is closed.
pub(super) async fn run(shared: &Shared, forward: &Forward, owner: &Owner, track: &Track) -> Outcome {
    let request = &*forward.request;
    if let Some(session) = request.session.filter(|_| forward.session_ends) {
        shared.wait_until_killed(&session).await;
    }
    let deadline = request.arrived + shared.settings().patience;
    let mut retry = Retry::new(policy(), retryability(forward), Some(deadline), seed(request));
    let mut earlier = None;
    let mut losses = 0;
    loop {
        let failed = match attempt(shared, forward, owner, track, retry.deprioritized().to_vec()).await {
            Ok(outcome) => return outcome,
            Err(failed) => failed,
        };
        let Failed { failure, server, outcome, may_repeat, for_operator } = *failed;
        losses += u32::from(failure.kind == FailureKind::Network);
        if !may_repeat || track.is_cut_off() || losses > MOST_AFTER_LOSSES {
            tell_operator(shared, owner, request, for_operator);
            return outcome;
        }
        retry.begin(true);
        let failed_server = server.as_ref().map(|server| FailedServer {
            address: &server.address,
            is_mongos: server.is_mongos,
            max_wire_version: server.max_wire_version,
        });
        let topology = shared.upstream.client.description().topology_type;
        let Decision { report, next } = retry.handle_failure(shared.now(), &failure, failed_server, topology);
        let reported = match (report, earlier.take()) {
            (cmap_core::retry::Which::Earlier, Some(earlier)) => earlier,
            _ => outcome,
        };
        match next {
            Next::GiveUp(_) => {
                tell_operator(shared, owner, request, for_operator);
                return reported;
            }
            Next::RetryAt(at) => {
                shared.activity.count_retry();
                earlier = Some(reported);
                tokio::time::sleep_until(shared.moment(at)).await;
            }
        }
    }
}

/// Writes into the log why a command has failed, if there is room.
fn tell_operator(shared: &Shared, owner: &Owner, request: &Request, why: Option<String>) {
    if let Some(why) = why
        && let Some(left_out) = shared.log_of_users.admit(shared.now())
    {
        let (user, command) = (&*owner.user, &*request.name);
        tracing::warn!(target: "cmap::hub", user, command, left_out, "a command has failed upstream: {why}");
    }
}

/// The end of a command whose user has no identity upstream any more: it does not run as anybody else.
pub(super) fn without_identity(request: &Request) -> Outcome {
    let message = "a reload has taken the user's identity upstream away, and the command was not sent; log in again";
    refused(&unsent(unanswered(request, message.into())))
}

async fn attempt(
    shared: &Shared,
    forward: &Forward,
    owner: &Owner,
    track: &Track,
    deprioritized: Vec<ServerAddress>,
) -> Result<Outcome, Box<Failed>> {
    let request = &*forward.request;
    let settings = shared.settings();
    let limits = settings.limits;
    let criteria = Criteria { selector: selector(shared, forward), deprioritized, operation: None };
    let mut patience = Patience {
        queue: left(shared.now(), request, limits.wait),
        server: left(shared.now(), request, settings.patience),
    };
    if matches!(criteria.selector, ServerSelector::Pinned(_)) && request.part.is_none() {
        patience.server = patience.server.min(FOR_ITS_SERVER);
    }
    let claim = Claim::of(forward);
    let turn = turn::take(shared, owner, claim, &criteria, patience, track).await;
    let mut turn = turn.map_err(|no_turn| match no_turn {
        NoTurn::Connection(error) => of_check_out(request, &error),
        NoTurn::Place(no_place) => of_queue(shared, owner, request, no_place, limits.base_backoff),
    })?;
    let now = shared.now();
    if is_time_up(now, request) {
        return Err(time_is_up());
    }
    let connection = &mut turn.connection;
    let waited = now.saturating_since(request.arrived);
    let time_left = time_limit(request).map(|limit| limit.saturating_sub(waited));
    let address = Arc::new(connection.address().clone());
    track.send(now, &address);
    let is_alone = connection.description().is_some_and(|said| said.role == Role::Standalone);
    let sent = match (request.session, request.number) {
        // What goes on in place of the client's document is no write, and has only what is the user's own.
        (Some(session), Some(number)) if is_alone && request.part.is_none() && forward.body.is_none() => {
            if !shared.note_write(&session, number) {
                let message = "the write was sent before, and whether it was done is not known: a server that stands alone cannot \
                               tell; look at what it has written";
                return Err(in_hub(FailureKind::Client, Refusal::unreachable(message)));
            }
            let once = request.without_number();
            let sent = exchange(&once, None, owner, connection, time_left, address).await;
            if sent.as_ref().is_err_and(|failed| was_not_done(&failed.failure)) {
                shared.forget_write(&session, number);
            }
            sent.map_err(|failed| Box::new(Failed { may_repeat: false, ..*failed }))
        }
        _ => exchange(request, forward.body.as_deref(), owner, connection, time_left, address).await,
    };
    track.enter(shared.now(), if sent.is_ok() { Phase::Client } else { Phase::Queue });
    sent.map_err(|failed| Box::new(Failed { may_repeat: failed.may_repeat && settings.retries, ..*failed }))
}

/// Whether a write that failed was not sent, or refused unseen by an overloaded server (BP-9).
fn was_not_done(failure: &Failure) -> bool {
    let is_refused = matches!(failure.kind, FailureKind::Server { .. });
    is_refused && failure.is_retryable_overload() || failure.kind == FailureKind::NotSentInTime
}

/// The servers that suit. A transaction keeps to its router. In a set it goes to the present primary: after a failover only that one can
/// say whether the transaction was committed at the old one.
fn selector(shared: &Shared, forward: &Forward) -> ServerSelector {
    let request = &*forward.request;
    match &forward.route {
        Route::Select(selector) => selector.clone(),
        Route::Server(server) => {
            let is_of_transaction = request.part.is_some() && request.name != "getMore";
            let is_sharded = shared.upstream.client.description().topology_type == TopologyType::Sharded;
            if is_of_transaction && !is_sharded {
                ServerSelector::Writable
            } else {
                ServerSelector::Pinned(Arc::clone(server))
            }
        }
    }
}

async fn exchange(
    request: &Request,
    body: Option<&RawDocument>,
    owner: &Owner,
    connection: &mut Connection,
    time_left: Option<Duration>,
    address: Arc<ServerAddress>,
) -> Result<Outcome, Box<Failed>> {
    let mut body = body.map_or_else(|| request.compose(time_left), RawDocument::to_owned);
    if let Some(introduction) = &owner.introduction {
        request.introduce(&mut body, introduction);
    }
    let sequences = request.sequences().map_err(|refusal| in_hub(FailureKind::Client, refusal))?;
    let mut command = Command::new(&request.database, &body);
    command.sequences = &sequences;
    command.acknowledged = request.acknowledged;
    let server = connection.description().map(|said| Server {
        address: Arc::clone(&address),
        is_mongos: said.role == Role::Mongos,
        max_wire_version: said.wire_versions.1,
    });
    let wire_version = server.as_ref().map_or(i32::MAX, |server| server.max_wire_version);
    let error = match connection.exchange(&command).await {
        Ok(reply) => {
            let passed = pass(request, &reply, wire_version);
            let concern = CommandReply::read(&reply).write_concern_failure();
            let outcome = Outcome { server: Some(address), reply: passed.reply.into_owned(), ok: passed.ok };
            return match concern {
                None => Ok(outcome),
                Some(error) => {
                    let failure = of_server(FailureKind::WriteConcern { code: error.code }, &error);
                    Err(Box::new(Failed { failure, server, outcome, may_repeat: true, for_operator: None }))
                }
            };
        }
        Err(error) => error,
    };
    let CommandErrorKind::Server(refusal) = &error.kind else { return Err(of_command(request, &error, server)) };
    let failure = of_server(FailureKind::Server { code: refusal.code }, refusal);
    let reply = connection.last_reply();
    let reply = match &reply {
        Some(reply) => pass(request, reply, wire_version).reply.into_owned(),
        None => unanswered(request, error.to_string()).reply(),
    };
    Err(Box::new(Failed {
        failure,
        server,
        outcome: Outcome { server: Some(address), reply, ok: false },
        may_repeat: true,
        for_operator: None,
    }))
}

/// The hub tries again while its patience lasts. What an overloaded server refuses is the driver's to repeat: if both did,
/// the server would be asked nine times.
fn policy() -> RetryPolicy {
    let mut policy = RetryPolicy::default();
    policy.limit = RetryLimit::WhileTimeLasts;
    policy.max_adaptive_retries = 0;
    policy
}

/// A write may be repeated if the driver has numbered it, and a read always; part of a transaction never.
fn retryability(forward: &Forward) -> Retryability {
    let request = &*forward.request;
    let outline = Command::new(&request.database, request.body());
    let of_command = Retryability::of_command(&Outline::of(&outline), request.acknowledged);
    match (request.part, request.number, of_command) {
        (Some(_), _, _) => of_command.in_transaction(),
        (None, Some(_), _) if request.acknowledged => Retryability::Write,
        (None, _, Retryability::Read) if !matches!(forward.route, Route::Server(_)) => Retryability::Read,
        (None, _, _) => of_command.once(),
    }
}

/// What is left of a command's time, and of the hub's patience with it.
fn left(now: Instant, request: &Request, patience: Duration) -> Duration {
    let waited = now.saturating_since(request.arrived);
    patience.min(time_limit(request).unwrap_or(Duration::MAX)).saturating_sub(waited)
}

/// The client's limit. A getMore's is that of its wait for documents.
fn time_limit(request: &Request) -> Option<Duration> {
    request.max_time.filter(|_| request.name != "getMore")
}

fn is_time_up(now: Instant, request: &Request) -> bool {
    time_limit(request).is_some_and(|limit| now.saturating_since(request.arrived) >= limit)
}

fn time_is_up() -> Box<Failed> {
    let refusal = Refusal::max_time_expired("the command's time was up before a server was free for it");
    in_hub(FailureKind::Client, refusal)
}

fn of_server(kind: FailureKind, error: &ServerError) -> Failure {
    let labels = Labels::of(|label| error.labels.iter().any(|own| own == label));
    Failure::new(kind).with_labels(labels).with_base_backoff(error.base_backoff())
}

/// There was no place in the queue.
fn of_queue(
    shared: &Shared,
    owner: &Owner,
    request: &Request,
    no_place: NoPlace,
    base_backoff: Duration,
) -> Box<Failed> {
    let (reason, message) = match no_place {
        NoPlace::TooLong | NoPlace::AtLimit | NoPlace::NoRoom if is_time_up(shared.now(), request) => {
            return time_is_up();
        }
        NoPlace::Full => (
            Reason::QueueFull,
            "too many commands wait at this hub; try again later, or give it more connections upstream",
        ),
        NoPlace::TooLarge => (
            Reason::Memory,
            "the commands that wait at this hub have too many bytes; try again later, or send smaller ones",
        ),
        NoPlace::NoRoom => (
            Reason::Memory,
            "large replies at this hub are not taken by their clients; try again later, or read what was asked for",
        ),
        NoPlace::TooLong => {
            (Reason::TooLong, "the command has waited too long for its turn at this hub; try again later")
        }
        NoPlace::AtLimit => (
            Reason::RunningPerUser,
            "the user has as many commands running at this hub as it may have; try again later, or ask for a larger `running`",
        ),
    };
    shared.activity.count_overload(&owner.user, reason);
    let base_backoff = base_backoff.saturating_mul(shared.gate.backoff_factor());
    in_hub(FailureKind::Client, Refusal::overloaded(message, base_backoff))
}

/// Nothing was sent. An overload does not limit the hub's own retries, as one that a server replies does: the label is a guess about a
/// server that could not be reached, which an election explains as well. At the end the driver gets it, as it would without a hub.
fn of_check_out(request: &Request, error: &CheckOutError) -> Box<Failed> {
    let (kind, address) = match error {
        CheckOutError::Pool(error) => {
            let kind = match &error.kind {
                CheckOutErrorKind::PoolCleared { .. } => FailureKind::PoolCleared,
                CheckOutErrorKind::Establish(error) => FailureKind::Establish(error.fault),
                CheckOutErrorKind::Timeout(_) => FailureKind::NotSentInTime,
                CheckOutErrorKind::PoolClosed
                | CheckOutErrorKind::Cancelled
                | CheckOutErrorKind::WaitQueueFull { .. }
                | _ => FailureKind::Client,
            };
            (kind, Some(Arc::clone(&error.address)))
        }
        CheckOutError::Selection(_) => (FailureKind::Selection, None),
        CheckOutError::NoAffinity | CheckOutError::RuntimeGone(_) | _ => (FailureKind::Client, None),
    };
    let mut refusal = unanswered(request, told(kind).into());
    for label in [ErrorLabel::SystemOverloadedError, ErrorLabel::RetryableError] {
        if let CheckOutError::Pool(error) = error
            && error.has_label(label.name())
        {
            refusal = refusal.with_label(label);
        }
    }
    let refusal = unsent(refusal);
    let server = address.map(|address| Server { address, is_mongos: false, max_wire_version: i32::MAX });
    let (failure, for_operator) = (Failure::new(kind), Some(error.to_string()));
    Box::new(Failed { failure, server, outcome: refused(&refusal), may_repeat: true, for_operator })
}

/// What a client may know of a command for which there was no connection upstream.
fn told(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Selection => "no server upstream could take the command in time; try again later",
        FailureKind::NotSentInTime => {
            "no connection upstream was free in time; try again later, or ask for a larger maxPoolSize upstream"
        }
        FailureKind::Establish(_) => "no connection upstream could be made; try again later",
        FailureKind::PoolCleared
        | FailureKind::Client
        | FailureKind::Network
        | FailureKind::Server { .. }
        | FailureKind::WriteConcern { .. } => "no server upstream took the command; try again later",
    }
}

fn of_command(request: &Request, error: &CommandError, server: Option<Server>) -> Box<Failed> {
    let is_of_network = matches!(
        &error.kind,
        CommandErrorKind::Network(_) | CommandErrorKind::Timeout(_) | CommandErrorKind::Interrupted(_)
    );
    let kind = if is_of_network {
        FailureKind::Network
    } else if matches!(&error.kind, CommandErrorKind::NoTimeLeft { .. }) {
        FailureKind::NotSentInTime
    } else {
        FailureKind::Client
    };
    let refusal = if let CommandErrorKind::NotSent(problem) = &error.kind {
        Refusal::new(2, "BadValue", format!("the command cannot be sent: {problem}"))
    } else {
        unanswered(request, "the connection upstream was lost; whether the command was carried out is not known".into())
    };
    let (failure, for_operator) = (Failure::new(kind), Some(error.to_string()));
    Box::new(Failed { failure, server, outcome: refused(&refusal), may_repeat: true, for_operator })
}

fn in_hub(kind: FailureKind, refusal: Refusal) -> Box<Failed> {
    let (failure, outcome) = (Failure::new(kind), refused(&refusal));
    Box::new(Failed { failure, server: None, outcome, may_repeat: true, for_operator: None })
}

/// Whatever the client may repeat wrote nothing.
fn unsent(refusal: Refusal) -> Refusal {
    if refusal.labels.contains(&ErrorLabel::RetryableWriteError) {
        refusal.with_label(ErrorLabel::NoWritesPerformed)
    } else {
        refusal
    }
}

fn refused(refusal: &Refusal) -> Outcome {
    Outcome { server: None, reply: refusal.reply(), ok: false }
}

/// The chance of a command's pauses; it need not be hard to guess.
fn seed(request: &Request) -> u64 {
    request.arrived.as_nanos()
}
