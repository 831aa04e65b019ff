//! A SOCKS5 proxy on the way to the servers (SOCKS5 support; CMAP-51 says what its failures mean).

use alloc::string::String;

use super::secret::Secret;

/// The proxy; without a host there is none.
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
