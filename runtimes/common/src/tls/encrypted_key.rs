//! Private keys that are encrypted with a password, in PKCS#8.

use std::sync::Arc;

use cmap_core::options::Secret;
use pkcs8::pkcs5;
use pkcs8::{EncryptedPrivateKeyInfoRef, PrivateKeyInfoRef};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::SigningKey;

use super::config_error::PemProblem;
use super::provider::any_supported_type;

#[expect(clippy::wildcard_enum_match_arm, reason = "every other error says that the encryption is not supported")]
pub(super) fn decrypted_key(der: &[u8], password: Option<&Secret>) -> Result<Arc<dyn SigningKey>, PemProblem> {
    let encrypted = EncryptedPrivateKeyInfoRef::try_from(der).map_err(PemProblem::UnsupportedEncryption)?;
    let password = password.ok_or(PemProblem::PasswordMissing)?;
    let decrypted = encrypted.decrypt(password.expose()).map_err(|error| match error {
        // The padding reveals a wrong password. One in 256 gets past it, and then the decrypted bytes are not DER.
        pkcs8::Error::EncryptedPrivateKey(pkcs5::Error::DecryptFailed) | pkcs8::Error::Asn1(_) => {
            PemProblem::PasswordWrong
        }
        other => PemProblem::UnsupportedEncryption(other),
    })?;
    PrivateKeyInfoRef::try_from(decrypted.as_bytes()).map_err(|_| PemProblem::PasswordWrong)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(decrypted.as_bytes()));
    any_supported_type(&key).map_err(PemProblem::BadKey)
}
