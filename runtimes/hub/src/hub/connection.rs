//! One client's task: bytes to its line and back, and its command upstream beside that.
//!
//! It reads while a command runs, so that it notices a client that hangs up. Then what runs is cut off, and what the client had
//! open is ended.

use core::future::{Future, pending};
use core::pin::Pin;
use core::time::Duration;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::cleanup::{self, CutOff, Unanswered};
use super::forward::{self, Customer, Outcome, SentTo};
use super::shared::{Entrance, Shared, Stage};
use crate::protocol::{Forward, Line, LineOutput, Part};

/// What an idle connection has to read into.
const SMALL: usize = 2 * 1024;

/// What a large message is read into.
const LARGE: usize = 64 * 1024;

/// How long a client may leave a reply unread.
const UNREAD: Duration = Duration::from_secs(60);

/// A command that runs.
struct Running {
    work: Work,
    sent_to: SentTo,
}

/// A command's way upstream and back.
pub(super) type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Why the task goes on.
enum Woken {
    Bytes(usize),
    Done(Outcome),
    TimeUp,
    StageChanged,
}

/// Serves a client until one side hangs up.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S, shared: Arc<Shared>, entrance: Entrance) {
    let mut client =
        Client { stream, line: Line::new(shared.now(), entrance.number), shared, entrance, running: None, last: None };
    let ended = client.exchange().await;
    if let Err(error) = ended {
        tracing::debug!(target: "cmap::hub", address = &*client.entrance.address, "a client has gone: {error}");
    }
    client.clean_up();
    // A client that has gone does not hear it.
    let _ = tokio::time::timeout(Duration::from_secs(1), client.stream.shutdown()).await;
}

struct Client<S> {
    stream: S,
    line: Line,
    shared: Arc<Shared>,
    entrance: Entrance,
    running: Option<Running>,
    /// Who ran its last command. What the client has open is that user's upstream, and not the one's that a reload names.
    last: Option<Customer>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    async fn exchange(&mut self) -> io::Result<()> {
        let mut stage = self.shared.stage();
        let mut small = [0; SMALL];
        let mut large = Vec::new();
        loop {
            if !self.drain().await? {
                return Ok(());
            }
            match *stage.borrow_and_update() {
                Stage::Open => {}
                Stage::Draining if !self.line.is_idle() => {}
                Stage::Draining | Stage::Ended => return Ok(()),
            }
            if self.line.pending() > SMALL {
                large.resize(LARGE, 0);
            } else {
                large = Vec::new();
            }
            let buffer = if large.is_empty() { &mut small[..] } else { &mut large[..] };
            let until = self.line.poll_timeout().map(|at| self.shared.moment(at));
            let running = &mut self.running;
            let woken = tokio::select! {
                biased;
                outcome = async {
                    match running {
                        Some(running) => running.work.as_mut().await,
                        None => pending().await,
                    }
                } => Woken::Done(outcome),
                read = self.stream.read(buffer), if self.line.wants_bytes() => Woken::Bytes(read?),
                () = async {
                    match until {
                        Some(until) => tokio::time::sleep_until(until).await,
                        None => pending().await,
                    }
                } => Woken::TimeUp,
                _ = stage.changed() => Woken::StageChanged,
            };
            match woken {
                Woken::Bytes(0) => return Ok(()),
                Woken::Bytes(count) => {
                    let (line, bytes, now) = (&mut self.line, &buffer[..count], self.shared.now());
                    self.shared.with(|around| line.handle_bytes(now, bytes, around));
                }
                Woken::Done(outcome) => self.finish(&outcome),
                Woken::TimeUp => self.line.handle_timeout(self.shared.now()),
                Woken::StageChanged => {}
            }
            // A login that has succeeded counts until the connection ends.
            if self.entrance.user.is_none() {
                self.entrance.user = self.line.user().cloned();
            }
        }
    }

    /// Carries out what the line wants; whether the connection goes on.
    async fn drain(&mut self) -> io::Result<bool> {
        while let Some(output) = self.line.poll_output() {
            match output {
                LineOutput::Send(bytes) => {
                    let sent = async {
                        self.stream.write_all(&bytes).await?;
                        self.stream.flush().await
                    };
                    tokio::time::timeout(UNREAD, sent)
                        .await
                        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
                }
                LineOutput::Run(forward) => self.run(*forward),
                LineOutput::Refused(refusal) => {
                    self.shared.activity.count_refusal(refusal.code);
                    let (user, address) = (self.line.user(), &*self.entrance.address);
                    tracing::info!(target: "cmap::hub", ?user, address, code = refusal.code, "refused: {}", refusal.message);
                }
                LineOutput::HangUp(why) => {
                    tracing::info!(target: "cmap::hub", address = &*self.entrance.address, "hangs up: {why}");
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn run(&mut self, forward: Forward) {
        let (shared, customer, sent_to) = (Arc::clone(&self.shared), self.customer(), SentTo::default());
        self.last = Some(customer.clone());
        let noted = shared.activity.begin(&forward.request, &customer.name, shared.now());
        let cell = sent_to.clone();
        let work = Box::pin(async move {
            let outcome = forward::run(&shared, &forward, &customer, &cell).await;
            noted.end(cell.get().as_deref(), shared.now(), outcome.ok);
            outcome
        });
        self.running = Some(Running { work, sent_to });
    }

    fn finish(&mut self, outcome: &Outcome) {
        let running = self.running.take();
        if let Some(server) = running.and_then(|running| running.sent_to.get()) {
            self.line.handle_sent(&server);
        }
        let (line, now) = (&mut self.line, self.shared.now());
        let Outcome { server, reply, ok } = outcome;
        self.shared.with(|around| line.handle_reply(now, server.as_ref(), reply, *ok, around));
    }

    fn customer(&self) -> Customer {
        let Some(name) = self.line.user() else {
            return Customer { name: Arc::clone(&self.entrance.address), identity: None };
        };
        let users = self.shared.users();
        let upstream = users.get(name).and_then(|user| user.upstream.as_deref());
        Customer { name: Arc::clone(name), identity: self.shared.upstream.identity(upstream) }
    }

    /// The client has gone: nothing of its is left.
    fn clean_up(&mut self) {
        let mut unanswered = Unanswered::Nothing;
        if let Some(Running { work, sent_to }) = self.running.take()
            && let Some(server) = sent_to.get()
            && let Some(request) = self.line.running().cloned()
        {
            self.line.handle_sent(&server);
            unanswered = match request.session {
                _ if request.part == Some(Part::Ends) => Unanswered::End(request, work),
                Some(session) => Unanswered::CutOff(CutOff { session, server }),
                None => Unanswered::Nothing,
            };
        }
        let holdings = self.line.take_holdings();
        let customer = self.last.take().unwrap_or_else(|| self.customer());
        cleanup::begin(&self.shared, self.entrance.number, customer, holdings, unanswered);
    }
}
