//! What blocks, each in a thread of its own: the checks of a server, the establishment of a connection, and a ping.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant as Clock};

use bson::rawdoc;
use cmap_core::address::ServerAddress;
use cmap_core::connection::{
    ClientMetadata, Command, Connection, ConnectionOptions, Establish, EstablishError, Fault, Phase, Progress,
};
use cmap_core::monitor::{Action, Call as Wanted, Monitor, Output, ServerDescription};
use cmap_core::options::ClientOptions;
use cmap_core::pool::{Cause, Handle};
use cmap_core::server::{OperationError, ServerId};
use cmap_core::time::Instant;
use cmap_core::wire::CommandReply;

use super::{Call, Driver, Result};

/// How long each wait for the network may last. A driver follows connectTimeoutMS and socketTimeoutMS, and bounds the whole of an
/// establishment.
const LIMIT: Duration = Duration::from_secs(10);

/// An established connection: the topology keeps it while nobody uses it.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) socket: TcpStream,
    protocol: Box<Connection>,
}

/// Checks a server until nothing more is wanted of its monitor.
pub(super) fn check(
    server: ServerId,
    mut monitor: Monitor,
    address: &ServerAddress,
    wanted: &Receiver<Wanted>,
    calls: &Sender<Call>,
    start: Clock,
) -> Result<()> {
    let now = || Instant::ORIGIN + start.elapsed();
    let (mut stream, mut unsent, mut asked) = (None, Vec::new(), None);
    loop {
        while let Some(output) = monitor.poll_output() {
            match output {
                Output::Action(Action::Connect(socket)) => match open(address) {
                    Ok(opened) => {
                        stream = Some(opened);
                        monitor.handle_connected(now(), socket);
                    }
                    Err(error) => monitor.handle_failed(now(), socket, fault(&error), Cause::of(&error)),
                },
                Output::Action(Action::Send(socket)) => {
                    monitor.write_to(socket, &mut unsent);
                    asked = Some(socket);
                }
                Output::Action(Action::Close(_)) => (stream, asked) = (None, None),
                Output::Event(event) => tell(calls, move |driver| {
                    // Not after the end of its server, or of all.
                    if driver.monitors.contains_key(&server) {
                        driver.topology.handle_heartbeat(driver.now(), server, event);
                    }
                    Ok(())
                })?,
                // It is a description, made of the hello's reply by `ServerDescription::of_reply`, or a failure. A monitor of your own makes
                // it in the same way, and adds the round-trip times and the time of the reply.
                Output::Found(finding) => {
                    asked = None;
                    tell(calls, move |driver| Ok(driver.topology.handle_check(driver.now(), server, finding)?))?;
                }
            }
        }
        if let (Some(socket), Some(stream)) = (asked, &mut stream) {
            match exchange(stream, &mut unsent) {
                Ok(bytes) => monitor.handle_bytes(now(), socket, &bytes),
                Err(error) => monitor.handle_failed(now(), socket, fault(&error), Cause::of(&error)),
            }
            continue;
        }
        let next = monitor.poll_timeout().map(|timeout| timeout.at.saturating_since(now()));
        match wanted.recv_timeout(next.unwrap_or(Duration::MAX)) {
            Ok(call) => monitor.handle_call(now(), call),
            Err(RecvTimeoutError::Timeout) => monitor.handle_timeout(now()),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Establishes a connection, and tells the loop how that ended.
pub(super) fn establish(
    connection: Handle,
    address: &Arc<ServerAddress>,
    options: &ClientOptions,
    calls: &Sender<Call>,
) -> Result<()> {
    let established = greet(connection, address, options, calls);
    tell(calls, move |driver| match established {
        Ok(wire) => Ok(driver.topology.handle_established(driver.now(), connection, wire)?),
        Err(error) => Ok(driver.topology.handle_establish_failed(driver.now(), connection, error)?),
    })
}

fn greet(
    connection: Handle,
    address: &Arc<ServerAddress>,
    options: &ClientOptions,
    calls: &Sender<Call>,
) -> Result<Wire, EstablishError> {
    let failed = |phase| move |error: io::Error| EstablishError::new(phase, fault(&error), error.to_string());
    let options = ConnectionOptions::of_client(options, ClientMetadata::new(std::env::consts::OS));
    let mut socket = open(address).map_err(failed(Phase::Connect))?;
    let mut random = [0; 24];
    getrandom::fill(&mut random).map_err(|error| failed(Phase::Hello)(error.into()))?;
    let mut establish = Establish::new(Arc::new(options), random)?;
    let (mut progress, mut unsent) = (Progress::Exchange, Vec::new());
    while !matches!(progress, Progress::Established) {
        progress = match progress {
            Progress::Derive(keys) => establish.handle_keys(&keys.run())?,
            Progress::Token => {
                return Err(EstablishError::new(
                    Phase::Authenticate,
                    Fault::Other,
                    "this example fetches no access token",
                ));
            }
            Progress::Exchange | Progress::Established => {
                let (phase, asked) = (establish.phase(), clock());
                establish.write_to(&mut unsent);
                let bytes = exchange(&mut socket, &mut unsent).map_err(failed(phase))?;
                let progress = establish.handle_bytes(&bytes);
                // Before an error that follows: behind a load balancer it counts for the service that the hello names.
                if let Some(reply) = establish.take_hello_reply() {
                    let mut found = ServerDescription::of_reply(Arc::clone(address), &reply);
                    found.round_trip_time = Some(asked.elapsed());
                    let service = establish.service_id();
                    let hello = move |driver: &mut Driver| {
                        Ok(driver.topology.handle_hello(driver.now(), connection, service, found)?)
                    };
                    // The loop ends only when no connection is pending.
                    let _ = tell(calls, hello);
                }
                progress?
            }
        };
    }
    let ended = || EstablishError::new(Phase::Authenticate, Fault::Other, "it ended before its end");
    Ok(Wire { socket, protocol: Box::new(establish.finish().ok_or_else(ended)?) })
}

impl Wire {
    /// Pings. Returns the server's error, if it has answered with one; the connection is of no more use if that fails.
    pub(super) fn ping(&mut self) -> Result<Option<OperationError>, OperationError> {
        let broken = |cause| OperationError::new(Fault::Other, cause);
        let mut unsent = Vec::new();
        let ping = rawdoc! { "ping": 1 };
        let sent = self.protocol.send(&mut unsent, &Command::new("admin", &ping));
        sent.map_err(|error| broken(Cause::of(&error)))?;
        loop {
            let received = exchange(&mut self.socket, &mut unsent);
            let bytes = received.map_err(|error| OperationError::new(fault(&error), Cause::of(&error)))?;
            let mut unread = bytes.as_slice();
            let reply = self.protocol.read(&mut unread).map_err(|error| broken(Cause::of(&error)))?;
            let Some(reply) = reply else { continue };
            let error = OperationError::of_reply(&CommandReply::read(reply.body));
            return if unread.is_empty() { Ok(error) } else { Err(broken(Cause::new("more came than was asked for"))) };
        }
    }

    /// Whether the peer has neither hung up nor said anything.
    pub(super) fn is_silent(&self) -> bool {
        let peeked = self.socket.set_nonblocking(true).and_then(|()| self.socket.peek(&mut [0]));
        let is_blocking = self.socket.set_nonblocking(false).is_ok();
        is_blocking && peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

/// Has the loop make a call.
pub(super) fn tell(calls: &Sender<Call>, call: impl FnOnce(&mut Driver) -> Result<()> + Send + 'static) -> Result<()> {
    calls.send(Box::new(call)).map_err(|_| "the loop has ended".into())
}

fn open(address: &ServerAddress) -> io::Result<TcpStream> {
    let ServerAddress::Tcp { host, port } = address else { return Err(ErrorKind::Unsupported.into()) };
    let mut failed = io::Error::from(ErrorKind::NotFound);
    for address in (host.as_str(), *port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, LIMIT) {
            Ok(socket) => return socket.set_read_timeout(Some(LIMIT)).map(|()| socket),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Sends what is unsent, and waits for bytes.
fn exchange(socket: &mut TcpStream, unsent: &mut Vec<u8>) -> io::Result<Vec<u8>> {
    let sent = socket.write_all(unsent);
    unsent.fill(0); // It may have held a password.
    unsent.clear();
    let mut buffer = vec![0; 4096];
    let count = sent.and_then(|()| socket.read(&mut buffer))?;
    buffer.truncate(count);
    if count == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(buffer) }
}

fn fault(error: &io::Error) -> Fault {
    // An operating system may call a time-out either.
    if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) { Fault::Timeout } else { Fault::Network }
}

#[expect(clippy::disallowed_methods, reason = "a driver is where time comes from")]
pub(super) fn clock() -> Clock {
    Clock::now()
}
