//! Where a case's servers are: behind threads and sockets of this machine (`threads`), or in a simulation
//! ([`virtual_time`](crate::virtual_time)).
//!
//! Servers are written as tasks. On threads, each task has a thread to itself, and waits by standing still.

mod bell;
mod sockets;
mod threads;

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pub(crate) use self::bell::Bell;
use self::threads::Threads;

/// What a ground runs, or what it answers later.
pub type Work<T = ()> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What an acceptor does with each connection.
pub type TakeIn = Box<dyn Fn(Arc<dyn Socket>) + Send>;

/// The place of a case's servers.
pub trait Ground: Send + Sync {
    /// A site on a TCP port of its own.
    ///
    /// # Errors
    /// There is none; so do those of the other functions say.
    fn site(&self) -> io::Result<Box<dyn Site>>;

    /// A site that is a Unix socket.
    ///
    /// # Errors
    /// See [`site`](Self::site).
    fn unix_site(&self) -> io::Result<Box<dyn Site>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// A site where connections are neither refused nor made before it is listened at.
    ///
    /// # Errors
    /// See [`site`](Self::site).
    fn full_site(&self) -> io::Result<Box<dyn Site>>;

    /// Connects to a site.
    fn connect(&self, place: &Place) -> Work<io::Result<Arc<dyn Socket>>>;

    /// Runs a server's task.
    fn spawn(&self, task: Work);

    /// The time since some moment.
    fn age(&self) -> Duration;

    /// The time since 1970, by which certificates are made.
    fn unix_time(&self) -> Duration;

    /// Waits until its age is `age`.
    fn sleep_until(&self, age: Duration) -> Work;

    /// Has the bytes of one write arrive together, as they do over loopback.
    fn keep_writes_whole(&self) {}

    /// Lets the other tasks of the case run.
    fn pause(&self) -> Work;
}

/// An address that belongs to a case, whether it is listened at or not.
pub trait Site: Send {
    /// The address.
    fn place(&self) -> &Place;

    /// Listens, until the acceptor is dropped.
    ///
    /// # Errors
    /// The system's.
    fn listen(&self, take_in: TakeIn) -> io::Result<Box<dyn Send>>;
}

/// A server's end of a connection. Several tasks may use it.
pub trait Socket: Send + Sync {
    /// Reads; 0 bytes are the end.
    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Writes; one task at a time.
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Ends both directions. The other side may have done so before.
    fn close(&self);

    /// Makes the end of this value a reset, not a farewell.
    ///
    /// # Errors
    /// The system's.
    fn reset_at_end(&self) -> io::Result<()>;
}

/// A server's address. Displayed as a connection string names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn Ground>>> = const { RefCell::new(None) };
}

/// The ground of the case that runs on this thread: this machine's, unless [`on`] says otherwise.
pub(crate) fn current() -> Arc<dyn Ground> {
    CURRENT.with_borrow(|current| current.clone()).unwrap_or_else(|| Arc::new(Threads))
}

/// Runs `case` with its servers on `ground`.
pub fn on<T>(ground: Arc<dyn Ground>, case: impl FnOnce() -> T) -> T {
    struct Restore(Option<Arc<dyn Ground>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let before = self.0.take();
            // Dropped when it is not borrowed any more.
            let _left = CURRENT.with_borrow_mut(|current| std::mem::replace(current, before));
        }
    }

    let _restore = Restore(CURRENT.with_borrow_mut(|current| current.replace(ground)));
    case()
}

/// Reads once; 0 bytes are the end.
pub(crate) async fn read(socket: &dyn Socket, buffer: &mut [u8]) -> io::Result<usize> {
    poll_fn(|cx| socket.poll_read(cx, buffer)).await
}

/// Writes all of `bytes`.
pub(crate) async fn write_all(socket: &dyn Socket, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match poll_fn(|cx| socket.poll_write(cx, bytes)).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
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
