//! The server's side of TLS for a listener: TLS 1.3 alone, whose exported bytes belong to one connection only, and no sessions that are
//! resumed, so that every connection shows its certificate anew.

use std::path::Path;
use std::sync::Arc;

use cmap_core::options::Secret;
use rustls::client::verify_server_name;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{RootCertStore, ServerConfig, version};

use super::config::{Pem, TimeOf};
use super::config_error::TlsConfigError;
use super::error::TlsError;
use super::provider::default_provider;
use super::server_name::server_name;
use crate::runtime::Runtime;

/// What a listener shows, and whom it trusts.
pub(crate) struct Files<'a> {
    /// Its certificate and the private key.
    pub(crate) certificate_key: Source<'a>,
    /// The private key's password.
    pub(crate) password: Option<&'a Secret>,
    /// The authorities of clients' certificates.
    pub(crate) authorities: Option<Source<'a>>,
    /// Whether a client without a certificate is refused, where there are authorities.
    pub(crate) requires_certificate: bool,
}

/// Where PEM text is.
pub(crate) enum Source<'a> {
    File(&'a Path),
    Text(&'a [u8]),
}

/// TLS for the protocol `alpn`; certificates are judged by the time of `runtime`.
///
/// # Errors
/// A file cannot be read or used.
pub(crate) fn configure<R: Runtime>(
    files: &Files<'_>,
    alpn: &[u8],
    runtime: R,
) -> Result<Arc<ServerConfig>, TlsConfigError> {
    let certified = Pem::read("certificate_key", &files.certificate_key)?.certified_key(files.password)?;
    let authorities = files.authorities.as_ref().map(|source| Pem::read("authorities", source)?.authorities());
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_details(Arc::clone(&provider), Arc::new(TimeOf(runtime)))
        .with_protocol_versions(&[&version::TLS13])
        .map_err(TlsConfigError::Cryptography)?;
    let builder = match authorities.transpose()? {
        None => builder.with_no_client_auth(),
        Some(authorities) => builder.with_client_cert_verifier(verifier(authorities.roots, files, provider)?),
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![alpn.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn verifier(
    authorities: RootCertStore,
    files: &Files<'_>,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsConfigError> {
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider);
    let builder = if files.requires_certificate { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|error| TlsConfigError::Cryptography(rustls::Error::General(error.to_string())))
}

/// Whether a certificate names `host`.
///
/// # Errors
/// It does not.
pub(crate) fn check_name(certificate: &CertificateDer<'_>, host: &str) -> Result<(), TlsError> {
    let parsed = ParsedCertificate::try_from(certificate).map_err(TlsError::Client)?;
    verify_server_name(&parsed, &server_name(host)?).map_err(TlsError::Client)
}
