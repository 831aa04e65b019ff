//! The configuration that one client's TLS connections share: the trusted authorities, and the client's certificate.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cmap_core::options::{Secret, TlsOptions};
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use zeroize::Zeroizing;

use super::client_certificate::certified_key;
use super::config_error::{PemOrigin, PemProblem, TlsConfigError};
#[cfg(feature = "reverse")]
use super::listener::Source;
use super::pem::{Kind, sections};
use super::provider::default_provider;
use super::verifier::{Accepted, Authorities, Verifier};
use crate::runtime::Runtime;

/// TLS as the options say, ready for any number of connections. Cloning it is cheap, and connections of clones resume
/// each other's sessions.
#[derive(Clone)]
pub struct TlsConfig {
    client: Arc<ClientConfig>,
    clock: Clock,
}

/// The clock by which certificates are judged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clock {
    /// The runtime's, which may be virtual.
    Runtime,
    /// That of rustls' configuration, whose maker may have chosen it.
    OfItsOwn,
}

/// PEM text in memory, for programs whose certificates do not come from files.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct PemTexts<'a> {
    /// The authorities to trust, instead of `tlsCAFile`.
    pub authorities: Option<&'a [u8]>,
    /// The client's certificate and its private key, instead of `tlsCertificateKeyFile`.
    pub certificate_key: Option<&'a [u8]>,
}

impl TlsConfig {
    /// Reads the files that `options` name, once; it blocks while it does. The caller checks whether TLS is on at all
    /// ([`TlsOptions::is_enabled`]).
    ///
    /// # Errors
    ///
    /// [`TlsConfigError`] if a file cannot be read or used, or the system names no authorities to trust.
    pub fn new(options: &TlsOptions) -> Result<Self, TlsConfigError> {
        Self::with_pem(options, PemTexts::default())
    }

    /// As [`TlsConfig::new`]; each of `texts` takes the place of the file that `options` name for it.
    ///
    /// # Errors
    ///
    /// As [`TlsConfig::new`].
    pub fn with_pem(options: &TlsOptions, texts: PemTexts<'_>) -> Result<Self, TlsConfigError> {
        let authorities = Pem::open("tlsCAFile", options.ca_file.as_deref(), texts.authorities)?;
        let certificate_key =
            Pem::open("tlsCertificateKeyFile", options.certificate_key_file.as_deref(), texts.certificate_key)?;
        let authorities = authorities.map(|pem| pem.authorities()).transpose()?;
        let password = options.certificate_key_file_password.as_ref();
        let certificate_key = certificate_key.map(|pem| pem.certified_key(password)).transpose()?;
        Self::assemble(options, authorities, certificate_key)
    }

    /// A configuration of rustls that was made elsewhere, with a provider, verifier or protocol of its own.
    pub fn from_rustls(client: Arc<ClientConfig>) -> Self {
        Self { client, clock: Clock::OfItsOwn }
    }

    /// Names a protocol other than MongoDB's in TLS (ALPN).
    pub fn for_protocol(self, name: &[u8]) -> Self {
        let mut client = ClientConfig::clone(&self.client);
        client.alpn_protocols = vec![name.to_vec()];
        Self { client: Arc::new(client), ..self }
    }

    /// Judges certificates by the time of `runtime`, unless rustls' configuration was made elsewhere.
    pub fn timed_by<R: Runtime>(self, runtime: R) -> Self {
        if self.clock == Clock::OfItsOwn {
            return self;
        }
        let mut client = ClientConfig::clone(&self.client);
        client.time_provider = Arc::new(TimeOf(runtime));
        Self { client: Arc::new(client), ..self }
    }

    pub(super) fn client(&self) -> &Arc<ClientConfig> {
        &self.client
    }

    fn assemble(
        options: &TlsOptions,
        authorities: Option<Authorities>,
        certificate_key: Option<CertifiedKey>,
    ) -> Result<Self, TlsConfigError> {
        // Named here and never installed for the process, which a library must not decide for.
        let provider = Arc::new(default_provider());
        let verifier = verifier(options, authorities, &provider)?;
        // SNI (TLS-3) is rustls' default.
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsConfigError::Cryptography)?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let client = match certificate_key {
            Some(certified) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified))),
            None => builder.with_no_client_auth(),
        };
        Ok(Self { client: Arc::new(client), clock: Clock::Runtime })
    }
}

/// A runtime's time, for rustls.
pub(super) struct TimeOf<R>(pub(super) R);

impl<R: Runtime> TimeProvider for TimeOf<R> {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.0.unix_time()))
    }
}

impl<R> fmt::Debug for TimeOf<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TimeOf(..)")
    }
}

