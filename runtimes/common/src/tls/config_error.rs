//! Why TLS cannot be set up: found when the client is made, before any connection.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// The options of TLS cannot be used. It names the option and the file, and says what to do; it never holds a secret.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// A PEM file, or PEM text in memory, cannot be used.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The operating system names no authorities to trust.
    #[error(
        "the system has no certificate authorities to trust; install them (on Debian and Alpine the package \
         ca-certificates), or set tlsCAFile to a PEM file of those to trust"
    )]
    SystemAuthorities(#[source] rustls::Error),
    /// The cryptography provider cannot speak TLS.
    #[error("rustls cannot be set up with its cryptography; this is a defect, please report it")]
    Cryptography(#[source] rustls::Error),
}

crate::readable_debug::readable_debug!(TlsConfigError);

/// PEM text cannot be used. It displays as one sentence; its source is the cause of the problem.
#[derive(Debug)]
#[non_exhaustive]
pub struct PemError {
    /// The option and the file.
    pub origin: PemOrigin,
    /// The problem.
    pub problem: PemProblem,
}

/// Where PEM text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PemOrigin {
    /// The option, as the specification spells it.
    pub option: &'static str,
    /// The file; `None` for text in memory.
    pub path: Option<PathBuf>,
}

/// A problem of a PEM file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PemProblem {
    /// The file cannot be read.
    #[error("cannot be read; check that the path is right and the file may be read by this process")]
    Unreadable(#[source] io::Error),
    /// A section has no end.
    #[error("has a section in line {line} without its END line; the file may be cut short")]
    NotEnded {
        /// The line of its BEGIN, counted from 1.
        line: usize,
    },
    /// A section's content is damaged.
    #[error("has a section in line {line} that is not base64; the file is damaged")]
    NotBase64 {
        /// The line of its BEGIN, counted from 1.
        line: usize,
    },
    /// There is no certificate.
    #[error("has no certificate; it must be PEM, with a line -----BEGIN CERTIFICATE-----")]
    NoCertificate,
    /// A certificate cannot be read.
    #[error("has certificate number {position} that cannot be read; the file is damaged, write it anew")]
    BadCertificate {
        /// Its number, counted from 1.
        position: usize,
        /// The error of rustls.
        source: rustls::Error,
    },
    /// There is no private key.
    #[error("has no private key; append the certificate's key to it")]
    NoKey,
    /// There is more than one private key.
    #[error("has {count} private keys; leave only the one of its first certificate")]
    SeveralKeys {
        /// How many.
        count: usize,
    },
    /// The private key is encrypted by a `Proc-Type` header.
    #[error(
        "has a private key that is encrypted in an outdated way (Proc-Type: 4,ENCRYPTED); convert it with \
         `openssl pkcs8 -topk8 -v2 aes-256-cbc -in OLD.pem -out NEW.pem` and append the certificate to NEW.pem"
    )]
    LegacyEncryption,
    /// The private key is encrypted, and there is no password.
    #[error("has an encrypted private key; set tlsCertificateKeyFilePassword to its password")]
    PasswordMissing,
    /// The private key is encrypted with another password.
    #[error("has a private key that tlsCertificateKeyFilePassword does not open; check the password")]
    PasswordWrong,
    /// The private key is encrypted, and this build cannot decrypt any.
    #[error(
        "has an encrypted private key, which this build cannot open: enable the feature `encrypted-keys` of the cmap crate that \
         you use, or decrypt the key with `openssl pkcs8 -in OLD.pem -out NEW.pem`"
    )]
    EncryptionNotBuiltIn,
    /// The private key is encrypted in a way that is not supported.
    #[cfg(feature = "encrypted-keys")]
    #[error(
        "has a private key that is encrypted in a way that is not supported; convert it with \
         `openssl pkcs8 -topk8 -v2 aes-256-cbc -in OLD.pem -out NEW.pem` and append the certificate to NEW.pem"
    )]
    UnsupportedEncryption(#[source] pkcs8::Error),
    /// The private key is of a kind that is not supported, or damaged.
    #[error(
        "has a private key that cannot be used; RSA of at least 2,048 bits, ECDSA on P-256, P-384 and P-521, and Ed25519 can"
    )]
    BadKey(#[source] rustls::Error),
    /// The private key belongs to another certificate.
    #[error("has a private key that is not the one of its first certificate; put the certificate of that key first")]
    KeyMismatch,
}

impl PemOrigin {
    pub(super) fn error(&self, problem: PemProblem) -> TlsConfigError {
        PemError { origin: self.clone(), problem }.into()
    }
}

impl fmt::Display for PemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.origin, self.problem)
    }
}

impl Error for PemError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.problem.source()
    }
}

impl fmt::Display for PemOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{} ({})", self.option, path.display()),
            None => write!(f, "the PEM text given for {}", self.option),
        }
    }
}
