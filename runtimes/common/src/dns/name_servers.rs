//! The system's name servers, as `/etc/resolv.conf` names them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The port of name servers.
const PORT: u16 = 53;

/// The most name servers that are asked, as the system's own resolver does.
const MOST: usize = 3;

/// The name servers, the preferred one first. Reads a file, which may block.
#[cfg(unix)]
pub(super) fn of_system() -> io::Result<Vec<SocketAddr>> {
    const PATH: &str = "/etc/resolv.conf";
    let text =
        std::fs::read_to_string(PATH).map_err(|error| io::Error::new(error.kind(), format!("{PATH}: {error}")))?;
    Ok(parse(&text))
}

/// There is no file that names them.
#[cfg(not(unix))]
pub(super) fn of_system() -> io::Result<Vec<SocketAddr>> {
    let text = "on this platform the name servers are not known; name them by Builder::name_servers, or implement Runtime::resolve_srv and resolve_txt";
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

#[cfg_attr(not(unix), allow(dead_code, reason = "there is no file to read"))]
fn parse(text: &str) -> Vec<SocketAddr> {
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        address.parse::<IpAddr>().ok()
    });
    let mut servers: Vec<SocketAddr> = addresses.take(MOST).map(|ip| SocketAddr::new(ip, PORT)).collect();
    if servers.is_empty() {
        // What the system's own resolver does then.
        servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT));
    }
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<String> {
        parse(text).iter().map(SocketAddr::to_string).collect()
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
}
