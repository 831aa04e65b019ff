//! A listener of an application, and what agents need to be let in.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::TlsOptions;
use cmap_core::reverse::{ALPN, BootId, Greeting, Token};
use cmap_runtime::reverse::{PemSource, ReverseEvent, ReverseOptions};
use cmap_runtime::runtime::Runtime;
use cmap_runtime::tls::{PemTexts, TlsConfig};
use cmap_runtime::{Listen, ReverseListener};
use cmap_test_server::certificates::{Authority, LOCAL_HOSTS, Validity};

use super::agent::{Agent, Config};
use crate::ground::{self, Bell};
use crate::{Harness, LocalServer};

/// The name of the token that agents have, as a rule.
const NAME: &str = "rack-7";

/// Its secret.
pub(super) const SECRET: &[u8] = b"sixteen bytes and more";

/// What a listener has told.
#[derive(Clone, Default)]
pub(super) struct Told(Arc<(Mutex<Vec<String>>, Bell)>);

/// A listener, and the authority that has signed its certificate.
pub(super) struct Scene<H: Harness> {
    pub(super) listener: ReverseListener<H::Runtime>,
    pub(super) told: Told,
    authority: Authority,
}

impl<H: Harness<Runtime: Listen>> Scene<H> {
    /// A listener that lets in the agents of these servers by a token.
    pub(super) async fn of(servers: &[&LocalServer]) -> Self {
        let members: Vec<_> = servers.iter().map(|server| member(server)).collect();
        Self::with(|options| options.tokens.add(Token::new(NAME, SECRET).unwrap(), members)).await
    }

    /// A listener that lets in agents by their certificates.
    pub(super) async fn that_trusts_certificates() -> Self {
        Self::made(|options, authority| options.authorities = Some(PemSource::Text(authority.pem().into()))).await
    }

    /// A listener with these options.
    pub(super) async fn with(configure: impl FnOnce(&mut ReverseOptions)) -> Self {
        Self::made(|options, _| configure(options)).await
    }

    async fn made(configure: impl FnOnce(&mut ReverseOptions, &Authority)) -> Self {
        let authority = Authority::made_at("agents", ground::current().unix_time()).unwrap();
        let mut options = with_certificate(&authority);
        configure(&mut options, &authority);
        let told = Told::default();
        let hears = told.clone();
        let options = options.on_event(move |event| hears.note(event));
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = ReverseListener::bind(address, options).await.unwrap();
        Self { listener, told, authority }
    }

    /// The options of another listener for the agents of `server`.
    pub(super) fn options(&self, server: &LocalServer) -> ReverseOptions {
        let mut options = with_certificate(&self.authority);
        options.tokens.add(Token::new(NAME, SECRET).unwrap(), [member(server)]);
        options
    }

    /// The client of `server`, by way of its agent; `query` are the options of its connection string.
    pub(super) async fn client(&self, server: &LocalServer, query: &str) -> crate::ClientOf<H> {
        let builder = cmap_runtime::Client::builder(crate::options(server, query));
        builder.reverse(self.listener.clone()).build().await.unwrap()
    }

    /// What an agent of `server` is configured with that has the token.
    pub(super) fn config(&self, server: &LocalServer) -> Config {
        let token = Some(Token::new(NAME, SECRET).unwrap());
        self.config_as(server, &member(server), token, None)
    }

    /// What an agent is configured with that has a certificate for these hosts, and no token.
    pub(super) fn config_with_certificate(&self, server: &LocalServer, hosts: &[&str]) -> Config {
        let certificate = self.authority.agent(hosts).unwrap();
        self.config_as(server, &member(server), None, Some(certificate.pem()))
    }

    fn config_as(
        &self,
        server: &LocalServer,
        member: &ServerAddress,
        token: Option<Token>,
        certificate: Option<String>,
    ) -> Config {
        let runtime = H::Runtime::current().unwrap();
        let authority = self.authority.pem();
        let mut texts = PemTexts::default();
        texts.authorities = Some(authority.as_bytes());
        texts.certificate_key = certificate.as_ref().map(String::as_bytes);
        let tls = TlsConfig::with_pem(&TlsOptions::default(), texts).unwrap();
        Config {
            application: self.listener.local_address(),
            server: self::member(server),
            greeting: Greeting { member: member.clone(), boot: BootId { started: 1, random: 1 }, token },
            tls: tls.for_protocol(ALPN).timed_by(runtime),
            replays: false,
            never_starts: false,
        }
    }

    /// An agent of `server` that has the token.
    pub(super) fn agent(&self, server: &LocalServer) -> Agent<H::Runtime> {
        self.agent_with(self.config(server))
    }

    pub(super) fn agent_with(&self, config: Config) -> Agent<H::Runtime> {
        Agent::start(H::Runtime::current().unwrap(), config)
    }

    /// How many sockets are parked.
    pub(super) fn parked(&self) -> usize {
        self.listener.members().iter().map(|(_, parked)| parked).sum()
    }
}

impl Told {
    fn note(&self, event: &ReverseEvent) {
        self.0.0.lock().unwrap().push(event.to_string());
        self.0.1.ring();
    }

    /// The first event with `part`, now or later.
    pub(super) async fn wait_for(&self, part: &str) -> String {
        let mut found = None;
        poll_fn(|cx| {
            let rang = self.0.1.poll(cx, || {
                found = self.0.0.lock().unwrap().iter().find(|told| told.contains(part)).cloned();
                found.is_some()
            });
            if rang.is_ready() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        found.unwrap_or_default()
    }

    pub(super) fn count(&self, part: &str) -> usize {
        self.0.0.lock().unwrap().iter().filter(|told| told.contains(part)).count()
    }
}

fn with_certificate(authority: &Authority) -> ReverseOptions {
    let certificate = authority.server(&LOCAL_HOSTS, Validity::Now).unwrap();
    ReverseOptions::new(PemSource::Text(certificate.pem().into()))
}

/// The name of a server as a connection string has it.
pub(super) fn member(server: &LocalServer) -> ServerAddress {
    server.place().to_string().parse().unwrap()
}

/// Waits for `time`.
pub(super) async fn pause<H: Harness>(time: Duration) {
    let runtime = H::Runtime::current().unwrap();
    runtime.sleep_until(runtime.now() + time).await;
}
