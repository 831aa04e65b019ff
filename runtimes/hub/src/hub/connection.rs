//! One client's task: bytes to its line and back, and its command upstream at the same time.
//!
//! It reads while a command runs, so that it notices a client that hangs up. Then what runs is cut off, unless it wants no reply, and what
//! the client had open is ended.

#[cfg(test)]
mod tests;

use core::cell::OnceCell;
use core::future::{Future, pending, ready};
use core::pin::Pin;
use core::time::Duration;
use std::io;
use std::sync::Arc;

use bson::RawDocumentBuf;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{oneshot, watch};

use super::activity::Noted;
use super::audit::Whom;
use super::cleanup::{self, CutOff, Unanswered};
use super::clients::Ended;
use super::failures::Why;
use super::forward::{self, Outcome, Owner};
use super::purse::{Hold, Told};
use super::sending;
use super::shared::{Entrance, Shared};
use super::stage::Stage;
use super::track::{Phase, Track};
use super::upstream::Gone;
use crate::protocol::{
    Ending, Forward, Holdings, Line, LineOutput, Part, Refusal, Request, UNCOUNTED, introduction, is_login,
};
use crate::users::Certificate;

/// What an idle connection has to read into.
const SMALL: usize = 2 * 1024;

/// What a large message is read into.
const LARGE: usize = 64 * 1024;

/// Of how many bytes on a message is large: no stranger's has so many, so that strangers have no such buffer.
const LARGE_FROM: usize = 4 * 1024;

/// A command that runs.
struct Running {
    work: Work,
    track: Track,
    noted: Noted,
    killed: oneshot::Receiver<()>,
}

/// A command's way upstream and back.
pub(super) type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Why the task goes on.
enum Woken {
    Bytes(usize),
    Done(Outcome),
    Killed,
    TimeUp,
    StageChanged,
    Told(Told),
    Ended(Ending),
}

/// Serves a client until one side hangs up, which may have shown a certificate.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    certificate: Option<Certificate>,
    shared: Arc<Shared>,
    entrance: Entrance,
) {
    let mut client = Client::new(stream, certificate, shared, entrance);
    client.shared.upstream.wait_until_known().await;
    let ended = client.exchange().await;
    client.note_gone(ended);
    client.clean_up();
    // A client that has gone does not hear it.
    let _ = tokio::time::timeout(Duration::from_secs(1), client.stream.shutdown()).await;
}

struct Client<S> {
    stream: S,
    line: Line,
    /// The bytes that it holds.
    hold: Hold,
    shared: Arc<Shared>,
    /// The hub's, for replies that the client does not take.
    stage: watch::Receiver<Stage>,
    entrance: Entrance,
    running: Option<Running>,
    /// The command whose reply the client takes, and why it failed, if it did.
    taking: Option<(Noted, Option<Why>)>,
    /// Who ran its last command. What the client has open is that user's upstream, and not the one's that a reload names.
    last: Option<Owner>,
    /// What servers learn of it, until another user logs in.
    introduction: OnceCell<Arc<RawDocumentBuf>>,
    /// Why the hub hangs up.
    ending: Option<Ending>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    fn new(stream: S, certificate: Option<Certificate>, shared: Arc<Shared>, entrance: Entrance) -> Self {
        Self {
            stream,
            line: Line::new(shared.now(), entrance.number).with_certificate(certificate),
            hold: Hold::new(&shared.purse, entrance.number),
            stage: shared.stage(),
            shared,
            entrance,
            running: None,
            taking: None,
            last: None,
            introduction: OnceCell::new(),
            ending: None,
        }
    }

