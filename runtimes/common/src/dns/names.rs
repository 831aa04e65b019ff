//! Where names are looked up: by the runtime, or at name servers that the user has given.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use cmap_core::topology::seed_list::{SrvRecord, TxtRecord};

use super::addresses::addresses;
use super::ask;
use super::message::{self, Kind};
use crate::runtime::Runtime;

/// Where a client looks up names.
#[derive(Clone, Debug, Default)]
pub(crate) enum Names {
    /// The runtime does.
    #[default]
    Runtime,
    /// At these name servers.
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
        let Self::At(servers) = self else { return runtime.resolve(host, port).await };
        // A future of its own, so that the one of those who ask the runtime stays small.
        let found = Box::pin(addresses(runtime, servers, host)).await?;
        Ok(found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
    }

    /// The SRV records of `name`.
    pub(crate) async fn srv<R: Runtime>(&self, runtime: &R, name: &str) -> io::Result<Vec<SrvRecord>> {
        match self {
            Self::Runtime => runtime.resolve_srv(name).await,
            Self::At(servers) => message::srv(&ask(runtime, servers, name, Kind::Srv).await?),
        }
    }

    /// The TXT records of `name`.
    pub(crate) async fn txt<R: Runtime>(&self, runtime: &R, name: &str) -> io::Result<Vec<TxtRecord>> {
        match self {
            Self::Runtime => runtime.resolve_txt(name).await,
            Self::At(servers) => message::txt(&ask(runtime, servers, name, Kind::Txt).await?),
        }
    }
}
