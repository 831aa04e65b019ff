//! The relaxed checks of a server's certificate, for `tlsAllowInvalidHostnames`, `tlsAllowInvalidCertificates` and
//! `tlsInsecure`.
//!
//! The handshake's signature is always checked: whatever certificate the server shows, it has that certificate's key.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Accepts more certificates than are safe.
#[derive(Debug)]
pub(super) struct RelaxedVerifier {
    pub(super) accepted: Accepted,
    pub(super) provider: Arc<CryptoProvider>,
}

/// Which certificates are accepted.
#[derive(Debug)]
pub(super) enum Accepted {
    /// Those for any host, if one of the authorities has signed them and they are valid now.
    AnyHostName(RootCertStore),
    /// Any certificate, whatever its issuer, its validity and its purpose.
    AnyCertificate,
}

impl ServerCertVerifier for RelaxedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.accepted {
            Accepted::AnyHostName(authorities) => verify_server_cert_signed_by_trust_anchor(
                &ParsedCertificate::try_from(end_entity)?,
                authorities,
                intermediates,
                now,
                self.provider.signature_verification_algorithms.all,
            )?,
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
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
