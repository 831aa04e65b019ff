//! Certificates for tests: an authority and the certificates that it signs, made on the spot and valid from yesterday
//! for a month.
//!
//! Feature `certificates`. The server itself has no TLS: the code that puts it behind a socket adds it, with these
//! certificates.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pkcs8::PrivateKeyInfoRef;
use pkcs8::pkcs5::pbes2;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256, date_time_ymd,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use thiserror::Error;
use time::{Duration, OffsetDateTime};

/// The hosts by which a server on this machine is reached.
pub const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

const VALID_FROM: Duration = Duration::days(-1);
const VALID_FOR: Duration = Duration::days(30);

/// As many iterations as OpenSSL 3 uses, so that every driver reads the key quickly.
const KEY_DERIVATION_ITERATIONS: u32 = 2_048;

/// Signs certificates.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    made_at: OffsetDateTime,
}

/// A certificate and its key.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

/// A server's certificate for `hosts` that is its own authority (CA:TRUE), as `openssl req -x509` makes it.
///
/// # Errors
/// See [`Authority::new`].
pub fn self_signed(hosts: &[&str], validity: Validity) -> Result<Identity, CertificateError> {
    let mut params = params(hosts, "self-signed", OffsetDateTime::now_utc(), validity)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    Ok(Identity { certificate: params.self_signed(&key)?.into(), key })
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// From yesterday for a month.
    Now,
    /// Years ago.
    Over,
    /// In some centuries.
    NotBegun,
}

/// The kinds of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// ECDSA on the curve P-256.
    P256,
    /// Ed25519.
    Ed25519,
    /// RSA.
    Rsa,
}

/// A certificate or a key cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A certificate or a key cannot be made.
    #[error("a certificate cannot be made; this is a defect, please report it")]
    Make(#[from] rcgen::Error),
    /// A key cannot be encrypted.
    #[error("a key cannot be encrypted; this is a defect, please report it")]
    Encrypt(#[from] pkcs8::Error),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes for an encrypted key")]
    Random(#[from] getrandom::Error),
}

/// The subject of the certificates of `common_name`, as MongoDB writes it: the name of a user who logs in by
/// MONGODB-X509.
pub fn subject(common_name: &str) -> String {
    format!("CN={common_name},OU=cmap,O=cmap")
}

impl Authority {
    /// An authority with a new key.
    ///
    /// # Errors
    /// The system's cryptography fails; the same holds for all functions here that make something.
    pub fn new(common_name: &str) -> Result<Self, CertificateError> {
        Self::made(common_name, OffsetDateTime::now_utc())
    }

    /// An authority with a new key, for whose certificates it is `now`, the time since 1970: in virtual time another one than
    /// the system's.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn made_at(common_name: &str, now: core::time::Duration) -> Result<Self, CertificateError> {
        Self::made(
            common_name,
            OffsetDateTime::UNIX_EPOCH.saturating_add(Duration::try_from(now).unwrap_or(Duration::MAX)),
        )
    }

    fn made(common_name: &str, made_at: OffsetDateTime) -> Result<Self, CertificateError> {
        let mut params = params(&[], common_name, made_at, Validity::Now)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)?, made_at })
    }

    /// Its own certificate.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// Its own certificate, as a file has it.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Its own certificate and key, as a server may show them by mistake.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn as_identity(&self) -> Result<Identity, CertificateError> {
        let key = KeyPair::try_from(self.issuer.key().serialized_der())?;
        Ok(Identity { certificate: self.certificate(), key })
    }

    /// A server's certificate for `hosts`.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn server(&self, hosts: &[&str], validity: Validity) -> Result<Identity, CertificateError> {
        self.sign(params(hosts, "server", self.made_at, validity)?, ExtendedKeyUsagePurpose::ServerAuth, KeyKind::P256)
    }

    /// A client's certificate.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn client(&self, common_name: &str, key: KeyKind) -> Result<Identity, CertificateError> {
        self.sign(params(&[], common_name, self.made_at, Validity::Now)?, ExtendedKeyUsagePurpose::ClientAuth, key)
    }

    /// A certificate of an agent that speaks for the members on `hosts`.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn agent(&self, hosts: &[&str]) -> Result<Identity, CertificateError> {
        let params = params(hosts, "agent", self.made_at, Validity::Now)?;
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth, KeyKind::P256)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        purpose: ExtendedKeyUsagePurpose,
        key: KeyKind,
    ) -> Result<Identity, CertificateError> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate_for(match key {
            KeyKind::P256 => &PKCS_ECDSA_P256_SHA256,
            KeyKind::Ed25519 => &PKCS_ED25519,
            KeyKind::Rsa => &PKCS_RSA_SHA256,
        })?;
        Ok(Identity { certificate: params.signed_by(&key, &self.issuer)?.into(), key })
    }
}