/// Shows whether the client has a certificate; no key and no password.
impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_certificate = self.client.client_auth_cert_resolver.has_certs();
        f.debug_struct("TlsConfig").field("has_certificate", &has_certificate).finish_non_exhaustive()
    }
}

/// Shows which texts are set, because they hold a key.
impl fmt::Debug for PemTexts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PemTexts")
            .field("authorities", &self.authorities.is_some())
            .field("certificate_key", &self.certificate_key.is_some())
            .finish()
    }
}

/// The verifier of the server's certificate.
fn verifier(
    options: &TlsOptions,
    authorities: Option<Authorities>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsConfigError> {
    let accepted = match authorities {
        _ if options.accepts_invalid_certificates() => Accepted::AnyCertificate,
        Some(authorities) if options.accepts_invalid_hostnames() => Accepted::AnyHostName(authorities),
        Some(authorities) => Accepted::Trusted(authorities),
        // The system's own verifier cannot leave the host name out.
        None if options.accepts_invalid_hostnames() => Accepted::AnyHostName(system_authorities()?),
        None => {
            let of_system = rustls_platform_verifier::Verifier::new(Arc::clone(provider));
            return Ok(Arc::new(of_system.map_err(TlsConfigError::SystemAuthorities)?));
        }
    };
    Ok(Arc::new(Verifier { accepted, provider: Arc::clone(provider) }))
}

fn system_authorities() -> Result<Authorities, TlsConfigError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _ignored) = roots.add_parsable_certificates(found.certs.iter().cloned());
    if added == 0 {
        let reason = found.errors.first().map_or_else(|| "none was found".to_owned(), ToString::to_string);
        return Err(TlsConfigError::SystemAuthorities(rustls::Error::General(reason)));
    }
    Ok(Authorities { roots, certificates: found.certs })
}

/// PEM text and where it comes from.
pub(super) struct Pem {
    origin: PemOrigin,
    text: Zeroizing<Vec<u8>>,
}

impl Pem {
    /// The text for `option`: the one in memory, else the file's.
    fn open(option: &'static str, path: Option<&str>, text: Option<&[u8]>) -> Result<Option<Self>, TlsConfigError> {
        Ok(match (text, path) {
            (Some(text), _) => {
                Some(Self { origin: PemOrigin { option, path: None }, text: Zeroizing::new(text.to_vec()) })
            }
            (None, Some(path)) => {
                let origin = PemOrigin { option, path: Some(PathBuf::from(path)) };
                let text = read(path).map_err(|error| origin.error(PemProblem::Unreadable(error)))?;
                Some(Self { origin, text })
            }
            (None, None) => None,
        })
    }

    /// The text for an option of a listener.
    #[cfg(feature = "reverse")]
    pub(super) fn read(option: &'static str, source: &Source<'_>) -> Result<Self, TlsConfigError> {
        let (path, text) = match source {
            Source::Text(text) => (None, Ok(Zeroizing::new(text.to_vec()))),
            Source::File(path) => (Some(path.to_path_buf()), read(path)),
        };
        let origin = PemOrigin { option, path };
        let text = text.map_err(|error| origin.error(PemProblem::Unreadable(error)))?;
        Ok(Self { origin, text })
    }

    pub(super) fn authorities(&self) -> Result<Authorities, TlsConfigError> {
        let mut authorities = Authorities { roots: RootCertStore::empty(), certificates: Vec::new() };
        let sections = sections(&self.text).map_err(|problem| self.origin.error(problem))?;
        let certificates = sections.iter().filter(|section| section.kind == Kind::Certificate);
        for (position, section) in (1..).zip(certificates) {
            let certificate = CertificateDer::from(section.der.to_vec());
            let added = authorities.roots.add(certificate.clone());
            added.map_err(|source| self.origin.error(PemProblem::BadCertificate { position, source }))?;
            authorities.certificates.push(certificate);
        }
        if authorities.roots.is_empty() {
            return Err(self.origin.error(PemProblem::NoCertificate));
        }
        Ok(authorities)
    }

    pub(super) fn certified_key(&self, password: Option<&Secret>) -> Result<CertifiedKey, TlsConfigError> {
        certified_key(&self.text, password).map_err(|problem| self.origin.error(problem))
    }
}

/// The longest file that is read, in bytes: a bound for a path that names an endless file.
const MAX_FILE: usize = 16 << 20;

/// The content of the file, without the copies that a growing buffer leaves behind.
fn read(path: impl AsRef<Path>) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(MAX_FILE).min(MAX_FILE);
    let mut text = Zeroizing::new(Vec::with_capacity(length + 1));
    let read = file.take(MAX_FILE as u64 + 1).read_to_end(&mut text)?;
    if read > MAX_FILE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {MAX_FILE} bytes")));
    }
    Ok(text)
}
