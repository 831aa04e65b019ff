//! A blocking socket, with TLS or without.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::options::TlsOptions;
use cmap_runtime::tls::{TlsConfig, TlsError, TlsSession};

/// Longest wait for bytes: a server that is silent for longer is taken for dead.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connected socket.
#[derive(Debug)]
pub(super) struct Transport {
    socket: TcpStream,
    tls: Option<TlsSession>,
    buffer: Vec<u8>,
}

impl Transport {
    /// Connects; with TLS, does its handshake.
    pub(super) fn connect(address: &ServerAddress, options: &TlsOptions) -> Result<Self, EstablishError> {
        let failed = |error: io::Error| EstablishError::new(Phase::Connect, Fault::Network, error.to_string());
        let ServerAddress::Tcp { host, port } = address else {
            return Err(EstablishError::new(Phase::Connect, Fault::Other, "only TCP addresses are supported here"));
        };
        let mut socket = TcpStream::connect((host.as_str(), *port)).map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let tls = match options.is_enabled() {
            true => Some(secure(&mut socket, host, options)?),
            false => None,
        };
        Ok(Self { socket, tls, buffer: vec![0; 256 * 1024] })
    }

    /// Sends all bytes.
    pub(super) fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.socket.write_all(bytes) };
        while !bytes.is_empty() {
            bytes = &bytes[tls.write(bytes)?..];
            flush(tls, &mut self.socket)?;
        }
        Ok(())
    }

    /// Waits for bytes; there is at least one.
    pub(super) fn receive(&mut self) -> io::Result<&[u8]> {
        let count = match &mut self.tls {
            None => self.socket.read(&mut self.buffer)?,
            Some(tls) => loop {
                if let Some(count) = tls.read(&mut self.buffer)? {
                    break count;
                }
                exchange(tls, &mut self.socket)?;
            },
        };
        if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(&self.buffer[..count]) }
    }
}

fn secure(socket: &mut TcpStream, host: &str, options: &TlsOptions) -> Result<TlsSession, EstablishError> {
    let unusable = |error: &dyn std::error::Error| {
        EstablishError::new(Phase::Tls, Fault::Other, super::expect::with_sources(error))
    };
    let config = TlsConfig::new(options).map_err(|error| unusable(&error))?;
    let mut tls = TlsSession::new(&config, host).map_err(|error| error.establish_error())?;
    while tls.is_handshaking() {
        exchange(&mut tls, socket).map_err(|error| error.establish_error())?;
    }
    flush(&mut tls, socket).map_err(|error| error.establish_error())?;
    Ok(tls)
}

/// Sends what there is to send, then takes what comes. If that is an error, the server is still told.
fn exchange(tls: &mut TlsSession, socket: &mut TcpStream) -> Result<(), TlsError> {
    flush(tls, socket)?;
    let received = tls.receive_from(socket);
    let told = flush(tls, socket);
    received.map(drop).and(told)
}

fn flush(tls: &mut TlsSession, socket: &mut TcpStream) -> Result<(), TlsError> {
    while tls.wants_write() {
        tls.send_to(socket)?;
    }
    Ok(())
}
