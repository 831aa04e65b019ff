//! A SOCKS5 proxy on the way to the servers (SOCKS-1; CMAP-51 says what its failures mean).

use alloc::string::String;

use super::secret::Secret;
use crate::address::ServerAddress;

/// The port of a proxy when none is given.
const DEFAULT_PORT: u16 = 1080;

/// The proxy; without a host there is none. An empty text counts as none (SOCKS-1).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ProxyOptions {
    /// `proxyHost`: its name or IP address, of IPv6 with or without brackets.
    pub host: Option<String>,
    /// `proxyPort`. Default 1080.
    pub port: Option<u16>,
    /// `proxyUsername`; comes with a password.
    pub username: Option<String>,
    /// `proxyPassword`; comes with a user name.
    pub password: Option<Secret>,
}

impl ProxyOptions {
    /// The proxy's own address; `None` if there is no proxy.
    pub fn address(&self) -> Option<ServerAddress> {
        let host = self.host.as_deref().filter(|host| !host.is_empty())?;
        let without_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Some(ServerAddress::tcp(without_brackets, self.port.unwrap_or(DEFAULT_PORT)))
    }

    /// User name and password, if there are both.
    pub fn login(&self) -> Option<(&str, &Secret)> {
        let username = self.username.as_deref().filter(|username| !username.is_empty());
        username.zip(self.password.as_ref().filter(|password| !password.expose().is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::ClientOptions;

    #[test]
    fn the_brackets_of_an_ipv6_address_are_no_part_of_it() {
        for host in ["[::1]", "::1", "%5B::1%5D"] {
            let (options, _) = ClientOptions::parse(&alloc::format!("mongodb://h/?proxyHost={host}")).unwrap();

            assert_eq!(options.proxy.address(), Some(ServerAddress::tcp("::1", 1080)), "{host}");
        }
    }
}
