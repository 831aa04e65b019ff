//! Who a client is that comes through a proxy: the header of the PROXY protocol, version 1 or 2, before anything else.
//!
//! Its length is known before it is read, so that nothing of what follows is: that may be a handshake of TLS.

use core::time::Duration;
use std::io;
use std::net::IpAddr;

use proxy_header::{ParseConfig, Protocol, ProxyHeader};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};

/// How long a proxy may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// How version 2 begins.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// The longest header of version 1, and of version 2 without what follows its length.
const LONGEST_1: usize = 107;
const FIXED_2: usize = 16;

/// How much may follow that length: addresses, and what proxies tell of TLS.
const LONGEST_2: usize = 2048;

/// A connection begins with no header that says who the client is.
#[derive(Debug, Error)]
pub(super) enum NoHeader {
    #[error("it did not begin with a header of the PROXY protocol within {PATIENCE:?}")]
    Slow,
    #[error("it ended within the header of the PROXY protocol: {0}")]
    Cut(#[from] io::Error),
    #[error("its header of the PROXY protocol is longer than {0} bytes")]
    Long(usize),
    #[error("it begins with no header of the PROXY protocol: {0}")]
    Malformed(String),
    #[error("its header of the PROXY protocol is of datagrams")]
    Datagrams,
}

/// Reads the header, and nothing more. `None` if the connection is the proxy's own, or of a client whose address it does not know.
pub(super) async fn client_address(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<IpAddr>, NoHeader> {
    let header = tokio::time::timeout(PATIENCE, read(stream)).await.map_err(|_| NoHeader::Slow)??;
    let config = ParseConfig { include_tlvs: false, ..ParseConfig::default() };
    let (parsed, length) =
        ProxyHeader::parse(&header, config).map_err(|error| NoHeader::Malformed(error.to_string()))?;
    if length != header.len() {
        return Err(NoHeader::Malformed("it ends before its length".into()));
    }
    match parsed.proxied_address() {
        None => Ok(None),
        Some(address) if address.protocol == Protocol::Stream => Ok(Some(address.source.ip().to_canonical())),
        Some(_) => Err(NoHeader::Datagrams),
    }
}

/// The bytes of the header.
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, NoHeader> {
    let mut header = vec![0; SIGNATURE.len()];
    stream.read_exact(&mut header).await?;
    if header == SIGNATURE {
        header.resize(FIXED_2, 0);
        stream.read_exact(header.get_mut(SIGNATURE.len()..).unwrap_or_default()).await?;
        let [.., high, low] = header[..] else { return Err(NoHeader::Long(FIXED_2)) };
        let rest = usize::from(u16::from_be_bytes([high, low]));
        if rest > LONGEST_2 {
            return Err(NoHeader::Long(FIXED_2 + LONGEST_2));
        }
        header.resize(FIXED_2 + rest, 0);
        stream.read_exact(header.get_mut(FIXED_2..).unwrap_or_default()).await?;
        return Ok(header);
    }
    if !header.starts_with(b"PROXY ") {
        return Err(NoHeader::Malformed("its first bytes are others".into()));
    }
    while !header.ends_with(b"\r\n") {
        if header.len() >= LONGEST_1 {
            return Err(NoHeader::Long(LONGEST_1));
        }
        header.push(stream.read_u8().await?);
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\x0a\x00\x00\x02\x30\x39\x69\x93";
    const OF_1: &[u8] = b"PROXY TCP4 192.0.2.1 10.0.0.2 12345 27027\r\n";

    /// What is made of these bytes, after which the stream ends; and what is left of them.
    async fn read_from(mut bytes: &[u8]) -> (Result<Option<IpAddr>, NoHeader>, usize) {
        let read = client_address(&mut bytes).await;
        (read, bytes.len())
    }

    #[tokio::test]
    async fn the_client_is_who_the_header_says_and_what_follows_is_left() {
        let client: IpAddr = "192.0.2.1".parse().unwrap();
        for header in [OF_1, OF_2] {
            let (read, left) = read_from(&[header, b"hello"].concat()).await;
            assert_eq!((read.unwrap(), left), (Some(client), 5));
        }
        let (read, _) = read_from(b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n").await;
        assert_eq!(read.unwrap(), Some("2001:db8::1".parse().unwrap()));
    }

    #[tokio::test]
    async fn the_own_connection_of_a_proxy_is_not_a_clients() {
        let local = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";
        for header in [&b"PROXY UNKNOWN\r\n"[..], b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", local] {
            assert_eq!(read_from(header).await.0.unwrap(), None);
        }
    }

    #[tokio::test]
    async fn a_header_that_is_cut_or_lies_at_any_byte_is_refused_or_says_another_address() {
        for header in [OF_1, OF_2] {
            for cut in 0..header.len() {
                assert!(read_from(&header[..cut]).await.0.is_err(), "cut at {cut}");
            }
            for (at, wrong) in (0..header.len()).flat_map(|at| (0..=255).map(move |wrong| (at, wrong))) {
                let mut bytes = header.to_vec();
                bytes[at] = wrong;
                let (read, left) = read_from(&bytes).await;
                // Nothing after the header is taken for a part of it, and nothing panics.
                assert!(read.is_err() || left == 0 || header == OF_1, "{at}: {wrong}");
            }
        }
    }

    #[tokio::test]
    async fn a_header_has_a_longest_length() {
        let endless = [&b"PROXY TCP4 "[..], &[b'1'; 200]].concat();
        assert!(matches!(read_from(&endless).await, (Err(NoHeader::Long(107)), 104)));
        let large = [&OF_2[..14], &[0xff; 3000]].concat();
        assert!(matches!(read_from(&large).await, (Err(NoHeader::Long(2064)), _)));
        let datagrams = [&OF_2[..13], &[0x12], &OF_2[14..]].concat();
        assert!(matches!(read_from(&datagrams).await.0, Err(NoHeader::Datagrams)));
        assert!(read_from(b"\x3a\0\0\0 a command of a driver").await.0.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_proxy_that_says_nothing_is_not_waited_for() {
        let (mut here, _there) = tokio::io::duplex(64);
        assert!(matches!(client_address(&mut here).await, Err(NoHeader::Slow)));
    }
}
