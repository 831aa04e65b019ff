//! The public key in a certificate of any version. webpki, which rustls verifies by, reads only certificates of version 3; those of
//! version 1, which `openssl x509 -req` makes, have the same key in the same place.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError};

/// A certificate's public key, in DER.
pub(super) struct PublicKey<'a> {
    /// The whole SubjectPublicKeyInfo.
    info: &'a [u8],
    /// The content of its AlgorithmIdentifier.
    algorithm: &'a [u8],
    key: &'a [u8],
}

/// A public key that no signature can be verified with here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnusableKey {
    /// The length of an RSA key that is too short.
    pub(super) rsa_bits: Option<usize>,
}

/// The shortest RSA key that the provider verifies with.
const SHORTEST_RSA: usize = 2_048;

/// `rsaEncryption` with its parameters, NULL: the content of an AlgorithmIdentifier.
const RSA: [u8; 13] = [6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

impl<'a> PublicKey<'a> {
    /// The key in `certificate`; `None` if that cannot be read.
    pub(super) fn of(certificate: &'a CertificateDer<'_>) -> Option<Self> {
        let mut certificate = Element::read(&mut &certificate[..], SEQUENCE)?.content;
        let mut fields = Element::read(&mut certificate, SEQUENCE)?.content;
        // A certificate of version 1 has no version.
        if fields.first() == Some(&VERSION) {
            Element::read(&mut fields, VERSION)?;
        }
        Element::read(&mut fields, INTEGER)?;
        for _before in ["signature", "issuer", "validity", "subject"] {
            Element::read(&mut fields, SEQUENCE)?;
        }
        let info = Element::read(&mut fields, SEQUENCE)?;
        let mut parts = info.content;
        let algorithm = Element::read(&mut parts, SEQUENCE)?.content;
        // Its first byte says how many bits of the last one are unused: none.
        let (_, key) = Element::read(&mut parts, BIT_STRING)?.content.split_first()?;
        Some(Self { info: info.whole, algorithm, key })
    }

    /// Verifies a signature of TLS 1.2.
    pub(super) fn verify_tls12(
        &self,
        message: &[u8],
        signature: &DigitallySignedStruct,
        provider: &CryptoProvider,
    ) -> Result<(), Error> {
        let mut schemes = provider.signature_verification_algorithms.mapping.iter();
        let algorithms = schemes.find(|(scheme, _)| *scheme == signature.scheme).map(|(_, algorithms)| *algorithms);
        let mut algorithms = algorithms.unwrap_or_default().iter();
        let algorithm = algorithms.find(|algorithm| algorithm.public_key_alg_id().as_ref() == self.algorithm);
        let algorithm = algorithm.ok_or_else(|| UnusableKey { rsa_bits: None }.error())?;
        let verified = algorithm.verify_signature(self.key, message, signature.signature());
        verified.map_err(|_| CertificateError::BadSignature.into())
    }

    /// Verifies a signature of TLS 1.3.
    pub(super) fn verify_tls13(
        &self,
        message: &[u8],
        signature: &DigitallySignedStruct,
        provider: &CryptoProvider,
    ) -> Result<(), Error> {
        let info = SubjectPublicKeyInfoDer::from(self.info);
        verify_tls13_signature_with_raw_key(message, &info, signature, &provider.signature_verification_algorithms)
            .map(drop)
    }

    /// Why no signature can be verified with it, if it is an RSA key that is too short.
    fn shortcoming(&self) -> Option<UnusableKey> {
        let mut fields = Element::read(&mut &*self.key, SEQUENCE).filter(|_| self.algorithm == RSA)?.content;
        let modulus = Element::read(&mut fields, INTEGER)?.content;
        let first = modulus.iter().position(|byte| *byte != 0)?;
        let significant = modulus.get(first..)?;
        let unused = significant.first()?.leading_zeros();
        let rsa_bits = (significant.len() * 8).saturating_sub(usize::try_from(unused).ok()?);
        (rsa_bits < SHORTEST_RSA).then_some(UnusableKey { rsa_bits: Some(rsa_bits) })
    }
}

/// The error of a verification with the key of `certificate`: the key may be to blame for it.
#[expect(clippy::wildcard_enum_match_arm, reason = "rustls' list is long and grows")]
pub(super) fn explained(error: Error, certificate: &CertificateDer<'_>) -> Error {
    let unusable = match &error {
        Error::InvalidCertificate(CertificateError::BadSignature) => {
            PublicKey::of(certificate).and_then(|key| key.shortcoming())
        }
        Error::InvalidCertificate(CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. }) => {
            Some(UnusableKey { rsa_bits: None })
        }
        _ => None,
    };
    unusable.map_or(error, UnusableKey::error)
}

impl UnusableKey {
    fn error(self) -> Error {
        CertificateError::Other(OtherError(Arc::new(self))).into()
    }
}

impl fmt::Display for UnusableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rsa_bits {
            Some(bits) => write!(f, "its RSA key has {bits} bits, and must have at least {SHORTEST_RSA}"),
            None => f.write_str(
                "its key is of a kind that is not supported; RSA of at least 2,048 bits, ECDSA on P-256, P-384 and P-521, and \
                 Ed25519 are",
            ),
        }
    }
}

impl std::error::Error for UnusableKey {}

/// An element of DER.
struct Element<'a> {
    whole: &'a [u8],
    content: &'a [u8],
}

impl<'a> Element<'a> {
    /// Takes the first element from `input`, if it has this tag.
    fn read(input: &mut &'a [u8], tag: u8) -> Option<Self> {
        let all = *input;
        let rest = all.strip_prefix(&[tag])?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            // No certificate is longer than three bytes of length can say.
            let (length, rest) =
                rest.split_at_checked(usize::from(first & 0x7f)).filter(|(length, _)| length.len() <= 3)?;
            (length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        };
        let (content, rest) = rest.split_at_checked(length)?;
        *input = rest;
        Some(Self { whole: all.get(..all.len() - rest.len())?, content })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::pem::sections;

    fn certificate(pem: &str) -> CertificateDer<'static> {
        sections(pem.as_bytes()).unwrap()[0].der.to_vec().into()
    }

    #[test]
    fn the_length_of_an_rsa_key_is_found_in_certificates_of_both_versions() {
        for pem in [include_str!("test_rsa_1024_v1.pem"), include_str!("test_rsa_1024_v3.pem")] {
            let certificate = certificate(pem);

            let shortcoming = PublicKey::of(&certificate).unwrap().shortcoming();

            assert_eq!(shortcoming, Some(UnusableKey { rsa_bits: Some(1_024) }));
        }
    }

    #[test]
    fn a_signature_that_is_wrong_because_the_key_is_too_short_says_so() {
        let error =
            explained(CertificateError::BadSignature.into(), &certificate(include_str!("test_rsa_1024_v1.pem")));

        let Error::InvalidCertificate(CertificateError::Other(why)) = error else { panic!("{error}") };
        assert_eq!(why.0.to_string(), "its RSA key has 1024 bits, and must have at least 2048");
    }

    #[test]
    fn a_certificate_that_was_cut_or_changed_anywhere_is_read_without_a_panic() {
        let whole = certificate(include_str!("test_rsa_1024_v3.pem"));
        for position in 0..whole.len() {
            let cut = CertificateDer::from(&whole[..position]);
            assert!(PublicKey::of(&cut).is_none());
            for change in [0x01, 0x80, 0xff] {
                let mut changed = whole.to_vec();
                changed[position] ^= change;
                let changed = CertificateDer::from(changed);
                let _ = PublicKey::of(&changed).and_then(|key| key.shortcoming());
            }
        }
    }
}
