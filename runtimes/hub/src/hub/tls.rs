//! The hub's side of TLS: its certificate, and those of clients.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use x509_cert::der::Decode as _;

use crate::config::TlsFiles;

/// A certificate cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}: {problem}; it has to hold certificates as PEM, and that of the hub its key", path.display())]
pub struct CertificateError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub problem: String,
}

/// Does handshakes with what is in these files. A client may show a certificate if there are authorities, and need not.
pub(super) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, CertificateError> {
    let path = &*files.certificate;
    let wrong = |problem: String| CertificateError { path: path.into(), problem };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let clients = match &files.client_authorities {
        Some(path) => client_verifier(path, &provider)?,
        None => WebPkiClientVerifier::no_client_auth(),
    };
    let chain = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(|error| wrong(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(path).map_err(|error| wrong(error.to_string()))?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_client_cert_verifier(clients).with_single_cert(chain, key))
        .map_err(|error| wrong(error.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn client_verifier(
    path: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, CertificateError> {
    let wrong = |problem: String| CertificateError { path: path.into(), problem };
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))? {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        authorities.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(provider));
    verifier.allow_unauthenticated().build().map_err(|error| wrong(error.to_string()))
}

/// The subject of the certificate that a client has shown, as RFC 4514 writes it and `openssl x509 -nameopt RFC2253`; `None` if it has shown
/// none.
pub(super) fn client_subject(connection: &ServerConnection) -> Option<String> {
    let certificate = x509_cert::Certificate::from_der(connection.peer_certificates()?.first()?).ok()?;
    Some(certificate.tbs_certificate().subject().to_string())
}
