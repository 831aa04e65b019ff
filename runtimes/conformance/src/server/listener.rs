//! Sockets of a server or a proxy: TCP or, if the system has them, Unix.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
#[cfg(unix)]
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};

/// A server's address. Displayed as a connection string names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

pub(crate) enum Listener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener, PathBuf),
}

/// A TCP port that stays its owner's while no socket listens there: no other program gets it, and no client connects to
/// itself.
pub(super) struct ReservedPort {
    _bound: Socket,
}

/// One end of a connection. Reads and writes by reference, from several threads.
pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// The thread that takes connections in.
pub(crate) struct Acceptor {
    place: Place,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// On a port of its own.
    pub(crate) fn tcp_anywhere() -> io::Result<Self> {
        Self::tcp(SocketAddr::from(([127, 0, 0, 1], 0)), 1024)
    }

    /// On a port of its own, which can be kept for when the listener is gone. Only Linux lets two sockets be bound to a
    /// port as long as at most one of them listens.
    pub(super) fn tcp_reserved() -> io::Result<(Self, Option<ReservedPort>)> {
        if !cfg!(target_os = "linux") {
            return Ok((Self::tcp_anywhere()?, None));
        }
        let bound = bound(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = bound.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        Ok((Self::tcp(address, 1024)?, Some(ReservedPort { _bound: bound })))
    }

    /// Its port can be used again at once; `backlog` connections may wait to be accepted.
    pub(crate) fn tcp(address: SocketAddr, backlog: i32) -> io::Result<Self> {
        let socket = bound(address)?;
        socket.listen(backlog)?;
        Ok(Self::Tcp(socket.into()))
    }

    #[cfg(unix)]
    pub(super) fn unix(path: PathBuf) -> io::Result<Self> {
        if path.exists() {
            std::fs::remove_file(&path)?;
        }
        Ok(Self::Unix(UnixListener::bind(&path)?, path))
    }

    #[cfg(not(unix))]
    pub(super) fn unix(_: PathBuf) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn at(place: &Place) -> io::Result<Self> {
        match place {
            Place::Tcp(address) => Self::tcp(*address, 1024),
            Place::Unix(path) => Self::unix(path.clone()),
        }
    }

    pub(crate) fn place(&self) -> io::Result<Place> {
        match self {
            Self::Tcp(listener) => Ok(Place::Tcp(listener.local_addr()?)),
            #[cfg(unix)]
            Self::Unix(_, path) => Ok(Place::Unix(path.clone())),
        }
    }

    fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => Stream::tcp(listener.accept()?.0),
            #[cfg(unix)]
            Self::Unix(listener, _) => Ok(Stream::Unix(listener.accept()?.0)),
        }
    }
}

fn bound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

impl Stream {
    pub(crate) fn connect(place: &Place) -> io::Result<Self> {
        match place {
            Place::Tcp(address) => Self::tcp(TcpStream::connect(address)?),
            #[cfg(unix)]
            Place::Unix(path) => Ok(Self::Unix(UnixStream::connect(path)?)),
            #[cfg(not(unix))]
            Place::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    /// Ends both directions. The other side may have done so before.
    pub(crate) fn close(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            #[cfg(unix)]
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Makes the end of this value a reset, not a farewell.
    pub(super) fn reset_at_end(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => SockRef::from(stream).set_linger(Some(Duration::ZERO)),
            #[cfg(unix)]
            Self::Unix(_) => Ok(()),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).read(buffer),
            #[cfg(unix)]
            Stream::Unix(stream) => (&mut &*stream).read(buffer),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).write(bytes),
            #[cfg(unix)]
            Stream::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Acceptor {
    /// Calls `take_in` for every connection, until the end.
    pub(crate) fn start(listener: Listener, take_in: impl Fn(Stream) + Send + 'static) -> Self {
        let place = listener.place().unwrap();
        let stopped = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stopped);
        let thread = thread::spawn(move || {
            while !seen.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok(stream) if !seen.load(Ordering::SeqCst) => take_in(stream),
                    Ok(_) => return,
                    // The client is gone already, or this process has no descriptors left, which passes.
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        Self { place, stopped, thread: Some(thread) }
    }

    /// Stops listening.
    pub(crate) fn end(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // Wakes the thread, which then sees that it is over.
            drop(Stream::connect(&self.place));
            thread.join().unwrap();
        }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => f.write_str(&percent_encoded(path)),
        }
    }
}

/// The path with every slash escaped (URI-3).
fn percent_encoded(path: &Path) -> String {
    path.to_str().unwrap().replace('/', "%2F")
}
