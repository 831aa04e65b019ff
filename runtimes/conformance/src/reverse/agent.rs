//! An agent next to a server of the suite: it dials out to a listener, and leads what is started to the server.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Instant as StdInstant;

use cmap_core::address::ServerAddress;
use cmap_core::reverse::{ALPN, AgentOutput, AgentSide, ChannelBinding, EXPORTER_LABEL, Ending, Greeting, StartPhase};
use cmap_core::time::Instant;
use cmap_runtime::runtime::{Runtime, Target};
use cmap_runtime::tls::{self, TlsConfig, TlsStream};
use futures_io::{AsyncRead, AsyncWrite};

use crate::ground::Bell;

/// An agent for one member. Clones are one.
pub(super) struct Agent<R: Runtime>(Arc<Inner<R>>);

/// What an agent is configured with.
#[derive(Clone)]
pub(super) struct Config {
    /// Where the application listens.
    pub(super) application: SocketAddr,
    /// The member's own address.
    pub(super) server: ServerAddress,
    pub(super) greeting: Greeting,
    pub(super) tls: TlsConfig,
    /// Whether it greets with the proof that it would have on another connection.
    pub(super) replays: bool,
    /// Whether it ignores that it is to connect to the server.
    pub(super) never_starts: bool,
}

struct Inner<R> {
    runtime: R,
    origin: StdInstant,
    config: Config,
    /// How many sockets it has that are not started.
    idle: AtomicUsize,
    wanted: AtomicUsize,
    /// The application has asked for more, by this many sockets.
    demanded: AtomicUsize,
    has_ended: AtomicBool,
    endings: Mutex<Vec<String>>,
    bell: Bell,
}

type Secured<R> = TlsStream<<R as Runtime>::Stream>;

impl<R: Runtime> Clone for Agent<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: Runtime> Agent<R> {
    /// Starts it in `runtime`.
    pub(super) fn start(runtime: R, config: Config) -> Self {
        let agent = Self(Arc::new(Inner {
            origin: runtime.now(),
            runtime,
            config,
            idle: AtomicUsize::new(0),
            wanted: AtomicUsize::new(1),
            demanded: AtomicUsize::new(0),
            has_ended: AtomicBool::new(false),
            endings: Mutex::default(),
            bell: Bell::default(),
        }));
        agent.fill();
        agent
    }

    /// Ends it as if its process were killed: all its sockets are gone.
    pub(super) fn kill(&self) {
        self.0.has_ended.store(true, Ordering::SeqCst);
        self.0.bell.ring();
    }

    /// How many more sockets than the wanted ones it was asked for.
    pub(super) fn demanded(&self) -> usize {
        self.0.demanded.load(Ordering::SeqCst)
    }

    /// Waits until one of its sockets has ended with these words.
    pub(super) async fn ends_with(&self, words: &str) {
        while !self.next_ending().await.contains(words) {}
    }

    /// How the next of its sockets ends, in its own words.
    pub(super) async fn next_ending(&self) -> String {
        let mut ending = None;
        self.0
            .bell
            .wait_until(|| {
                if ending.is_none() {
                    ending = self.0.endings.lock().unwrap().pop();
                }
                ending.is_some()
            })
            .await;
        ending.unwrap_or_default()
    }

    fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::SeqCst)
    }

    /// Dials until it has as many idle sockets as are wanted.
    fn fill(&self) {
        while !self.has_ended() && self.0.idle.load(Ordering::SeqCst) < self.0.wanted.load(Ordering::SeqCst) {
            self.dial();
        }
    }

    fn dial(&self) {
        self.0.idle.fetch_add(1, Ordering::SeqCst);
        let agent = self.clone();
        self.0.runtime.spawn(async move {
            let mut link = Link { agent: agent.clone(), is_idle: true };
            let mut work = pin!(link.run());
            let killed = || agent.has_ended();
            let ended = poll_fn(|cx| match agent.0.bell.poll(cx, killed) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => work.as_mut().poll(cx).map(Some),
            });
            if let Some(Err(why)) = ended.await {
                agent.0.endings.lock().unwrap().push(why);
                agent.0.bell.ring();
            }
        });
    }

    fn now(&self) -> Instant {
        Instant::ORIGIN + self.0.runtime.now().saturating_duration_since(self.0.origin)
    }

    async fn sleep_until(&self, at: Option<Instant>) {
        match at {
            Some(at) => self.0.runtime.sleep_until(self.0.origin + at.saturating_since(Instant::ORIGIN)).await,
            None => std::future::pending().await,
        }
    }
}

/// One socket of an agent.
struct Link<R: Runtime> {
    agent: Agent<R>,
    is_idle: bool,
}

impl<R: Runtime> Link<R> {
    /// Dials, waits to be started, and passes bytes on. How it ended, unless that was in the ordinary way.
    async fn run(&mut self) -> Result<(), String> {
        let config = self.agent.0.config.clone();
        let dialled = self.agent.0.runtime.connect(Target::Tcp(config.application)).await;
        let socket = dialled.map_err(|error| error.to_string())?;
        let secured = tls::connect(&config.tls, &config.application.ip().to_string(), socket).await;
        let mut stream = secured.map_err(|error| error.to_string())?;
        assert_eq!(stream.session().connection().alpn_protocol(), Some(ALPN));
        let exported = stream.session().export(EXPORTER_LABEL).map_err(|error| error.to_string())?;
        let binding = ChannelBinding(if config.replays { [7; 32] } else { exported });
        let mut side = AgentSide::new(&config.greeting, &binding, self.agent.now());
        let (server, rest) = self.await_start(&mut stream, &mut side, config.server).await?;
        let _ = splice(stream, server, rest).await;
        Ok(())
    }

