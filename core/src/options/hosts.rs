//! The hosts of a connection string: names, IP addresses in brackets or not, and Unix sockets (URI-3).
//!
//! A port is never shown in an error: where `@` is missing, or a password holds a slash, it is the password.

use alloc::string::String;
use core::net::{Ipv4Addr, Ipv6Addr};

use thiserror::Error;

use super::percent::{self, EncodingError};
use crate::address::{DEFAULT_PORT, ServerAddress};

/// What is wrong with a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HostProblem {
    /// It is empty, or only a port.
    #[error("is empty; write host:port, and commas only between hosts")]
    Empty,
    /// A path that is not encoded.
    #[error("has a slash but does not end in .sock; write a Unix socket as %2Fpath%2Fto%2Fname.sock")]
    Slash,
    /// The port is not a number from 1 to 65535.
    #[error(
        "has a port that is not a number from 1 to 65535; write host:port, and in a password %2F for / and %3F for ?"
    )]
    Port,
    /// More than one colon without brackets.
    #[error("has more than one :; write an IPv6 address in brackets, [::1]:port")]
    Colons,
    /// A bracket without its partner, or followed by something other than a port.
    #[error("has a bracket out of place; write [ipv6] or [ipv6]:port")]
    Bracket,
    /// The text in brackets is not an IPv6 address.
    #[error("has something else than an IPv6 address in brackets; write [::1]")]
    NotIpv6,
    /// A space, a control character or a delimiter.
    #[error("has a character that no host has; write host:port")]
    Character,
    /// It cannot be decoded.
    #[error("cannot be decoded: {0}")]
    Encoding(EncodingError),
}

/// One entry of the list of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) address: ServerAddress,
    pub(super) has_port: bool,
}

/// Reads one entry of the list of hosts. A slash, which must be encoded, tells a Unix socket from a host that is called
/// `name.sock`.
pub(super) fn read(text: &str) -> Result<Host, HostProblem> {
    let decoded = percent::decode(text)?;
    if decoded.contains('/') {
        return socket(&decoded).map(|address| Host { address, has_port: false });
    }
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or(HostProblem::Bracket)?;
        let port = match rest.strip_prefix(':') {
            None if rest.is_empty() => None,
            None => return Err(HostProblem::Bracket),
            Some(port) => Some(port),
        };
        (ip_literal(host)?, port)
    } else {
        let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
        if port.is_some_and(|port| port.contains(':')) {
            return Err(HostProblem::Colons);
        }
        (name(host)?, port)
    };
    let number = match port {
        None => DEFAULT_PORT,
        Some(digits) => match digits.parse() {
            Ok(port) if port > 0 && digits.bytes().all(|byte| byte.is_ascii_digit()) => port,
            _ => return Err(HostProblem::Port),
        },
    };
    Ok(Host { address: ServerAddress::tcp(&host, number), has_port: port.is_some() })
}

/// The host as an error shows it: without any part that may be a port, or a password.
pub(super) fn without_port(text: &str) -> &str {
    match text.find(']') {
        Some(bracket) if text.starts_with('[') => text.get(..=bracket).unwrap_or_default(),
        _ => text.split(':').next().unwrap_or_default(),
    }
}

/// Whether this is an IP address, as opposed to the name of a host.
pub(super) fn is_ip_address(host: &str) -> bool {
    host.parse::<Ipv4Addr>().is_ok() || host.contains(':')
}

fn socket(path: &str) -> Result<ServerAddress, HostProblem> {
    if !path.ends_with(".sock") {
        return Err(HostProblem::Slash);
    }
    if path.contains(char::is_control) {
        return Err(HostProblem::Character);
    }
    Ok(ServerAddress::Unix { path: path.into() })
}

/// The address in brackets; after a `%` it may name a zone, as in `fe80::1%25eth0`.
fn ip_literal(text: &str) -> Result<String, HostProblem> {
    let host = percent::decode(text)?;
    let (address, zone) = host.split_once('%').unwrap_or((&host, "0"));
    let is_zone = !zone.is_empty() && zone.chars().all(|c| c.is_ascii_alphanumeric() || "-._~".contains(c));
    if address.parse::<Ipv6Addr>().is_err() || !is_zone {
        return Err(HostProblem::NotIpv6);
    }
    Ok(host.as_str().into())
}

fn name(text: &str) -> Result<String, HostProblem> {
    let host = percent::decode(text)?;
    if host.is_empty() {
        return Err(HostProblem::Empty);
    }
    if host.contains(|c: char| c.is_whitespace() || c.is_control() || "[]:\\?#@,".contains(c)) {
        return Err(HostProblem::Character);
    }
    Ok(host.as_str().into())
}

impl From<EncodingError> for HostProblem {
    fn from(error: EncodingError) -> Self {
        Self::Encoding(error)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn names_addresses_and_sockets_are_read() {
        for (text, printed) in [
            ("DB.example", "db.example:27017"),
            ("db:27018", "db:27018"),
            ("256.0.0.1", "256.0.0.1:27017"),
            ("b%C3%BCcher.example", "bücher.example:27017"),
            ("[::1]", "[::1]:27017"),
            ("[FE80::1%25Eth0]:27018", "[fe80::1%Eth0]:27018"),
            ("%2Ftmp%2FMongoDB-27017.sock", "/tmp/MongoDB-27017.sock"),
            ("rel%2Fa:b.sock", "rel/a:b.sock"),
            ("name.sock", "name.sock:27017"),
        ] {
            assert_eq!(read(text).unwrap().address.to_string(), printed);
        }
    }

    #[test]
    fn unusable_hosts_say_why() {
        for (text, problem) in [
            ("", HostProblem::Empty),
            (":27017", HostProblem::Empty),
            ("%2Ftmp%2Fsocket", HostProblem::Slash),
            ("db:", HostProblem::Port),
            ("db:0", HostProblem::Port),
            ("db:+1", HostProblem::Port),
            ("db:65536", HostProblem::Port),
            ("[::1]:x", HostProblem::Port),
            ("%2Ftmp%2Fx.sock:1", HostProblem::Slash),
            ("::1", HostProblem::Colons),
            ("[::1", HostProblem::Bracket),
            ("[::1]x", HostProblem::Bracket),
            ("[db]", HostProblem::NotIpv6),
            ("[fe80::1%25]", HostProblem::NotIpv6),
            ("my host", HostProblem::Character),
            ("a%3A1", HostProblem::Character),
            ("a%2Cb", HostProblem::Character),
            ("a%0Ab", HostProblem::Character),
            ("%2Fa%00b.sock", HostProblem::Character),
            ("a%", HostProblem::Encoding(EncodingError::BadEscape)),
        ] {
            assert_eq!(read(text), Err(problem), "{text}");
        }
    }

    #[test]
    fn what_may_be_a_port_is_not_shown() {
        for (text, shown) in [("user:hunter2", "user"), ("[::1]:hunter2", "[::1]"), ("[::1:x", "["), ("::1", "")] {
            assert_eq!(without_port(text), shown);
        }
    }
}
