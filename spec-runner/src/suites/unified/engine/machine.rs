//! A client: its server with pool and monitor, and the connections that are being established, driven by the world.
//!
//! This is the run loop that every driver of `cmap_core` has: call, drain, come back in time. Bytes that arrive go to the
//! owner of the link: an establishment, the monitor, or the line of an established connection, whose user reads them there.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::auth::{KeyCache, Lookup};
use cmap_core::connection::{
    ClientMetadata, Connection, ConnectionOptions, Establish, EstablishError, Fault, Phase, Progress,
};
use cmap_core::monitor::{self, MonitorOptions};
use cmap_core::options::ClientOptions;
use cmap_core::pool::{
    self, Action, ApiMisuse, Cause, CheckOutId, CheckOutRequest, Condition, Delivery, Handle, Pool, Purpose,
};
use cmap_core::server::{CheckOut, OperationError, Output, SelectionId, Server, ServerOptions};
use cmap_core::time::Instant;

use super::network::{Arrival, LinkId, Network};
use crate::suites::monitored::{self, Monitored};
use crate::suites::unified::failure::{Failure, FailureKind};
use crate::suites::unified::format::DriverInfo;
use crate::suites::unified::journal::Journal;

/// How long connecting and the hello may take where no option says so.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// One client.
pub(super) struct Machine {
    monitored: Monitored<Socket>,
    address: ServerAddress,
    journal: Journal,
    connections: Arc<ConnectionOptions>,
    connect_timeout: Option<Duration>,
    keys: KeyCache,
    route: Route,
    establishing: BTreeMap<LinkId, Establishing>,
    monitoring: BTreeMap<LinkId, monitor::Socket>,
    /// The client's ends of the links of established connections.
    lines: BTreeMap<LinkId, Line>,
    /// Check-outs that wait for the server, and what they became in the pool.
    selected: BTreeMap<SelectionId, Result<CheckOutId, Failure>>,
    ended: BTreeMap<CheckOutId, Result<(Handle, Socket), Failure>>,
    nonces: u64,
}

/// The servers that the address of a client stands for; connections of the pool reach them in turn.
pub(super) struct Route {
    pub(super) servers: Vec<usize>,
    pub(super) next: usize,
}

/// What the pool keeps of an established connection.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) link: LinkId,
    pub(super) connection: Connection,
}

/// The client's end of an established connection.
#[derive(Debug)]
pub(super) struct Line {
    handle: Handle,
    /// Bytes that have not been read yet.
    pub(super) bytes: Vec<u8>,
    /// How it was broken off, if it was.
    pub(super) end: Option<End>,
}

/// How a line was broken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The server has hung up.
    HungUp,
    /// The pool has interrupted it (CMAP-41).
    Interrupted,
}

struct Establishing {
    handle: Handle,
    /// None until the server has accepted.
    establish: Option<Establish>,
    deadline: Option<Instant>,
}

impl Route {
    fn first(&self) -> usize {
        self.servers.first().copied().unwrap_or_default()
    }

    fn next(&mut self) -> usize {
        let server = self.servers.get(self.next % self.servers.len().max(1)).copied().unwrap_or_default();
        self.next += 1;
        server
    }
}

impl Machine {
    /// A client that begins at once.
    ///
    /// # Errors
    /// Its options make no pool.
    pub(super) fn new(
        now: Instant,
        network: &mut Network,
        options: &ClientOptions,
        route: Route,
        journal: Journal,
    ) -> Result<Self, Failure> {
        let unusable = |error: &dyn core::fmt::Display| Failure::client(error.to_string());
        let Some(address) = options.hosts.first().cloned() else { return Err(Failure::client("there is no host")) };
        let mut pool_options = options.pool.clone();
        pool_options.load_balanced = options.load_balanced.unwrap_or_default();
        let pool = Pool::new(address.clone(), pool_options, now).map_err(|error| unusable(&error))?;
        let metadata = ClientMetadata::new("Linux");
        let connections = Arc::new(ConnectionOptions::of_client(options, metadata.clone()));
        let (server, monitor) = (ServerOptions::of_client(options), MonitorOptions::of_client(options, metadata));
        let connect_timeout = options.connect_timeout.unwrap_or(CONNECT_TIMEOUT);
        let mut machine = Self {
            monitored: Monitored::new(now, pool, server, monitor),
            address,
            journal,
            connections,
            connect_timeout: (!connect_timeout.is_zero()).then_some(connect_timeout),
            keys: KeyCache::new(1),
            route,
            establishing: BTreeMap::new(),
            monitoring: BTreeMap::new(),
            lines: BTreeMap::new(),
            selected: BTreeMap::new(),
            ended: BTreeMap::new(),
            nonces: 0,
        };
        machine.drain(now, network);
        Ok(machine)
    }