    async fn await_start(
        &mut self,
        stream: &mut Secured<R>,
        side: &mut AgentSide,
        server: ServerAddress,
    ) -> Result<(R::Stream, Vec<u8>), String> {
        let mut connected = None;
        loop {
            while let Some(output) = side.poll_output() {
                match output {
                    AgentOutput::Parked { wanted } => {
                        self.agent.0.wanted.store(wanted.into(), Ordering::SeqCst);
                        self.agent.fill();
                    }
                    AgentOutput::Demanded(more) => {
                        self.agent.0.demanded.fetch_add(more.into(), Ordering::SeqCst);
                        (0..more).for_each(|_| self.agent.dial());
                    }
                    AgentOutput::Start if self.agent.0.config.never_starts => self.leave_idle(),
                    AgentOutput::Start => {
                        self.leave_idle();
                        match self.connect(stream, &server).await? {
                            Ok(socket) => {
                                connected = Some(socket);
                                side.handle_started(self.agent.now());
                            }
                            Err(error) => {
                                side.handle_start_failed(self.agent.now(), StartPhase::Connect, &error.to_string());
                            }
                        }
                    }
                    AgentOutput::Pass(rest) => {
                        send(stream, side).await.map_err(|error| error.to_string())?;
                        return connected.map(|socket| (socket, rest)).ok_or_else(|| "not connected".to_owned());
                    }
                    AgentOutput::Close(ending) => {
                        let _ = send(stream, side).await;
                        let _ = poll_fn(|cx| Pin::new(&mut *stream).poll_close(cx)).await;
                        self.come_again(&ending);
                        return Err(ending.to_string());
                    }
                }
            }
            send(stream, side).await.map_err(|error| error.to_string())?;
            let mut buffer = [0; 256];
            let mut due = pin!(self.agent.sleep_until(side.poll_timeout()));
            let read = poll_fn(|cx| match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                Poll::Ready(read) => Poll::Ready(Some(read)),
                Poll::Pending => due.as_mut().poll(cx).map(|()| None),
            });
            match read.await {
                None => side.handle_timeout(self.agent.now()),
                Some(Ok(0)) => return Err("the application hung up".to_owned()),
                Some(Ok(count)) => side.handle_bytes(self.agent.now(), &buffer[..count]),
                Some(Err(error)) => return Err(error.to_string()),
            }
        }
    }

    /// Connects to the server, unless the application hangs up meanwhile.
    async fn connect(&self, stream: &mut Secured<R>, server: &ServerAddress) -> Result<io::Result<R::Stream>, String> {
        let runtime = &self.agent.0.runtime;
        let mut connect = pin!(async {
            let ServerAddress::Tcp { host, port } = server else { return Err(io::ErrorKind::Unsupported.into()) };
            let mut outcome = Err(io::ErrorKind::NotFound.into());
            for address in runtime.resolve(host, *port).await? {
                outcome = runtime.connect(Target::Tcp(address)).await;
                if outcome.is_ok() {
                    break;
                }
            }
            outcome
        });
        poll_fn(|cx| {
            if let Poll::Ready(connected) = connect.as_mut().poll(cx) {
                return Poll::Ready(Ok(connected));
            }
            // From START on the application says nothing.
            let read = ready!(Pin::new(&mut *stream).poll_read(cx, &mut [0; 1]));
            Poll::Ready(Err(format!("the application did not wait: {read:?}")))
        })
        .await
    }

    /// A lost socket is replaced, but not where the application has sent the agent away.
    fn come_again(&mut self, ending: &Ending) {
        if !matches!(ending, Ending::Refused { .. } | Ending::PeerLeaves) {
            self.leave_idle();
        }
    }

    fn leave_idle(&mut self) {
        if std::mem::take(&mut self.is_idle) {
            self.agent.0.idle.fetch_sub(1, Ordering::SeqCst);
            self.agent.fill();
        }
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), side: &mut AgentSide) -> io::Result<()> {
    let bytes = side.poll_transmit().unwrap_or_default();
    let mut written = 0;
    poll_fn(|cx| {
        while written < bytes.len() {
            written += ready!(Pin::new(&mut *stream).poll_write(cx, &bytes[written..]))?;
        }
        Pin::new(&mut *stream).poll_flush(cx)
    })
    .await
}

/// Passes bytes on in both directions, until either side ends.
async fn splice(
    mut application: impl AsyncRead + AsyncWrite + Unpin,
    mut server: impl AsyncRead + AsyncWrite + Unpin,
    rest: Vec<u8>,
) -> io::Result<()> {
    let (mut to_server, mut to_application) = (Passage::of(rest), Passage::of(Vec::new()));
    let outcome = poll_fn(|cx| {
        if let Poll::Ready(outcome) = to_server.poll(cx, &mut application, &mut server) {
            return Poll::Ready(outcome);
        }
        to_application.poll(cx, &mut server, &mut application)
    })
    .await;
    if outcome.is_ok() {
        let _ = poll_fn(|cx| Pin::new(&mut application).poll_close(cx)).await;
    }
    outcome
}

/// One direction.
struct Passage {
    bytes: Vec<u8>,
    is_flushed: bool,
}

impl Passage {
    fn of(bytes: Vec<u8>) -> Self {
        Self { is_flushed: bytes.is_empty(), bytes }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        loop {
            while !self.bytes.is_empty() {
                let count = ready!(Pin::new(&mut *to).poll_write(cx, &self.bytes))?;
                self.bytes.drain(..count);
            }
            if !self.is_flushed {
                ready!(Pin::new(&mut *to).poll_flush(cx))?;
                self.is_flushed = true;
            }
            let mut buffer = [0; 16 * 1024];
            match ready!(Pin::new(&mut *from).poll_read(cx, &mut buffer))? {
                0 => return Poll::Ready(Ok(())),
                count => self.bytes.extend_from_slice(&buffer[..count]),
            }
            self.is_flushed = false;
        }
    }
}
