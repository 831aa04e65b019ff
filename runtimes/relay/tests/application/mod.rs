//! An application that a test plays itself, in virtual time: what stands behind its port is core's side of the protocol, and no
//! more.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cmap_core::reverse::{
    ALPN, ApplicationOutput, ApplicationSide, ChannelBinding, EXPORTER_LABEL, Ending, Hello, Refusal, Token, Tokens,
};
use cmap_core::time::Instant;
use cmap_relay::{Application, Limits, Member, Relay, Settings};
use cmap_runtime::tls::{PemTexts, TlsConfig, TlsStream, accept};
use cmap_sim::{Listener, Sim, SimRuntime, Stream};
use cmap_test_server::certificates::{Authority, Validity};
use futures_io::{AsyncRead, AsyncWrite};

pub(crate) const HOST: &str = "app.example";
pub(crate) const MEMBER: &str = "db1.example:27017";
const PORT: u16 = 27443;
const SECRET: &[u8] = b"0123456789abcdef";
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// An application, and the machine of a member.
pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) application: Listener,
    pub(crate) member: Listener,
    tls: Arc<rustls::ServerConfig>,
    authority: String,
}

/// A socket that an agent has dialled, and greeted on.
pub(crate) struct Socket {
    conversation: Conversation,
    pub(crate) hello: Hello,
    pub(crate) is_proven: bool,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with_tls(seed, rustls::ALL_VERSIONS, &[ALPN])
    }

    /// An application with these versions of TLS, and these protocols under it.
    pub(crate) fn with_tls(
        seed: u64,
        versions: &[&'static rustls::SupportedProtocolVersion],
        protocols: &[&[u8]],
    ) -> Self {
        let sim = Sim::new(seed);
        let authority = Authority::made_at("authority", sim.unix_time()).unwrap();
        let identity = authority.server(&[HOST], Validity::Now).unwrap();
        let config = rustls::ServerConfig::builder_with_details(
            Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
            Arc::new(rustls::time_provider::DefaultTimeProvider),
        );
        let config = config.with_protocol_versions(versions).unwrap().with_no_client_auth();
        let mut config = config.with_single_cert(vec![identity.certificate().clone()], identity.key()).unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let application = sim.listen(HOST, PORT);
        let member = sim.listen("db1.example", 27017);
        Self { sim, application, member, tls: Arc::new(config), authority: authority.pem() }
    }

    pub(crate) fn settings(&self, limits: Limits) -> Settings {
        let mut texts = PemTexts::default();
        texts.authorities = Some(self.authority.as_bytes());
        let member = Member { name: MEMBER.parse().unwrap(), connect: MEMBER.parse().unwrap() };
        let application = Application {
            address: format!("{HOST}:{PORT}").parse().unwrap(),
            members: vec![member.name.clone()],
            tls: TlsConfig::with_pem(&cmap_core::options::TlsOptions::default(), texts).unwrap(),
            token: Some(Token::new("db1", SECRET).unwrap()),
        };
        Settings { members: vec![member], applications: vec![application], limits }
    }

    pub(crate) fn relay(&self) -> Relay<SimRuntime> {
        Relay::start(self.sim.runtime().clone(), &self.settings(Limits::default())).unwrap()
    }

    /// The next socket that is dialled and greets.
    pub(crate) async fn greeted(&self) -> Socket {
        let stream = self.application.accept().await.unwrap();
        let stream = accept(&self.tls, stream).await.unwrap();
        let binding = ChannelBinding(stream.session().export(EXPORTER_LABEL).unwrap());
        let runtime = self.sim.runtime().clone();
        let side = ApplicationSide::new(now(&runtime));
        let mut greeting = Conversation { stream, side, runtime };
        let ApplicationOutput::Greeted(hello) = greeting.next().await else { panic!("the agent does not greet") };
        let mut tokens = Tokens::new();
        tokens.add(Token::new("db1", SECRET).unwrap(), [MEMBER.parse().unwrap()]);
        let is_proven = tokens.verify(&hello, &binding).is_ok();
        Socket { conversation: greeting, hello, is_proven }
    }

    /// The next socket, parked.
    pub(crate) async fn parked(&self, wanted: u16) -> Socket {
        let mut socket = self.greeted().await;
        socket.park(wanted).await;
        socket
    }

    /// What the next socket says once its TLS handshake is over; nothing if it is closed before it says a word.
    pub(crate) async fn first_words(&self) -> Vec<u8> {
        let stream = self.application.accept().await.unwrap();
        match accept(&self.tls, stream).await {
            Ok(mut stream) => read(&mut stream).await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    /// The next connection at the member.
    pub(crate) async fn member_connection(&self) -> Stream {
        self.member.accept().await.unwrap()
    }
}

impl Socket {
    pub(crate) async fn park(&mut self, wanted: u16) {
        let now = now(&self.conversation.runtime);
        self.conversation.side.park(now, KEEP_ALIVE, wanted);
        self.conversation.send().await;
    }

    pub(crate) async fn refuse(mut self, reason: Refusal, retry_after: Duration) {
        let now = now(&self.conversation.runtime);
        self.conversation.side.refuse(now, reason, retry_after);
        self.conversation.send().await;
        let Ending::Refused { .. } = self.conversation.ending().await else { panic!("the socket was not refused") };
    }

    pub(crate) async fn demand(&mut self, number: u16) {
        let now = now(&self.conversation.runtime);
        assert!(self.conversation.side.demand(now, number));
        self.conversation.send().await;
    }

    /// Says GOING_AWAY.
    pub(crate) async fn leave(mut self) {
        let now = now(&self.conversation.runtime);
        self.conversation.side.leave(now);
        self.conversation.send().await;
    }

    /// Says START, and hangs up.
    pub(crate) async fn say_start(mut self) {
        let now = now(&self.conversation.runtime);
        assert!(self.conversation.side.start(now));
        self.conversation.send().await;
    }

    /// Starts the socket: the stream of a connection, or why there is none.
    pub(crate) async fn start(mut self) -> Result<TlsStream<Stream>, Ending> {
        let now = now(&self.conversation.runtime);
        assert!(self.conversation.side.start(now));
        self.conversation.send().await;
        match self.conversation.next().await {
            ApplicationOutput::Started(received) => {
                assert_eq!(received, [0; 0]);
                Ok(self.conversation.stream)
            }
            ApplicationOutput::Close(ending) => Err(ending),
            ApplicationOutput::Greeted(_) => panic!("the agent greets again"),
        }
    }

    /// Waits until the agent ends the socket.
    pub(crate) async fn ending(mut self) -> Ending {
        self.conversation.ending().await
    }
}

/// Core's side of the protocol, on a stream.
struct Conversation {
    stream: TlsStream<Stream>,
    side: ApplicationSide,
    runtime: SimRuntime,
}

impl Conversation {
    async fn next(&mut self) -> ApplicationOutput {
        loop {
            if let Some(output) = self.side.poll_output() {
                return output;
            }
            let mut buffer = [0; 1024];
            let timer = self.side.poll_timeout().map(|at| at.saturating_since(now(&self.runtime)));
            let mut timer = Box::pin(self.runtime.sleep(timer.unwrap_or(Duration::from_secs(3600))));
            let read = poll_fn(|cx| match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(read) => Poll::Ready(Some(read)),
                Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
            });
            match read.await {
                Some(read) => self.side.handle_bytes(now(&self.runtime), &buffer[..read.unwrap()]),
                None => self.side.handle_timeout(now(&self.runtime)),
            }
            self.send().await;
        }
    }

    async fn ending(&mut self) -> Ending {
        match self.next().await {
            ApplicationOutput::Close(ending) => ending,
            ApplicationOutput::Greeted(_) | ApplicationOutput::Started(_) => {
                panic!("the agent does not end the socket")
            }
        }
    }

    async fn send(&mut self) {
        if let Some(bytes) = self.side.poll_transmit() {
            write(&mut self.stream, &bytes).await.unwrap();
        }
    }
}

fn now(runtime: &SimRuntime) -> Instant {
    Instant::ORIGIN + runtime.elapsed()
}

/// Writes all bytes, and flushes.
pub(crate) async fn write(stream: &mut (impl AsyncWrite + Unpin), mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, bytes)).await?;
        bytes = &bytes[written..];
    }
    poll_fn(|cx| Pin::new(&mut *stream).poll_flush(cx)).await
}

/// Reads some bytes; none at the end.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; 4096];
    let read = poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut buffer)).await?;
    buffer.truncate(read);
    Ok(buffer)
}

/// Ends one direction.
pub(crate) async fn finish(stream: &mut (impl AsyncWrite + Unpin)) {
    poll_fn(|cx| Pin::new(&mut *stream).poll_close(cx)).await.unwrap();
}
