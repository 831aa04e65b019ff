//! Servers, clients, and the result of a handshake between them.

use std::error::Error as _;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use cmap_core::connection::{Fault, Phase, RETRYABLE_ERROR, SYSTEM_OVERLOADED_ERROR};
use cmap_core::options::{Secret, TlsOptions};
use cmap_runtime::tls::{CertificateProblem, PemTexts, TlsConfig, TlsConfigError, TlsError, TlsStream, connect};
use futures_io::{AsyncRead as _, AsyncWrite as _};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};

use super::authority::{Authority, Identity};
use super::peer::{Peer, run};

pub(crate) const HOST: &str = "db.example";

pub(crate) fn server(identity: &Identity) -> Arc<ServerConfig> {
    server_with(identity, WebPkiClientVerifier::no_client_auth(), &[&TLS12, &TLS13])
}

pub(crate) fn server_with(
    identity: &Identity,
    verifier: Arc<dyn ClientCertVerifier>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ServerConfig> {
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![identity.certificate().clone()], identity.key())
        .unwrap();
    Arc::new(config)
}

/// A server whose certificate is of version 1, as `openssl x509 -req` makes it.
pub(crate) fn server_of_version_1(version: &'static SupportedProtocolVersion) -> Arc<ServerConfig> {
    let pem = include_bytes!("version_1.pem");
    let certificate = CertificateDer::from_pem_slice(pem).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pem).unwrap();
    server_showing(certificate, &key, version)
}

/// A server that shows `certificate`, and has `key`.
pub(crate) fn server_showing(
    certificate: CertificateDer<'static>,
    key: &PrivateKeyDer<'_>,
    version: &'static SupportedProtocolVersion,
) -> Arc<ServerConfig> {
    let key = aws_lc_rs::sign::any_supported_type(key).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key))));
    Arc::new(config)
}

/// A client that trusts `authority`, with more options as `change` sets them.
pub(crate) fn client(authority: &Authority, change: impl FnOnce(&mut TlsOptions)) -> TlsConfig {
    let mut options = TlsOptions::default();
    change(&mut options);
    client_of(&options, &authority.pem())
}

/// A client with this PEM text as its tlsCAFile.
pub(crate) fn client_trusting(authorities: &str) -> TlsConfig {
    client_of(&TlsOptions::default(), authorities)
}

fn client_of(options: &TlsOptions, authorities: &str) -> TlsConfig {
    let mut texts = PemTexts::default();
    texts.authorities = Some(authorities.as_bytes());
    TlsConfig::with_pem(options, texts).unwrap()
}

/// A client that trusts `authority` and has `pem` as its tlsCertificateKeyFile.
pub(crate) fn client_showing(
    authority: &Authority,
    pem: &str,
    password: Option<&str>,
) -> Result<TlsConfig, TlsConfigError> {
    let mut options = TlsOptions::default();
    options.certificate_key_file_password = password.map(Secret::from);
    let authorities = authority.pem();
    let mut texts = PemTexts::default();
    texts.authorities = Some(authorities.as_bytes());
    texts.certificate_key = Some(pem.as_bytes());
    TlsConfig::with_pem(&options, texts)
}

pub(crate) async fn write_all(stream: &mut TlsStream<Peer>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, bytes)).await?;
        bytes = &bytes[written..];
    }
    poll_fn(|cx| Pin::new(&mut *stream).poll_flush(cx)).await
}

pub(crate) async fn read(stream: &mut TlsStream<Peer>, buffer: &mut [u8]) -> io::Result<usize> {
    poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, buffer)).await
}

pub(crate) async fn read_exact(stream: &mut TlsStream<Peer>, length: usize) -> io::Result<Vec<u8>> {
    let (mut bytes, mut filled) = (vec![0; length], 0);
    while filled < length {
        match read(stream, &mut bytes[filled..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    Ok(bytes)
}

/// Does a handshake with `peer` and sends `payload` to and fro.
pub(crate) fn echo(config: &TlsConfig, peer: Peer, payload: &[u8]) -> TlsStream<Peer> {
    run(async {
        let mut stream = connect(config, HOST, peer).await.unwrap();
        write_all(&mut stream, payload).await.unwrap();
        assert!(read_exact(&mut stream, payload.len()).await.unwrap() == payload, "the echo differs");
        stream
    })
}

/// The error of a handshake that must fail.
pub(crate) fn refusal(config: &TlsConfig, host: &str, peer: Peer) -> TlsError {
    run(connect(config, host, peer)).err().expect("the handshake should fail")
}

pub(crate) fn assert_not_labelled(error: &TlsError) {
    let established = error.establish_error();
    assert_eq!((established.phase, established.fault), (Phase::Tls, Fault::Other));
    assert!(!established.has_label(SYSTEM_OVERLOADED_ERROR), "CMAP-51: {error}");
}

pub(crate) fn assert_labelled(error: &TlsError) {
    let established = error.establish_error();
    assert_eq!(established.phase, Phase::Tls);
    assert!(
        established.has_label(SYSTEM_OVERLOADED_ERROR) && established.has_label(RETRYABLE_ERROR),
        "CMAP-50: {error}"
    );
}

pub(crate) fn problem(error: &TlsError) -> &CertificateProblem {
    assert_not_labelled(error);
    assert!(error.source().is_some(), "the cause is kept");
    let TlsError::Certificate { problem, .. } = error else { panic!("not about the certificate: {error}") };
    problem
}
