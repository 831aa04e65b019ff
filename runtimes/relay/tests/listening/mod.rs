//! Where a process listens, as Linux says.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// The state LISTEN in the tables of sockets.
const LISTEN: &str = "0A";

/// The addresses at which a process listens by TCP.
pub(crate) fn listening(process: u32) -> Vec<SocketAddr> {
    let process = format!("/proc/{process}");
    let descriptors = fs::read_dir(format!("{process}/fd")).unwrap();
    let sockets: Vec<_> = descriptors
        // A descriptor may be closed meanwhile.
        .filter_map(|descriptor| socket_of(&fs::read_link(descriptor.ok()?.path()).ok()?))
        .collect();
    // Without IPv6 there is no table of it.
    let tables = ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("{process}/net/{table}")).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    lines
        .filter_map(|line| {
            let columns: Vec<_> = line.split_whitespace().collect();
            let is_its_own = columns[3] == LISTEN && sockets.iter().any(|socket| socket == columns[9]);
            is_its_own.then(|| address(columns[1]))
        })
        .collect()
}

/// The number in `socket:[1234]`.
fn socket_of(link: &Path) -> Option<String> {
    Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
}

/// An address such as `0100007F:1F90`: the words of the host's address as they lie in memory.
fn address(text: &str) -> SocketAddr {
    let (host, port) = text.split_once(':').unwrap();
    let words = (0..host.len()).step_by(8).map(|at| u32::from_str_radix(&host[at..at + 8], 16).unwrap());
    let bytes: Vec<u8> = words.flat_map(u32::to_ne_bytes).collect();
    let host = match <[u8; 4]>::try_from(&*bytes) {
        Ok(bytes) => IpAddr::from(Ipv4Addr::from(bytes)),
        Err(_) => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap())),
    };
    SocketAddr::new(host, u16::from_str_radix(port, 16).unwrap())
}
