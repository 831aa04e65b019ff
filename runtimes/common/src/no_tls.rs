//! TLS in a build without the feature `tls`: a client that asks for it is refused when it is made.
//!
//! The types have the names of those with TLS, so that nothing else depends on the feature. There are no values of most of them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::options::TlsOptions;
use futures_io::{AsyncRead, AsyncWrite};

use crate::runtime::Runtime;

/// A client's TLS; there is none.
#[derive(Clone, Debug)]
pub enum TlsConfig {}

/// A stream under TLS; there is none.
#[derive(Debug)]
pub struct TlsStream<S> {
    never: TlsConfig,
    transport: std::marker::PhantomData<S>,
}

/// The options ask for TLS, and this build has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the options ask for TLS, and this build has none: enable the feature `tls` of the cmap crate that you use, or set tls=false"
)]
#[non_exhaustive]
pub struct TlsConfigError;

/// Why a connection under TLS failed; none is ever made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The connection ended without the end of TLS.
    #[error("the connection was cut off")]
    Truncated,
    /// This build has no TLS.
    #[error("this build has no TLS: enable the feature `tls` of the cmap crate that you use")]
    NotBuiltIn,
}

impl TlsConfig {
    /// Refuses.
    ///
    /// # Errors
    /// [`TlsConfigError`], always.
    pub fn new(_options: &TlsOptions) -> Result<Self, TlsConfigError> {
        Err(TlsConfigError)
    }

    pub(crate) fn timed_by<R: Runtime>(self, _runtime: R) -> Self {
        self
    }
}

impl TlsError {
    /// No error is one of TLS.
    pub fn of(_error: &io::Error) -> Option<&Self> {
        None
    }

    /// The side at fault.
    pub fn fault(&self) -> Fault {
        Fault::Network
    }

    /// The error as the pool's machine takes it.
    pub fn establish_error(&self) -> EstablishError {
        EstablishError::new(Phase::Tls, self.fault(), self.to_string())
    }
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        Self::new(io::ErrorKind::UnexpectedEof, error)
    }
}

pub(crate) async fn connect<S>(config: &TlsConfig, _host: &str, _transport: S) -> Result<TlsStream<S>, TlsError> {
    match *config {}
}

impl<S> TlsStream<S> {
    pub(crate) fn read_now(
        &mut self,
        _buffer: &mut [u8],
        _read: impl FnMut(&mut S, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        match self.never {}
    }

    pub(crate) fn has_something_to_read(&self) -> bool {
        match self.never {}
    }

    pub(crate) fn poll_readable(
        &mut self,
        _cx: &mut Context<'_>,
        _poll: impl FnOnce(&mut S, &mut Context<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        match self.never {}
    }
}

impl<S: Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(self: Pin<&mut Self>, _cx: &mut Context<'_>, _buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self.never {}
    }
}

impl<S: Unpin> AsyncWrite for TlsStream<S> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_ask_for_tls_are_refused_with_the_name_of_the_feature() {
        let refused = TlsConfig::new(&TlsOptions::default()).unwrap_err();

        assert!(refused.to_string().contains("enable the feature `tls`"));
    }
}
