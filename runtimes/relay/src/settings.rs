//! What a relay does: for which members it speaks, to which applications, and within which limits.

use std::fmt;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::reverse::Token;
use cmap_runtime::tls::TlsConfig;

/// What a relay does.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The members that it speaks for.
    pub members: Vec<Member>,
    /// The applications that it dials.
    pub applications: Vec<Application>,
    /// Its limits.
    pub limits: Limits,
}

/// A member that a relay speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name by which its replica set, and so the application, knows it.
    pub name: ServerAddress,
    /// Where the relay reaches it: a port of this machine, as a rule, or a Unix socket.
    pub connect: ServerAddress,
}

/// An application that a relay dials.
#[derive(Clone)]
pub struct Application {
    /// Where it listens. A Unix socket is not possible: TLS needs a host that a certificate can be for.
    pub address: ServerAddress,
    /// For whom sockets are parked there, by their names.
    pub members: Vec<ServerAddress>,
    /// The authorities by which its certificate is judged, and the relay's own certificate.
    pub tls: TlsConfig,
    /// Proves that the relay may speak for the members. Without one the relay's certificate has to.
    pub token: Option<Token>,
}

/// The limits of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The most sockets between one application and one member, used ones included. Default 500.
    pub max_sockets: u32,
    /// The longest time until a host is connected: an application with its TLS, or a member. Default 5 s.
    pub connect_timeout: Duration,
    /// How long a socket may be parked before another one takes its place; `None`: as long as it holds. Default 30 minutes.
    pub max_parked_time: Option<Duration>,
    /// The longest pause before an application is dialled again that could not be reached. Default 10 s.
    pub max_reconnect_delay: Duration,
    /// How long connections may go on that are in use when the relay ends. Default 30 s.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_sockets: 500,
            connect_timeout: Duration::from_secs(5),
            max_parked_time: Some(Duration::from_secs(30 * 60)),
            max_reconnect_delay: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl fmt::Debug for Application {
    /// Without what is secret; tokens say only their names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Application")
            .field("address", &self.address)
            .field("members", &self.members)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