    async fn exchange(&mut self) -> io::Result<()> {
        let mut stage = self.shared.stage();
        let mut small = [0; SMALL];
        let mut large = Vec::new();
        let mut heard = None;
        // Until when what wants no reply goes on, of a client that has hung up.
        let mut gone_until = None;
        loop {
            let goes_on = self.drain().await?;
            self.note_taken();
            let wants_reply = self.line.running().is_none_or(|request| request.acknowledged);
            let is_over = gone_until.is_some_and(|until| wants_reply || until <= tokio::time::Instant::now());
            if !goes_on || is_over {
                return Ok(());
            }
            let spread = match *stage.borrow_and_update() {
                Stage::Open => None,
                Stage::Draining(spread) => Some(spread),
                Stage::Ended => return Ok(()),
            };
            let is_idle = self.line.is_idle() && self.line.pending() == 0 && !self.hold.is_waiting();
            let idle_until = spread.filter(|_| is_idle).map(|spread| spread.end_of(self.entrance.number, heard));
            if idle_until.is_some_and(|at| at <= tokio::time::Instant::now()) {
                return Ok(());
            }
            if self.line.pending() > LARGE_FROM {
                large.resize(LARGE, 0);
            } else {
                large = Vec::new();
            }
            let buffer = if large.is_empty() { &mut small[..] } else { &mut large[..] };
            self.account();
            let is_waiting = self.hold.is_waiting();
            let until = self.line.poll_timeout().filter(|_| !is_waiting).map(|at| self.shared.moment(at));
            let until = until.into_iter().chain(idle_until).chain(gone_until).min();
            let is_read = gone_until.is_none() && self.line.wants_bytes() && !is_waiting;
            let (running, hold, ended) = (&mut self.running, &mut self.hold, &mut self.entrance.ended);
            let woken = tokio::select! {
                biased;
                woken = async {
                    match running {
                        Some(Running { work, killed, .. }) => tokio::select! {
                            biased;
                            outcome = work.as_mut() => Woken::Done(outcome),
                            Ok(()) = killed => Woken::Killed,
                        },
                        None => pending().await,
                    }
                } => woken,
                // Before the client's bytes: one that sends without end has to hear it, too.
                why = ended.told() => Woken::Ended(why),
                told = hold.told(), if hold.is_open() => Woken::Told(told),
                read = self.stream.read(buffer), if is_read => Woken::Bytes(or_none(read)?),
                () = async {
                    match until {
                        Some(until) => tokio::time::sleep_until(until).await,
                        None => pending().await,
                    }
                } => Woken::TimeUp,
                _ = stage.changed() => Woken::StageChanged,
            };
            if spread.is_some() && matches!(woken, Woken::Bytes(_) | Woken::Done(_)) {
                heard = Some(tokio::time::Instant::now());
            }
            match woken {
                Woken::Bytes(0) => gone_until = Some(tokio::time::Instant::now() + cleanup::PATIENCE),
                Woken::Bytes(count) => {
                    let (line, bytes, now) = (&mut self.line, &buffer[..count], self.shared.now());
                    self.shared.with(|around| line.handle_bytes(now, bytes, around));
                    self.hold.note_progress(count);
                }
                Woken::Told(Told::GoOn) => self.line.handle_grant(self.shared.now()),
                Woken::Told(Told::GiveWay) => self.line.handle_end(Ending::GaveWay),
                Woken::Ended(why) => self.line.handle_end(why),
                Woken::Done(outcome) => self.finish(&outcome),
                Woken::Killed => self.kill(),
                Woken::TimeUp => self.line.handle_timeout(self.shared.now()),
                Woken::StageChanged => {}
            }
            self.note_in();
        }
    }

    /// A client that is in is no stranger any more.
    fn note_in(&mut self) {
        if self.line.is_in()
            && self.entrance.note_in(self.line.user())
            && let Some(user) = self.line.user()
        {
            self.shared.audit.logged_in(self.shared.now(), user, self.whom());
            self.introduction = OnceCell::new();
            // A reload that came after the login, and before the client had its name, has passed it over.
            let login = self.line.take_login();
            if let Some(ending) = login.and_then(|user| self.shared.fate_of(&user)) {
                self.line.handle_end(ending);
            }
        }
    }

    fn note_gone(&self, ended: io::Result<()>) {
        let (now, why) = (
            self.shared.now(),
            match (ended, &self.ending) {
                (Err(error), _) => error.to_string(),
                (Ok(()), Some(ending)) => ending.to_string(),
                (Ok(()), None) if *self.shared.stage().borrow() != Stage::Open => "the hub ends".into(),
                (Ok(()), None) => "it has hung up".into(),
            },
        );
        if let Some(user) = &self.entrance.user {
            self.shared.audit.gone(now, user, self.whom(), &why);
        }
    }

