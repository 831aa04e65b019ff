//! The server's side of TLS: its certificate, the clients that it accepts, and the name in a client's certificate.
//!
//! Clients are asked for a certificate and may go without one. One that another authority has signed ends the
//! handshake, as it does with MongoDB.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use x509_cert::der::Decode as _;

use super::certificates::Certificates;

/// TLS cannot be set up from the certificates.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum TlsSetupError {
    /// The authority or the server's certificate cannot be used.
    #[error("the server's certificates cannot be used for TLS; this is a defect, please report it")]
    Certificates(#[from] rustls::Error),
    /// The check of clients' certificates cannot be set up.
    #[error("the check of clients' certificates cannot be set up; this is a defect, please report it")]
    Clients(#[from] VerifierBuilderError),
}

/// Does the server's side of handshakes, with the server's certificate of `certificates`.
///
/// # Errors
///
/// [`TlsSetupError`] if rustls does not take the certificates.
pub(crate) fn acceptor(certificates: &Certificates) -> Result<TlsAcceptor, TlsSetupError> {
    Ok(TlsAcceptor::from(Arc::new(config(certificates)?)))
}

/// The subject of the certificate that the client has shown, as MongoDB writes it (RFC 2253): the user name of
/// MONGODB-X509. `None` if it has shown none.
///
/// It is asked of a handshake that is over: `stream.get_ref().1` of a [`tokio_rustls::server::TlsStream`].
pub(crate) fn client_subject(connection: &ServerConnection) -> Option<String> {
    connection.peer_certificates()?.first().and_then(subject)
}

fn config(certificates: &Certificates) -> Result<ServerConfig, TlsSetupError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut authorities = RootCertStore::empty();
    authorities.add(certificates.authority())?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()?;
    let (certificate, key) = certificates.server();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate], key)?;
    Ok(config)
}

fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
    Some(certificate.tbs_certificate().subject().to_string())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cmap_core::options::{Secret, TlsOptions};
    use cmap_runtime::tls::{CertificateProblem, TlsConfig, TlsError, TlsSession};
    use rustls::HandshakeKind;

    use super::super::certificates::{CLIENT_SUBJECT, KEY_PASSWORD, ServerHosts};
    use super::*;

    /// A client that trusts the authority in `ca` and shows the certificate in `shown`.
    fn client(folder: &Path, ca: &str, shown: Option<&str>) -> TlsConfig {
        let path = |name: &str| folder.join(name).to_str().map(str::to_owned);
        let mut options = TlsOptions::default();
        options.ca_file = path(ca);
        options.certificate_key_file = shown.and_then(path);
        options.certificate_key_file_password = Some(Secret::from(KEY_PASSWORD));
        TlsConfig::new(&options).unwrap()
    }

    /// What the server makes of a client.
    #[derive(Debug)]
    struct Seen {
        subject: Option<String>,
        resumed: bool,
    }

    /// A handshake in memory, until neither side has anything to send: what each side makes of it.
    fn shake_hands(
        server: &TlsAcceptor,
        client: &TlsConfig,
        host: &str,
    ) -> (Result<(), TlsError>, Result<Seen, rustls::Error>) {
        let mut server = ServerConnection::new(Arc::clone(server.config())).unwrap();
        let mut client = TlsSession::new(client, host).unwrap();
        let mut seen_by_server = Ok(());
        while client.wants_write() || server.wants_write() {
            let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
            while client.wants_write() {
                client.send_to(&mut to_server).unwrap();
            }
            server.read_tls(&mut to_server.as_slice()).unwrap();
            seen_by_server = seen_by_server.and(server.process_new_packets().map(drop));
            while server.wants_write() {
                server.write_tls(&mut to_client).unwrap();
            }
            let mut to_client = to_client.as_slice();
            while !to_client.is_empty() {
                if let Err(error) = client.receive_from(&mut to_client) {
                    return (Err(error), seen_by_server.map(|()| seen(&server)));
                }
            }
        }
        (Ok(()), seen_by_server.map(|()| seen(&server)))
    }

    fn seen(server: &ServerConnection) -> Seen {
        let resumed = server.handshake_kind() == Some(HandshakeKind::Resumed);
        Seen { subject: client_subject(server), resumed }
    }

    #[test]
    fn the_clients_subject_is_written_as_mongodb_does() {
        let certificates = Certificates::make(ServerHosts::Local).unwrap();
        let folder = tempfile::tempdir().unwrap();
        certificates.write_to(folder.path()).unwrap();
        let server = acceptor(&certificates).unwrap();

        for host in ["localhost", "127.0.0.1", "::1"] {
            for (shown, subject) in [
                (None, None),
                (Some("client.pem"), Some(CLIENT_SUBJECT)),
                (Some("client-encrypted.pem"), Some(CLIENT_SUBJECT)),
                (Some("stranger.pem"), Some("CN=stranger,OU=cmap,O=cmap")),
            ] {
                let client = client(folder.path(), "ca.pem", shown);

                let (seen_by_client, seen_by_server) = shake_hands(&server, &client, host);

                seen_by_client.unwrap();
                assert_eq!(seen_by_server.unwrap().subject.as_deref(), subject, "{host} {shown:?}");
            }
        }
    }

    #[test]
    fn a_client_that_resumes_its_session_is_still_known() {
        let certificates = Certificates::make(ServerHosts::Local).unwrap();
        let folder = tempfile::tempdir().unwrap();
        certificates.write_to(folder.path()).unwrap();
        let server = acceptor(&certificates).unwrap();
        let client = client(folder.path(), "ca.pem", Some("client.pem"));

        let (_, first) = shake_hands(&server, &client, "localhost");
        let (_, second) = shake_hands(&server, &client, "localhost");

        assert!(!first.unwrap().resumed);
        let second = second.unwrap();
        assert!(second.resumed);
        assert_eq!(second.subject.as_deref(), Some(CLIENT_SUBJECT));
    }

    #[test]
    fn a_client_of_another_authority_is_refused() {
        let certificates = Certificates::make(ServerHosts::Local).unwrap();
        let folder = tempfile::tempdir().unwrap();
        certificates.write_to(folder.path()).unwrap();
        let client = client(folder.path(), "ca.pem", Some("other-client.pem"));

        let (seen_by_client, seen_by_server) = shake_hands(&acceptor(&certificates).unwrap(), &client, "localhost");

        assert!(matches!(seen_by_client, Err(TlsError::Refused { .. })), "{seen_by_client:?}");
        assert!(matches!(seen_by_server, Err(rustls::Error::InvalidCertificate(_))), "{seen_by_server:?}");
    }

    #[test]
    fn the_wrong_host_and_the_wrong_authority_are_seen_by_the_client() {
        let folder = tempfile::tempdir().unwrap();
        let certificates = Certificates::make(ServerHosts::Wrong).unwrap();
        certificates.write_to(folder.path()).unwrap();
        let server = acceptor(&certificates).unwrap();

        for (ca, expected) in [
            ("ca.pem", CertificateProblem::WrongHost { names: vec!["elsewhere.example".to_owned()] }),
            ("other-ca.pem", CertificateProblem::UnknownIssuer),
        ] {
            let (seen_by_client, _) = shake_hands(&server, &client(folder.path(), ca, None), "localhost");

            assert!(
                matches!(&seen_by_client, Err(TlsError::Certificate { problem, .. }) if *problem == expected),
                "{seen_by_client:?}"
            );
        }
    }
}
