//! One client's connection: its bytes become commands, and replies become bytes.
//!
//! ```text
//! Strange --hello--> Greeted --SCRAM--> user: commands, one at a time; what comes meanwhile waits
//! ```
//!
//! | file | content |
//! |---|---|
//! | `logins` | the greeting, and logins |
//! | `kill_cursors` | one `killCursors` at several servers |
//! | `routes` | where a user's command goes |
//!
//! Call any method, then drain [`poll_output`](Line::poll_output), then [`go_on`](Line::go_on) while it [`has_more`](Line::has_more), then
//! ask [`poll_timeout`](Line::poll_timeout). A reply is sent before the next message is looked at: a client that sends a thousand messages
//! at once holds one reply in memory, however large each of them is.

mod kill_cursors;
mod logins;
mod routes;

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bson::{RawDocument, RawDocumentBuf, cstr};
use cmap_core::address::ServerAddress;
use cmap_core::connection::auth::Nonce;
use cmap_core::time::Instant;
use cmap_core::wire::{
    CompressorId, Decompressor, Flags, FrameReader, HEADER_LEN, Header, Limits, MessageIds, MessageWriter, OpCode,
    encode_reply, unpack,
};
use thiserror::Error;

use super::common::{Common, lock};
use super::greeting::{self, Facts};
use super::holdings::Holdings;
use super::login::{self, Conversation, is_login};
use super::operations::Operations;
use super::refusal::Refusal;
use super::request::{Fault, Forward, Request, SessionId};
use crate::users::{Certificate, User, Users};
use kill_cursors::Killing;

/// How large a message of a client may be that may not run commands yet: a hello with a login in it has a kilobyte.
const OF_STRANGER: Limits = Limits { max_message_size: 4 * 1024, max_document_size: 4 * 1024, ..Limits::DEFAULT };

/// How long a client may take to log in, and to complete a message that it has begun.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many bytes of a message a client has to send within that time: who sends a byte now and then would hold a large one for ever.
const PIECE: usize = 16 * 1024;

/// How long a connection that a draining hub has greeted may have what others are refused.
const LATE: Duration = Duration::from_secs(1);

/// How many logins may fail.
const MAX_FAILED_LOGINS: u32 = 3;

/// How many bytes may wait while a command runs; a client that sends ahead has to wait from then on.
const MAX_BACKLOG: usize = 64 * 1024;

/// Commands about the last error on a connection. Servers know some in lower case, too.
const OF_LAST_ERROR: [&str; 4] = ["forceError", "getLastError", "getPrevError", "resetError"];

fn is_of_last_error(name: &str) -> bool {
    OF_LAST_ERROR.iter().any(|command| command.eq_ignore_ascii_case(name))
}

/// Where a compressed message names its compressor.
const COMPRESSOR_AT: usize = HEADER_LEN + 8;

/// The buffer that an idle connection keeps for its next message.
const KEPT: usize = 4 * 1024;

/// One client's connection, without its socket.
#[derive(Debug)]
pub struct Line {
    number: i64,
    frames: FrameReader,
    backlog: Vec<u8>,
    is_greeted: bool,
    /// If it was greeted while the hub drained: until when its driver may repeat here what it was refused elsewhere, so that it is not refused
    /// twice.
    late_until: Option<Instant>,
    /// Whether it may run commands: it has greeted the hub, and has logged in where that is asked for. It stays so.
    is_in: bool,
    /// The compressors that the client may use, by number.
    agreed: [bool; CompressorId::ALL.len()],
    /// Who logged in.
    user: Option<Arc<str>>,
    /// The user who logged in last, with what has proven it, until somebody takes it.
    login: Option<Arc<User>>,
    conversation: Option<Conversation>,
    /// The certificate that the client has shown.
    certificate: Option<Certificate>,
    /// What the client has said of itself.
    metadata: Option<RawDocumentBuf>,
    /// The name that it has tried to log in by.
    tried: Option<String>,
    failed_logins: u32,
    holdings: Holdings,
    /// The rest of a `killCursors` that goes to several servers.
    killing: Option<Killing>,
    /// The command that runs upstream.
    running: Option<Arc<Request>>,
    /// Until when it has to have logged in, or to go on with its message.
    until: Option<Instant>,
    /// How many bytes of its message were there when that was set.
    paced: usize,
    replies: i32,
    outputs: VecDeque<LineOutput>,
    has_ended: bool,
}

