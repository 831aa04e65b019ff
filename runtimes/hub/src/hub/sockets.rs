//! The sockets at which a hub listens: bound anew, or handed over by the hub before it or by the system.

use core::fmt;
use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::os::fd::{AsFd, OwnedFd};
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
#[cfg(unix)]
use tokio::net::UnixListener;

use crate::config::SocketAccess;

/// Where a hub listens, as the configuration says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A socket that listens.
pub(super) enum Socket {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener),
}

/// A duplicate of a socket, for a hub that takes it over.
#[cfg(unix)]
pub(super) type Spare = OwnedFd;
#[cfg(not(unix))]
pub(super) type Spare = ();

impl Place {
    pub(super) async fn bind(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(address) => TcpListener::bind(address).await.map(Socket::Tcp),
            #[cfg(unix)]
            Self::Unix(path) => bind_unix(path).await.map(Socket::Unix),
            #[cfg(not(unix))]
            Self::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// A socket that listens here already.
    #[cfg(unix)]
    pub(super) fn adopt(&self, socket: OwnedFd) -> io::Result<Socket> {
        match self {
            Self::Tcp(_) => {
                let socket = std::net::TcpListener::from(socket);
                socket.set_nonblocking(true)?;
                TcpListener::from_std(socket).map(Socket::Tcp)
            }
            Self::Unix(_) => {
                let socket = std::os::unix::net::UnixListener::from(socket);
                socket.set_nonblocking(true)?;
                UnixListener::from_std(socket).map(Socket::Unix)
            }
        }
    }

    pub(super) fn set_access(&self, access: SocketAccess) -> io::Result<()> {
        match self {
            Self::Tcp(_) => Ok(()),
            Self::Unix(path) => access.apply(path),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Socket {
    #[cfg(unix)]
    pub(super) fn spare(&self) -> io::Result<Spare> {
        match self {
            Self::Tcp(socket) => socket.as_fd().try_clone_to_owned(),
            Self::Unix(socket) => socket.as_fd().try_clone_to_owned(),
        }
    }

    #[cfg(not(unix))]
    pub(super) fn spare(&self) -> io::Result<Spare> {
        Ok(())
    }
}

/// Listens at a Unix socket, in place of one that a hub left behind. One that answers is in use, and what is no socket is somebody's file.
#[cfg(unix)]
async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|file| std::os::unix::fs::FileTypeExt::is_socket(&file.file_type()));
    let answer = tokio::net::UnixStream::connect(path).await;
    if is_socket && answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}
