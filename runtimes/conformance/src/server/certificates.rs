//! The certificates of a server with TLS and of its client, with files for the client.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use cmap_test_server::certificates::{Authority, Identity, KeyKind, LOCAL_HOSTS, Validity, subject};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::UnixTime;
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;

use crate::ground::Ground;

/// The user that the client's certificate names.
const CLIENT: &str = "client";

/// The hosts that a server's certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// The hosts of this machine.
    Local,
    /// `elsewhere.example`.
    Elsewhere,
}

/// All certificates, with files for the client.
pub(super) struct Certificates {
    server: Arc<ServerConfig>,
    folder: TempDir,
}

impl Certificates {
    /// Makes them at the ground's time of day.
    pub(super) fn make(hosts: Hosts, ground: &Arc<dyn Ground>) -> Self {
        let hosts = match hosts {
            Hosts::Local => &LOCAL_HOSTS[..],
            Hosts::Elsewhere => &["elsewhere.example"],
        };
        let authority = Authority::made_at("the suite's authority", ground.unix_time()).unwrap();
        let server = authority.server(hosts, Validity::Now).unwrap();
        let client = authority.client(CLIENT, KeyKind::P256).unwrap();

        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("authority.pem"), authority.pem()).unwrap();
        fs::write(folder.path().join("client.pem"), client.pem()).unwrap();
        Self { server: Arc::new(server_config(&authority, &server, ground)), folder }
    }

    /// The configuration of the server's side of handshakes.
    pub(super) fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    pub(super) fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    pub(super) fn client(&self) -> PathBuf {
        self.folder.path().join("client.pem")
    }
}

/// The subject of the client's certificate: a user of this name may log in by MONGODB-X509.
pub(super) fn client_subject() -> String {
    subject(CLIENT)
}

/// Asks clients for a certificate of the authority, which they may go without.
fn server_config(authority: &Authority, server: &Identity, ground: &Arc<dyn Ground>) -> ServerConfig {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut authorities = RootCertStore::empty();
    authorities.add(authority.certificate()).unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(&provider));
    ServerConfig::builder_with_details(provider, Arc::new(TimeOf(Arc::clone(ground))))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.allow_unauthenticated().build().unwrap())
        .with_single_cert(vec![server.certificate().clone()], server.key())
        .unwrap()
}

/// The ground's time, for handshakes.
struct TimeOf(Arc<dyn Ground>);

impl TimeProvider for TimeOf {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.0.unix_time()))
    }
}

impl fmt::Debug for TimeOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TimeOf")
    }
}
