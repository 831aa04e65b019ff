//! The hub's side of TLS: its certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

/// A certificate cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}: {problem}; it has to hold the certificate chain and its key, as PEM", path.display())]
pub struct CertificateError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub problem: String,
}

/// Does handshakes with the certificate chain and its key in a PEM file.
pub(super) fn acceptor(path: &Path) -> Result<TlsAcceptor, CertificateError> {
    let wrong = |problem: String| CertificateError { path: path.into(), problem };
    let chain = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(|error| wrong(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(path).map_err(|error| wrong(error.to_string()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| wrong(error.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
