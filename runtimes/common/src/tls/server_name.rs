//! The name that a server's certificate must be for, and that SNI tells the server (TLS-3).

use rustls::pki_types::{IpAddr, ServerName};

use super::error::TlsError;

/// The server's name for `host` as it stands in a connection string: a host name, perhaps with the root's dot, or an IP
/// address, perhaps in brackets and with a zone.
pub(super) fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let without_zone = match bare.split_once('%') {
        Some((address, _zone)) if address.contains(':') => address,
        _ => bare,
    };
    if let Ok(address) = IpAddr::try_from(without_zone) {
        return Ok(ServerName::IpAddress(address));
    }
    // No certificate has a name with the root's dot, and SNI forbids it (RFC 6066).
    let name = bare.strip_suffix('.').unwrap_or(bare);
    ServerName::try_from(name.to_owned()).map_err(|source| TlsError::ServerName { host: host.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address() {
        for (host, expected) in [
            ("db.example", "db.example"),
            ("db.example.", "db.example"),
            ("my_db", "my_db"),
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "::1"),
            ("[::1]", "::1"),
            ("fe80::1%eth0", "fe80::1"),
        ] {
            assert_eq!(server_name(host).unwrap().to_str(), expected, "{host}");
        }
        assert!(matches!(server_name("[::1]"), Ok(ServerName::IpAddress(_))));
    }

    #[test]
    fn what_no_certificate_can_be_for_is_refused() {
        for host in ["", ".", "a b", "a..b", "[::1", "/tmp/mongodb.sock"] {
            let error = server_name(host).unwrap_err();
            assert!(matches!(&error, TlsError::ServerName { host: named, .. } if named == host), "{error}");
        }
    }
}