impl Identity {
    /// The certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The key.
    pub fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }

    /// The certificate followed by its key, as MongoDB's tools take them.
    pub fn pem(&self) -> String {
        self.certificate_pem() + &self.key_pem()
    }

    /// The certificate, as a file has it.
    pub fn certificate_pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    /// The key in PKCS#8, as a file has it.
    pub fn key_pem(&self) -> String {
        pem("PRIVATE KEY", self.key.serialized_der())
    }

    /// The key alone, as older files have it: `label` is that of its kind.
    ///
    /// # Errors
    /// See [`Authority::new`].
    pub fn bare_key_pem(&self, label: &str) -> Result<String, CertificateError> {
        let key = PrivateKeyInfoRef::try_from(self.key.serialized_der())?;
        Ok(pem(label, key.private_key.as_bytes()))
    }

    /// The key in PKCS#8, encrypted with `password` as OpenSSL 3 does it.
    ///
    /// # Errors
    /// See [`Authority::new`].
    pub fn encrypted_key_pem(&self, password: &str) -> Result<String, CertificateError> {
        let (mut salt, mut iv) = ([0; 16], [0; 16]);
        getrandom::fill(&mut salt)?;
        getrandom::fill(&mut iv)?;
        let params = pbes2::Parameters::generate_pbkdf2_sha256_aes256cbc(KEY_DERIVATION_ITERATIONS, &salt, iv)
            .map_err(pkcs8::Error::from)?;
        let key = PrivateKeyInfoRef::try_from(self.key.serialized_der())?;
        Ok(pem("ENCRYPTED PRIVATE KEY", key.encrypt_with_params(params, password)?.as_bytes()))
    }
}

fn params(
    hosts: &[&str],
    common_name: &str,
    now: OffsetDateTime,
    validity: Validity,
) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::new(hosts.iter().map(|&host| host.to_owned()).collect::<Vec<_>>())?;
    // RFC 2253 writes a subject from its end: see `subject`.
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "cmap");
    name.push(DnType::OrganizationalUnitName, "cmap");
    name.push(DnType::CommonName, common_name);
    params.distinguished_name = name;
    let begin = match validity {
        Validity::Now => now.saturating_add(VALID_FROM),
        Validity::Over => date_time_ymd(2020, 1, 1),
        Validity::NotBegun => date_time_ymd(3000, 1, 1),
    };
    (params.not_before, params.not_after) = (begin, begin.saturating_add(VALID_FOR));
    Ok(params)
}

fn pem(label: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    // 48 bytes are a line of 64 characters.
    for line in der.chunks(48) {
        STANDARD.encode_string(line, &mut text);
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use pkcs8::EncryptedPrivateKeyInfoRef;

    use super::*;

    #[test]
    fn the_encrypted_key_is_the_clients() {
        let client = Authority::new("authority").unwrap().client("client", KeyKind::P256).unwrap();

        let (_, document) = pkcs8::Document::from_pem(&client.encrypted_key_pem("secret").unwrap()).unwrap();
        let encrypted = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes()).unwrap();

        assert_eq!(encrypted.decrypt("secret").unwrap().as_bytes(), client.key().secret_der());
        assert!(encrypted.decrypt("wrong").is_err());
    }
}
