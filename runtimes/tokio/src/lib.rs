//! MongoDB connections on tokio.
//!
//! ```no_run
//! use cmap_tokio::Client;
//! use cmap_tokio::bson::doc;
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), cmap_tokio::Error> {
//!     let client = Client::connect("mongodb://app:secret@db.example:27017/?maxPoolSize=20").await?;
//!     let mut connection = client.check_out().await?;
//!     let reply = connection.run_command("admin", doc! { "ping": 1 }).await?;
//!     println!("{reply:?}");
//!     Ok(())
//! }
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "reverse")]
mod listen;
mod stream;

use std::future::Future;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Context;
use std::time::Instant;

use cmap_runtime::net::{EitherStream, MAX_DATAGRAM, set_up_tcp, udp_socket};
use cmap_runtime::runtime::Target;
use socket2::SockRef;
use tokio::net::{TcpStream, UdpSocket};
use tokio::runtime::Handle;

pub use cmap_runtime::exports::*;
pub use stream::TokioStream;

/// A client on tokio.
pub type Client = cmap_runtime::Client<Tokio>;
/// A builder of a client on tokio.
pub type ClientBuilder = cmap_runtime::ClientBuilder<Tokio>;
/// A pool on tokio without a monitor.
pub type Pool = cmap_runtime::Pool<Tokio>;
/// A builder of a pool on tokio.
pub type PoolBuilder = cmap_runtime::PoolBuilder<Tokio>;
/// What clients and pools on tokio can both do.
pub type Connections = cmap_runtime::Connections<Tokio>;
/// The future of a check-out on tokio.
pub type CheckOut<'a> = cmap_runtime::CheckOut<'a, Tokio>;
/// A connection on tokio.
pub type Connection = cmap_runtime::Connection<Tokio>;
/// A connection on tokio, kept for a cursor or a transaction.
pub type PinnedConnection = cmap_runtime::PinnedConnection<Tokio>;
/// A command to run on tokio.
pub type Operation<'a, S = NoSession> = cmap_runtime::Operation<'a, Tokio, S>;
/// Writes of any number on tokio.
pub type Batched<'a, S = NoSession> = cmap_runtime::Batched<'a, Tokio, S>;
/// A cursor on tokio.
pub type Cursor = cmap_runtime::Cursor<Tokio>;
/// A cursor on tokio, whose documents become values.
pub type TypedCursor<T> = cmap_runtime::TypedCursor<Tokio, T>;
/// A cursor on tokio, in a session of a user's own.
pub type SessionCursor = cmap_runtime::SessionCursor<Tokio>;
/// A session of a user's own on tokio.
pub type Session = cmap_runtime::Session<Tokio>;

/// A listener for agents on tokio.
#[cfg(all(feature = "reverse", any(feature = "tls", feature = "tls-ring")))]
#[cfg_attr(docsrs, doc(cfg(feature = "reverse")))]
pub type ReverseListener = cmap_runtime::ReverseListener<Tokio>;

#[cfg(unix)]
type Unix = tokio::net::UnixStream;
#[cfg(not(unix))]
type Unix = TcpStream;

/// A tokio runtime.
#[derive(Clone, Debug)]
pub struct Tokio(Handle);

impl Tokio {
    /// The runtime of `handle`. Its time and its sockets must be enabled.
    pub fn new(handle: Handle) -> Self {
        Self(handle)
    }
}

/// Compiles the driver here, and not in each program.
#[cfg(all(debug_assertions, not(test)))]
static _INSTANCE: cmap_runtime::instance::Life = cmap_runtime::instance::live::<Tokio>;

impl Runtime for Tokio {
    const NAME: &'static str = "tokio";

    type Stream = EitherStream<TokioStream<TcpStream>, TokioStream<Unix>>;

    fn current() -> Result<Self, RuntimeGone> {
        Handle::try_current().map(Self).map_err(|_| RuntimeGone)
    }

    #[inline]
    fn now(&self) -> Instant {
        // Tokio's clock, which tests can stop.
        tokio::time::Instant::now().into_std()
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + 'static {
        let _context = self.0.enter();
        tokio::time::sleep_until(at.into())
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.spawn(task));
    }

    async fn spawn_blocking<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.0.spawn_blocking(job).await.ok()
    }

    fn read_now(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize> {
        // Bypasses tokio, which reports nothing to read until its reactor has run again.
        let socket = match stream {
            EitherStream::Left(stream) => SockRef::from(&stream.0),
            EitherStream::Right(stream) => SockRef::from(&stream.0),
        };
        (&*socket).read(buffer)
    }

    fn wake_after_others(_stream: &mut Self::Stream, cx: &mut Context<'_>) {
        // Tokio wakes the task after its reactor has run; the future is not needed after that.
        let _ = pin!(tokio::task::yield_now()).poll(cx);
    }

    async fn connect(&self, target: Target) -> io::Result<Self::Stream> {
        match target {
            Target::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                set_up_tcp(SockRef::from(&stream))?;
                Ok(EitherStream::Left(TokioStream(stream)))
            }
            #[cfg(unix)]
            Target::Unix(path) => Ok(EitherStream::Right(TokioStream(Unix::connect(path).await?))),
        }
    }

    async fn exchange_datagram(&self, to: SocketAddr, message: Vec<u8>) -> io::Result<Vec<u8>> {
        let socket = UdpSocket::from_std(udp_socket(to)?)?;
        socket.send(&message).await?;
        let mut reply = vec![0; MAX_DATAGRAM];
        let length = socket.recv(&mut reply).await?;
        reply.truncate(length);
        Ok(reply)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_without_timers_says_what_to_enable() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();

        let outcome = runtime.block_on(async {
            Client::connect("mongodb://localhost/").await?.check_out().await.map_err(Error::from).map(drop)
        });

        let error = outcome.unwrap_err();
        assert!(error.to_string().contains("`enable_all`"), "{error}");
    }
}
