//! From the names in a connection string to sockets: where names are looked up, and who is connected to.
//!
//! The runtime looks them up, or name servers do that the user has given.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | who is asked for names |
//! | `seed_list` | the servers of a `mongodb+srv` connection string |
//! | `host` | a socket to one of a host's addresses |
//!
//! The questions and answers of DNS are in `dns`.

pub mod host;
pub(crate) mod seed_list;

use std::io;
use std::net::SocketAddr;
#[cfg(feature = "srv")]
use std::sync::Arc;

use cmap_core::topology::seed_list::{SrvRecord, TxtRecord};

#[cfg(feature = "srv")]
use crate::dns;
use crate::runtime::Runtime;

/// Where a client looks up names.
#[derive(Clone, Debug, Default)]
pub(crate) enum Names {
    /// The runtime does.
    #[default]
    Runtime,
    /// At these name servers.
    #[cfg(feature = "srv")]
    At(Arc<[SocketAddr]>),
}

impl Names {
    /// The addresses of a host.
    pub(crate) async fn addresses<R: Runtime>(
        &self,
        runtime: &R,
        host: &str,
        port: u16,
    ) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Runtime => runtime.resolve(host, port).await,
            // The zone of an IPv6 address is the name of an interface, which the system knows and DNS does not.
            #[cfg(feature = "srv")]
            Self::At(_) if host.contains(':') => runtime.resolve(host, port).await,
            #[cfg(feature = "srv")]
            Self::At(servers) => {
                // A future of its own, so that the one of those who ask the runtime stays small.
                let found = Box::pin(dns::addresses(runtime, servers, host)).await?;
                Ok(found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
            }
        }
    }

    /// The SRV records of `name`.
    pub(crate) async fn srv<R: Runtime>(&self, runtime: &R, name: &str) -> io::Result<Vec<SrvRecord>> {
        match self {
            Self::Runtime => runtime.resolve_srv(name).await,
            #[cfg(feature = "srv")]
            Self::At(servers) => dns::srv(runtime, servers, name).await,
        }
    }

    /// The TXT records of `name`.
    pub(crate) async fn txt<R: Runtime>(&self, runtime: &R, name: &str) -> io::Result<Vec<TxtRecord>> {
        match self {
            Self::Runtime => runtime.resolve_txt(name).await,
            #[cfg(feature = "srv")]
            Self::At(servers) => dns::txt(runtime, servers, name).await,
        }
    }
}
