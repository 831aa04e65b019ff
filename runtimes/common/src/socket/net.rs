//! One type for all sockets, and their common settings.

use std::error::Error;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_io::{AsyncRead, AsyncWrite};
use socket2::{SockRef, TcpKeepalive};

/// One of two streams: a TCP or a Unix socket, a stream in the clear or under TLS.
#[derive(Debug)]
pub enum EitherStream<A, B> {
    /// The first.
    Left(A),
    /// The second.
    Right(B),
}

/// A socket whose `poll_close` ends its writing half, around one whose `poll_close` only flushes, as those of async-io do. What is
/// passed on from one socket to another needs that: the end of a direction is news for the other side.
#[derive(Debug)]
pub struct HalfClosing<S>(pub S);

/// Sets TCP_NODELAY, because a command is one write that waits for its answer, and keep-alive, which detects a peer
/// that vanished: after 120 s of silence 9 probes, 10 s apart, as all of MongoDB's drivers do.
///
/// # Errors
/// The operating system refused.
pub fn set_up_tcp(socket: SockRef<'_>) -> io::Result<()> {
    let keep_alive = TcpKeepalive::new().with_time(Duration::from_secs(120)).with_interval(Duration::from_secs(10));
    #[cfg(not(windows))]
    let keep_alive = keep_alive.with_retries(9);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&keep_alive)
}

/// [Sets up](set_up_tcp) a connection that a listener has accepted.
///
/// # Errors
/// The operating system refused: some do where the peer has reset the connection. The kind is
/// [`ConnectionAborted`](io::ErrorKind::ConnectionAborted), which tells it from an error of the listening socket.
pub fn set_up_accepted_tcp(socket: SockRef<'_>) -> io::Result<()> {
    set_up_tcp(socket).map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))
}

/// The longest datagram that [`exchange_datagram`](crate::Runtime::exchange_datagram) receives.
pub const MAX_DATAGRAM: usize = 4_096;

/// A UDP socket that sends to `to`, and receives from there alone. It does not block.
///
/// # Errors
/// The operating system refused.
pub fn udp_socket(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The advice for an error of opening a socket, to be appended to it; empty if there is none.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    if is_out_of_descriptors(error) {
        "; too many files and sockets are open: raise the limit of this process (ulimit -n), or of the system, or lower \
         maxPoolSize"
    } else {
        ""
    }
}

/// Whether the process, or the whole system, has no descriptors left. Runtimes may have wrapped the system's error.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    #[cfg(unix)]
    const CODES: [i32; 2] = [23, 24]; // ENFILE and EMFILE, the same on every Unix
    #[cfg(not(unix))]
    const CODES: [i32; 1] = [10024]; // WSAEMFILE
    let first: &(dyn Error + 'static) = error;
    std::iter::successors(Some(first), |&error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.raw_os_error().is_some_and(|code| CODES.contains(&code)))
}

impl<A: AsyncRead + Unpin, B: AsyncRead + Unpin> AsyncRead for EitherStream<A, B> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Left(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Right(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl<A: AsyncWrite + Unpin, B: AsyncWrite + Unpin> AsyncWrite for EitherStream<A, B> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Left(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Right(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Left(stream) => Pin::new(stream).poll_write_vectored(cx, buffers),
            Self::Right(stream) => Pin::new(stream).poll_write_vectored(cx, buffers),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Left(stream) => Pin::new(stream).poll_flush(cx),
            Self::Right(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Left(stream) => Pin::new(stream).poll_close(cx),
            Self::Right(stream) => Pin::new(stream).poll_close(cx),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HalfClosing<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HalfClosing<S>
where
    for<'a> SockRef<'a>: From<&'a S>,
{
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write_vectored(cx, buffers)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = &mut self.get_mut().0;
        ready!(Pin::new(&mut *stream).poll_flush(cx))?;
        Poll::Ready(match SockRef::from(&*stream).shutdown(Shutdown::Write) {
            // The peer has gone, and hears nothing any more.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            ended => ended,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accepted_connection_that_cannot_be_set_up_is_no_error_of_the_listening_socket() {
        let no_tcp_socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let refused = set_up_tcp(SockRef::from(&no_tcp_socket)).unwrap_err();

        let error = set_up_accepted_tcp(SockRef::from(&no_tcp_socket)).unwrap_err();

        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::ConnectionAborted, refused.to_string()));
    }
}
