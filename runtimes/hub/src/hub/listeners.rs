//! Where clients come in: TCP, TLS on it, Unix sockets.

use core::time::Duration;
use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::path::Path;
use std::sync::Arc;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::connection;
use super::error::StartError;
use super::shared::{Entrance, Shared, Stage};
use super::tls::Certificate;
use crate::config::Listener;

/// How long to wait after an accept that failed: the process may have too many open files, which passes.
pub(super) const ACCEPT_AGAIN: Duration = Duration::from_millis(20);

/// A client that is silent is asked after two minutes whether it is there, and is gone after one more without an answer.
const KEEP_ALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(120)).with_interval(Duration::from_secs(20));

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A listener that listens.
pub(super) struct Listening {
    /// Its address, if it has one.
    pub(super) address: Option<SocketAddr>,
    pub(super) certificate: Option<Arc<Certificate>>,
}

/// Listens, in a task of `tasks`.
pub(super) async fn listen(
    tasks: &mut JoinSet<()>,
    listener: &Listener,
    shared: &Arc<Shared>,
) -> Result<Listening, StartError> {
    match listener {
        Listener::Tcp { address, certificate } => {
            let failed = |source| StartError::Listen { place: address.to_string(), source };
            let certificate = certificate.as_deref().map(Certificate::read).transpose()?.map(Arc::new);
            let socket = TcpListener::bind(address).await.map_err(failed)?;
            let address = socket.local_addr().map_err(failed)?;
            tasks.spawn(accept_tcp(socket, certificate.clone(), Arc::clone(shared)));
            Ok(Listening { address: Some(address), certificate })
        }
        #[cfg(unix)]
        Listener::Unix { path } => {
            let failed = |source| StartError::Listen { place: path.display().to_string(), source };
            let socket = bind_unix(path).await.map_err(failed)?;
            tasks.spawn(accept_unix(socket, Arc::clone(shared)));
            Ok(Listening { address: None, certificate: None })
        }
        #[cfg(not(unix))]
        Listener::Unix { path } => {
            let source = io::ErrorKind::Unsupported.into();
            Err(StartError::Listen { place: path.display().to_string(), source })
        }
    }
}

/// Listens at a Unix socket, in place of one that a hub left behind. One that answers is in use, and what is no socket is somebody's file.
#[cfg(unix)]
pub(super) async fn bind_unix(path: &Path) -> io::Result<tokio::net::UnixListener> {
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|file| std::os::unix::fs::FileTypeExt::is_socket(&file.file_type()));
    let answer = tokio::net::UnixStream::connect(path).await;
    if is_socket && answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path)?;
    }
    tokio::net::UnixListener::bind(path)
}

async fn accept_tcp(socket: TcpListener, certificate: Option<Arc<Certificate>>, shared: Arc<Shared>) {
    loop {
        match socket.accept().await {
            Ok((stream, from)) => {
                let Some(entrance) = enter(&shared, from.ip().to_string().into()) else { continue };
                // Without it the client only has a higher latency.
                let _ = stream.set_nodelay(true);
                // Without it a client whose machine is gone keeps its place, and what it has open.
                let _ = SockRef::from(&stream).set_tcp_keepalive(&KEEP_ALIVE);
                let (tls, shared) = (certificate.as_deref().map(Certificate::acceptor), Arc::clone(&shared));
                tokio::spawn(async move {
                    match tls {
                        None => connection::serve(stream, shared, entrance).await,
                        Some(tls) => {
                            let mut stage = shared.stage();
                            let shaken = tokio::select! {
                                shaken = tokio::time::timeout(HANDSHAKE, tls.accept(stream)) => shaken,
                                _ = stage.wait_for(|stage| *stage != Stage::Open) => return,
                            };
                            // A failed handshake has told the client why.
                            if let Ok(Ok(stream)) = shaken {
                                connection::serve(stream, shared, entrance).await;
                            }
                        }
                    }
                });
            }
            Err(error) => fail(&error, &shared).await,
        }
    }
}

#[cfg(unix)]
async fn accept_unix(socket: tokio::net::UnixListener, shared: Arc<Shared>) {
    loop {
        match socket.accept().await {
            Ok((stream, _)) => {
                let Some(entrance) = enter(&shared, "unix".into()) else { continue };
                tokio::spawn(connection::serve(stream, Arc::clone(&shared), entrance));
            }
            Err(error) => fail(&error, &shared).await,
        }
    }
}

/// One connection too many is hung up on.
fn enter(shared: &Arc<Shared>, address: Arc<str>) -> Option<Entrance> {
    match shared.enter(Arc::clone(&address)) {
        Ok(entrance) => Some(entrance),
        Err(full) => {
            shared.activity.count_turned_away();
            tracing::debug!(target: "cmap::hub", %address, ?full, "turned away: too many connections");
            None
        }
    }
}

async fn fail(error: &io::Error, shared: &Shared) {
    if let Some(left_out) = shared.log_of_strangers.admit(shared.now()) {
        tracing::warn!(target: "cmap::hub", left_out, "a connection was not accepted: {error}");
    }
    tokio::time::sleep(ACCEPT_AGAIN).await;
}
