//! One client's connection: its bytes become commands, and replies become bytes.
//!
//! ```text
//! Strange --hello--> Greeted --SCRAM--> user: commands, one at a time; what comes meanwhile waits
//! ```
//!
//! Call any method, then drain [`poll_output`](Line::poll_output), then ask [`poll_timeout`](Line::poll_timeout).

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use cmap_core::address::ServerAddress;
use cmap_core::connection::auth::Nonce;
use cmap_core::retry::ErrorLabel;
use cmap_core::time::Instant;
use cmap_core::topology::ServerSelector;
use cmap_core::wire::{Flags, FrameReader, Limits, MessageIds, MessageWriter, encode_reply};
use thiserror::Error;

use super::doors::{Doors, Full};
use super::greeting::{self, Facts};
use super::holdings::{Holdings, continued_cursor, cursors_in};
use super::login::{self, Conversation, Next};
use super::queue::Class;
use super::refusal::Refusal;
use super::request::{Fault, Forward, Part, Request, Route, SessionId, session_id};
use super::sessions::{SessionFault, Sessions};
use super::targets::targets;
use crate::users::{User, Users};

/// How large a message of a client may be that has not logged in: a hello is a kilobyte.
const BEFORE_LOGIN: Limits = Limits { max_message_size: 64 * 1024, max_document_size: 48 * 1024, ..Limits::DEFAULT };

/// How long a client may take to log in, and to complete a message that it has begun.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many logins may fail.
const MAX_FAILED_LOGINS: u32 = 3;

/// How many cursors a connection may have open.
const MAX_CURSORS: usize = 1_000;

/// How many bytes may wait while a command runs; a client that sends ahead has to wait from then on.
const MAX_BACKLOG: usize = 64 * 1024;

/// The buffer that an idle connection keeps for its next message.
const KEPT: usize = 4 * 1024;

/// One client's connection, without its socket.
#[derive(Debug)]
pub struct Line {
    number: i64,
    frames: FrameReader,
    backlog: Vec<u8>,
    is_greeted: bool,
    /// Who logged in.
    user: Option<Arc<str>>,
    conversation: Option<Conversation>,
    failed_logins: u32,
    holdings: Holdings,
    /// The command that runs upstream.
    running: Option<Arc<Request>>,
    /// Until when it has to have logged in, or to complete its message.
    until: Option<Instant>,
    replies: i32,
    outputs: VecDeque<LineOutput>,
    has_ended: bool,
}

/// What the hub gives a connection to decide by.
pub struct Surroundings<'a> {
    /// The users as they are now.
    pub users: &'a Users,
    /// All sessions.
    pub sessions: &'a mut Sessions,
    /// All connections.
    pub doors: &'a mut Doors,
    /// The hub and its upstream.
    pub facts: Facts,
    /// Random bytes for a login; `None` if the system has none.
    pub nonce: &'a mut dyn FnMut() -> Option<[u8; Nonce::RANDOM_BYTES]>,
}

/// What to do for a connection.
#[derive(Debug)]
pub enum LineOutput {
    /// Send these bytes.
    Send(Vec<u8>),
    /// Run this command, then call [`Line::handle_reply`].
    Run(Box<Forward>),
    /// A command was refused: for the log and the counters.
    Refused(Refusal),
    /// Hang up, once all bytes are sent.
    HangUp(Ending),
}

/// Why the hub hangs up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Ending {
    /// The client broke the protocol.
    #[error("{0}")]
    Fault(Fault),
    /// It did not log in, or complete a message, in time.
    #[error("the client did not log in, or complete its message, within {PATIENCE:?}")]
    TooSlow,
    /// Its logins failed.
    #[error("{MAX_FAILED_LOGINS} logins failed")]
    FailedLogins,
    /// Its user was removed.
    #[error("its user was removed")]
    UserRemoved,
}

/// What a command comes to.
enum Answer {
    /// The hub's own reply.
    Reply(RawDocumentBuf),
    /// It runs upstream.
    Run(Box<Forward>),
}

impl Line {
    /// A client has connected. `number` is the connection's own.
    pub fn new(now: Instant, number: i64) -> Self {
        Self {
            number,
            frames: FrameReader::new(),
            backlog: Vec::new(),
            is_greeted: false,
            user: None,
            conversation: None,
            failed_logins: 0,
            holdings: Holdings::default(),
            running: None,
            until: Some(now + PATIENCE),
            replies: 0,
            outputs: VecDeque::new(),
            has_ended: false,
        }
    }

