//! One connection's TLS without I/O: the caller moves the bytes.
//!
//! Two pairs of calls face each other. [`send_to`](TlsSession::send_to) and
//! [`receive_from`](TlsSession::receive_from) move encrypted bytes to and from the connection;
//! [`write`](TlsSession::write) and [`read`](TlsSession::read) move the plaintext. `std::io`'s traits stand for the
//! connection, because a blocking socket, a byte slice and a vector have them and no byte is copied on the way; an
//! asynchronous stream answers `WouldBlock` where it must wait.
//!
//! Every call is legal at any time. The loop of a handshake, and of everything after it:
//!
//! 1. while [`wants_write`](TlsSession::wants_write), `send_to`;
//! 2. if [`is_handshaking`](TlsSession::is_handshaking), or if `read` answers `None`, `receive_from`, and again from 1.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};

use super::config::TlsConfig;
use super::error::TlsError;
use super::server_name::server_name;

/// One side of TLS on one connection: the client's, or the server's.
#[derive(Debug)]
pub struct TlsSession {
    connection: Connection,
    peer: Peer,
    /// The error that ended the session; every later call that needs it returns it again.
    failure: Option<rustls::Error>,
    closed: Closed,
}

/// The other side.
#[derive(Debug)]
pub(super) enum Peer {
    /// The server that is this host in the connection string.
    Server(String),
    /// A client that has connected.
    Client,
}

/// Which sides have ended their stream.
#[derive(Clone, Copy, Debug, Default)]
struct Closed {
    by_us: bool,
    by_peer: bool,
    /// The connection has ended, with or without the peer's close_notify.
    cut_off: bool,
}

/// The result of moving bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Some moved.
    Moved,
    /// None moved, because the connection answered `WouldBlock`.
    Blocked,
    /// None moved, because the other side sends nothing more.
    Ended,
    /// None moved, because plaintext waits to be read first, or nothing waits to be sent.
    Idle,
}

impl TlsSession {
    /// A session with the server that is `host` in the connection string, before the first byte of the handshake.
    ///
    /// # Errors
    ///
    /// [`TlsError::ServerName`] if no certificate can be for `host`.
    pub fn new(config: &TlsConfig, host: &str) -> Result<Self, TlsError> {
        let name = server_name(host)?;
        let connection = ClientConnection::new(Arc::clone(config.client()), name).map_err(TlsError::Protocol)?;
        Ok(Self::of(connection.into(), Peer::Server(host.to_owned())))
    }

    /// A session with a client that has connected, before the first byte of the handshake.
    ///
    /// # Errors
    ///
    /// [`TlsError::Client`] if `config` cannot be used.
    pub fn with_client(config: &Arc<ServerConfig>) -> Result<Self, TlsError> {
        let connection = ServerConnection::new(Arc::clone(config)).map_err(TlsError::Client)?;
        Ok(Self::of(connection.into(), Peer::Client))
    }

    fn of(connection: Connection, peer: Peer) -> Self {
        Self { connection, peer, failure: None, closed: Closed::default() }
    }

    /// The connection of rustls: what both sides have agreed on, and the certificates of the other side.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// 32 bytes that both sides of this connection have, and nobody else, by the name `label` and without a context (RFC 5705).
    ///
    /// # Errors
    ///
    /// [`TlsError::Protocol`] during the handshake.
    pub fn export(&self, label: &[u8]) -> Result<[u8; 32], TlsError> {
        self.connection.export_keying_material([0; 32], label, None).map_err(TlsError::Protocol)
    }

    /// Whether the handshake is still going on. Its last bytes may still have to be sent when it is over.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether there are bytes to send.
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends as many bytes as the connection takes in one call.
    ///
    /// # Errors
    ///
    /// [`TlsError::Io`] if it fails.
    pub fn send_to(&mut self, transport: &mut dyn io::Write) -> Result<Progress, TlsError> {
        if !self.connection.wants_write() {
            return Ok(Progress::Idle);
        }
        match ignoring_interrupts(|| self.connection.write_tls(transport)) {
            Ok(0) => Err(TlsError::Io(io::ErrorKind::WriteZero.into())),
            Ok(_) => Ok(Progress::Moved),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Progress::Blocked),
            Err(error) => Err(TlsError::Io(error)),
        }
    }

    /// Takes the bytes that the connection gives in one call.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if the connection fails, or ends during the handshake, or gives bytes that the other side must not send.
    /// After that there may be an alert to send, so that it learns why.
    pub fn receive_from(&mut self, transport: &mut dyn io::Read) -> Result<Progress, TlsError> {
        self.check()?;
        if self.closed.by_peer {
            return Ok(Progress::Ended);
        }
        if !self.is_handshaking() && !self.connection.wants_read() {
            return Ok(Progress::Idle);
        }
        let received = match ignoring_interrupts(|| self.connection.read_tls(transport)) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Progress::Blocked),
            Err(error) => return Err(TlsError::Io(error)),
        };
        let before_hello = self.connection.protocol_version().is_none();
        match self.connection.process_new_packets() {
            Ok(state) => self.closed.by_peer = state.peer_has_closed(),
            Err(error) => {
                self.failure = Some(error.clone());
                return Err(TlsError::from_rustls(error, &self.peer, before_hello));
            }
        }
        let ended = received == 0;
        self.closed.cut_off |= ended;
        if self.is_handshaking() && (ended || self.closed.by_peer) {
            return Err(TlsError::ended_in_handshake(&self.peer));
        }
        Ok(if ended { Progress::Ended } else { Progress::Moved })
    }

    /// Reads plaintext: how many bytes, 0 once the other side has ended TLS, `None` if more must be received first.
    ///
    /// # Errors
    ///
    /// [`TlsError::Truncated`] if the connection ended before TLS did; the fault of the received bytes, after the
    /// plaintext before them was read.
    pub fn read(&mut self, plaintext: &mut [u8]) -> Result<Option<usize>, TlsError> {
        match self.connection.reader().read(plaintext) {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.check().map(|()| None),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(TlsError::Truncated),
            Err(error) => Err(TlsError::Io(error)),
        }
    }

    /// Whether [`read`](Self::read) has an answer before more is received: plaintext, or why there will be none.
    pub fn has_something_to_read(&self) -> bool {
        self.failure.is_some() || self.closed.cut_off || !self.connection.wants_read()
    }

    /// Takes plaintext to encrypt: how many bytes, 0 if bytes must be sent first.
    ///
    /// # Errors
    ///
    /// [`TlsError::Io`] of kind `BrokenPipe` after [`TlsSession::close`], and the error that ended the session.
    pub fn write(&mut self, plaintext: &[u8]) -> Result<usize, TlsError> {
        self.check()?;
        if self.closed.by_us {
            return Err(TlsError::Io(io::ErrorKind::BrokenPipe.into()));
        }
        self.connection.writer().write(plaintext).map_err(TlsError::Io)
    }

    /// Ends this side's stream: a close_notify must be sent.
    pub fn close(&mut self) {
        if !self.closed.by_us {
            self.closed.by_us = true;
            self.connection.send_close_notify();
        }
    }

    fn check(&self) -> Result<(), TlsError> {
        match &self.failure {
            None => Ok(()),
            Some(error) => {
                let before_hello = self.connection.protocol_version().is_none();
                Err(TlsError::from_rustls(error.clone(), &self.peer, before_hello))
            }
        }
    }
}

/// The result of `call` that is not `Interrupted`.
fn ignoring_interrupts(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
