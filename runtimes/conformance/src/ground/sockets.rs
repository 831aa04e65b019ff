//! Sockets of this machine: TCP or, if the system has them, Unix.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
#[cfg(unix)]
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket as System, Type};
use tempfile::TempDir;

use super::{Place, Site, Socket, TakeIn};

/// A site of this machine.
pub(super) struct LocalSite {
    place: Place,
    /// Made before it is listened at.
    listener: Mutex<Option<Listener>>,
    _reserved: Reserved,
}

/// Keeps a site its owner's.
enum Reserved {
    /// A TCP port that is bound while no socket listens there: no other program gets it, and no client connects to itself.
    Port { _bound: System },
    /// The folder of the Unix socket.
    Folder { _folder: TempDir },
    /// A listener that takes no more connections, since its queue is full of these.
    Queue { _waiting: Vec<TcpStream> },
    /// The system lets nobody bind a port at which another socket listens.
    Nothing,
}

enum Listener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener),
}

/// One end of a connection. Reads and writes by reference, from several threads.
pub(super) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// The thread that takes connections in.
struct Acceptor {
    place: Place,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LocalSite {
    /// On a TCP port of its own. Only Linux lets two sockets be bound to a port as long as at most one of them listens.
    pub(super) fn tcp() -> io::Result<Self> {
        let bound = bound(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = bound.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        let (listener, reserved) = match cfg!(target_os = "linux") {
            true => (Listener::tcp(address, 1024)?, Reserved::Port { _bound: bound }),
            false => {
                bound.listen(1024)?;
                (Listener::Tcp(bound.into()), Reserved::Nothing)
            }
        };
        Ok(Self { place: Place::Tcp(address), listener: Mutex::new(Some(listener)), _reserved: reserved })
    }

    /// A Unix socket in a folder of its own.
    pub(super) fn unix() -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("mongodb.sock");
        let listener = Listener::unix(&path)?;
        let reserved = Reserved::Folder { _folder: folder };
        Ok(Self { place: Place::Unix(path), listener: Mutex::new(Some(listener)), _reserved: reserved })
    }

    /// On a TCP port, with a queue that is full.
    pub(super) fn full() -> io::Result<Self> {
        let listener = Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0)), 0)?;
        let Listener::Tcp(tcp) = &listener else { return Err(io::ErrorKind::InvalidData.into()) };
        let address = tcp.local_addr()?;
        let limit = Duration::from_millis(50);
        let queued = std::iter::from_fn(|| TcpStream::connect_timeout(&address, limit).ok()).collect();
        let reserved = Reserved::Queue { _waiting: queued };
        Ok(Self { place: Place::Tcp(address), listener: Mutex::new(Some(listener)), _reserved: reserved })
    }
}

impl Site for LocalSite {
    fn place(&self) -> &Place {
        &self.place
    }

    fn listen(&self, take_in: TakeIn) -> io::Result<Box<dyn Send>> {
        let made = self.listener.lock().unwrap().take();
        let listener = match made {
            Some(listener) => listener,
            None => Listener::at(&self.place)?,
        };
        Ok(Box::new(Acceptor::start(self.place.clone(), listener, take_in)))
    }
}

impl Listener {
    fn at(place: &Place) -> io::Result<Self> {
        match place {
            Place::Tcp(address) => Self::tcp(*address, 1024),
            Place::Unix(path) => Self::unix(path),
        }
    }

    /// Its port can be used again at once; `backlog` connections may wait to be accepted.
    fn tcp(address: SocketAddr, backlog: i32) -> io::Result<Self> {
        let socket = bound(address)?;
        socket.listen(backlog)?;
        Ok(Self::Tcp(socket.into()))
    }

    #[cfg(unix)]
    fn unix(path: &PathBuf) -> io::Result<Self> {
        if path.exists() {
            std::fs::remove_file(path)?;
        }
        Ok(Self::Unix(UnixListener::bind(path)?))
    }

    #[cfg(not(unix))]
    fn unix(_: &PathBuf) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => Stream::tcp(listener.accept()?.0),
            #[cfg(unix)]
            Self::Unix(listener) => Ok(Stream::Unix(listener.accept()?.0)),
        }
    }
}

fn bound(address: SocketAddr) -> io::Result<System> {
    let socket = System::new(Domain::IPV4, Type::STREAM, None)?;
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

impl Stream {
    pub(super) fn connect(place: &Place) -> io::Result<Self> {
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
}

impl Socket for Stream {
    fn poll_read(&self, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(match self {
            Self::Tcp(stream) => (&mut &*stream).read(buffer),
            #[cfg(unix)]
            Self::Unix(stream) => (&mut &*stream).read(buffer),
        })
    }

    fn poll_write(&self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(match self {
            Self::Tcp(stream) => (&mut &*stream).write(bytes),
            #[cfg(unix)]
            Self::Unix(stream) => (&mut &*stream).write(bytes),
        })
    }

    fn close(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            #[cfg(unix)]
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    fn reset_at_end(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => SockRef::from(stream).set_linger(Some(Duration::ZERO)),
            #[cfg(unix)]
            Self::Unix(_) => Ok(()),
        }
    }
}

impl Acceptor {
    /// Calls `take_in` for every connection, until it is dropped.
    fn start(place: Place, listener: Listener, take_in: TakeIn) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stopped);
        let thread = thread::spawn(move || {
            while !seen.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok(stream) if !seen.load(Ordering::SeqCst) => take_in(Arc::new(stream)),
                    Ok(_) => return,
                    // The client is gone already, or this process has no descriptors left, which passes.
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        Self { place, stopped, thread: Some(thread) }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // Wakes the thread, which then sees that it is over.
            drop(Stream::connect(&self.place));
            thread.join().unwrap();
        }
    }
}