    /// Bytes came.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8], around: &mut Surroundings<'_>) {
        if self.backlog.is_empty() && self.running.is_none() {
            let left = self.read(now, bytes, around);
            self.backlog.extend_from_slice(left);
        } else {
            self.backlog.extend_from_slice(bytes);
        }
        self.rearm(now, around);
    }

    /// The command that ran was answered: by `server`, if it reached one.
    pub fn handle_reply(
        &mut self,
        now: Instant,
        server: Option<&Arc<ServerAddress>>,
        reply: &RawDocument,
        ok: bool,
        around: &mut Surroundings<'_>,
    ) {
        let Some(request) = self.running.take() else { return };
        match server {
            Some(server) => self.holdings.note_reply(&request, server, reply, ok),
            None => self.holdings.note_unanswered(&request),
        }
        self.send(&request, reply);
        drop(request);
        let backlog = std::mem::take(&mut self.backlog);
        let left = self.read(now, &backlog, around).to_vec();
        self.backlog = left;
        self.rearm(now, around);
    }

    /// The command that runs is about to be sent to `server`, or may have been.
    pub fn handle_sent(&mut self, server: &Arc<ServerAddress>) {
        if let Some(request) = &self.running {
            self.holdings.note_sent(request, server);
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.until.is_some_and(|until| until <= now) {
            self.end(Ending::TooSlow);
        }
    }

    /// The next thing to do; call it until there is none.
    pub fn poll_output(&mut self) -> Option<LineOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.until
    }

    /// Whether more bytes are to be read now.
    pub fn wants_bytes(&self) -> bool {
        !self.has_ended && self.backlog.len() < MAX_BACKLOG
    }

    /// How many bytes are there of a message that is not whole.
    pub fn pending(&self) -> usize {
        self.frames.pending()
    }

    /// Who has logged in.
    pub fn user(&self) -> Option<&Arc<str>> {
        self.user.as_ref()
    }

    /// The command that runs.
    pub fn running(&self) -> Option<&Arc<Request>> {
        self.running.as_ref()
    }

    /// Whether nothing runs, and no cursor and no transaction is open: the connection can end without a loss.
    pub fn is_idle(&self) -> bool {
        self.running.is_none() && self.holdings.are_empty() && self.outputs.is_empty()
    }

    /// What is left upstream when the client has gone.
    pub fn take_holdings(&mut self) -> Holdings {
        std::mem::take(&mut self.holdings)
    }

    /// Takes messages off the front of `bytes` while none of them runs upstream; returns what is left.
    fn read<'b>(&mut self, now: Instant, mut bytes: &'b [u8], around: &mut Surroundings<'_>) -> &'b [u8] {
        let mut frames = std::mem::take(&mut self.frames);
        while self.running.is_none() && !self.has_ended {
            let is_in = self.is_greeted && self.acts_as(around).is_some();
            let limits = if is_in { Limits::DEFAULT } else { BEFORE_LOGIN };
            let request = match frames.read(&mut bytes, &limits) {
                Ok(Some(frame)) => Request::read(frame, &limits, now),
                Ok(None) => break,
                Err(error) => Err(error.into()),
            };
            match request {
                Ok(request) => self.handle(now, request, around),
                Err(Fault::Refused(refused)) => {
                    let refusal = Refusal::new(9, "FailedToParse", refused.message);
                    if refused.acknowledged {
                        self.encode(refused.is_query, refused.id, &refusal.reply());
                    }
                    self.outputs.push_back(LineOutput::Refused(refusal));
                }
                Err(fault) => self.end(Ending::Fault(fault)),
            }
        }
        if frames.is_at_boundary() && frames.capacity() > KEPT {
            frames = FrameReader::new();
        }
        self.frames = frames;
        bytes
    }

    /// A client that has begun a message, or a login, has to go on with it. A command that runs takes the time it takes.
    fn rearm(&mut self, now: Instant, around: &Surroundings<'_>) {
        let is_in = self.acts_as(around).is_some() && self.is_greeted;
        let is_waited_for = !is_in || self.running.is_none() && !self.frames.is_at_boundary();
        self.until = match (is_waited_for, self.until) {
            (true, None) => Some(now + PATIENCE),
            // Each further piece of a large message gives it more time, of one before the login not.
            (true, Some(_)) if is_in => Some(now + PATIENCE),
            (true, until) => until,
            (false, _) => None,
        };
    }

    fn handle(&mut self, now: Instant, request: Request, around: &mut Surroundings<'_>) {
        let request = Arc::new(request);
        match self.answer(now, &request, around) {
            Ok(Answer::Reply(mut reply)) => {
                reply.append(cstr!("ok"), 1.0);
                self.send(&request, &reply);
            }
            Ok(Answer::Run(forward)) => {
                self.running = Some(Arc::clone(&request));
                self.outputs.push_back(LineOutput::Run(forward));
            }
            Err(refusal) => {
                self.send(&request, &refusal.reply());
                let is_login = matches!(request.name.as_str(), "saslStart" | "saslContinue");
                self.outputs.push_back(LineOutput::Refused(refusal));
                if self.user.is_some() && self.acts_as(around).is_none() {
                    self.end(Ending::UserRemoved);
                }
                if is_login {
                    self.failed_logins += 1;
                    self.conversation = None;
                    if self.failed_logins >= MAX_FAILED_LOGINS {
                        self.end(Ending::FailedLogins);
                    }
                }
            }
        }
    }

    fn answer(
        &mut self,
        now: Instant,
        request: &Arc<Request>,
        around: &mut Surroundings<'_>,
    ) -> Result<Answer, Refusal> {
        let body = request.body();
        match request.name.as_str() {
            name if greeting::is_hello(name) => return self.hello(request, around).map(Answer::Reply),
            "saslStart" => {
                self.begin_login(around)?;
                let nonce = (around.nonce)().ok_or_else(no_random_bits)?;
                let step = login::start(around.users, &request.database, body, nonce)?;
                return self.step(step, around).map(Answer::Reply);
            }
            "saslContinue" => {
                self.begin_login(around)?;
                let step = login::go_on(self.conversation.take(), body)?;
                return self.step(step, around).map(Answer::Reply);
            }
            "authenticate" => {
                let message = "the hub knows the mechanisms SCRAM-SHA-256 and SCRAM-SHA-1; choose one of them";
                return Err(Refusal::new(334, "MechanismUnavailable", message));
            }
            // Upstream it would log out a connection that others share.
            "logout" => {
                let message = "a login at this hub lasts until its connection ends; close the connection";
                return Err(Refusal::new(115, "CommandNotSupported", message));
            }
            "connectionStatus" => return Ok(Answer::Reply(self.status())),
            _ => {}
        }
        if !self.is_greeted {
            return Err(Refusal::new(9, "FailedToParse", "the first command of a connection is a hello"));
        }
        let Some(user) = self.acts_as(around) else {
            return Err(Refusal::unauthorized(format!("Command {} requires authentication", request.name)));
        };
        check_rules(request, &user)?;
        if let Some(session) = request.session {
            around.sessions.claim(now, session, &user.name, self.number).map_err(session_refusal)?;
        }
        self.route(request, &user, around)
    }

    fn route(&mut self, request: &Arc<Request>, user: &User, around: &mut Surroundings<'_>) -> Result<Answer, Refusal> {
        let session_ends = request.session.is_some_and(|session| around.sessions.is_ending(&session));
        let run = |route, class, body| {
            Ok(Answer::Run(Box::new(Forward { request: Arc::clone(request), route, class, body, session_ends })))
        };
        match request.name.as_str() {
            "endSessions" | "killSessions" | "refreshSessions" => {
                let (body, own) = own_sessions(request, |id| !around.sessions.is_foreign(id, &user.name));
                if request.name != "refreshSessions" {
                    own.iter().for_each(|id| around.sessions.end(id, &user.name));
                }
                // A server lets an ended session's cursors and transactions live until it looks after its sessions, minutes later:
                // what the connection holds is still to be ended.
                if request.name == "killSessions" {
                    own.iter().for_each(|id| self.holdings.end_session(id));
                }
                if own.is_empty() {
                    return Ok(Answer::Reply(RawDocumentBuf::new()));
                }
                return run(Route::Select(ServerSelector::Writable), Class::LetsGo, Some(body));
            }
            "getMore" => {
                let id = continued_cursor(request).unwrap_or_default();
                let cursor = self.holdings.cursor(id).ok_or_else(|| Refusal::cursor_not_found(id))?;
                let class = if request.part.is_some() { Class::LetsGo } else { Class::Ordinary };
                return run(Route::Server(Arc::clone(&cursor.server)), class, None);
            }
            "killCursors" => return self.kill_cursors(request),
            name if self.holdings.cursors() >= MAX_CURSORS && OPENING.contains(&name) => {
                let message = format!("the connection has {MAX_CURSORS} cursors open; read or kill some of them");
                return Err(Refusal::new(146, "ExceededMemoryLimit", message));
            }
            _ => {}
        }
        let known = request.session.zip(request.number).and_then(|(id, number)| self.holdings.transaction(&id, number));
        let selector = request.selector();
        match (request.part, known.map(|transaction| &transaction.server)) {
            (Some(Part::Continues | Part::Ends), Some(Some(server))) => {
                run(Route::Server(Arc::clone(server)), Class::LetsGo, None)
            }
            (Some(Part::Continues), Some(None) | None) => {
                let number = request.number.unwrap_or_default();
                let message =
                    format!("the connection has no transaction with the number {number}; repeat it as a whole");
                let refusal = Refusal::new(251, "NoSuchTransaction", message);
                Err(refusal.with_label(ErrorLabel::TransientTransactionError))
            }
            (Some(Part::Ends), Some(None) | None) => run(Route::Select(ServerSelector::Writable), Class::LetsGo, None),
            (Some(Part::Starts), _) => run(Route::Select(ServerSelector::Writable), Class::Ordinary, None),
            (None, _) => run(Route::Select(selector), Class::Ordinary, None),
        }
    }

    /// Those of other connections are not found, whether or not they exist (X-132).
    fn kill_cursors(&self, request: &Arc<Request>) -> Result<Answer, Refusal> {
        let asked: Vec<_> = cursors_in(request.body()).collect();
        let mut own = asked.iter().filter_map(|id| self.holdings.cursor(*id)).peekable();
        let Some(first) = own.peek().copied() else {
            let ids = |list: &[i64]| {
                let mut ids = RawArrayBuf::new();
                list.iter().for_each(|id| ids.push(*id));
                ids
            };
            let mut reply = RawDocumentBuf::new();
            reply.append(cstr!("cursorsKilled"), ids(&[]));
            reply.append(cstr!("cursorsNotFound"), ids(&asked));
            reply.append(cstr!("cursorsAlive"), ids(&[]));
            reply.append(cstr!("cursorsUnknown"), ids(&[]));
            return Ok(Answer::Reply(reply));
        };
        let mut there = RawArrayBuf::new();
        own.filter(|cursor| cursor.server == first.server).for_each(|cursor| there.push(cursor.id));
        let mut body = RawDocumentBuf::new();
        for (key, value) in request.compose(None).iter().map_while(Result::ok) {
            match key.as_str() {
                "cursors" => body.append(key, &there),
                _ => body.append(key, value),
            }
        }
        let route = Route::Server(Arc::clone(&first.server));
        let request = Arc::clone(request);
        let (class, body) = (Class::LetsGo, Some(body));
        Ok(Answer::Run(Box::new(Forward { request, route, class, body, session_ends: false })))
    }

    fn hello(&mut self, request: &Request, around: &mut Surroundings<'_>) -> Result<RawDocumentBuf, Refusal> {
        let body = request.body();
        // It says so once: later hellos need not.
        let mut reply = match (greeting::hello(&around.facts, &request.name, body, self.number), self.is_greeted) {
            (Ok(reply), _) => reply,
            (Err(refusal), false) => return Err(refusal),
            (Err(_), true) => {
                let mut said = body.to_owned();
                said.append(cstr!("loadBalanced"), true);
                greeting::hello(&around.facts, &request.name, &said, self.number)?
            }
        };
        if let Ok(first) = body.get_document("speculativeAuthenticate")
            && self.user.is_none()
            && around.facts.has_users
            && first.get("saslStart").is_ok_and(|name| name.is_some())
            && let Some(nonce) = (around.nonce)()
            // A fault is no error of the hello (SRV-6).
            && let Ok(step) = login::start(around.users, first.get_str("db").unwrap_or_default(), first, nonce)
        {
            let first = self.step(step, around)?;
            reply.append(cstr!("speculativeAuthenticate"), first);
        }
        self.is_greeted = true;
        Ok(reply)
    }

    fn begin_login(&self, around: &Surroundings<'_>) -> Result<(), Refusal> {
        if !self.is_greeted {
            return Err(Refusal::new(9, "FailedToParse", "the first command of a connection is a hello"));
        }
        if !around.facts.has_users {
            return Err(Refusal::authentication_failed());
        }
        if self.user.is_some() {
            return Err(Refusal::new(17, "ProtocolError", "the connection has logged in; open another one"));
        }
        Ok(())
    }

    fn step(&mut self, step: login::Step, around: &mut Surroundings<'_>) -> Result<RawDocumentBuf, Refusal> {
        match step.next {
            Next::Goes(conversation) => self.conversation = Some(conversation),
            Next::Is(user) => {
                // Only one that exists has proven itself.
                around.doors.log_in(&user).map_err(door_refusal)?;
                self.user = Some(user);
            }
        }
        Ok(step.reply)
    }

    fn status(&self) -> RawDocumentBuf {
        let mut users = RawArrayBuf::new();
        if let Some(name) = &self.user {
            let mut user = RawDocumentBuf::new();
            user.append(cstr!("user"), &**name);
            user.append(cstr!("db"), "admin");
            users.push(user);
        }
        let mut info = RawDocumentBuf::new();
        info.append(cstr!("authenticatedUsers"), users);
        info.append(cstr!("authenticatedUserRoles"), RawArrayBuf::new());
        let mut reply = RawDocumentBuf::new();
        reply.append(cstr!("authInfo"), info);
        reply
    }

    fn acts_as(&self, around: &Surroundings<'_>) -> Option<Arc<User>> {
        match &self.user {
            Some(name) => around.users.get(name).cloned(),
            None => around.users.anonymous().cloned(),
        }
    }

    fn send(&mut self, request: &Request, reply: &RawDocument) {
        if request.acknowledged {
            self.encode(request.is_query, request.id, reply);
        }
    }

    fn encode(&mut self, is_query: bool, response_to: i32, reply: &RawDocument) {
        self.replies = self.replies.wrapping_add(1);
        let ids = MessageIds::reply(self.replies, response_to);
        let mut out = Vec::with_capacity(reply.as_bytes().len() + 64);
        let written = match is_query {
            true => encode_reply(&mut out, ids, reply, &Limits::DEFAULT).map(drop),
            false => MessageWriter::begin(&mut out, ids, Flags::NONE, reply, &[], &Limits::DEFAULT)
                .map(|message| _ = message.finish()),
        };
        if written.is_err() {
            // Upstream's reply was as long as a message may be, or shorter.
            out.clear();
            let refusal = Refusal::new(8, "UnknownError", "the reply is longer than a message may be");
            let refusal = refusal.reply();
            if let Ok(message) = MessageWriter::begin(&mut out, ids, Flags::NONE, &refusal, &[], &Limits::DEFAULT) {
                message.finish();
            }
        }
        self.outputs.push_back(LineOutput::Send(out));
    }

    fn end(&mut self, why: Ending) {
        if !self.has_ended {
            self.has_ended = true;
            self.until = None;
            self.outputs.push_back(LineOutput::HangUp(why));
        }
    }
}

