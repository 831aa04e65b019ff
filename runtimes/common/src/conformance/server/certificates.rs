//! Certificates for a server with TLS and its clients: an authority, and what it signs, made on the spot.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;

/// The subject of the client's certificate: a user of this name may log in by MONGODB-X509.
pub(super) const CLIENT_SUBJECT: &str = "CN=client";

/// The hosts that a server's certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Those that this machine has for itself.
    Local,
    /// `elsewhere.example`.
    Elsewhere,
}

/// All that is made, with files of what a client needs.
pub(super) struct Certificates {
    server: Arc<ServerConfig>,
    folder: TempDir,
}

impl Certificates {
    pub(super) fn make(hosts: Hosts) -> Self {
        let hosts = match hosts {
            Hosts::Local => ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec(),
            Hosts::Elsewhere => vec!["elsewhere.example".to_owned()],
        };
        let mut params = named("the suite's authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let (server_key, client_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let server = CertificateParams::new(hosts).unwrap().signed_by(&server_key, &authority).unwrap();
        let client = named("client").signed_by(&client_key, &authority).unwrap();

        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("authority.pem"), authority.pem()).unwrap();
        fs::write(folder.path().join("client.pem"), client.pem() + &client_key.serialize_pem()).unwrap();
        let key = PrivatePkcs8KeyDer::from(server_key.serialize_der());
        Self { server: Arc::new(server_config(authority.der().clone(), server.into(), key)), folder }
    }

    /// What the server's side of handshakes needs.
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

/// Asks clients for a certificate of the authority, which they may go without.
fn server_config(
    authority: CertificateDer<'static>,
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
) -> ServerConfig {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut authorities = RootCertStore::empty();
    authorities.add(authority).unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(&provider));
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.allow_unauthenticated().build().unwrap())
        .with_single_cert(vec![certificate], key.into())
        .unwrap()
}

fn named(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}
