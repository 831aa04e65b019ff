//! An application on a socket of this machine, that a test or a benchmark plays itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use cmap_core::reverse::{ALPN, ApplicationOutput, ApplicationSide, ChannelBinding, EXPORTER_LABEL, Token, Tokens};
use cmap_core::time::Instant;
use cmap_test_server::certificates::{Authority, LOCAL_HOSTS, Validity};
use rustls::server::{WantsServerCert, WebPkiClientVerifier};
use rustls::{ConfigBuilder, RootCertStore, ServerConnection, StreamOwned, WantsVerifier};

pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// What is left to say of who may come.
type Clients = ConfigBuilder<rustls::ServerConfig, WantsVerifier>;

pub(crate) type Stream = StreamOwned<ServerConnection, TcpStream>;

/// An application.
pub(crate) struct Application {
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    /// The authority of its certificate, as a file has it.
    pub(crate) authority: String,
}

/// A parked socket.
pub(crate) struct Parked {
    stream: Stream,
    side: ApplicationSide,
}

impl Application {
    pub(crate) fn new() -> Self {
        Self::with(|config, _| config.with_no_client_auth())
    }

    /// One that lets nobody in who has no certificate.
    #[allow(dead_code, reason = "the benchmark has none")]
    pub(crate) fn that_demands_certificates() -> Self {
        Self::with(|config, authority| {
            let mut authorities = RootCertStore::empty();
            authorities.add(authority.certificate()).unwrap();
            let provider = Arc::clone(config.crypto_provider());
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider).build().unwrap();
            config.with_client_cert_verifier(verifier)
        })
    }

    fn with(clients: impl FnOnce(Clients, &Authority) -> ConfigBuilder<rustls::ServerConfig, WantsServerCert>) -> Self {
        let authority = Authority::new("authority").unwrap();
        let identity = authority.server(&LOCAL_HOSTS, Validity::Now).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = clients(config.unwrap(), &authority)
            .with_single_cert(vec![identity.certificate().clone()], identity.key())
            .unwrap();
        config.alpn_protocols = vec![ALPN.to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self { listener, tls: Arc::new(config), authority: authority.pem() }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// The next connection, under TLS.
    pub(crate) fn accept(&self) -> Stream {
        let (socket, _) = self.listener.accept().unwrap();
        socket.set_nodelay(true).unwrap();
        StreamOwned::new(ServerConnection::new(Arc::clone(&self.tls)).unwrap(), socket)
    }

    /// The next socket, parked.
    pub(crate) fn park(&self) -> Parked {
        let mut parked = Parked { stream: self.accept(), side: ApplicationSide::new(Instant::ORIGIN) };
        let ApplicationOutput::Greeted(hello) = parked.next() else { panic!("the agent does not greet") };
        let binding = parked.stream.conn.export_keying_material([0; 32], EXPORTER_LABEL, None).unwrap();
        let mut tokens = Tokens::new();
        tokens.add(Token::new("db1", SECRET.as_bytes()).unwrap(), ["db1.example:27017".parse().unwrap()]);
        tokens.verify(&hello, &ChannelBinding(binding)).unwrap();
        parked.side.park(Instant::ORIGIN, Duration::from_secs(60), 1);
        parked.send();
        parked
    }
}

impl Parked {
    pub(crate) fn next(&mut self) -> ApplicationOutput {
        loop {
            if let Some(output) = self.side.poll_output() {
                return output;
            }
            let mut buffer = [0; 1024];
            let read = self.stream.read(&mut buffer).unwrap();
            assert!(read > 0, "the agent hung up");
            self.side.handle_bytes(Instant::ORIGIN, &buffer[..read]);
        }
    }

    fn send(&mut self) {
        self.stream.write_all(&self.side.poll_transmit().unwrap()).unwrap();
        self.stream.flush().unwrap();
    }

    pub(crate) fn start(mut self) -> Stream {
        let ApplicationOutput::Started(_) = self.try_start() else { panic!("the agent does not start") };
        self.stream
    }

    pub(crate) fn try_start(&mut self) -> ApplicationOutput {
        assert!(self.side.start(Instant::ORIGIN));
        self.send();
        self.next()
    }
}
