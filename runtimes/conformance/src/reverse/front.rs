//! A listener with an agent for each server: clients that are built with it connect to no server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::TlsOptions;
use cmap_core::reverse::{ALPN, BootId, Greeting};
use cmap_runtime::reverse::{PemSource, ReverseOptions};
use cmap_runtime::tls::{PemTexts, TlsConfig};
use cmap_runtime::{Builder, Listen, ReverseListener};
use cmap_test_server::certificates::{Authority, LOCAL_HOSTS, Validity};

use super::agent::{Agent, Config};

/// A listener, and agents as they are needed. Its end is theirs.
pub struct Front<R: Listen> {
    listener: ReverseListener<R>,
    /// What agents show and trust.
    tls: TlsConfig,
    agents: Mutex<BTreeMap<ServerAddress, Agent<R>>>,
}

impl<R: Listen> Front<R> {
    /// Listens at a port of this machine. `now`, the time since 1970, is when its certificates are valid.
    pub async fn listen(now: Duration) -> Self {
        let authority = Authority::made_at("agents", now).unwrap();
        let certificate = authority.server(&LOCAL_HOSTS, Validity::Now).unwrap();
        let mut options = ReverseOptions::new(PemSource::Text(certificate.pem().into()));
        options.authorities = Some(PemSource::Text(authority.pem().into()));
        options.limits.max_failures = u32::MAX;
        let listener = ReverseListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), options).await.unwrap();
        let (trusted, shown) = (authority.pem(), authority.agent(&LOCAL_HOSTS).unwrap().pem());
        let mut texts = PemTexts::default();
        (texts.authorities, texts.certificate_key) = (Some(trusted.as_bytes()), Some(shown.as_bytes()));
        let tls = TlsConfig::with_pem(&TlsOptions::default(), texts).unwrap();
        let tls = tls.for_protocol(ALPN).timed_by(R::current().unwrap());
        Self { listener, tls, agents: Mutex::default() }
    }

    /// Has a client or a pool of these hosts take its connections from agents. Unix sockets have none: those go on as they are.
    pub fn prepare<T>(&self, builder: Builder<R, T>, hosts: &[ServerAddress]) -> Builder<R, T> {
        if hosts.iter().any(|host| matches!(host, ServerAddress::Unix { .. })) {
            return builder;
        }
        hosts.iter().for_each(|host| self.put_before(host));
        builder.reverse(self.listener.clone())
    }

    fn put_before(&self, member: &ServerAddress) {
        self.agents.lock().unwrap().entry(member.clone()).or_insert_with(|| {
            let greeting = Greeting { member: member.clone(), boot: BootId { started: 1, random: 1 }, token: None };
            let application = self.listener.local_address();
            let (server, tls) = (member.clone(), self.tls.clone());
            let config = Config { application, server, greeting, tls, replays: false, never_starts: false };
            Agent::start(R::current().unwrap(), config)
        });
    }
}

impl<R: Listen> Drop for Front<R> {
    fn drop(&mut self) {
        self.agents.lock().unwrap().values().for_each(Agent::kill);
    }
}
