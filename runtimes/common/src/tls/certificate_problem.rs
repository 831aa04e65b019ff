//! Why a server's certificate is not trusted, in words that say what to do.

use std::fmt;
use std::net::IpAddr;

use rustls::{CertificateError, OtherError};

use super::public_key::UnusableKey;

/// Why the server's certificate is not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateProblem {
    /// No trusted authority has signed it.
    UnknownIssuer,
    /// A signature is not right: a trusted authority has the name of the one that signed it, but another key, or the
    /// server does not have the certificate's key.
    BadSignature,
    /// It is for other hosts.
    WrongHost {
        /// The hosts that it is for, if they are known: host names, perhaps with a wildcard, and IP addresses. One that stands as
        /// a host name there, and looks like an address, says so.
        names: Vec<String>,
    },
    /// It has expired.
    Expired {
        /// How many seconds ago, if that is known.
        seconds_ago: Option<u64>,
    },
    /// It is not valid yet.
    NotYetValid {
        /// In how many seconds it becomes valid, if that is known.
        seconds_ahead: Option<u64>,
    },
    /// Its authority has revoked it.
    Revoked,
    /// It is an authority's own certificate, which a server may show only if it is trusted byte for byte.
    Authority,
    /// It is of X.509's version 1 or 2, which have no host names.
    OldVersion,
    /// Nothing can be verified with its key.
    UnusableKey {
        /// The length of an RSA key that is too short.
        rsa_bits: Option<usize>,
    },
    /// Anything else, as rustls tells it.
    Other(String),
}

impl From<&CertificateError> for CertificateProblem {
    #[expect(clippy::wildcard_enum_match_arm, reason = "rustls' list is long and grows")]
    fn from(error: &CertificateError) -> Self {
        match error {
            CertificateError::UnknownIssuer => Self::UnknownIssuer,
            CertificateError::BadSignature => Self::BadSignature,
            CertificateError::NotValidForNameContext { presented, .. } => {
                Self::WrongHost { names: presented.iter().map(|name| bare_name(name)).collect() }
            }
            CertificateError::NotValidForName => Self::WrongHost { names: Vec::new() },
            CertificateError::ExpiredContext { time, not_after } => {
                Self::Expired { seconds_ago: Some(time.as_secs().saturating_sub(not_after.as_secs())) }
            }
            CertificateError::Expired => Self::Expired { seconds_ago: None },
            CertificateError::NotValidYetContext { time, not_before } => {
                Self::NotYetValid { seconds_ahead: Some(not_before.as_secs().saturating_sub(time.as_secs())) }
            }
            CertificateError::NotValidYet => Self::NotYetValid { seconds_ahead: None },
            CertificateError::Revoked => Self::Revoked,
            CertificateError::Other(OtherError(other)) => match other.downcast_ref::<UnusableKey>() {
                Some(&UnusableKey { rsa_bits }) => Self::UnusableKey { rsa_bits },
                // webpki's own errors, which rustls hands on.
                None if other.to_string() == AUTHORITY => Self::Authority,
                None if other.to_string() == "UnsupportedCertVersion" => Self::OldVersion,
                None => Self::Other(other.to_string()),
            },
            other => Self::Other(other.to_string()),
        }
    }
}

/// webpki's error for an authority's certificate that a server shows as its own.
const AUTHORITY: &str = "CaUsedAsEndEntity";

/// Whether the certificate of a server is one of an authority.
pub(super) fn is_of_authority(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(CertificateError::Other(other)) if other.0.to_string() == AUTHORITY)
}

/// The name in webpki's description of it, `DnsName("db.example")` or `IpAddress(0::1)`. The owner of the certificate chose the name, so
/// characters that a log would obey are escaped.
fn bare_name(described: &str) -> String {
    let inside = described.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(described);
    if let Ok(address) = inside.parse::<IpAddr>() {
        return address.to_string();
    }
    let name = inside.trim_matches('"');
    match name.parse::<IpAddr>() {
        Ok(address) => format!("{address}{AS_HOST_NAME}"),
        Err(_) => name.escape_debug().to_string(),
    }
}

