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
    /// `proxyHost`: its name or IP address.
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
        Some(ServerAddress::tcp(host, self.port.unwrap_or(DEFAULT_PORT)))
    }

    /// User name and password, if there are both.
    pub fn login(&self) -> Option<(&str, &Secret)> {
        let username = self.username.as_deref().filter(|username| !username.is_empty());
        username.zip(self.password.as_ref().filter(|password| !password.expose().is_empty()))
    }
}
