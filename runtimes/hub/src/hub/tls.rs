//! The hub's side of TLS.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::StartError;

/// Does handshakes with the certificate chain and the key in a PEM file.
pub(super) fn acceptor(path: &Path) -> Result<TlsAcceptor, StartError> {
    let wrong = |problem: String| StartError::Certificate { path: path.into(), problem };
    let chain = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(|error| wrong(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(path).map_err(|error| wrong(error.to_string()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| wrong(error.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
