//! A connection over a socket that an agent has opened: under the listener's TLS, and perhaps the server's own on top of it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

use crate::runtime::Runtime;
use crate::socket::read_budget::BudgetedStream;
use crate::tls::{self, TlsConfig, TlsError, TlsStream};

/// A socket that an agent has opened, under the listener's TLS.
pub(crate) type DialedStream<S> = Box<TlsStream<BudgetedStream<S>>>;

/// A stream to a server by way of its agent.
pub(crate) enum ReverseStream<S> {
    /// The server speaks in the clear, behind the agent.
    Clear(DialedStream<S>),
    /// The server's TLS holds from end to end.
    Tls(Box<TlsStream<DialedStream<S>>>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> ReverseStream<S> {
    pub(crate) fn clear(stream: DialedStream<S>) -> Self {
        Self::Clear(stream)
    }

    /// Does the handshake with the server, which is `host` in the connection string.
    pub(crate) async fn secure(config: &TlsConfig, host: &str, stream: DialedStream<S>) -> Result<Self, TlsError> {
        tls::connect(config, host, stream).await.map(|stream| Self::Tls(Box::new(stream)))
    }

    pub(crate) fn is_secured(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    pub(crate) fn poll_readable<R: Runtime<Stream = S>>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let dialed = |stream: &mut DialedStream<S>, cx: &mut Context<'_>| {
            stream.poll_readable(cx, BudgetedStream::poll_readable::<R>)
        };
        match self {
            Self::Clear(stream) => dialed(stream, cx),
            Self::Tls(stream) => stream.poll_readable(cx, dialed),
        }
    }

    pub(crate) fn read_now<R: Runtime<Stream = S>>(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let dialed = |stream: &mut DialedStream<S>, buffer: &mut [u8]| {
            stream.read_now(buffer, |stream, buffer| R::read_now(stream.get_mut(), buffer))
        };
        match self {
            Self::Clear(stream) => dialed(stream, buffer),
            Self::Tls(stream) => stream.read_now(buffer, dialed),
        }
    }

    /// What the listener's TLS holds for the server's is like what the kernel holds: nobody has looked at it.
    pub(crate) fn has_something_to_read(&self) -> bool {
        match self {
            Self::Clear(stream) => stream.has_something_to_read(),
            Self::Tls(stream) => stream.has_something_to_read(),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ReverseStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ReverseStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_close(cx),
            Self::Tls(stream) => Pin::new(stream).poll_close(cx),
        }
    }
}
