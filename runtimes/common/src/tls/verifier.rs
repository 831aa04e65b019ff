//! The check of a server's certificate where this crate does it: by the authorities of a file, and as relaxed as
//! `tlsAllowInvalidHostnames`, `tlsAllowInvalidCertificates` and `tlsInsecure` say.
//!
//! The handshake's signature is always checked: whatever certificate the server shows, it has that certificate's key.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::certificate_problem::is_of_authority;
use super::public_key::{PublicKey, explained};

/// Accepts certificates by the authorities that the options name, or more than are safe.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) accepted: Accepted,
    pub(super) provider: Arc<CryptoProvider>,
}

/// Which certificates are accepted.
#[derive(Debug)]
pub(super) enum Accepted {
    /// Those for the host that one of the authorities has signed, if they are valid now.
    Trusted(Authorities),
    /// Those that one of the authorities has signed, for any host, if they are valid now.
    AnyHostName(Authorities),
    /// Any certificate, whatever its version, its issuer, its validity and its purpose.
    AnyCertificate,
}

/// Certificates of authorities.
#[derive(Debug)]
pub(super) struct Authorities {
    pub(super) roots: RootCertStore,
    /// The certificates byte for byte: a server may show one of them as its own.
    pub(super) certificates: Vec<CertificateDer<'static>>,
}

impl Verifier {
    /// Checks that one of the authorities has signed the certificate, or that it is among them: a self-signed certificate is an
    /// authority's (CA:TRUE) as `openssl req -x509` makes it, which webpki takes for no server's.
    fn check_trust(
        &self,
        authorities: &Authorities,
        end_entity: &CertificateDer<'_>,
        parsed: &ParsedCertificate<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let algorithms = self.provider.signature_verification_algorithms.all;
        match verify_server_cert_signed_by_trust_anchor(parsed, &authorities.roots, intermediates, now, algorithms) {
            // webpki has found it valid now: it looks at that first.
            Err(error) if is_of_authority(&error) && authorities.certificates.contains(end_entity) => Ok(()),
            checked => checked,
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.accepted {
            Accepted::Trusted(authorities) => {
                let parsed = ParsedCertificate::try_from(end_entity)?;
                self.check_trust(authorities, end_entity, &parsed, intermediates, now)?;
                verify_server_name(&parsed, server_name)?;
            }
            Accepted::AnyHostName(authorities) => {
                let parsed = ParsedCertificate::try_from(end_entity)?;
                self.check_trust(authorities, end_entity, &parsed, intermediates, now)?;
            }
            Accepted::AnyCertificate => {}
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verified = match self.accepted {
            Accepted::AnyCertificate => key_of(certificate)?.verify_tls12(message, signature, &self.provider),
            Accepted::Trusted(_) | Accepted::AnyHostName(_) => {
                let algorithms = &self.provider.signature_verification_algorithms;
                verify_tls12_signature(message, certificate, signature, algorithms).map(drop)
            }
        };
        verified.map(|()| HandshakeSignatureValid::assertion()).map_err(|error| explained(error, certificate))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verified = match self.accepted {
            Accepted::AnyCertificate => key_of(certificate)?.verify_tls13(message, signature, &self.provider),
            Accepted::Trusted(_) | Accepted::AnyHostName(_) => {
                let algorithms = &self.provider.signature_verification_algorithms;
                verify_tls13_signature(message, certificate, signature, algorithms).map(drop)
            }
        };
        verified.map(|()| HandshakeSignatureValid::assertion()).map_err(|error| explained(error, certificate))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn key_of<'a>(certificate: &'a CertificateDer<'_>) -> Result<PublicKey<'a>, Error> {
    PublicKey::of(certificate).ok_or_else(|| CertificateError::BadEncoding.into())
}
