//! One connection as its server sees it: bytes in, and bytes that wait to be sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures_io::{AsyncRead, AsyncWrite};

use super::tls::Tls;
use crate::network::Stream;

/// A connection that was accepted.
pub(super) struct Channel {
    stream: Stream,
    tls: Option<Tls>,
}

/// What the server has for one client.
pub(super) struct Outbox {
    bytes: Vec<u8>,
    is_closed: bool,
    waker: Option<Waker>,
    /// The connection's place in the network.
    connection: usize,
}

impl Channel {
    /// A connection in the clear, or under TLS.
    pub(super) fn new(stream: Stream, tls: Option<Tls>) -> Self {
        Self { stream, tls }
    }

    /// The connection's place in the network.
    pub(super) fn connection(&self) -> usize {
        self.stream.connection()
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Some(tls) = &mut self.tls {
            return tls.poll_read(&mut self.stream, cx, buffer);
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(tls) = &mut self.tls {
            return tls.poll_write(&mut self.stream, cx, bytes);
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }
}

impl Outbox {
    pub(super) fn new(connection: usize, waker: Waker) -> Self {
        Self { bytes: Vec::new(), is_closed: false, waker: Some(waker), connection }
    }

    pub(super) fn connection(&self) -> usize {
        self.connection
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Adds bytes; returns the task to wake.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<Waker> {
        self.bytes.extend_from_slice(bytes);
        self.waker.take()
    }

    /// Nothing comes after what is there; returns the task to wake.
    pub(super) fn close(&mut self) -> Option<Waker> {
        self.is_closed = true;
        self.waker.take()
    }

    /// The task that waits, to be woken.
    pub(super) fn waker(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    /// Wakes `waker` when there is more.
    pub(super) fn wait(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Puts in front of all others bytes that could not be sent.
    pub(super) fn put_back(&mut self, bytes: &[u8]) {
        self.bytes.splice(..0, bytes.iter().copied());
    }
}
