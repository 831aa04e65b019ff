//! TLS through rustls, the same on every runtime.
//!
//! [`TlsConfig`] is made once per client: it reads the files that the [options](cmap_core::options::TlsOptions) name.
//! [`TlsSession`] is one connection's TLS without I/O, for any stream, blocking ones included; [`TlsStream`] puts it
//! over a stream with futures-io's traits. [`connect`] does the handshake, and [`accept`] the server's side of it. [`TlsError`] tells a connection that broke
//! (CMAP-50) from a server that is not the right one (CMAP-51), and [`TlsConfigError`] says which file is at fault.
//!
//! What the options mean here:
//!
//! | option | effect |
//! |---|---|
//! | none | the operating system decides which authorities are trusted, and the certificate must be for the host |
//! | `tlsCAFile` | the authorities in the file are trusted, and no others; a server may show a certificate of the file itself |
//! | `tlsCertificateKeyFile`, `tlsCertificateKeyFilePassword` | the certificate that is shown when the server asks (TLS-4) |
//! | `tlsAllowInvalidHostnames` | the certificate may be for another host; a trusted authority must have signed it |
//! | `tlsAllowInvalidCertificates`, `tlsInsecure` | any certificate is accepted, of any version, for any host |
//! | `tlsDisableOCSPEndpointCheck`, `tlsDisableCertificateRevocationCheck` | none: rustls asks nobody about revocation, and what macOS and Windows do about it is not ours to switch off |
//!
//! Even with relaxed checks the server must prove that it has the key of its certificate.

mod certificate_problem;
mod client_certificate;
mod config;
mod config_error;
#[cfg(feature = "encrypted-keys")]
mod encrypted_key;
mod error;
#[cfg(feature = "reverse")]
pub(crate) mod listener;
mod pem;
mod provider;
mod public_key;
mod server_name;
mod session;
mod stream;
mod verifier;

pub use certificate_problem::CertificateProblem;
pub use config::{PemTexts, TlsConfig};
pub use config_error::{PemError, PemOrigin, PemProblem, TlsConfigError};
pub use error::TlsError;
pub use session::{Progress, TlsSession};
pub use stream::{TlsStream, accept, connect};
