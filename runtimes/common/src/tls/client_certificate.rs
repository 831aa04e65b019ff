//! The client's certificate and its private key, from one PEM text (TLS-4).
//!
//! The key may be in PKCS#1, SEC1 or PKCS#8, the last also encrypted with a password (`encrypted_key`). Every copy of it made here is
//! wiped; rustls keeps its copy in the provider's own key type, which wipes itself.

use std::sync::Arc;

use cmap_core::options::Secret;
use rustls::CertificateError;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use rustls::sign::{CertifiedKey, SigningKey};

use super::config_error::PemProblem;
#[cfg(feature = "encrypted-keys")]
use super::encrypted_key::decrypted_key;
use super::pem::{Kind, Section, sections};
use super::provider::any_supported_type;

/// The certificate chain and its key in `text`.
pub(super) fn certified_key(text: &[u8], password: Option<&Secret>) -> Result<CertifiedKey, PemProblem> {
    let (chain, keys): (Vec<Section>, Vec<Section>) =
        sections(text)?.into_iter().partition(|section| section.kind == Kind::Certificate);
    if chain.is_empty() {
        return Err(PemProblem::NoCertificate);
    }
    let key = match keys.as_slice() {
        [] => return Err(PemProblem::NoKey),
        [key] => signing_key(key, password)?,
        [_, _, ..] => return Err(PemProblem::SeveralKeys { count: keys.len() }),
    };
    let chain = chain.iter().map(|section| CertificateDer::from(section.der.to_vec())).collect();
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) => Ok(certified),
        Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => Err(PemProblem::KeyMismatch),
        // The server judges a key that cannot derive its public half.
        Err(rustls::Error::InconsistentKeys(_)) => Ok(certified),
        // The server also judges a certificate of version 1, as `openssl x509 -req` makes it: only webpki cannot read
        // those.
        Err(rustls::Error::InvalidCertificate(CertificateError::Other(other)))
            if other.to_string() == "UnsupportedCertVersion" =>
        {
            Ok(certified)
        }
        Err(source) => Err(PemProblem::BadCertificate { position: 1, source }),
    }
}

fn signing_key(section: &Section, password: Option<&Secret>) -> Result<Arc<dyn SigningKey>, PemProblem> {
    let der = section.der.as_slice();
    let key = match section.kind {
        Kind::Pkcs1Key => PrivateKeyDer::Pkcs1(PrivatePkcs1KeyDer::from(der)),
        Kind::Sec1Key => PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(der)),
        Kind::Pkcs8Key => PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der)),
        Kind::EncryptedPkcs8Key => return decrypted_key(der, password),
        Kind::LegacyEncryptedKey => return Err(PemProblem::LegacyEncryption),
        Kind::Certificate => return Err(PemProblem::NoKey),
    };
    any_supported_type(&key).map_err(PemProblem::BadKey)
}

#[cfg(not(feature = "encrypted-keys"))]
fn decrypted_key(_der: &[u8], _password: Option<&Secret>) -> Result<Arc<dyn SigningKey>, PemProblem> {
    Err(PemProblem::EncryptionNotBuiltIn)
}

#[cfg(all(test, not(feature = "encrypted-keys")))]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_key_names_the_feature_that_opens_it() {
        let text = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n\
            -----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";

        let problem = certified_key(text, None).unwrap_err();

        assert!(problem.to_string().contains("enable the feature `encrypted-keys`"), "{problem}");
    }
}
