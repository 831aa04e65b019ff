//! An adapter for a runtime of one's own: the trait `Runtime`, and nothing else. This one is a global executor with one thread,
//! on `async-executor`, `async-io` and `blocking`. `tests/own_runtime.rs` lets it pass the suite.
//!
//! `cargo run -p cmap-conformance --example own-runtime -- mongodb://localhost/`

use std::future::{Future, pending};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::thread;
use std::time::Instant;

use async_executor::Executor;
use async_io::{Async, Timer};
use bson::rawdoc;
use cmap_runtime::net::{EitherStream, HalfClosing, MAX_DATAGRAM, set_up_tcp, udp_socket};
use cmap_runtime::runtime::Target;
use cmap_runtime::{Client, Runtime, RuntimeGone};

#[cfg(unix)]
type Unix = std::os::unix::net::UnixStream;
#[cfg(not(unix))]
type Unix = TcpStream;

/// The runtime: a handle that is cheap to clone and good on every thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own;

/// The executor, whose thread starts with the first task.
static EXECUTOR: LazyLock<Executor<'static>> = LazyLock::new(|| {
    thread::spawn(|| async_io::block_on(EXECUTOR.run(pending::<()>())));
    Executor::new()
});

impl Runtime for Own {
    const NAME: &'static str = "own";

    type Stream = EitherStream<HalfClosing<Async<TcpStream>>, HalfClosing<Async<Unix>>>;

    fn current() -> Result<Self, RuntimeGone> {
        Ok(Self)
    }

    #[expect(clippy::disallowed_methods, reason = "an adapter is where time comes from")]
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + 'static {
        let timer = Timer::at(at);
        async { _ = timer.await }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        EXECUTOR.spawn(task).detach();
    }

    async fn spawn_blocking<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        Some(blocking::unblock(job).await)
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
                set_up_tcp(socket2::SockRef::from(&stream))?;
                Ok(EitherStream::Left(HalfClosing(stream)))
            }
            #[cfg(unix)]
            Target::Unix(path) => Ok(EitherStream::Right(HalfClosing(Async::<Unix>::connect(path).await?))),
        }
    }

    // Optional: without it name servers are asked over TCP alone.
    async fn exchange_datagram(&self, to: SocketAddr, message: Vec<u8>) -> io::Result<Vec<u8>> {
        let socket = Async::new(udp_socket(to)?)?;
        socket.send(&message).await?;
        let mut reply = vec![0; MAX_DATAGRAM];
        let length = socket.recv(&mut reply).await?;
        reply.truncate(length);
        Ok(reply)
    }
}

fn main() -> Result<(), cmap_runtime::Error> {
    let uri = std::env::args().nth(1).unwrap_or_else(|| "mongodb://localhost/".into());
    async_io::block_on(async {
        let client = Client::<Own>::connect(&uri).await?;
        let reply = client.check_out().await?.run_command("admin", rawdoc! { "ping": 1 }).await?;
        println!("{reply:?}");
        Ok(())
    })
}
