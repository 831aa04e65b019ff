//! Connections that the database's side opens, in a build without them (feature `reverse`, with one for TLS).
//!
//! The types have the names of those with them, so that nothing else depends on the feature. There are no values of them.

use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use cmap_core::address::ServerAddress;
use cmap_core::connection::EstablishError;
use cmap_core::time::Instant;
use futures_io::{AsyncRead, AsyncWrite};

use crate::clock::Clock;
use crate::runtime::Runtime;
use crate::tls::{TlsConfig, TlsError};

/// Takes sockets of agents; there is none.
pub(crate) struct Dialer<R> {
    never: Infallible,
    runtime: PhantomData<fn(R)>,
}

/// A socket that an agent has opened; there is none.
pub(crate) struct DialedStream<S> {
    never: Infallible,
    socket: PhantomData<S>,
}

/// A connection over one; there is none.
pub(crate) struct ReverseStream<S> {
    never: Infallible,
    socket: PhantomData<S>,
}

impl<R: Runtime> Dialer<R> {
    pub(crate) async fn dial(
        &self,
        _member: &ServerAddress,
        _clock: &Clock<R>,
        _until: Option<Instant>,
    ) -> Result<DialedStream<R::Stream>, EstablishError> {
        match self.never {}
    }
}

#[expect(clippy::extra_unused_type_parameters, reason = "the type parameters of the methods with the feature")]
impl<S> ReverseStream<S> {
    pub(crate) fn clear(stream: DialedStream<S>) -> Self {
        match stream.never {}
    }

    pub(crate) async fn secure(_: &TlsConfig, _host: &str, stream: DialedStream<S>) -> Result<Self, TlsError> {
        match stream.never {}
    }

    pub(crate) fn is_secured(&self) -> bool {
        match self.never {}
    }

    pub(crate) fn poll_readable<R: Runtime<Stream = S>>(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.never {}
    }

    pub(crate) fn read_now<R: Runtime<Stream = S>>(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
        match self.never {}
    }

    pub(crate) fn has_something_to_read(&self) -> bool {
        match self.never {}
    }
}

impl<S: Unpin> AsyncRead for ReverseStream<S> {
    fn poll_read(self: Pin<&mut Self>, _cx: &mut Context<'_>, _buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self.never {}
    }
}

impl<S: Unpin> AsyncWrite for ReverseStream<S> {
    fn poll_write(self: Pin<&mut Self>, _cx: &mut Context<'_>, _bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.never {}
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.never {}
    }

    fn poll_close(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.never {}
    }
}