    // What callers do.

    /// Begins a check-out. [`poll_check_out`](Self::poll_check_out) says how it ends.
    pub(super) fn check_out(&mut self, now: Instant, network: &mut Network, request: CheckOutRequest) -> CheckOut {
        let (check_out, delivery) = self.monitored.server.check_out(now, request);
        self.drain(now, network);
        self.end_check_out(delivery);
        check_out
    }

    /// How a check-out has ended, if it has.
    pub(super) fn poll_check_out(&mut self, check_out: &mut CheckOut) -> Option<Result<(Handle, Socket), Failure>> {
        if let CheckOut::Selecting(selection) = *check_out {
            match self.selected.remove(&selection)? {
                Ok(started) => *check_out = CheckOut::Started(started),
                Err(failure) => return Some(Err(failure)),
            }
        }
        match *check_out {
            CheckOut::Started(id) => self.ended.remove(&id),
            CheckOut::Selecting(_) => None,
        }
    }

    /// Returns a connection.
    pub(super) fn check_in(
        &mut self,
        now: Instant,
        network: &mut Network,
        connection: Handle,
        socket: Socket,
        condition: Condition,
    ) {
        let checked_in = self.monitored.server.check_in(now, connection, socket, condition);
        self.drain(now, network);
        match checked_in {
            Ok(checked_in) => self.end_check_out(checked_in.delivery()),
            Err(refused) => self.hang_up(now, network, refused.socket.link),
        }
    }

    /// Judges the error of an operation.
    ///
    /// # Errors
    /// The connection is not in use.
    pub(super) fn handle_operation_failed(
        &mut self,
        now: Instant,
        network: &mut Network,
        connection: Handle,
        error: OperationError,
    ) -> Result<(), ApiMisuse> {
        let judged = self.monitored.server.handle_operation_failed(now, connection, error);
        self.drain(now, network);
        judged
    }

    /// Closes the client.
    pub(super) fn close(&mut self, now: Instant, network: &mut Network) {
        for action in self.monitored.close(now) {
            self.act_for_monitor(now, network, action);
        }
        self.drain(now, network);
    }

    /// Adds a wrapping library to the metadata of connections to come (HS-14).
    ///
    /// # Errors
    /// The metadata cannot be so.
    pub(super) fn append_metadata(&mut self, info: &DriverInfo) -> Result<(), Failure> {
        let mut connections = ConnectionOptions::clone(&self.connections);
        let (version, platform) = (info.version.as_deref(), info.platform.as_deref());
        let appended = connections.metadata.append(&info.name, version.unwrap_or(""), platform.unwrap_or(""));
        appended.map_err(|error| Failure::client(error.to_string()))?;
        self.connections = Arc::new(connections);
        Ok(())
    }

    /// What a connection that was just delivered is for (LB-16).
    pub(super) fn set_purpose(&mut self, connection: Handle, purpose: Purpose) {
        // It is in use, or was closed meanwhile.
        let _ = self.monitored.server.set_purpose(connection, purpose);
    }

    /// The client's end of an established connection.
    pub(super) fn line_mut(&mut self, link: LinkId) -> Option<&mut Line> {
        self.lines.get_mut(&link)
    }

    /// The client's server.
    pub(super) fn server(&self) -> &Server<Socket> {
        &self.monitored.server
    }

    /// Where the client's server is.
    pub(super) fn address(&self) -> &ServerAddress {
        &self.address
    }

    // What the world tells.

    /// Something arrived. Returns it if the link is not this client's.
    pub(super) fn handle_arrival(
        &mut self,
        now: Instant,
        network: &mut Network,
        link: LinkId,
        arrival: Arrival,
    ) -> Option<Arrival> {
        if self.establishing.contains_key(&link) {
            self.go_on_establishing(now, network, link, arrival);
        } else if let Some(line) = self.lines.get_mut(&link) {
            match arrival {
                Arrival::Accepted => {}
                Arrival::Bytes(bytes) => line.bytes.extend(bytes),
                Arrival::HungUp => line.end = line.end.or(Some(End::HungUp)),
            }
        } else if self.monitoring.contains_key(&link) {
            self.go_on_monitoring(now, link, arrival);
        } else {
            return Some(arrival);
        }
        self.drain(now, network);
        None
    }

