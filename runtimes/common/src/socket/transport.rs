//! A connection's stream: a socket of the runtime or one that an agent has opened, in the clear or under TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

use super::read_budget::BudgetedStream;
use crate::reverse::ReverseStream;
use crate::runtime::Runtime;
use crate::tls::TlsStream;

/// A stream to a server.
pub(crate) enum Transport<S> {
    /// A socket, in the clear.
    Clear(BudgetedStream<S>),
    /// A socket under TLS.
    Tls(Box<TlsStream<BudgetedStream<S>>>),
    /// A socket that an agent has opened, in the clear or under the server's own TLS. There is none without the feature `reverse`.
    Reverse(ReverseStream<S>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Transport<S> {
    /// Whether the server's TLS is there.
    pub(crate) fn is_secured(&self) -> bool {
        match self {
            Self::Clear(_) => false,
            Self::Tls(_) => true,
            Self::Reverse(stream) => stream.is_secured(),
        }
    }

    /// Ends when there may be something to read ([`Runtime::poll_readable`]).
    pub(crate) fn poll_readable<R: Runtime<Stream = S>>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Clear(stream) => stream.poll_readable::<R>(cx),
            Self::Tls(stream) => stream.poll_readable(cx, BudgetedStream::poll_readable::<R>),
            Self::Reverse(stream) => stream.poll_readable::<R>(cx),
        }
    }

    /// Reads what is there to read, without waiting.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock), if there is nothing, and those of reading.
    pub(crate) fn read_now<R: Runtime<Stream = S>>(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(stream) => R::read_now(stream.get_mut(), buffer),
            Self::Tls(stream) => stream.read_now(buffer, |stream, buffer| R::read_now(stream.get_mut(), buffer)),
            Self::Reverse(stream) => stream.read_now::<R>(buffer),
        }
    }

    /// Whether it holds something to read itself. What the kernel holds does not show here.
    pub(crate) fn has_something_to_read(&self) -> bool {
        match self {
            Self::Clear(_) => false,
            Self::Tls(stream) => stream.has_something_to_read(),
            Self::Reverse(stream) => stream.has_something_to_read(),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Transport<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Reverse(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Transport<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Reverse(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::Reverse(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_close(cx),
            Self::Tls(stream) => Pin::new(stream).poll_close(cx),
            Self::Reverse(stream) => Pin::new(stream).poll_close(cx),
        }
    }
}
