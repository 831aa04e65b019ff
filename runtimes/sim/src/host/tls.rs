//! The server's side of TLS on a connection.

use std::io::{self, ErrorKind, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncRead, AsyncWrite};
use rustls::{ServerConfig, ServerConnection};

use crate::network::Stream;

/// The state of TLS on one connection.
pub(super) struct Tls {
    connection: ServerConnection,
    /// Encrypted bytes that have not been sent.
    unsent: Vec<u8>,
}

impl Tls {
    pub(super) fn new(config: &Arc<ServerConfig>) -> io::Result<Self> {
        let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        Ok(Self { connection, unsent: Vec::new() })
    }

    pub(super) fn poll_read(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            // Whether it is all sent does not matter here.
            let _ = self.poll_flush(stream, cx)?;
            match self.connection.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
            let mut encrypted = [0; 4096];
            let count = ready!(Pin::new(&mut *stream).poll_read(cx, &mut encrypted))?;
            if count == 0 {
                return Poll::Ready(Ok(0));
            }
            let outcome = self.decrypt(&encrypted[..count]);
            // A failure leaves an alert to be sent.
            let _ = self.poll_flush(stream, cx)?;
            outcome?;
        }
    }

    pub(super) fn poll_write(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(stream, cx))?;
        let count = self.connection.writer().write(bytes)?;
        // What is not sent now is sent before the next read.
        let _ = self.poll_flush(stream, cx)?;
        Poll::Ready(Ok(count))
    }

    fn decrypt(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.connection.read_tls(&mut bytes)?;
            self.connection.process_new_packets().map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn poll_flush(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.unsent)?;
        }
        while !self.unsent.is_empty() {
            let count = ready!(Pin::new(&mut *stream).poll_write(cx, &self.unsent))?;
            self.unsent.drain(..count);
        }
        Poll::Ready(Ok(()))
    }
}
