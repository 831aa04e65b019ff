//! A runtime whose links to servers can be cut: nothing arrives, and nothing breaks, until they are whole again.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use cmap_runtime::RuntimeGone;
use cmap_runtime::runtime::{Runtime, Target};
use smol::io::{AsyncRead, AsyncWrite};

/// The links that are cut, with the tasks that wait for each. Servers have ports of their own, so tests share this.
static CUT: Mutex<BTreeMap<SocketAddr, Vec<Waker>>> = Mutex::new(BTreeMap::new());

/// The runtime `R`, over links that can be cut.
#[derive(Clone)]
pub(crate) struct Linked<R>(R);

/// A stream over such a link.
pub(crate) struct LinkedStream<S> {
    stream: S,
    to: Option<SocketAddr>,
}

/// Cuts the link to a server.
pub(crate) fn cut(server: SocketAddr) {
    links().entry(server).or_default();
}

/// Makes the link to a server whole again.
pub(crate) fn mend(server: SocketAddr) {
    let waiting = links().remove(&server).unwrap_or_default();
    waiting.into_iter().for_each(Waker::wake);
}

fn links() -> MutexGuard<'static, BTreeMap<SocketAddr, Vec<Waker>>> {
    CUT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the link is whole.
fn poll_link(to: Option<SocketAddr>, cx: &mut Context<'_>) -> Poll<()> {
    match to.and_then(|to| links().get_mut(&to).map(|waiting| waiting.push(cx.waker().clone()))) {
        Some(()) => Poll::Pending,
        None => Poll::Ready(()),
    }
}

impl<R: Runtime> Runtime for Linked<R> {
    const NAME: &'static str = R::NAME;

    type Stream = LinkedStream<R::Stream>;

    fn current() -> Result<Self, RuntimeGone> {
        R::current().map(Self)
    }

    fn now(&self) -> Instant {
        self.0.now()
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
        match stream.to {
            Some(to) if links().contains_key(&to) => Err(io::ErrorKind::WouldBlock.into()),
            _ => R::read_now(&mut stream.stream, buffer),
        }
    }

    fn poll_readable(stream: &mut Self::Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(poll_link(stream.to, cx));
        R::poll_readable(&mut stream.stream, cx)
    }

    fn wake_after_others(stream: &mut Self::Stream, cx: &mut Context<'_>) {
        R::wake_after_others(&mut stream.stream, cx);
    }

    async fn connect(&self, target: Target) -> io::Result<Self::Stream> {
        let to = match &target {
            Target::Tcp(to) => Some(*to),
            #[cfg(unix)]
            Target::Unix(_) => None,
        };
        poll_fn(|cx| poll_link(to, cx)).await;
        Ok(LinkedStream { stream: self.0.connect(target).await?, to })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LinkedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(poll_link(self.to, cx));
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LinkedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(poll_link(self.to, cx));
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }
}
