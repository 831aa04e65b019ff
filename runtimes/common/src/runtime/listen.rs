//! Listening: an extension of a runtime, which clients that connect to their servers do not need.

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use crate::runtime::Runtime;

/// A runtime that can listen: what an adapter implements besides [`Runtime`] for a [`ReverseListener`](crate::ReverseListener).
pub trait Listen: Runtime {
    /// A TCP socket that listens, until it is dropped.
    type Listener: Send + Sync + 'static;

    /// Listens at `address`; with port 0 at any that is free. Called only in tasks of this runtime, but for the one that makes a
    /// listener.
    ///
    /// # Errors
    /// The system's: the port is taken, for one.
    fn bind(&self, address: SocketAddr) -> impl Future<Output = io::Result<Self::Listener>> + Send;

    /// Where it listens.
    ///
    /// # Errors
    /// The system's.
    fn local_address(listener: &Self::Listener) -> io::Result<SocketAddr>;

    /// The next connection, set up as those of [`connect`](Runtime::connect), and where it comes from. Nothing is lost when the
    /// future is dropped.
    ///
    /// # Errors
    /// The system's: no descriptors are left, for one, which passes. An error of this one connection has the kind
    /// [`ConnectionAborted`](io::ErrorKind::ConnectionAborted): the next one is accepted at once.
    fn accept(listener: &Self::Listener) -> impl Future<Output = io::Result<(Self::Stream, SocketAddr)>> + Send;
}
