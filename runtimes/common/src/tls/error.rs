//! Why TLS failed, and which side is at fault.
//!
//! The difference matters: a connection that broke during the handshake may mean an overloaded server, so it carries
//! the backpressure labels (CMAP-50); a certificate or a peer that breaks the protocol means nothing of that kind
//! (CMAP-51), and a retry does not help.

use std::error::Error as _;
use std::io;

use cmap_core::connection::{EstablishError, Fault, Phase};
use rustls::AlertDescription;
use rustls::pki_types::InvalidDnsNameError;
use thiserror::Error;

use super::certificate_problem::CertificateProblem;
use super::session::Peer;

/// TLS failed, in the handshake or later.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// No certificate can be for this host.
    #[error(
        "{host:?} is neither a host name nor an IP address, so no certificate can be for it; write the host as the \
         server's certificate names it, or set tls=false"
    )]
    ServerName {
        /// The host as it was given.
        host: String,
        /// The error of rustls.
        source: InvalidDnsNameError,
    },
    /// The connection under TLS failed, or ended before the handshake did. The labels of CMAP-50 apply in the handshake.
    #[error("the connection failed")]
    Io(#[source] io::Error),
    /// The connection ended without TLS's close_notify: later data may have been cut off on the way.
    #[error("the server closed the connection without ending TLS first, so bytes may be missing")]
    Truncated,
    /// The server's certificate is not trusted.
    #[error("the server's certificate is not trusted for {host}: {problem}")]
    Certificate {
        /// The host that it must be for.
        host: String,
        /// Why it is not trusted.
        problem: CertificateProblem,
        /// The error of rustls.
        source: rustls::Error,
    },
    /// The server refused this client, by a TLS alert.
    #[error("the server refused this client: {alert:?}; {}", advice(*alert))]
    Refused {
        /// The alert.
        alert: AlertDescription,
        /// The error of rustls.
        source: rustls::Error,
    },
    /// The server's first answer is not TLS.
    #[error("the server does not speak TLS at this port; check host and port, or set tls=false")]
    NotTls(#[source] rustls::Error),
    /// A client that has connected does not speak TLS, breaks the protocol, or has another one in mind.
    #[error(
        "TLS with this client is not possible; check that it is meant for this port, and trusts this side's certificate"
    )]
    Client(#[source] rustls::Error),
    /// The server breaks the protocol, or has no version or cipher in common with this client.
    #[error("TLS with this server is not possible; see its log, and check that it permits TLS 1.2 or 1.3")]
    Protocol(#[source] rustls::Error),
}

impl TlsError {
    /// The TLS error inside `error`, which came from reading or writing a [`TlsStream`](super::TlsStream). `None` if the
    /// connection under it failed.
    ///
    /// In TLS 1.3 a server refuses a client's certificate only after the client's handshake is over, so that the
    /// refusal arrives in place of the reply to the hello; or not at all, where the system drops it because bytes were on
    /// their way to a server that had closed the connection.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Whether the certificate is for other hosts.
    pub(crate) fn is_about_the_name(&self) -> bool {
        matches!(self, Self::Certificate { problem: CertificateProblem::WrongHost { .. }, .. })
    }

    /// The side at fault.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Io(source) if source.kind() == io::ErrorKind::TimedOut => Fault::Timeout,
            Self::Io(_) | Self::Truncated => Fault::Network,
            Self::ServerName { .. }
            | Self::Certificate { .. }
            | Self::Refused { .. }
            | Self::NotTls(_)
            | Self::Client(_)
            | Self::Protocol(_) => Fault::Other,
        }
    }

    /// The error as the pool's machine takes it: a failure in the phase TLS, with all of its causes in one text.
    pub fn establish_error(&self) -> EstablishError {
        let mut message = self.to_string();
        // The other variants have already included their source's text.
        if let (Self::Io(_) | Self::Client(_) | Self::Protocol(_), Some(source)) = (self, self.source()) {
            message = format!("{message}: {source}");
        }
        EstablishError::new(Phase::Tls, self.fault(), message)
    }

    /// The meaning of rustls' `error` on a connection with `peer`; `before_hello` is true until its first message has come.
    #[expect(clippy::wildcard_enum_match_arm, reason = "rustls' list is long and grows")]
    pub(super) fn from_rustls(error: rustls::Error, peer: &Peer, before_hello: bool) -> Self {
        let Peer::Server(host) = peer else { return Self::Client(error) };
        match &error {
            rustls::Error::InvalidCertificate(certificate) => {
                Self::Certificate { host: host.clone(), problem: certificate.into(), source: error }
            }
            rustls::Error::AlertReceived(AlertDescription::CloseNotify) => Self::ended_in_handshake(peer),
            rustls::Error::AlertReceived(alert) => Self::Refused { alert: *alert, source: error },
            rustls::Error::InvalidMessage(_) if before_hello => Self::NotTls(error),
            _ => Self::Protocol(error),
        }
    }

    /// The end of the connection before the end of the handshake.
    pub(super) fn ended_in_handshake(peer: &Peer) -> Self {
        let reason = match peer {
            Peer::Server(_) => "the server hung up; it may have too much to do, or not speak TLS at this port",
            Peer::Client => "the client hung up; see its log, it may not trust this side's certificate",
        };
        Self::Io(io::Error::new(io::ErrorKind::UnexpectedEof, reason))
    }
}

/// Errors of the connection stay as they are; the others go inside, for [`TlsError::of`].
impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        match error {
            TlsError::Io(source) => source,
            TlsError::Truncated => Self::new(io::ErrorKind::UnexpectedEof, error),
            TlsError::ServerName { .. }
            | TlsError::Certificate { .. }
            | TlsError::Refused { .. }
            | TlsError::NotTls(_)
            | TlsError::Client(_)
            | TlsError::Protocol(_) => Self::new(io::ErrorKind::InvalidData, error),
        }
    }
}

/// The advice for the server's refusal.
#[expect(clippy::wildcard_enum_match_arm, reason = "there is nothing to say about the others")]
fn advice(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            "set tlsCertificateKeyFile to a certificate that an authority of the server has signed"
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::DecryptError
        | AlertDescription::AccessDenied => {
            "check that tlsCertificateKeyFile is valid now and that an authority of the server has signed it"
        }
        AlertDescription::UnrecognisedName => "connect by a name that the server knows",
        AlertDescription::ProtocolVersion | AlertDescription::InsufficientSecurity => {
            "let the server permit TLS 1.2 or 1.3"
        }
        AlertDescription::HandshakeFailure => {
            "let the server permit TLS 1.2 or 1.3 and their modern ciphers; where it demands a certificate, set \
             tlsCertificateKeyFile"
        }
        _ => "see the server's log",
    }
}
