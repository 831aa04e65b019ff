//! The certificates of the embedded server and of its clients, made when it starts and valid for a month.
//!
//! One authority signs what is right, another signs what must be refused. Each file is written as MongoDB's tools take
//! it: a certificate, and after it its private key.

use std::path::{Path, PathBuf};
use std::{fs, io};

use pkcs8::der::pem::{LineEnding, PemLabel as _};
use pkcs8::pkcs5::pbes2;
use pkcs8::{EncryptedPrivateKeyInfoRef, PrivateKeyInfoRef};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use thiserror::Error;
use time::{Duration, OffsetDateTime};

/// The subject of the client's certificate, as MongoDB writes it: a user of this name may log in by MONGODB-X509.
pub const CLIENT_SUBJECT: &str = "CN=client,OU=cmap,O=cmap";
/// The password of the key in `client-encrypted.pem`.
pub const KEY_PASSWORD: &str = "secret";
/// The host that the server's certificate is for when it is to be wrong.
pub const WRONG_HOST: &str = "elsewhere.example";

const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
const VALID_FROM: Duration = Duration::days(-1);
const VALID_FOR: Duration = Duration::days(30);
/// As many as OpenSSL 3 makes, so that every driver reads the key in no time.
const KEY_DERIVATION_ITERATIONS: u32 = 2_048;

/// Which hosts the server's certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerHosts {
    /// `localhost`, `127.0.0.1` and `::1`.
    Local,
    /// [`WRONG_HOST`] alone.
    Wrong,
}

/// Everything that is made.
pub struct Certificates {
    authority: Authority,
    other_authority: Authority,
    server: Identity,
    client: Identity,
    stranger: Identity,
    other_client: Identity,
    encrypted_key: String,
}

/// Certificates cannot be made or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CertificatesError {
    /// A certificate or a key cannot be made.
    #[error("the server's certificates cannot be made; this is a defect, please report it")]
    Make(#[from] rcgen::Error),
    /// The client's key cannot be encrypted.
    #[error("the client's key cannot be encrypted; this is a defect, please report it")]
    Encrypt(#[from] pkcs8::Error),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes for the client's encrypted key")]
    Random,
    /// A file cannot be written.
    #[error("{} cannot be written; give a folder that this process may write to", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl Certificates {
    /// Makes them, with new keys, valid from yesterday.
    ///
    /// # Errors
    ///
    /// [`CertificatesError`] if the system's cryptography fails.
    pub fn make(hosts: ServerHosts) -> Result<Self, CertificatesError> {
        let authority = Authority::make("cmap test authority")?;
        let other_authority = Authority::make("cmap authority to be distrusted")?;
        let server = authority.sign_server(hosts)?;
        let client = authority.sign_client("client")?;
        let stranger = authority.sign_client("stranger")?;
        let other_client = other_authority.sign_client("client")?;
        let encrypted_key = encrypted(&client.key)?;
        Ok(Self { authority, other_authority, server, client, stranger, other_client, encrypted_key })
    }

    /// Writes `ca.pem`, `server.pem`, `client.pem`, `client-encrypted.pem`, `stranger.pem`, `other-ca.pem` and
    /// `other-client.pem` into `folder`, which is made if it does not exist.
    ///
    /// # Errors
    ///
    /// [`CertificatesError::Write`] with the file that cannot be written.
    pub fn write_to(&self, folder: &Path) -> Result<(), CertificatesError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            |source| CertificatesError::Write { path, source }
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        for (name, text) in [
            ("ca.pem", self.authority.issuer.pem()),
            ("server.pem", self.server.pem()),
            ("client.pem", self.client.pem()),
            ("client-encrypted.pem", format!("{}{}", self.client.certificate.pem(), self.encrypted_key)),
            ("stranger.pem", self.stranger.pem()),
            ("other-ca.pem", self.other_authority.issuer.pem()),
            ("other-client.pem", self.other_client.pem()),
        ] {
            let path = folder.join(name);
            fs::write(&path, text).map_err(failed(&path))?;
        }
        Ok(())
    }

    /// The certificate of the authority that clients' certificates must be signed by.
    pub fn authority(&self) -> CertificateDer<'static> {
        self.authority.issuer.der().clone()
    }

    /// The server's certificate and its key.
    pub fn server(&self) -> (CertificateDer<'static>, PrivatePkcs8KeyDer<'static>) {
        (self.server.certificate.der().clone(), PrivatePkcs8KeyDer::from(self.server.key.serialize_der()))
    }
}

