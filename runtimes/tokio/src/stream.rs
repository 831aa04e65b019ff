//! Tokio's sockets with the traits of futures-io.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncRead, AsyncWrite};
use tokio::io::ReadBuf;

/// A socket of tokio's.
#[derive(Debug)]
pub struct TokioStream<S>(pub(crate) S);

impl<S: tokio::io::AsyncRead + Unpin> AsyncRead for TokioStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }
}

impl<S: tokio::io::AsyncWrite + Unpin> AsyncWrite for TokioStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, buffers)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::Waker;

    use cmap_runtime::Runtime;
    use cmap_runtime::net::EitherStream;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::coop::{consume_budget, has_budget_remaining};

    use super::*;
    use crate::Tokio;

    #[tokio::test]
    async fn the_end_is_read_whatever_is_left_of_the_tasks_budget() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        drop(listener.accept().await.unwrap());
        stream.readable().await.unwrap();
        let mut nobody = Context::from_waker(Waker::noop());
        while has_budget_remaining() {
            let _ = pin!(consume_budget()).poll(&mut nobody);
        }

        let read = Tokio::read_now(&mut EitherStream::Left(TokioStream(stream)), &mut [0]);

        assert_eq!(read.unwrap(), 0);
    }

    #[tokio::test]
    async fn several_buffers_are_one_write() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut stream: EitherStream<_, TokioStream<TcpStream>> = EitherStream::Left(TokioStream(stream));
        let buffers = [IoSlice::new(b"two "), IoSlice::new(b"buffers")];

        let written = poll_fn(|cx| Pin::new(&mut stream).poll_write_vectored(cx, &buffers)).await;

        assert_eq!(written.unwrap(), "two buffers".len());
    }
}
