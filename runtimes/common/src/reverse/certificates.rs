//! The listener's side of TLS, and what an agent's certificate is good for.

use std::sync::Arc;

use cmap_core::address::ServerAddress;
use cmap_core::reverse::ALPN;
use rustls::ServerConfig;

use super::error::SocketEnded;
use super::options::{PemSource, ReverseOptions};
use crate::runtime::Runtime;
use crate::tls::listener::{self, Files};
use crate::tls::{TlsConfigError, TlsSession};

/// TLS as the options say. It reads files, and blocks while it does.
pub(super) fn configure<R: Runtime>(options: &ReverseOptions, runtime: R) -> Result<Arc<ServerConfig>, TlsConfigError> {
    let files = Files {
        certificate_key: source(&options.certificate_key),
        password: options.certificate_key_password.as_ref(),
        authorities: options.authorities.as_ref().map(source),
        // With a token an agent needs none.
        requires_certificate: options.tokens.is_empty(),
    };
    listener::configure(&files, ALPN, runtime)
}

fn source(pem: &PemSource) -> listener::Source<'_> {
    match pem {
        PemSource::File(path) => listener::Source::File(path),
        PemSource::Text(text) => listener::Source::Text(text),
    }
}

/// Whether the other side's certificate, which was checked in the handshake, names the host of `member`.
///
/// # Errors
/// It does not. `None`, if it has shown none.
pub(super) fn names(session: &TlsSession, member: &ServerAddress) -> Result<(), Option<SocketEnded>> {
    let ServerAddress::Tcp { host, .. } = member else { return Err(None) };
    let certificates = session.connection().peer_certificates();
    let Some(certificate) = certificates.and_then(<[_]>::first) else { return Err(None) };
    listener::check_name(certificate, host)
        .map_err(|source| Some(SocketEnded::OtherCertificate { member: member.clone(), source: Box::new(source) }))
}
