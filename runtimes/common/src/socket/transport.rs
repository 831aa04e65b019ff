//! A connection's stream: a socket of the runtime, in the clear or under TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

use super::read_budget::BudgetedStream;
use crate::runtime::Runtime;
#[cfg(feature = "__rustls")]
use crate::tls::TlsStream;

/// A stream to a server.
pub(crate) enum Transport<S> {
    /// A socket, in the clear.
    Clear(BudgetedStream<S>),
    /// TLS over another stream, which has TLS of its own where an agent has opened the socket.
    #[cfg(feature = "__rustls")]
    Tls(Box<TlsStream<Self>>),
}

/// Does the same with the stream inside, whichever it is.
macro_rules! with_stream {
    ($transport:expr, $stream:ident => $work:expr) => {
        match $transport {
            Self::Clear($stream) => $work,
            #[cfg(feature = "__rustls")]
            Self::Tls($stream) => $work,
        }
    };
}

impl<S: AsyncRead + AsyncWrite + Unpin> Transport<S> {
    /// Ends when there may be something to read ([`Runtime::poll_readable`]).
    pub(crate) fn poll_readable<R: Runtime<Stream = S>>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Clear(stream) => stream.poll_readable::<R>(cx),
            #[cfg(feature = "__rustls")]
            Self::Tls(stream) => stream.poll_readable(cx, Self::poll_readable::<R>),
        }
    }

    /// Reads what is there to read, without waiting.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock), if there is nothing, and those of reading.
    pub(crate) fn read_now<R: Runtime<Stream = S>>(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(stream) => R::read_now(stream.get_mut(), buffer),
            #[cfg(feature = "__rustls")]
            Self::Tls(stream) => stream.read_now(buffer, Self::read_now::<R>),
        }
    }

    /// Whether it holds something to read itself. What the kernel holds does not show here, nor what an agent's TLS holds for the
    /// server's: nobody has looked at it.
    pub(crate) fn has_something_to_read(&self) -> bool {
        match self {
            Self::Clear(_) => false,
            #[cfg(feature = "__rustls")]
            Self::Tls(stream) => stream.has_something_to_read(),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Transport<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        with_stream!(self.get_mut(), stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Transport<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        with_stream!(self.get_mut(), stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_stream!(self.get_mut(), stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_stream!(self.get_mut(), stream => Pin::new(stream).poll_close(cx))
    }
}
