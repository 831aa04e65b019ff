//! MongoDB connections on async-std.
//!
//! ```no_run
//! use cmap_async_std::Client;
//! use cmap_async_std::bson::doc;
//!
//! fn main() -> Result<(), cmap_async_std::Error> {
//!     async_std::task::block_on(async {
//!         let client = Client::connect("mongodb://app:secret@db.example:27017/?maxPoolSize=20").await?;
//!         let mut connection = client.check_out().await?;
//!         let reply = connection.run_command("admin", doc! { "ping": 1 }).await?;
//!         println!("{reply:?}");
//!         Ok(())
//!     })
//! }
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "reverse")]
mod listen;

use std::future::Future;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::task::{Context, Poll};
use std::time::Instant;

use async_io::Async;
use async_std::task;
use cmap_runtime::net::{EitherStream, HalfClosing, MAX_DATAGRAM, set_up_tcp, udp_socket};
use cmap_runtime::runtime::Target;
use socket2::SockRef;

pub use cmap_runtime::exports::*;

/// A client on async-std.
pub type Client = cmap_runtime::Client<AsyncStd>;
/// A builder of a client on async-std.
pub type ClientBuilder = cmap_runtime::ClientBuilder<AsyncStd>;
/// A pool on async-std without a monitor.
pub type Pool = cmap_runtime::Pool<AsyncStd>;
/// A builder of a pool on async-std.
pub type PoolBuilder = cmap_runtime::PoolBuilder<AsyncStd>;
/// What clients and pools on async-std can both do.
pub type Connections = cmap_runtime::Connections<AsyncStd>;
/// The future of a check-out on async-std.
pub type CheckOut<'a> = cmap_runtime::CheckOut<'a, AsyncStd>;
/// A connection on async-std.
pub type Connection = cmap_runtime::Connection<AsyncStd>;
/// A connection on async-std, kept for a cursor or a transaction.
pub type PinnedConnection = cmap_runtime::PinnedConnection<AsyncStd>;
/// A command to run on async-std.
pub type Operation<'a, S = NoSession> = cmap_runtime::Operation<'a, AsyncStd, S>;
/// Writes of any number on async-std.
pub type Batched<'a, S = NoSession> = cmap_runtime::Batched<'a, AsyncStd, S>;
/// A cursor on async-std.
pub type Cursor = cmap_runtime::Cursor<AsyncStd>;
/// A cursor on async-std, whose documents become values.
pub type TypedCursor<T> = cmap_runtime::TypedCursor<AsyncStd, T>;
/// A cursor on async-std, in a session of a user's own.
pub type SessionCursor = cmap_runtime::SessionCursor<AsyncStd>;
/// A session of a user's own on async-std.
pub type Session = cmap_runtime::Session<AsyncStd>;

/// A listener for agents on async-std.
#[cfg(all(feature = "reverse", any(feature = "tls", feature = "tls-ring")))]
#[cfg_attr(docsrs, doc(cfg(feature = "reverse")))]
pub type ReverseListener = cmap_runtime::ReverseListener<AsyncStd>;

#[cfg(unix)]
type Unix = std::os::unix::net::UnixStream;
#[cfg(not(unix))]
type Unix = TcpStream;

/// async-std's global executor, which starts with its first task and never ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsyncStd;

/// Compiles the driver here, and not in each program.
#[cfg(all(debug_assertions, not(test)))]
static _INSTANCE: cmap_runtime::instance::Life = cmap_runtime::instance::live::<AsyncStd>;

impl Runtime for AsyncStd {
    const NAME: &'static str = "async-std";

    type Stream = EitherStream<HalfClosing<Async<TcpStream>>, HalfClosing<Async<Unix>>>;

    fn current() -> Result<Self, RuntimeGone> {
        Ok(Self)
    }

    #[inline]
    #[expect(clippy::disallowed_methods, reason = "an adapter is where time comes from")]
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + 'static {
        let wait = at.saturating_duration_since(self.now());
        task::sleep(wait)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(task::spawn(task));
    }

    async fn spawn_blocking<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        Some(task::spawn_blocking(job).await)
    }

    fn read_now(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize> {
        match stream {
            EitherStream::Left(stream) => stream.0.get_ref().read(buffer),
            EitherStream::Right(stream) => stream.0.get_ref().read(buffer),
        }
    }

    fn poll_readable(stream: &mut Self::Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match stream {
            EitherStream::Left(stream) => stream.0.poll_readable(cx),
            EitherStream::Right(stream) => stream.0.poll_readable(cx),
        }
    }

    async fn connect(&self, target: Target) -> io::Result<Self::Stream> {
        match target {
            Target::Tcp(address) => {
                let stream = Async::<TcpStream>::connect(address).await?;
                set_up_tcp(SockRef::from(&stream))?;
                Ok(EitherStream::Left(HalfClosing(stream)))
            }
            #[cfg(unix)]
            Target::Unix(path) => Ok(EitherStream::Right(HalfClosing(Async::<Unix>::connect(path).await?))),
        }
    }

    async fn exchange_datagram(&self, to: SocketAddr, message: Vec<u8>) -> io::Result<Vec<u8>> {
        let socket = Async::new(udp_socket(to)?)?;
        socket.send(&message).await?;
        let mut reply = vec![0; MAX_DATAGRAM];
        let length = socket.recv(&mut reply).await?;
        reply.truncate(length);
        Ok(reply)
    }
}
