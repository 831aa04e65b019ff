//! The hub's side of TLS: its certificates, which are read again on request, so that one can be renewed while the hub runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

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

/// A certificate chain and its key, in a PEM file.
pub(super) struct Certificate {
    path: PathBuf,
    acceptor: RwLock<TlsAcceptor>,
}

impl Certificate {
    pub(super) fn read(path: &Path) -> Result<Self, CertificateError> {
        Ok(Self { path: path.into(), acceptor: RwLock::new(acceptor(path)?) })
    }

    /// Reads the file again. Nothing changes before [`replace`](Self::replace).
    pub(super) fn read_again(&self) -> Result<TlsAcceptor, CertificateError> {
        acceptor(&self.path)
    }

    /// Handshakes that begin from now on are done by this one.
    pub(super) fn replace(&self, acceptor: TlsAcceptor) {
        *self.acceptor.write().unwrap_or_else(PoisonError::into_inner) = acceptor;
    }

    /// Does handshakes.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl core::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Certificate").field("path", &self.path).finish_non_exhaustive()
    }
}

fn acceptor(path: &Path) -> Result<TlsAcceptor, CertificateError> {
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
