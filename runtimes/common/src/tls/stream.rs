//! TLS over a stream with futures-io's traits, which every runtime's sockets can have.
//!
//! No call loses bytes when its future is dropped: bytes read wait in the session, and bytes accepted for writing are
//! sent by the next write, flush or close. Reading never writes, so a reader and a writer in different tasks don't take
//! each other's wake-ups. The one exception is the alert after a failure.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncRead, AsyncWrite};
use rustls::ServerConfig;

use super::config::TlsConfig;
use super::error::TlsError;
use super::session::{Progress, TlsSession};

/// A stream whose bytes are encrypted on the way to the other side.
///
/// Written bytes are sent by a flush. Dropping the stream ends the connection without a close_notify; `poll_close`
/// sends one first. [`TlsError::of`] finds an error that is not the connection's own.
#[derive(Debug)]
pub struct TlsStream<S> {
    transport: S,
    session: TlsSession,
}

/// Does the handshake on `transport`, a connection to the server that is `host` in the connection string. The caller
/// limits its time; dropping the future drops `transport`.
///
/// # Errors
///
/// [`TlsError`]; [`TlsError::establish_error`] gives its meaning for the pool.
pub async fn connect<S>(config: &TlsConfig, host: &str, transport: S) -> Result<TlsStream<S>, TlsError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut stream = TlsStream { transport, session: TlsSession::new(config, host)? };
    poll_fn(|cx| stream.poll_handshake(cx)).await?;
    Ok(stream)
}

/// Does the handshake on `transport`, on which a client has connected. Limits are the caller's, as in [`connect`].
///
/// # Errors
///
/// [`TlsError::Io`] and [`TlsError::Client`].
pub async fn accept<S>(config: &Arc<ServerConfig>, transport: S) -> Result<TlsStream<S>, TlsError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut stream = TlsStream { transport, session: TlsSession::with_client(config)? };
    poll_fn(|cx| stream.poll_handshake(cx)).await?;
    Ok(stream)
}

impl<S> TlsStream<S> {
    /// TLS itself: what both sides have agreed on.
    pub fn session(&self) -> &TlsSession {
        &self.session
    }

    /// The stream under TLS.
    pub fn transport(&self) -> &S {
        &self.transport
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// Reads the bytes at hand, without waiting; `read` does so from the transport. Nothing is sent, not even the alert
    /// after a failure, which goes with the next flush or close.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock), if there are no bytes, and those of reading.
    pub fn read_now(
        &mut self,
        buffer: &mut [u8],
        read: impl FnMut(&mut S, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut transport = Unwaited { transport: &mut self.transport, read };
        loop {
            if let Some(read) = self.session.read(buffer)? {
                return Ok(read);
            }
            match self.session.receive_from(&mut transport)? {
                Progress::Blocked => return Err(io::ErrorKind::WouldBlock.into()),
                Progress::Moved | Progress::Ended | Progress::Idle => {}
            }
        }
    }

    /// Whether [`read_now`](Self::read_now) has an answer without a read from the transport: bytes that came, or the
    /// reason why there will be none.
    pub fn has_something_to_read(&self) -> bool {
        self.session.has_something_to_read()
    }

    /// Ends when there may be something to read; `poll` ends when there may be for the transport.
    ///
    /// # Errors
    /// Those of `poll`.
    pub fn poll_readable(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut S, &mut Context<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        if self.session.has_something_to_read() { Poll::Ready(Ok(())) } else { poll(&mut self.transport, cx) }
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TlsError>> {
        loop {
            ready!(self.poll_send(cx))?;
            if !self.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_receive(cx))?;
        }
    }

    /// Sends everything that waits to be sent, and flushes the transport.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TlsError>> {
        ready!(self.poll_send_all(cx))?;
        Pin::new(&mut self.transport).poll_flush(cx).map_err(TlsError::Io)
    }

    fn poll_send_all(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TlsError>> {
        loop {
            match self.session.send_to(&mut Polled { transport: &mut self.transport, cx })? {
                Progress::Moved => {}
                Progress::Blocked => return Poll::Pending,
                Progress::Idle | Progress::Ended => return Poll::Ready(Ok(())),
            }
        }
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TlsError>> {
        match self.session.receive_from(&mut Polled { transport: &mut self.transport, cx }) {
            Ok(Progress::Blocked) => Poll::Pending,
            Ok(Progress::Moved | Progress::Ended | Progress::Idle) => Poll::Ready(Ok(())),
            Err(error) => {
                // The alert lets the other side's log say why. Whether it arrives changes nothing.
                let _sent = self.poll_send(cx);
                Poll::Ready(Err(error))
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        loop {
            if let Some(read) = this.session.read(buffer)? {
                return Poll::Ready(Ok(read));
            }
            ready!(this.poll_receive(cx))?;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // Bytes taken before go first, so that no small gap in the session's buffer makes a small record.
        ready!(this.poll_send_all(cx))?;
        let written = this.session.write(buffer)?;
        if let Poll::Ready(sent) = this.poll_send_all(cx) {
            sent?;
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_send(cx).map_err(io::Error::from)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.session.close();
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.transport).poll_close(cx)
    }
}

/// A stream as `std::io`'s traits see it during one poll: where it is pending, it would block.
struct Polled<'a, 'b, S> {
    transport: &'a mut S,
    cx: &'a mut Context<'b>,
}

impl<S: AsyncRead + Unpin> io::Read for Polled<'_, '_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        or_would_block(Pin::new(&mut *self.transport).poll_read(self.cx, buffer))
    }
}

impl<S: AsyncWrite + Unpin> io::Write for Polled<'_, '_, S> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        or_would_block(Pin::new(&mut *self.transport).poll_write(self.cx, buffer))
    }

    fn write_vectored(&mut self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        or_would_block(Pin::new(&mut *self.transport).poll_write_vectored(self.cx, buffers))
    }

    fn flush(&mut self) -> io::Result<()> {
        or_would_block(Pin::new(&mut *self.transport).poll_flush(self.cx))
    }
}

/// A stream as `std::io`'s traits see it, read from by a function that never waits.
struct Unwaited<'a, S, F> {
    transport: &'a mut S,
    read: F,
}

impl<S, F: FnMut(&mut S, &mut [u8]) -> io::Result<usize>> io::Read for Unwaited<'_, S, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (self.read)(self.transport, buffer)
    }
}

fn or_would_block<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}
