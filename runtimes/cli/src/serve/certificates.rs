//! The certificates of the test server and of its clients, made when it starts and valid for a month.
//!
//! One authority signs the valid certificates, another signs those that must be refused. Each file is written as
//! MongoDB's tools take it: a certificate, and after it its private key.

use std::path::{Path, PathBuf};
use std::{fs, io};

use cmap_test_server::certificates::{Authority, CertificateError, Identity, KeyKind, LOCAL_HOSTS, Validity};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

/// The subject of the client's certificate, as MongoDB writes it: a user of this name may log in by MONGODB-X509.
pub(crate) const CLIENT_SUBJECT: &str = "CN=client,OU=cmap,O=cmap";
/// The password of the key in `client-encrypted.pem`.
pub(crate) const KEY_PASSWORD: &str = "secret";
/// The host of the server's certificate if it must be wrong.
pub(crate) const WRONG_HOST: &str = "elsewhere.example";

/// The hosts that the server's certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerHosts {
    /// `localhost`, `127.0.0.1` and `::1`.
    Local,
    /// [`WRONG_HOST`] alone.
    Wrong,
}

/// All certificates.
pub(crate) struct Certificates {
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
pub(crate) enum CertificatesError {
    /// A certificate or a key cannot be made.
    #[error("the server's certificates cannot be made")]
    Make(#[from] CertificateError),
    /// A file cannot be written.
    #[error("{} cannot be written; give a folder that this process may write to", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Certificates {
    /// Makes them, with new keys, valid from yesterday.
    ///
    /// # Errors
    ///
    /// [`CertificatesError`] if the system's cryptography fails.
    pub(crate) fn make(hosts: ServerHosts) -> Result<Self, CertificatesError> {
        let hosts = match hosts {
            ServerHosts::Local => &LOCAL_HOSTS[..],
            ServerHosts::Wrong => &[WRONG_HOST],
        };
        let authority = Authority::new("cmap test authority")?;
        let other_authority = Authority::new("cmap authority to be distrusted")?;
        let server = authority.server(hosts, Validity::Now)?;
        let client = authority.client("client", KeyKind::P256)?;
        let stranger = authority.client("stranger", KeyKind::P256)?;
        let other_client = other_authority.client("client", KeyKind::P256)?;
        let encrypted_key = client.encrypted_key_pem(KEY_PASSWORD)?;
        Ok(Self { authority, other_authority, server, client, stranger, other_client, encrypted_key })
    }

    /// Writes `ca.pem`, `server.pem`, `client.pem`, `client-encrypted.pem`, `stranger.pem`, `other-ca.pem` and
    /// `other-client.pem` into `folder`, which is made if it does not exist.
    ///
    /// # Errors
    ///
    /// [`CertificatesError::Write`] with the file that cannot be written.
    pub(crate) fn write_to(&self, folder: &Path) -> Result<(), CertificatesError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            |source| CertificatesError::Write { path, source }
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        for (name, text) in [
            ("ca.pem", self.authority.pem()),
            ("server.pem", self.server.pem()),
            ("client.pem", self.client.pem()),
            ("client-encrypted.pem", format!("{}{}", self.client.certificate_pem(), self.encrypted_key)),
            ("stranger.pem", self.stranger.pem()),
            ("other-ca.pem", self.other_authority.pem()),
            ("other-client.pem", self.other_client.pem()),
        ] {
            let path = folder.join(name);
            fs::write(&path, text).map_err(failed(&path))?;
        }
        Ok(())
    }

    /// The certificate of the authority that must sign clients' certificates.
    pub(crate) fn authority(&self) -> CertificateDer<'static> {
        self.authority.certificate()
    }

    /// The server's certificate and its key.
    pub(crate) fn server(&self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        (self.server.certificate().clone(), self.server.key())
    }
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
    fn a_file_that_cannot_be_written_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let folder = file.path().join("folder");

        let error = Certificates::make(ServerHosts::Wrong).unwrap().write_to(&folder).unwrap_err();

        assert!(error.to_string().starts_with(&folder.display().to_string()), "{error}");
    }
}