/// Follows an address that a certificate has as a host name, where no client looks for it.
const AS_HOST_NAME: &str = " as a host name";

impl fmt::Display for CertificateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownIssuer => f.write_str(
                "no authority that is trusted has signed it; set tlsCAFile to the PEM file of the authority that did",
            ),
            Self::BadSignature => f.write_str(
                "a signature is wrong: either tlsCAFile has another authority of the same name, and must be set to the \
                 PEM file of the one that signed it, or the server does not have its key",
            ),
            Self::WrongHost { names } if names.is_empty() => f.write_str(
                "it is for another host; connect by a name in its subjectAltName, or give the server a certificate \
                 for this one",
            ),
            Self::WrongHost { names } if names.iter().any(|name| name.ends_with(AS_HOST_NAME)) => write!(
                f,
                "it is for {}; give the server one whose subjectAltName has the address as an address (IP:, not DNS:)",
                names.join(", ")
            ),
            Self::WrongHost { names } => write!(
                f,
                "it is for {}; connect by such a name, or give the server a certificate for this one",
                names.join(", ")
            ),
            Self::Expired { seconds_ago } => {
                write!(f, "it expired{}; renew it, or set this machine's clock", Ago(*seconds_ago, " ago"))
            }
            Self::NotYetValid { seconds_ahead } => {
                write!(f, "it is not valid yet{}; set this machine's clock", Ago(*seconds_ahead, " to go"))
            }
            Self::Revoked => f.write_str("its authority has withdrawn it; give the server a new one"),
            Self::Authority => f.write_str(
                "it is an authority's own (CA:TRUE); set tlsCAFile to this very certificate, or let the authority sign one for \
                 the server",
            ),
            Self::OldVersion => f.write_str(
                "it is of X.509's version 1, which names no hosts; make one of version 3 with a subjectAltName (openssl x509 \
                 -req -extfile), or, for tests alone, set tlsAllowInvalidCertificates",
            ),
            Self::UnusableKey { rsa_bits } => {
                write!(f, "{}; give the server a certificate with another key", UnusableKey { rsa_bits: *rsa_bits })
            }
            Self::Other(reason) => write!(f, "{reason}; give the server a certificate that can be verified"),
        }
    }
}

/// A span of time as precise as people need, followed by a text; empty if the time is not known.
struct Ago(Option<u64>, &'static str);

impl fmt::Display for Ago {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(seconds) = self.0 else { return Ok(()) };
        let (amount, unit) = match seconds {
            0..7_200 => (seconds / 60, "minutes"),
            7_200..172_800 => (seconds / 3_600, "hours"),
            172_800.. => (seconds / 86_400, "days"),
        };
        write!(f, ", {amount} {unit}{}", self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_without_what_webpki_writes_around_them() {
        assert_eq!(bare_name("DnsName(\"*.db.example\")"), "*.db.example");
        assert_eq!(bare_name("IpAddress(0::1)"), "::1");
        assert_eq!(bare_name("DnsName(\"127.0.0.1\")"), "127.0.0.1 as a host name");
        assert_eq!(bare_name("DirectoryName"), "DirectoryName");
        assert_eq!(bare_name("DnsName(\"a\nWARN all is well\")"), r"a\nWARN all is well");
    }

    #[test]
    fn spans_of_time_are_told_in_the_unit_that_fits() {
        for (seconds, told) in [(59, "0 minutes"), (7_199, "119 minutes"), (7_200, "2 hours"), (172_800, "2 days")] {
            let problem = CertificateProblem::Expired { seconds_ago: Some(seconds) };
            assert!(problem.to_string().contains(&format!("expired, {told} ago;")), "{problem}");
        }
        let unknown = CertificateProblem::Expired { seconds_ago: None };
        assert!(unknown.to_string().starts_with("it expired; renew it"), "{unknown}");
    }
}