/// Commands that open cursors.
const OPENING: [&str; 5] = ["aggregate", "bulkWrite", "find", "listCollections", "listIndexes"];

fn check_rules(request: &Request, user: &User) -> Result<(), Refusal> {
    let targets = targets(request);
    user.rules.check(&targets).map_err(|forbidden| {
        let super::targets::Target { database, collection, action } = forbidden;
        let place = if collection.is_empty() { database.clone() } else { format!("{database}.{collection}") };
        Refusal::unauthorized(format!("not authorized on {place} to execute command {{ {action} }}"))
    })
}

/// The same command with those of its sessions that are the user's, and these.
fn own_sessions(request: &Request, is_own: impl Fn(&SessionId) -> bool) -> (RawDocumentBuf, Vec<SessionId>) {
    let (mut body, mut own) = (RawDocumentBuf::new(), Vec::new());
    for (index, (key, value)) in request.compose(None).iter().map_while(Result::ok).enumerate() {
        let RawBsonRef::Array(array) = value else {
            body.append(key, value);
            continue;
        };
        if index > 0 {
            body.append(key, value);
            continue;
        }
        let mut kept = RawArrayBuf::new();
        for session in array.into_iter().map_while(Result::ok) {
            if let Some(id) = session_id(session).filter(&is_own) {
                own.push(id);
                kept.push(session);
            }
        }
        body.append(key, kept);
    }
    (body, own)
}

fn session_refusal(fault: SessionFault) -> Refusal {
    match fault {
        SessionFault::Foreign => Refusal::unauthorized("the session is another user's"),
        SessionFault::TooMany => {
            Refusal::new(261, "TooManyLogicalSessions", "the user has too many sessions at this hub; end some of them")
        }
    }
}

fn door_refusal(full: Full) -> Refusal {
    let whose = match full {
        Full::Hub => "the hub has",
        Full::Address => "the address has",
        Full::User => "the user has",
    };
    Refusal::overloaded(format!("{whose} too many connections to this hub"), Duration::from_millis(500))
}

fn no_random_bits() -> Refusal {
    Refusal::new(8, "UnknownError", "the hub's system gives no random bits, of which a login needs some")
}
