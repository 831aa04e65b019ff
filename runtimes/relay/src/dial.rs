//! Connecting to hosts: an application, with TLS, and a member.

use std::io;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::reverse::{ALPN, ChannelBinding, EXPORTER_LABEL, StartPhase};
use cmap_runtime::host::{self, HostError, LastAddress};
use cmap_runtime::runtime::{Runtime, Target};
use cmap_runtime::tls::{self, TlsConfig, TlsError, TlsStream};
use cmap_runtime::{BudgetedStream, Clock};
use rustls::ProtocolVersion;
use thiserror::Error;

use crate::settings::Application;

/// A stream to an application.
pub(crate) type ToApplication<R> = TlsStream<BudgetedStream<<R as Runtime>::Stream>>;

/// A stream to a member.
pub(crate) type ToMember<R> = BudgetedStream<<R as Runtime>::Stream>;

/// A host cannot be connected.
#[derive(Debug, Error)]
pub(crate) enum DialError {
    /// No address of a host can be connected.
    #[error("{address} cannot be connected: {problem}; check that it listens there, and that no firewall is between")]
    Host { address: ServerAddress, problem: HostError },
    /// A Unix socket cannot be connected.
    #[error("{address} cannot be connected; check that it listens there")]
    Connect { address: ServerAddress, source: io::Error },
    /// It took too long.
    #[error(
        "{address} was not connected within {limit:?}; check the network between, or raise limits.connectTimeoutMS"
    )]
    TimedOut { address: ServerAddress, limit: Duration },
    /// Unix sockets are for members alone, and for Unix.
    #[error("{0} is a Unix socket, which cannot be used here; give a host and a port")]
    UnixSocket(ServerAddress),
    /// TLS failed.
    #[error("TLS with {address} failed")]
    Tls { address: ServerAddress, source: Box<TlsError> },
    /// It speaks TLS, and another protocol under it, or an old TLS.
    #[error("{0} does not speak cmap-reverse/1 under TLS 1.3; check that a ReverseListener is at this port")]
    Protocol(ServerAddress),
}

impl DialError {
    /// The answer to an application that wanted a connection.
    pub(crate) fn start_phase(&self) -> StartPhase {
        match self {
            Self::Host { problem: HostError::Resolve { .. }, .. } => StartPhase::Resolve,
            Self::Host { .. } | Self::Connect { .. } | Self::TimedOut { .. } => StartPhase::Connect,
            Self::UnixSocket(_) | Self::Tls { .. } | Self::Protocol(_) => StartPhase::Other,
        }
    }
}

/// TLS to an application, for the protocol of agents.
pub(crate) fn tls_of<R: Runtime>(application: &Application, runtime: &R) -> TlsConfig {
    application.tls.clone().timed_by(runtime.clone()).for_protocol(ALPN)
}

/// Connects an application, with TLS as [`tls_of`] says.
pub(crate) async fn application<R: Runtime>(
    clock: &Clock<R>,
    address: &ServerAddress,
    last: &LastAddress,
    config: &TlsConfig,
    limit: Duration,
) -> Result<(ToApplication<R>, ChannelBinding), DialError> {
    let ServerAddress::Tcp { host, port } = address else { return Err(DialError::UnixSocket(address.clone())) };
    let connected = clock.within(limit, async {
        let unreachable = |problem| DialError::Host { address: address.clone(), problem };
        let stream = host::connect(clock, host, *port, last, limit).await.map_err(unreachable)?;
        let tls = |source| DialError::Tls { address: address.clone(), source: Box::new(source) };
        let stream = tls::connect(config, host, BudgetedStream::new::<R>(stream)).await.map_err(tls)?;
        let agreed = stream.session().connection();
        // What earlier versions of TLS export need not belong to one connection alone.
        if agreed.alpn_protocol() != Some(ALPN) || agreed.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
            return Err(DialError::Protocol(address.clone()));
        }
        let binding = ChannelBinding(stream.session().export(EXPORTER_LABEL).map_err(tls)?);
        Ok((stream, binding))
    });
    connected.await.unwrap_or_else(|| Err(DialError::TimedOut { address: address.clone(), limit }))
}

/// Connects a member.
pub(crate) async fn member<R: Runtime>(
    clock: &Clock<R>,
    address: &ServerAddress,
    last: &LastAddress,
    limit: Duration,
) -> Result<ToMember<R>, DialError> {
    let connected = clock.within(limit, async {
        match address {
            ServerAddress::Tcp { host, port } => {
                let connected = host::connect(clock, host, *port, last, limit).await;
                connected.map_err(|problem| DialError::Host { address: address.clone(), problem })
            }
            #[cfg(unix)]
            ServerAddress::Unix { path } => {
                let connected = clock.runtime().connect(Target::Unix(path.into())).await;
                connected.map_err(|source| DialError::Connect { address: address.clone(), source })
            }
            #[cfg(not(unix))]
            ServerAddress::Unix { .. } => Err(DialError::UnixSocket(address.clone())),
        }
    });
    let stream = connected.await.unwrap_or_else(|| Err(DialError::TimedOut { address: address.clone(), limit }))?;
    Ok(BudgetedStream::new::<R>(stream))
}
