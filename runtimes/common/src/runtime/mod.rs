//! The interface of an async runtime: the one trait that an adapter implements.
//!
//! The runtime in which a client is made is its home: its tasks, timers and sockets live there, wherever calls come
//! from. Only tasks of the home runtime sleep or connect; calls made elsewhere wait for nothing but wakers, so they
//! work on any executor and notice at once when the home runtime is gone.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | the trait, and the error that a runtime is gone |
//! | `listen` | its extension for listeners |
//! | `sync` | the locks and wakers by which the threads of a client meet |
//! | `slot` | where a task leaves its result |
//! | `chores` | the tasks that a client waits for at its end: clean-up that it has begun by itself |

pub(crate) mod chores;
#[cfg(feature = "reverse")]
mod listen;
pub(crate) mod slot;
pub(crate) mod sync;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
#[cfg(unix)]
use std::path::PathBuf;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use cmap_core::topology::seed_list::{SrvRecord, TxtRecord};
use futures_io::{AsyncRead, AsyncWrite};
use thiserror::Error;

#[cfg(feature = "reverse")]
pub use self::listen::Listen;
#[cfg(feature = "srv")]
use crate::dns;
use crate::readable_debug::readable_debug;

/// An async runtime, as a handle that is cheap to clone and good on every thread.
pub trait Runtime: Clone + Send + Sync + 'static {
    /// Its name, which the server's logs show.
    const NAME: &'static str;

    /// A connected TCP or Unix socket. Dropping it closes it without waiting, on any thread; `poll_close` ends its writing half, and what
    /// the peer has yet to say can be read.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The runtime that the caller runs in.
    ///
    /// # Errors
    /// The caller runs in no runtime.
    fn current() -> Result<Self, RuntimeGone>;

    /// The time. Callable from anywhere, also after the runtime has ended. It must not step back: while it does, no
    /// time limit passes.
    fn now(&self) -> Instant;

    /// The time since 1970, by which certificates are judged. The default is the system's.
    #[expect(clippy::disallowed_methods, reason = "the default of what an adapter says")]
    fn unix_time(&self) -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }

    /// Ends at `at`. Awaited only in tasks of this runtime.
    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + 'static;

    /// Runs `task` in the background, from any thread. A runtime that has ended drops it.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);

    /// Runs blocking work where it blocks no task; `None` if the runtime ended before. Awaited only in tasks of this
    /// runtime, but for the one that makes a client.
    fn spawn_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + Send;

    /// Reads the bytes at hand, without waiting. The system is asked, whatever the reactor knows.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock), if there are no bytes, and those of reading.
    fn read_now(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize>;

    /// Ends when there may be something to read. The default never waits, which suits sockets that are read from only
    /// when the reactor says so. If every read asks the system, waiting here first saves the call that finds nothing.
    fn poll_readable(_stream: &mut Self::Stream, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Wakes the task that is being polled, and is about to return [`Poll::Pending`], after the turn of other tasks:
    /// those that can run, and those that wait for timers and sockets. It may be woken as late as `stream` can be read.
    ///
    /// The default waits until the reactor says that `stream` can be read, if [`poll_readable`](Self::poll_readable) waits.
    /// Otherwise it wakes the task at once: then the reactor has its turn only when the executor looks after it.
    fn wake_after_others(stream: &mut Self::Stream, cx: &mut Context<'_>) {
        // The reactor reports an earlier event only once.
        if Self::poll_readable(stream, cx).is_ready() && Self::poll_readable(stream, cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }

    /// The addresses of a host. Called only in tasks of this runtime. The default asks the system, which blocks a thread.
    ///
    /// # Errors
    /// No resolver knows the host, or the runtime has ended.
    fn resolve(&self, host: &str, port: u16) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send {
        let host = host.to_owned();
        async move {
            let looked_up = self.spawn_blocking(move || Ok((host.as_str(), port).to_socket_addrs()?.collect()));
            looked_up.await.unwrap_or_else(|| Err(io::Error::other(RuntimeGone)))
        }
    }

    /// The SRV records of a name, none if there are none: the servers of a `mongodb+srv` connection string. Called only in tasks
    /// of this runtime. The default asks the system's name servers, and needs the feature `srv`.
    ///
    /// # Errors
    /// No name server answers, or the runtime has ended.
    fn resolve_srv(&self, name: &str) -> impl Future<Output = io::Result<Vec<SrvRecord>>> + Send {
        #[cfg(feature = "srv")]
        let records = dns::system_srv(self, name.to_owned());
        #[cfg(not(feature = "srv"))]
        let records = without_srv(name);
        records
    }

    /// The TXT records of a name, none if there are none. As [`resolve_srv`](Self::resolve_srv).
    ///
    /// # Errors
    /// No name server answers, or the runtime has ended.
    fn resolve_txt(&self, name: &str) -> impl Future<Output = io::Result<Vec<TxtRecord>>> + Send {
        #[cfg(feature = "srv")]
        let records = dns::system_txt(self, name.to_owned());
        #[cfg(not(feature = "srv"))]
        let records = without_srv(name);
        records
    }

    /// Connects a socket. Called only in tasks of this runtime.
    fn connect(&self, target: Target) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Sends `message` to `to` from a UDP socket of its own, and returns the first datagram that `to` sends back, cut at
    /// [`MAX_DATAGRAM`](crate::net::MAX_DATAGRAM): a question to a name server. Called only in tasks of this runtime. Dropping the
    /// future closes the socket. By default it fails, and name servers are asked over TCP alone.
    ///
    /// # Errors
    /// Those of the socket; `Unsupported` by default.
    fn exchange_datagram(&self, to: SocketAddr, message: Vec<u8>) -> impl Future<Output = io::Result<Vec<u8>>> + Send {
        let _ = (to, message);
        std::future::ready(Err(io::ErrorKind::Unsupported.into()))
    }

    /// Fills `bytes` with random bytes that nobody can guess: nonces, and seeds of jitter. The default are the system's.
    ///
    /// # Errors
    /// The system gives none.
    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(|error| io::Error::other(error.to_string()))
    }
}

/// Where to connect to; host names are resolved already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The path of a Unix domain socket.
    #[cfg(unix)]
    Unix(PathBuf),
}

/// The runtime that the client was made in has ended, or there is none. One without timers counts as none.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the async runtime that the client belongs to is not running, or has no timers; make clients in a runtime that outlives their use, \
     on tokio one with `enable_all`"
)]
pub struct RuntimeGone;

readable_debug!(RuntimeGone);

#[cfg(not(feature = "srv"))]
async fn without_srv<T>(_name: &str) -> io::Result<T> {
    let text = "this program was built without the feature `srv`, which looks them up";
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}
