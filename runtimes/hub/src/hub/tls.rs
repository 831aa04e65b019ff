//! The hub's side of TLS: its certificate, and those of clients.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use x509_cert::der::Decode as _;

use crate::config::TlsFiles;
use crate::users::{Certificate, canonical};

/// A certificate cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}: {problem}; it has to hold certificates as PEM, and that of the hub its key", path.display())]
pub struct CertificateError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub problem: String,
}

/// The hub's side of TLS at a listener.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) acceptor: TlsAcceptor,
    /// The authorities of clients' certificates, as their file has them.
    authorities: Arc<[u8]>,
    /// Whether those are still authorities of the listener.
    is_trusted: Arc<AtomicBool>,
}

impl Tls {
    /// What it was before goes on to be trusted if the authorities are as they were.
    pub(super) fn follow(&mut self, before: &Self) {
        if self.authorities == before.authorities {
            self.is_trusted = Arc::clone(&before.is_trusted);
        } else {
            before.distrust();
        }
    }

    /// The authorities are none of the listener any more.
    pub(super) fn distrust(&self) {
        self.is_trusted.store(false, Ordering::Relaxed);
    }

    /// The certificate that a client has shown; `None` if it has shown none.
    pub(super) fn certificate(&self, connection: &ServerConnection) -> Option<Certificate> {
        let certificate = x509_cert::Certificate::from_der(connection.peer_certificates()?.first()?).ok()?;
        let subject = canonical(&certificate.tbs_certificate().subject().to_string());
        Some(Certificate { subject, is_trusted: Arc::clone(&self.is_trusted) })
    }
}

/// Does handshakes with what is in these files. A client may show a certificate if there are authorities, and need not.
pub(super) fn acceptor(files: &TlsFiles) -> Result<Tls, CertificateError> {
    let path = &*files.certificate;
    let wrong = |problem: String| CertificateError { path: path.into(), problem };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let (clients, authorities) = match &files.client_authorities {
        Some(path) => {
            let pem = std::fs::read(path);
            let pem = pem.map_err(|error| CertificateError { path: path.clone(), problem: error.to_string() })?;
            (client_verifier(path, &pem, &provider)?, pem)
        }
        None => (WebPkiClientVerifier::no_client_auth(), Vec::new()),
    };
    let chain = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(|error| wrong(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(path).map_err(|error| wrong(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_client_cert_verifier(clients).with_single_cert(chain, key))
        .map_err(|error| wrong(error.to_string()))?;
    if files.client_authorities.is_some() {
        // A session that is resumed has a certificate that is not verified again, though its time may be up.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Ok(Tls { acceptor, authorities: authorities.into(), is_trusted: Arc::new(AtomicBool::new(true)) })
}

fn client_verifier(
    path: &Path,
    pem: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, CertificateError> {
    let wrong = |problem: String| CertificateError { path: path.into(), problem };
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        authorities.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(provider));
    verifier.allow_unauthenticated().build().map_err(|error| wrong(error.to_string()))
}
