//! The system's name servers, as `/etc/resolv.conf` names them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

/// The port of name servers.
const PORT: u16 = 53;

/// The most name servers that are asked, as the system's own resolver does.
const MOST: usize = 3;

/// The name servers, the preferred one first. Reads a file, which may block.
#[cfg(unix)]
pub(super) fn of_system() -> io::Result<Vec<SocketAddr>> {
    const PATH: &str = "/etc/resolv.conf";
    let in_file = |error: io::Error| io::Error::new(error.kind(), format!("{PATH}: {error}"));
    let text = std::fs::read_to_string(PATH).map_err(in_file)?;
    parse(&text).map_err(in_file)
}

/// There is no file that names them.
#[cfg(not(unix))]
pub(super) fn of_system() -> io::Result<Vec<SocketAddr>> {
    let text = "on this platform the name servers are not known; name them by Builder::name_servers, or implement Runtime::resolve_srv and resolve_txt";
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

/// The servers that can be read. Lines that cannot be are an error where there is no other.
#[cfg_attr(not(unix), allow(dead_code, reason = "there is no file to read"))]
fn parse(text: &str) -> io::Result<Vec<SocketAddr>> {
    let (mut servers, mut unreadable) = (Vec::new(), None);
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split_whitespace();
        if words.next() != Some("nameserver") {
            continue;
        }
        let word = words.next().unwrap_or_default();
        match address(word) {
            Some(server) if servers.len() < MOST => servers.push(server),
            Some(_) => break,
            None => unreadable = unreadable.or(Some((number, word))),
        }
    }
    match unreadable {
        Some((number, word)) if servers.is_empty() => {
            let text = format!("in line {number} the name server {word:?} is no IP address of this machine's networks");
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }
        None if servers.is_empty() => {
            // What the system's own resolver does then.
            Ok(vec![SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT)])
        }
        Some(_) | None => Ok(servers),
    }
}

/// The address of a name server. A zone, as in `fe80::1%eth0`, is the name or the number of a network of this machine, which the
/// system knows.
#[cfg_attr(not(unix), allow(dead_code, reason = "there is no file to read"))]
fn address(word: &str) -> Option<SocketAddr> {
    if let Ok(ip) = word.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip, PORT));
    }
    let (ip, zone) = word.split_once('%')?;
    let is_literal = matches!(ip.parse(), Ok(IpAddr::V6(_))) && !zone.is_empty();
    is_literal.then(|| (word, PORT).to_socket_addrs().ok()?.next()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<String> {
        parse(text).unwrap().iter().map(SocketAddr::to_string).collect()
    }

    #[test]
    fn the_first_three_name_servers_are_asked() {
        let text = "# resolver\nsearch example.com\nnameserver 10.0.0.1\n nameserver\t::1 # local\nnameserver name\n\
                    nameservers 1.1.1.1\nnameserver 10.0.0.3\nnameserver 10.0.0.4\n";

        assert_eq!(parsed(text), ["10.0.0.1:53", "[::1]:53", "10.0.0.3:53"]);
    }

    #[test]
    fn without_any_the_machine_itself_is_asked() {
        assert_eq!(parsed("search example.com\n"), ["127.0.0.1:53"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_zone_of_a_link_local_name_server_is_kept() {
        assert_eq!(parsed("nameserver fe80::1%lo\n"), ["[fe80::1%1]:53"]);
        assert_eq!(parsed("nameserver fe80::1%1\n"), ["[fe80::1%1]:53"]);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_no_reason_to_ask_the_machine_itself() {
        let error = parse("search example.com\nnameserver fe80::1%nowhere\nnameserver x\n").unwrap_err();

        assert_eq!(
            error.to_string(),
            r#"in line 2 the name server "fe80::1%nowhere" is no IP address of this machine's networks"#
        );
        assert_eq!(parsed("nameserver fe80::1%nowhere\nnameserver 10.0.0.1\n"), ["10.0.0.1:53"]);
    }
}