    fn whom(&self) -> Whom<'_> {
        Whom { address: &self.entrance.address, connection: self.entrance.number }
    }

    /// Carries out what the line wants, also about messages that came ahead; whether the connection goes on.
    async fn drain(&mut self) -> io::Result<bool> {
        while self.carry_out().await? {
            if !self.line.has_more() {
                return Ok(true);
            }
            let (line, now) = (&mut self.line, self.shared.now());
            self.shared.with(|around| line.go_on(now, around));
            self.note_in();
        }
        Ok(false)
    }

    async fn carry_out(&mut self) -> io::Result<bool> {
        while let Some(output) = self.line.poll_output() {
            match output {
                LineOutput::Send(bytes) => self.send(&bytes).await?,
                LineOutput::SendCompressed(compressor, bytes) => {
                    self.offer(bytes.len());
                    let packed = tokio::select! {
                        biased;
                        error = told_to_end(&mut self.hold, &mut self.entrance.ended) => return Err(error),
                        packed = self.shared.packers.pack(compressor, bytes) => packed?,
                        error = hub_ended(&mut self.stage) => return Err(error),
                    };
                    self.send(&packed).await?;
                }
                LineOutput::Run(forward) => self.run(*forward),
                LineOutput::CleanUp(holdings) => {
                    if let Some(owner) = self.last.clone() {
                        cleanup::begin(&self.shared, owner, holdings, Unanswered::Nothing);
                    }
                }
                LineOutput::Refused(command, refusal) => {
                    if is_login(&command) {
                        self.shared.audit.failed(self.shared.now(), self.line.tried(), self.whom());
                    }
                    self.shared.activity.count_refusal(self.shared.now(), self.line.user(), &command, &refusal);
                    self.log_refusal(&command, &refusal);
                }
                LineOutput::HangUp(why) => {
                    if let Some(left_out) = self.admit_to_log() {
                        let address = &*self.entrance.address;
                        tracing::info!(target: "cmap::hub", address, left_out, "hangs up: {why}");
                    }
                    self.ending = Some(why);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// What nobody may is for the audit; anything else is an error of the program at the other end.
    fn log_refusal(&self, command: &str, refusal: &Refusal) {
        let (user, Refusal { code, message, .. }) = (self.line.user(), refusal);
        if *code == Refusal::UNAUTHORIZED {
            let user = user.map(|user| &**user);
            self.shared.audit.refused(self.shared.now(), user, self.whom(), command, message);
        } else if let Some(left_out) = self.admit_to_log() {
            let address = &*self.entrance.address;
            tracing::info!(target: "cmap::hub", ?user, address, code, left_out, "refused: {message}");
        }
    }

    /// Sends a reply, unless the connection has to end, or to give way. A reply that the client takes at once is sent by a hub that ends, too.
    async fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > UNCOUNTED {
            self.offer(bytes.len());
            self.hold.watch();
        } else {
            self.account();
        }
        while !bytes.is_empty() {
            let sent = tokio::select! {
                biased;
                error = told_to_end(&mut self.hold, &mut self.entrance.ended) => return Err(error),
                sent = sending::send_some(&mut self.stream, bytes) => sent?,
                error = hub_ended(&mut self.stage) => return Err(error),
            };
            self.hold.note_progress(sent);
            bytes = bytes.get(sent..).unwrap_or_default();
        }
        tokio::select! {
            biased;
            error = told_to_end(&mut self.hold, &mut self.entrance.ended) => Err(error),
            flushed = sending::flush(&mut self.stream) => flushed,
            error = hub_ended(&mut self.stage) => Err(error),
        }
    }

    /// Counts a reply that the client has to take, if it is large.
    fn offer(&mut self, bytes: usize) {
        if bytes > UNCOUNTED {
            let user = self.line.user().unwrap_or(&self.entrance.address);
            self.hold.offer(user, self.line.bytes() + bytes);
        }
    }

    /// Counts what the connection holds. A message that is not whole waits for a grant before it is read on.
    fn account(&mut self) {
        let bytes = self.line.bytes();
        if bytes <= UNCOUNTED && !self.hold.is_open() {
            return;
        }
        let user = self.line.user().unwrap_or(&self.entrance.address);
        if bytes > UNCOUNTED && self.line.running().is_none() && self.line.pending() > 0 {
            self.hold.ask(user, bytes);
        } else {
            self.hold.set(user, bytes);
        }
    }

    /// Whether the log has room for a line about this client, and how many it had no room for. Strangers take none of users' room.
    fn admit_to_log(&self) -> Option<u64> {
        let limit = match self.line.user() {
            Some(_) => &self.shared.log_of_users,
            None => &self.shared.log_of_strangers,
        };
        limit.admit(self.shared.now())
    }

    fn run(&mut self, forward: Forward) {
        // What came before has its reply: the next one may come ahead of the look at that.
        self.note_taken();
        let (shared, track) = (Arc::clone(&self.shared), Track::new(forward.request.arrived));
        let user = Arc::clone(self.line.user().unwrap_or(&self.entrance.address));
        let (request, connection) = (&forward.request, self.entrance.number);
        let (noted, killed) = shared.activity.begin(request, &user, connection, &track);
        let work: Work = match shared.upstream.identity(forward.upstream.as_deref()) {
            Ok(identity) => {
                let introduction = shared.settings().client_metadata.then(|| Arc::clone(self.introduction()));
                let owner = Owner { user, identity, introduction };
                self.last = Some(owner.clone());
                let way = track.clone();
                Box::pin(async move { forward::run(&shared, &forward, &owner, &way).await })
            }
            Err(Gone) => Box::pin(ready(forward::without_identity(request))),
        };
        self.running = Some(Running { work, track, noted, killed });
    }

    /// Who it is, for the server's log.
    fn introduction(&self) -> &Arc<RawDocumentBuf> {
        let make = || {
            let user = self.line.user().map(|user| &**user);
            Arc::new(introduction(self.line.metadata(), user, &self.entrance.address))
        };
        self.introduction.get_or_init(make)
    }

    fn finish(&mut self, outcome: &Outcome) {
        let now = self.shared.now();
        if let Some(Running { track, noted, .. }) = self.running.take() {
            track.enter(now, Phase::Client);
            self.taking = Some((noted, (!outcome.ok).then(|| Why::of(&outcome.reply))));
            if let Some(server) = track.server() {
                self.line.handle_sent(&server);
            }
        }
        let line = &mut self.line;
        let Outcome { server, reply, ok } = outcome;
        self.shared.with(|around| line.handle_reply(now, server.as_ref(), reply, *ok, around));
    }

    /// The client has taken the reply, or has gone.
    fn note_taken(&mut self) {
        if let Some((noted, failed)) = self.taking.take() {
            noted.end(self.shared.now(), failed);
        }
    }

    /// Somebody has ended what runs.
    fn kill(&mut self) {
        let cut_off = self.cut_off();
        let session = cut_off.as_ref().map(|cut_off| (cut_off.kill.session, Arc::clone(&cut_off.server)));
        let unanswered = cut_off.map_or(Unanswered::Nothing, Unanswered::CutOff);
        if let Some(owner) = self.last.clone() {
            cleanup::begin(&self.shared, owner, Holdings::default(), unanswered);
        }
        let (line, now) = (&mut self.line, self.shared.now());
        let session = session.as_ref().map(|(session, server)| (session, &**server));
        self.shared.with(|around| line.handle_kill(now, session, around));
    }

    /// What its server may still be at, if what runs was sent. A driver may have repeated the command on another connection, in the same
    /// session: that lives on, and what runs here is dropped, which closes its connection upstream.
    fn cut_off(&mut self) -> Option<CutOff> {
        let Running { work, track, .. } = self.running.take()?;
        let server = track.server()?;
        self.line.handle_sent(&server);
        let kill = self.shared.begin_kill(self.line.running()?.session?, self.entrance.number)?;
        track.cut_off();
        // One that waits to be tried again is not.
        let work = Some(work).filter(|_| track.is_at_server());
        Some(CutOff { kill, server, work })
    }

    /// The end of a transaction, if that runs and was sent.
    fn take_end(&mut self) -> Option<(Arc<Request>, Work)> {
        let request = self.line.running().filter(|request| request.part == Some(Part::Ends)).cloned()?;
        let Running { work, track, .. } = self.running.take()?;
        self.line.handle_sent(&track.server()?);
        Some((request, work))
    }

    /// The client has gone: nothing of its is left.
    fn clean_up(&mut self) {
        self.note_taken();
        let unanswered = match self.take_end() {
            Some((request, work)) => Unanswered::End(request, work),
            None => self.cut_off().map_or(Unanswered::Nothing, Unanswered::CutOff),
        };
        if let Some(session) = self.line.running().and_then(|request| request.session) {
            self.shared.end_run(&session);
        }
        let holdings = self.line.take_holdings();
        // Without a command there is nothing of its upstream.
        if let Some(owner) = self.last.take() {
            cleanup::begin(&self.shared, owner, holdings, unanswered);
        }
    }
}

/// Waits until a connection has to end, or to give way; returns why.
async fn told_to_end(hold: &mut Hold, ended: &mut Ended) -> io::Error {
    let why = tokio::select! {
        biased;
        why = ended.told() => why,
        () = hold.end() => Ending::GaveWay,
    };
    io::Error::other(why)
}

/// Waits until all clients have to go.
async fn hub_ended(stage: &mut watch::Receiver<Stage>) -> io::Error {
    // The sender is gone with the hub.
    let _ = stage.wait_for(|stage| *stage == Stage::Ended).await;
    io::Error::other("the hub ends")
}

/// How many bytes came: none from a client that has hung up, with TLS's last words or without them, or with bytes of the hub's unread, which
/// resets the connection. What it has sent before and wants no reply to is carried out all the same.
fn or_none(read: io::Result<usize>) -> io::Result<usize> {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, UnexpectedEof};
    match read {
        Err(error) if matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted) => Ok(0),
        read => read,
    }
}