/// Signs certificates.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key.
struct Identity {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    fn make(common_name: &str) -> Result<Self, rcgen::Error> {
        let mut params = params(Vec::new(), common_name)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    fn sign_server(&self, hosts: ServerHosts) -> Result<Identity, rcgen::Error> {
        let hosts = match hosts {
            ServerHosts::Local => LOCAL_HOSTS.map(str::to_owned).to_vec(),
            ServerHosts::Wrong => vec![WRONG_HOST.to_owned()],
        };
        self.sign(params(hosts, "server")?, ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn sign_client(&self, common_name: &str) -> Result<Identity, rcgen::Error> {
        self.sign(params(Vec::new(), common_name)?, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, mut params: CertificateParams, purpose: ExtendedKeyUsagePurpose) -> Result<Identity, rcgen::Error> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        Ok(Identity { certificate: params.signed_by(&key, &self.issuer)?, key })
    }
}

impl Identity {
    fn pem(&self) -> String {
        format!("{}{}", self.certificate.pem(), self.key.serialize_pem())
    }
}

fn params(hosts: Vec<String>, common_name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(hosts)?;
    // RFC 2253 writes a subject from its end: CN=..,OU=cmap,O=cmap.
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "cmap");
    subject.push(DnType::OrganizationalUnitName, "cmap");
    subject.push(DnType::CommonName, common_name);
    params.distinguished_name = subject;
    params.not_before = OffsetDateTime::now_utc() + VALID_FROM;
    params.not_after = params.not_before + VALID_FOR;
    Ok(params)
}

/// The key as PEM of PKCS#8, encrypted with [`KEY_PASSWORD`].
fn encrypted(key: &KeyPair) -> Result<String, CertificatesError> {
    let random = aws_lc_rs::default_provider().secure_random;
    let (mut salt, mut iv) = ([0; 16], [0; 16]);
    random.fill(&mut salt).and_then(|()| random.fill(&mut iv)).map_err(|_| CertificatesError::Random)?;
    let params = pbes2::Parameters::generate_pbkdf2_sha256_aes256cbc(KEY_DERIVATION_ITERATIONS, &salt, iv)
        .map_err(pkcs8::Error::from)?;
    let key = PrivateKeyInfoRef::try_from(key.serialized_der())?.encrypt_with_params(params, KEY_PASSWORD)?;
    let pem = key.to_pem(EncryptedPrivateKeyInfoRef::PEM_LABEL, LineEnding::LF).map_err(pkcs8::Error::from)?;
    Ok(pem.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_written_with_what_it_is_for() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");

        Certificates::make(ServerHosts::Local).unwrap().write_to(&folder).unwrap();

        for (name, keys) in [
            ("ca.pem", 0),
            ("server.pem", 1),
            ("client.pem", 1),
            ("client-encrypted.pem", 1),
            ("stranger.pem", 1),
            ("other-ca.pem", 0),
            ("other-client.pem", 1),
        ] {
            let text = fs::read_to_string(folder.join(name)).unwrap();
            assert_eq!(text.matches("BEGIN CERTIFICATE").count(), 1, "{name}");
            assert_eq!(text.matches("PRIVATE KEY-----").count(), 2 * keys, "{name}");
            assert_eq!(text.contains("BEGIN ENCRYPTED PRIVATE KEY"), name == "client-encrypted.pem", "{name}");
        }
    }

    #[test]
    fn the_encrypted_key_is_the_clients() {
        let certificates = Certificates::make(ServerHosts::Local).unwrap();

        let (_, document) = pkcs8::Document::from_pem(&certificates.encrypted_key).unwrap();
        let encrypted = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes()).unwrap();

        assert_eq!(encrypted.decrypt(KEY_PASSWORD).unwrap().as_bytes(), certificates.client.key.serialized_der());
        assert!(encrypted.decrypt("wrong").is_err());
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let folder = file.path().join("folder");

        let error = Certificates::make(ServerHosts::Wrong).unwrap().write_to(&folder).unwrap_err();

        assert!(error.to_string().starts_with(&folder.display().to_string()), "{error}");
    }
}