    /// When to come back.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let establishing = self.establishing.values().filter_map(|establishing| establishing.deadline);
        establishing.chain(self.monitored.next_at()).min()
    }

    /// Time has passed.
    pub(super) fn handle_timeout(&mut self, now: Instant, network: &mut Network) {
        let is_late = |establishing: &Establishing| establishing.deadline.is_some_and(|deadline| deadline <= now);
        let late = self.establishing.iter().filter(|(_, establishing)| is_late(establishing));
        let late: Vec<LinkId> = late.map(|(link, _)| *link).collect();
        for link in late {
            self.fail_establishing(now, network, link, Fault::Timeout, "connectTimeoutMS is over");
        }
        self.monitored.handle_timeout(now);
        self.drain(now, network);
    }

    // Establishing connections.

    fn begin_establishing(&mut self, now: Instant, network: &mut Network, handle: Handle) {
        let link = network.open(now, self.route.next());
        let deadline = self.connect_timeout.map(|timeout| now + timeout);
        self.establishing.insert(link, Establishing { handle, establish: None, deadline });
    }

    fn go_on_establishing(&mut self, now: Instant, network: &mut Network, link: LinkId, arrival: Arrival) {
        let random = self.next_nonce();
        let Some(establishing) = self.establishing.get_mut(&link) else { return };
        let ended = match (arrival, &mut establishing.establish) {
            (Arrival::Accepted, _) => Establish::new(Arc::clone(&self.connections), random).map(|establish| {
                establishing.establish = Some(establish);
                false
            }),
            (Arrival::Bytes(bytes), Some(establish)) => {
                let progress = establish.handle_bytes(&bytes);
                progress.and_then(|progress| derive_keys(&mut self.keys, establish, progress))
            }
            (Arrival::Bytes(_), None) => Ok(false),
            (Arrival::HungUp, establish) => {
                let phase = establish.as_ref().map_or(Phase::Connect, Establish::phase);
                Err(EstablishError::new(phase, Fault::Network, "the server has hung up"))
            }
        };
        let handle = establishing.handle;
        if let Some(establish) = &mut establishing.establish {
            let mut out = Vec::new();
            establish.write_to(&mut out);
            network.write(now, link, out);
            let server = &mut self.monitored.server;
            if let Some(id) = establish.service_id().filter(|_| server.pool().service_of(handle).is_none()) {
                let description = (**server.description()).clone();
                // An establishment that was broken off has been given up by the pool.
                let _ = server.handle_hello(now, handle, Some(id), description);
            }
        }
        match ended {
            Ok(false) => {}
            Ok(true) => self.finish_establishing(now, network, link),
            Err(error) => self.abandon_establishing(now, network, link, error),
        }
    }

    fn finish_establishing(&mut self, now: Instant, network: &mut Network, link: LinkId) {
        let Some(Establishing { handle, establish, .. }) = self.establishing.remove(&link) else { return };
        let Some(connection) = establish.and_then(Establish::finish) else { return };
        self.lines.insert(link, Line { handle, bytes: Vec::new(), end: None });
        if let Err(refused) = self.monitored.server.handle_established(now, handle, Socket { link, connection }) {
            self.hang_up(now, network, refused.socket.link);
        }
    }

    fn fail_establishing(&mut self, now: Instant, network: &mut Network, link: LinkId, fault: Fault, text: &str) {
        let establish = self.establishing.get(&link).and_then(|establishing| establishing.establish.as_ref());
        let phase = establish.map_or(Phase::Connect, Establish::phase);
        self.abandon_establishing(now, network, link, EstablishError::new(phase, fault, text));
    }

    fn abandon_establishing(&mut self, now: Instant, network: &mut Network, link: LinkId, error: EstablishError) {
        let Some(Establishing { handle, .. }) = self.establishing.remove(&link) else { return };
        network.close(now, link);
        // One that was broken off before has been given up by the pool.
        let _ = self.monitored.server.handle_establish_failed(now, handle, error);
    }

    /// Bytes that differ each time. They need not be secret: no one guesses nonces here.
    fn next_nonce(&mut self) -> [u8; 24] {
        self.nonces += 1;
        let mut nonce = [0; 24];
        nonce[..8].copy_from_slice(&self.nonces.to_le_bytes());
        nonce
    }

    // Monitoring.

    fn go_on_monitoring(&mut self, now: Instant, link: LinkId, arrival: Arrival) {
        let (Some(&socket), Some(monitor)) = (self.monitoring.get(&link), &mut self.monitored.monitor) else { return };
        match arrival {
            Arrival::Accepted => monitor.handle_connected(now, socket),
            Arrival::Bytes(bytes) => monitor.handle_bytes(now, socket, &bytes),
            Arrival::HungUp => {
                monitor.handle_failed(now, socket, Fault::Network, Cause::new("the server has hung up"));
            }
        }
    }

    fn act_for_monitor(&mut self, now: Instant, network: &mut Network, action: monitor::Action) {
        let link_of = |monitoring: &BTreeMap<LinkId, monitor::Socket>, socket: monitor::Socket| {
            monitoring.iter().find(|(_, own)| **own == socket).map(|(link, _)| *link)
        };
        match action {
            monitor::Action::Connect(socket) => {
                // All that a monitor knows is one server.
                let link = network.open(now, self.route.first());
                self.monitoring.insert(link, socket);
            }
            monitor::Action::Send(socket) => {
                let mut out = Vec::new();
                if let Some(monitor) = &mut self.monitored.monitor {
                    monitor.write_to(socket, &mut out);
                }
                if let Some(link) = link_of(&self.monitoring, socket) {
                    network.write(now, link, out);
                }
            }
            monitor::Action::Close(socket) => {
                if let Some(link) = link_of(&self.monitoring, socket) {
                    self.monitoring.remove(&link);
                    network.close(now, link);
                }
            }
        }
    }

    // Doing what comes out.

    fn drain(&mut self, now: Instant, network: &mut Network) {
        while let Some(output) = self.monitored.poll_output(now) {
            let output = match output {
                monitored::Output::Monitor(action) => {
                    self.act_for_monitor(now, network, action);
                    continue;
                }
                monitored::Output::Server(output) => output,
            };
            match output {
                Output::Pool(pool::Output::Event(event)) => self.journal.pool_event(&self.address, &event),
                Output::Pool(pool::Output::Action(action)) => self.act(now, network, action),
                Output::Selected { selection, check_out } => {
                    self.selected.insert(selection, Ok(check_out));
                }
                Output::SelectionFailed { selection, error } => {
                    let failure = Failure::new(FailureKind::CheckOutTimeout, cause(&*error));
                    self.selected.insert(selection, Err(failure));
                }
                Output::Event(event) => self.journal.server_event(&self.address, &event),
                Output::Monitor(_) => {}
            }
        }
    }

    fn act(&mut self, now: Instant, network: &mut Network, action: Action<Socket>) {
        match action {
            Action::Connect { connection } => self.begin_establishing(now, network, connection),
            Action::Check { connection } => {
                let line = self.lines.values().find(|line| line.handle == connection);
                let alive = line.is_some_and(|line| line.end.is_none() && line.bytes.is_empty());
                // It was asked just now.
                let _ = self.monitored.server.handle_checked(now, connection, alive);
            }
            Action::Deliver { check_out, connection, socket } => {
                self.end_check_out(Some(Delivery { check_out, connection, socket }));
            }
            Action::Fail { check_out, error } => {
                self.ended.insert(check_out, Err(Failure::of_check_out(&error)));
            }
            Action::Close { socket, .. } => self.hang_up(now, network, socket.link),
            Action::Interrupt { connection } => {
                for line in self.lines.values_mut().filter(|line| line.handle == connection) {
                    line.end = line.end.or(Some(End::Interrupted));
                }
                let mut pending = self.establishing.iter().filter(|(_, pending)| pending.handle == connection);
                if let Some(link) = pending.next().map(|(link, _)| *link) {
                    self.establishing.remove(&link);
                    network.close(now, link);
                }
            }
        }
    }

    fn end_check_out(&mut self, delivery: Option<Delivery<Socket>>) {
        if let Some(Delivery { check_out, connection, socket }) = delivery {
            self.ended.insert(check_out, Ok((connection, socket)));
        }
    }

    fn hang_up(&mut self, now: Instant, network: &mut Network, link: LinkId) {
        self.lines.remove(&link);
        network.close(now, link);
    }
}

/// Derives the keys that an establishment asks for, unless they are known. Returns whether it is established.
fn derive_keys(
    cache: &mut KeyCache,
    establish: &mut Establish,
    mut progress: Progress,
) -> Result<bool, EstablishError> {
    loop {
        progress = match progress {
            Progress::Exchange => return Ok(false),
            Progress::Established => return Ok(true),
            Progress::Derive(request) => {
                let waiter = cache.enter(&request);
                let keys = match cache.look_up(&waiter) {
                    Lookup::Ready(keys) => keys,
                    Lookup::Derive(ticket) => {
                        let keys = request.run();
                        cache.finish(ticket, &keys);
                        keys
                    }
                    // No other establishment derives keys at the same time.
                    Lookup::Wait => request.run(),
                };
                cache.leave(waiter);
                establish.handle_keys(&keys)?
            }
        };
    }
}

/// An error with all its causes.
fn cause(error: &dyn core::error::Error) -> String {
    Cause::of(error).to_string()
}
