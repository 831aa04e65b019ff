//! Where a server is reached: host and port, or a Unix socket path.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The port of a MongoDB server when none is given.
pub const DEFAULT_PORT: u16 = 27017;

/// One endpoint. A pool serves exactly one (CMAP-13).
///
/// Host names are lower-cased when parsed (SDAM-20); the zone of an IPv6 address, as in `fe80::1%Ethernet`, keeps its case. Written and parsed as `host:port`, `[ipv6]:port` or the path of a
/// Unix socket, which ends in `.sock` (URI-3).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ServerAddress {
    /// A host name or an IP address without brackets, and a port.
    Tcp {
        /// Host name or IP address, in lower case but for a zone.
        host: String,
        /// TCP port, never 0.
        port: u16,
    },
    /// The path of a Unix domain socket.
    Unix {
        /// The path, as given.
        path: String,
    },
}

/// A text is not a server's address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not a server address: {problem}; write host:port, [ipv6]:port or a path that ends in .sock")]
pub struct ParseAddressError {
    text: String,
    problem: &'static str,
}

impl ServerAddress {
    /// The address of `host` (lower-cased here) at `port`.
    pub fn tcp(host: &str, port: u16) -> Self {
        Self::Tcp { host: in_lower_case(host), port }
    }

    /// A server's name as others write it, as [`Display`](fmt::Display) writes it: a host in lower case (SDAM-20), the path of a Unix
    /// socket as it is, since the names of files differ by case.
    #[cfg(feature = "wire")]
    pub(crate) fn normalized(name: &str) -> String {
        if is_path(name) { name.to_string() } else { in_lower_case(name) }
    }

    /// `addresses` with their hosts in lower case (SDAM-20), each once, in their order.
    pub fn distinct(addresses: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut seen = BTreeSet::new();
        let in_lower_case = addresses.into_iter().map(|address| match address {
            Self::Tcp { host, port } => Self::tcp(&host, port),
            Self::Unix { .. } => address,
        });
        in_lower_case.filter(|address| seen.insert(address.clone())).collect()
    }

    /// The host alone; a Unix socket has none.
    pub(crate) fn into_host(self) -> Option<String> {
        match self {
            Self::Tcp { host, .. } => Some(host),
            Self::Unix { .. } => None,
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix { path } => f.write_str(path),
        }
    }
}

impl FromStr for ServerAddress {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let error = |problem| ParseAddressError { text: text.to_string(), problem };
        if is_path(text) {
            return Ok(Self::Unix { path: text.to_string() });
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(|| error("a bracket is not closed"))?;
                match rest.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None if rest.is_empty() => (host, None),
                    None => return Err(error("something follows the bracket that is not a port")),
                }
            }
            None => match text.split_once(':') {
                Some((_, port)) if port.contains(':') => return Err(error("an IPv6 address needs brackets")),
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.is_empty() {
            return Err(error("the host is empty"));
        }
        let port = match port {
            None => DEFAULT_PORT,
            Some(digits) => match digits.parse::<u16>() {
                Ok(port) if port > 0 && digits.bytes().all(|byte| byte.is_ascii_digit()) => port,
                _ => return Err(error("the port is not a number from 1 to 65535")),
            },
        };
        Ok(Self::tcp(host, port))
    }
}

/// A host in lower case (SDAM-20). A zone, which begins at the `%` of an IPv6 address, is the name of a network interface, and
/// such names differ by case.
fn in_lower_case(host: &str) -> String {
    match host.split_once('%') {
        Some((address, zone)) if address.contains(':') => alloc::format!("{}%{zone}", address.to_lowercase()),
        _ => host.to_lowercase(),
    }
}

/// Whether a name is the path of a Unix socket (URI-3).
fn is_path(name: &str) -> bool {
    name.ends_with(".sock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_printed_as_it_is_parsed() {
        for (text, printed) in [
            ("db.example:27018", "db.example:27018"),
            ("DB.Example", "db.example:27017"),
            ("[::1]:27018", "[::1]:27018"),
            ("[::1]", "[::1]:27017"),
            ("[FE80::1%Ethernet0]:27018", "[fe80::1%Ethernet0]:27018"),
            ("/tmp/mongodb-27017.sock", "/tmp/mongodb-27017.sock"),
        ] {
            let address: ServerAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), printed);
        }
    }

    #[test]
    fn addresses_that_differ_by_case_alone_are_one() {
        let tcp = |host: &str| ServerAddress::Tcp { host: host.into(), port: DEFAULT_PORT };
        let unix = |path: &str| ServerAddress::Unix { path: path.into() };

        let distinct =
            ServerAddress::distinct([tcp("B"), tcp("a"), tcp("b"), unix("/S.sock"), unix("/s.sock"), tcp("A")]);

        assert_eq!(distinct, [tcp("b"), tcp("a"), unix("/S.sock"), unix("/s.sock")]);
    }

    #[test]
    fn an_unusable_address_is_named_with_its_problem() {
        for (text, problem) in [
            ("", "the host is empty"),
            (":27017", "the host is empty"),
            ("db:0", "the port is not a number"),
            ("db:+1", "the port is not a number"),
            ("db:65536", "the port is not a number"),
            ("::1", "needs brackets"),
            ("[::1", "not closed"),
            ("[::1]x", "follows the bracket"),
        ] {
            let error = text.parse::<ServerAddress>().unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
