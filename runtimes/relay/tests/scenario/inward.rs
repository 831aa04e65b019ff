//! A runtime that connects to nobody: sockets come to it, and can be cut off, so that nothing arrives and nothing breaks until they
//! are whole again.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use cmap_runtime::runtime::{Runtime, Target};
use cmap_runtime::{Listen, RuntimeGone};
use futures_io::{AsyncRead, AsyncWrite};

/// How often any of these runtimes was asked to connect. Nobody should.
pub(crate) static CONNECTED: AtomicUsize = AtomicUsize::new(0);

/// The runtimes whose sockets are cut off, with the tasks that wait.
static CUT: Mutex<BTreeMap<&'static str, Vec<Waker>>> = Mutex::new(BTreeMap::new());

/// The runtime `R`, without a way out.
#[derive(Clone)]
pub(crate) struct Inward<R>(pub(crate) R);

/// A socket that has come in.
pub(crate) struct InwardStream<S> {
    stream: S,
    runtime: &'static str,
}

/// Cuts off all that has come to `R`.
#[allow(dead_code, reason = "a simulation cuts its own network")]
pub(crate) fn cut<R: Runtime>() {
    cuts().entry(R::NAME).or_default();
}

/// Makes it whole again.
#[allow(dead_code, reason = "a simulation mends its own network")]
pub(crate) fn mend<R: Runtime>() {
    let waiting = cuts().remove(R::NAME).unwrap_or_default();
    waiting.into_iter().for_each(Waker::wake);
}

fn cuts() -> MutexGuard<'static, BTreeMap<&'static str, Vec<Waker>>> {
    CUT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until nothing is cut off.
fn poll_whole(runtime: &'static str, cx: &Context<'_>) -> Poll<()> {
    match cuts().get_mut(runtime) {
        Some(waiting) => {
            waiting.push(cx.waker().clone());
            Poll::Pending
        }
        None => Poll::Ready(()),
    }
}

impl<R: Runtime> Runtime for Inward<R> {
    const NAME: &'static str = R::NAME;

    type Stream = InwardStream<R::Stream>;

    fn current() -> Result<Self, RuntimeGone> {
        R::current().map(Self)
    }

    fn now(&self) -> Instant {
        self.0.now()
    }

    fn unix_time(&self) -> Duration {
        self.0.unix_time()
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + 'static {
        self.0.sleep_until(at)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }

    fn spawn_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + Send {
        self.0.spawn_blocking(job)
    }

    fn read_now(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize> {
        if cuts().contains_key(R::NAME) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        R::read_now(&mut stream.stream, buffer)
    }

    fn poll_readable(stream: &mut Self::Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(poll_whole(R::NAME, cx));
        R::poll_readable(&mut stream.stream, cx)
    }

    fn wake_after_others(stream: &mut Self::Stream, cx: &mut Context<'_>) {
        R::wake_after_others(&mut stream.stream, cx);
    }

    async fn connect(&self, target: Target) -> io::Result<Self::Stream> {
        CONNECTED.fetch_add(1, Ordering::SeqCst);
        Err(io::Error::other(format!("the application connects to {target:?}")))
    }

    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.0.fill_random(bytes)
    }
}

impl<R: Listen> Listen for Inward<R> {
    type Listener = R::Listener;

    fn bind(&self, address: SocketAddr) -> impl Future<Output = io::Result<Self::Listener>> + Send {
        self.0.bind(address)
    }

    fn local_address(listener: &Self::Listener) -> io::Result<SocketAddr> {
        R::local_address(listener)
    }

    async fn accept(listener: &Self::Listener) -> io::Result<(Self::Stream, SocketAddr)> {
        poll_fn(|cx| poll_whole(R::NAME, cx)).await;
        let (stream, from) = R::accept(listener).await?;
        Ok((InwardStream { stream, runtime: R::NAME }, from))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for InwardStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        ready!(poll_whole(self.runtime, cx));
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for InwardStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(poll_whole(self.runtime, cx));
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }
}