/// What the hub gives a connection to decide by.
pub struct Surroundings<'a> {
    /// The users as they are now.
    pub users: &'a Users,
    /// The sessions and connections of all.
    pub common: &'a Mutex<Common>,
    /// What runs at the hub.
    pub operations: &'a dyn Operations,
    /// The hub and its upstream.
    pub facts: Facts,
    /// The compressors that the hub offers.
    pub compressors: &'a [CompressorId],
    /// Random bytes for a login; `None` if the system has none.
    pub nonce: &'a mut dyn FnMut() -> Option<[u8; Nonce::RANDOM_BYTES]>,
}

/// What to do for a connection.
#[derive(Debug)]
pub enum LineOutput {
    /// Send these bytes.
    Send(Vec<u8>),
    /// Send this message, compressed as its request was.
    SendCompressed(CompressorId, Vec<u8>),
    /// Run this command, then call [`Line::handle_reply`].
    Run(Box<Forward>),
    /// End this upstream: the client has heard that it is ended.
    CleanUp(Holdings),
    /// A command of this name, as far as it is known, was refused: for the log and the counters.
    Refused(String, Refusal),
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
    /// It went on with its message too slowly, while others waited for the room that this takes.
    #[error("the client went on too slowly with what it sends or takes, while others waited for the hub's memory")]
    GaveWay,
    /// Its logins failed.
    #[error("{MAX_FAILED_LOGINS} logins failed")]
    FailedLogins,
    /// The authority of its certificate is no authority of the listener any more.
    #[error("the hub does not trust the authority of its certificate any more")]
    Untrusted,
    /// Its user was removed.
    #[error("its user was removed")]
    UserRemoved,
    /// What proves its user, or who that is upstream, has changed.
    #[error("its user has other keys, or another identity upstream, by now")]
    UserChanged,
    /// An operator has ended it.
    #[error("an operator has ended the connection")]
    Kicked,
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
            late_until: None,
            is_in: false,
            agreed: [false; CompressorId::ALL.len()],
            user: None,
            login: None,
            conversation: None,
            certificate: None,
            metadata: None,
            tried: None,
            failed_logins: 0,
            holdings: Holdings::default(),
            killing: None,
            running: None,
            until: Some(now + PATIENCE),
            paced: 0,
            replies: 0,
            outputs: VecDeque::new(),
            has_ended: false,
        }
    }

    /// The client has shown a certificate, which has been verified.
    #[must_use]
    pub fn with_certificate(self, certificate: Option<Certificate>) -> Self {
        Self { certificate, ..self }
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
            None => {
                let aborted = self.holdings.note_unanswered(&request, reply);
                self.outputs.extend(aborted.map(LineOutput::CleanUp));
            }
        }
        if let Some(killing) = &mut self.killing {
            killing.note_reply(reply, ok);
            if let Some(forward) = killing.next(&request) {
                self.running = Some(request);
                self.outputs.push_back(LineOutput::Run(Box::new(forward)));
                return;
            }
        }
        match self.killing.take() {
            Some(killing) => self.send(&request, &killing.reply()),
            None => self.send(&request, reply),
        }
        if let Some(session) = &request.session {
            lock(around.common).sessions.end_run(now, session);
        }
        self.rearm(now, around);
    }

    /// The command that ran was killed, and with it a session at its server, where it was sent in one (X-138).
    pub fn handle_kill(
        &mut self,
        now: Instant,
        session: Option<(&SessionId, &ServerAddress)>,
        around: &mut Surroundings<'_>,
    ) {
        session.into_iter().for_each(|(session, server)| self.holdings.end_session(session, server));
        self.killing = None;
        self.handle_reply(now, None, &Refusal::interrupted().reply(), false, around);
    }

    /// The command that runs is about to be sent to `server`, or may have been.
    pub fn handle_sent(&mut self, server: &Arc<ServerAddress>) {
        if let Some(request) = &self.running {
            self.holdings.note_sent(request, server);
        }
    }

    /// The connection has to end.
    pub fn handle_end(&mut self, why: Ending) {
        self.end(why);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.until.is_some_and(|until| until <= now) {
            self.end(Ending::TooSlow);
        }
    }

    /// Whether messages are there that came ahead, and can be looked at once all outputs are carried out.
    pub fn has_more(&self) -> bool {
        !self.backlog.is_empty() && self.may_read()
    }

    /// Goes on with what came ahead.
    pub fn go_on(&mut self, now: Instant, around: &mut Surroundings<'_>) {
        let mut backlog = std::mem::take(&mut self.backlog);
        let left = self.read(now, &backlog, around).len();
        backlog.drain(..backlog.len() - left);
        if !backlog.is_empty() {
            self.backlog = backlog;
        }
        self.rearm(now, around);
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

    /// How many bytes the connection holds, or will hold when the message is whole that has begun: that one, what came ahead, and the
    /// command that runs.
    pub fn bytes(&self) -> usize {
        let begun = self.frames.announced().unwrap_or_default();
        begun + self.backlog.len() + self.running.as_ref().map_or(0, |request| request.size())
    }

    /// Its client was not read from until now, though it has begun a message: it has its time from now on.
    pub fn handle_grant(&mut self, now: Instant) {
        if self.until.is_some() {
            self.until = Some(now + PATIENCE);
        }
    }

    /// How many bytes are there of a message that is not whole.
    pub fn pending(&self) -> usize {
        self.frames.pending()
    }

    /// Who has logged in.
    pub fn user(&self) -> Option<&Arc<str>> {
        self.user.as_ref()
    }

    /// Takes the user who has logged in, as it was then, so that the hub sees whether a reload has changed it meanwhile. `None` the
    /// second time.
    pub fn take_login(&mut self) -> Option<Arc<User>> {
        self.login.take()
    }

    /// What the client has said of itself in its first hello.
    pub fn metadata(&self) -> Option<&RawDocument> {
        self.metadata.as_deref()
    }

    /// The name that its last login was for, as the client has written it.
    pub fn tried(&self) -> Option<&str> {
        self.tried.as_deref()
    }

    /// Whether the client may run commands, or could before its user was removed.
    pub fn is_in(&self) -> bool {
        self.is_in
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

    /// Whether nothing has to happen before the next message.
    fn may_read(&self) -> bool {
        self.running.is_none() && self.outputs.is_empty() && !self.has_ended
    }

    /// Takes messages off the front of `bytes` until one of them has an output; returns what is left.
    fn read<'b>(&mut self, now: Instant, mut bytes: &'b [u8], around: &mut Surroundings<'_>) -> &'b [u8] {
        let mut frames = std::mem::take(&mut self.frames);
        while self.may_read() {
            let is_in = self.is_greeted && self.acts_as(around).is_some();
            self.is_in |= is_in;
            let limits = if is_in { Limits::DEFAULT } else { OF_STRANGER };
            let request = match frames.read(&mut bytes, &limits) {
                Ok(Some(frame)) => self.open(frame, is_in, now),
                Ok(None) => break,
                Err(error) => Err(error.into()),
            };
            match request {
                Ok(request) => self.handle(now, request, around),
                Err(Fault::Refused(refused)) => {
                    if refused.acknowledged {
                        self.encode(refused.is_query, refused.id, None, &refused.refusal.reply());
                    }
                    self.outputs.push_back(LineOutput::Refused(String::new(), refused.refusal));
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

    /// A message, which may be compressed by a client that is in.
    fn open(&self, frame: &[u8], is_in: bool, now: Instant) -> Result<Request, Fault> {
        let limits = if is_in { Limits::DEFAULT } else { OF_STRANGER };
        let (header, _) = Header::split(frame, &limits)?;
        if header.op_code != OpCode::Compressed {
            return Request::read(frame, &limits, now);
        }
        let announced = frame.get(COMPRESSOR_AT).and_then(|id| self.agreed.get(usize::from(*id)));
        if !is_in || announced != Some(&true) {
            return Err(Fault::Compressed);
        }
        let mut plain = Vec::new();
        let id = unpack(frame, &limits, &mut Decompressor::default(), &mut plain)?;
        Request::read(&plain, &limits, now)?.compressed_by(id)
    }

    /// A client that has begun a message, or a login, has to go on with it. A command that runs takes the time it takes.
    fn rearm(&mut self, now: Instant, around: &Surroundings<'_>) {
        let is_in = self.acts_as(around).is_some() && self.is_greeted;
        self.is_in |= is_in;
        let is_waited_for = !is_in || self.running.is_none() && !self.frames.is_at_boundary();
        let pending = self.frames.pending();
        // A further piece of a large message gives it more time, if it is not a small one; before the login nothing does.
        let is_further = pending < self.paced || pending - self.paced >= PIECE;
        match self.until {
            _ if !is_waited_for => (self.until, self.paced) = (None, 0),
            Some(_) if !is_in || !is_further => {}
            Some(_) | None => (self.until, self.paced) = (Some(now + PATIENCE), pending),
        }
    }

    fn handle(&mut self, now: Instant, request: Request, around: &mut Surroundings<'_>) {
        let request = Arc::new(request);
        match self.answer(now, &request, around) {
            Ok(Answer::Reply(mut reply)) => {
                reply.append(cstr!("ok"), 1.0);
                self.send(&request, &reply);
            }
            Ok(Answer::Run(forward)) => {
                if let Some(session) = &request.session {
                    lock(around.common).sessions.begin_run(session);
                }
                self.running = Some(Arc::clone(&request));
                self.outputs.push_back(LineOutput::Run(forward));
            }
            Err(refusal) => {
                self.send(&request, &refusal.reply());
                let is_login = is_login(&request.name);
                self.outputs.push_back(LineOutput::Refused(request.name.clone(), refusal));
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
                let nonce = (around.nonce)().ok_or_else(logins::no_random_bits)?;
                self.tried = login::name(body);
                let step = login::start(around.users, &request.database, body, nonce)?;
                return self.step(step, around).map(Answer::Reply);
            }
            "saslContinue" => {
                self.begin_login(around)?;
                let step = login::go_on(self.conversation.take(), body)?;
                return self.step(step, around).map(Answer::Reply);
            }
            "authenticate" => {
                self.begin_login(around)?;
                let step = self.log_in_by_certificate(&request.database, body, around)?;
                return self.step(step, around).map(Answer::Reply);
            }
            // Upstream it would log out a connection that others share.
            "logout" => {
                let message = "a login at this hub lasts until its connection ends; close the connection";
                return Err(Refusal::new(115, "CommandNotSupported", message));
            }
            name if is_of_last_error(name) => {
                let message = "the hub's connections are shared, so the last error on one is anybody's; send writes with a writeConcern \
                               and read their replies";
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
        self.command(now, request, &user, around)
    }

    fn acts_as(&self, around: &Surroundings<'_>) -> Option<Arc<User>> {
        match &self.user {
            Some(name) => around.users.get(name).cloned(),
            None => around.users.anonymous().cloned(),
        }
    }

    fn send(&mut self, request: &Request, reply: &RawDocument) {
        if request.acknowledged {
            self.encode(request.is_query, request.id, request.compressor, reply);
        }
    }

    fn encode(&mut self, is_query: bool, response_to: i32, compressor: Option<CompressorId>, reply: &RawDocument) {
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
        self.outputs.push_back(match compressor {
            Some(compressor) => LineOutput::SendCompressed(compressor, out),
            None => LineOutput::Send(out),
        });
    }

    fn end(&mut self, why: Ending) {
        if !self.has_ended {
            self.has_ended = true;
            self.until = None;
            self.outputs.push_back(LineOutput::HangUp(why));
        }
    }
}
