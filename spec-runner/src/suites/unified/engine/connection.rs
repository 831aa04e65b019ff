//! Clients and connections of the virtual world, as the threads of a test hold them.

use alloc::rc::Rc;
use core::cell::RefCell;
use core::future::poll_fn;
use core::task::Poll;
use core::time::Duration;

use bson::{Document, RawDocumentBuf};
use cmap_core::address::ServerAddress;
use cmap_core::connection::{Command, Fault};
use cmap_core::options::ClientOptions;
use cmap_core::pool::{Cause, CheckOutRequest, Condition, Handle, Purpose};
use cmap_core::server::OperationError;
use cmap_core::time::Instant;
use cmap_core::wire::CommandReply;

use super::machine::{End, Machine, Route, Socket};
use super::servers;
use super::world::{MachineId, World};
use crate::suites::unified::client::{Client, Connection};
use crate::suites::unified::failure::{Failure, FailureKind};
use crate::suites::unified::format::DriverInfo;
use crate::suites::unified::journal::Journal;

/// A client in the virtual world.
#[derive(Clone)]
pub struct CoreClient {
    world: Rc<RefCell<World>>,
    id: MachineId,
    socket_timeout: Option<Duration>,
}

/// A connection that is checked out.
pub struct CoreConnection {
    client: CoreClient,
    handle: Handle,
    /// Absent only while it is dropped.
    socket: Option<Socket>,
    condition: Condition,
}

impl CoreClient {
    /// A client that begins at once.
    pub(super) fn new(world: &Rc<RefCell<World>>, options: ClientOptions, journal: Journal) -> Result<Self, Failure> {
        let all = world.borrow_mut().network().servers_mut().len();
        let is_multiple =
            matches!(options.hosts.first(), Some(ServerAddress::Tcp { host, .. }) if host == servers::MULTIPLE);
        let route = Route { servers: if is_multiple { (0..all).collect() } else { vec![0] }, next: 0 };
        let new = |now, network: &mut _| Machine::new(now, network, &options, route, journal);
        let id = world.borrow_mut().add(new)?;
        let socket_timeout = options.socket_timeout.filter(|timeout| !timeout.is_zero());
        Ok(Self { world: Rc::clone(world), id, socket_timeout })
    }

    fn look<T>(&self, look: impl FnOnce(&Machine) -> T) -> Option<T> {
        self.world.borrow().client(self.id).map(look)
    }
}

impl Client for CoreClient {
    type Connection = CoreConnection;

    fn now(&self) -> Instant {
        self.world.borrow().now()
    }

    async fn check_out(&self, purpose: Purpose, deadline: Option<Instant>) -> Result<CoreConnection, Failure> {
        let mut request = CheckOutRequest::default();
        request.deadline = deadline;
        let begun =
            self.world.borrow_mut().with(self.id, |machine, now, network| machine.check_out(now, network, request));
        let Some(mut check_out) = begun else { return Err(gone()) };
        let (handle, socket) = poll_fn(|_| {
            match self.world.borrow_mut().peek(self.id, |machine| machine.poll_check_out(&mut check_out)) {
                Some(ended) => Poll::Ready(ended),
                None => Poll::Pending,
            }
        })
        .await?;
        self.world.borrow_mut().with(self.id, |machine, _, _| machine.set_purpose(handle, purpose));
        Ok(CoreConnection { client: self.clone(), handle, socket: Some(socket), condition: Condition::Usable })
    }

    fn checked_out(&self) -> u64 {
        self.look(|machine| machine.server().pool().counts().in_use.into()).unwrap_or_default()
    }

    fn available(&self) -> u64 {
        self.look(|machine| machine.server().pool().counts().available.into()).unwrap_or_default()
    }

    fn min_round_trip_time(&self) -> Duration {
        self.look(|machine| machine.server().description().min_round_trip_time).unwrap_or_default()
    }

    fn topology_type(&self) -> String {
        self.look(|machine| machine.server().topology().topology_type.to_string()).unwrap_or_default()
    }

    fn append_metadata(&self, info: &DriverInfo) -> Result<(), Failure> {
        let appended = self.world.borrow_mut().with(self.id, |machine, _, _| machine.append_metadata(info));
        appended.unwrap_or_else(|| Err(gone()))
    }

    async fn close(&self) {
        self.world.borrow_mut().with(self.id, Machine::close);
    }
}

impl CoreConnection {
    /// Sends a command and waits for its reply.
    async fn exchange(
        &mut self,
        database: &str,
        command: &Document,
        deadline: Option<Instant>,
    ) -> Result<Document, (Fault, String)> {
        let unusable = |error: &dyn core::fmt::Display| (Fault::Other, error.to_string());
        let body = RawDocumentBuf::try_from(command).map_err(|error| unusable(&error))?;
        let Some(Socket { link, connection }) = &mut self.socket else { return Err(unusable(&gone())) };
        let link = *link;
        let mut out = Vec::new();
        connection.send(&mut out, &Command::new(database, &body)).map_err(|error| unusable(&error))?;
        let CoreClient { world, id, socket_timeout } = &self.client;
        let now = world.borrow().now();
        let until = deadline.or(socket_timeout.map(|timeout| now + timeout));
        if let Some(until) = until {
            world.borrow_mut().set_alarm(until.saturating_since(now));
        }
        world.borrow_mut().with(*id, |_, now, network| network.write(now, link, out));
        poll_fn(|_| {
            let now = world.borrow().now();
            let news = world.borrow_mut().peek(*id, |machine| {
                let address = machine.address().clone();
                let Some(line) = machine.line_mut(link) else { return Some((Vec::new(), Some(End::HungUp), address)) };
                Some((core::mem::take(&mut line.bytes), line.end, address))
            });
            let (bytes, end, address) =
                news.unwrap_or_else(|| (Vec::new(), Some(End::HungUp), ServerAddress::tcp("", 0)));
            match connection.read(&mut &bytes[..]) {
                Ok(Some(reply)) => {
                    return Poll::Ready(Document::try_from(reply.body).map_err(|error| unusable(&error)));
                }
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(unusable(&error))),
            }
            match end {
                Some(End::HungUp) => Poll::Ready(Err((Fault::Network, "the server has hung up".into()))),
                // CMAP-41.
                Some(End::Interrupted) => {
                    let text = format!("Connection to {address} interrupted due to server monitor timeout");
                    Poll::Ready(Err((Fault::Timeout, text)))
                }
                None if until.is_some_and(|until| until <= now) => {
                    Poll::Ready(Err((Fault::Timeout, "the server has not answered in time".into())))
                }
                None => Poll::Pending,
            }
        })
        .await
    }

    fn judge(&self, error: OperationError) {
        self.client.world.borrow_mut().with(self.client.id, |machine, now, network| {
            // A connection that was closed meanwhile has no more results.
            let _ = machine.handle_operation_failed(now, network, self.handle, error);
        });
    }
}

impl Connection for CoreConnection {
    fn identity(&self) -> Document {
        let mut identity = Document::new();
        if let Some(Socket { connection, .. }) = &self.socket {
            let description = connection.description();
            if let Some(id) = description.connection_id {
                identity.insert("serverConnectionId", id);
            }
            if let Some(id) = description.service_id {
                identity.insert("serviceId", id.to_string());
            }
        }
        identity
    }

    async fn run(
        &mut self,
        database: &str,
        command: &Document,
        deadline: Option<Instant>,
    ) -> Result<Document, Failure> {
        match self.exchange(database, command, deadline).await {
            Ok(reply) => {
                let raw = RawDocumentBuf::try_from(&reply).map_err(|error| Failure::client(error.to_string()))?;
                if let Some(error) = OperationError::of_reply(&CommandReply::read(&raw)) {
                    self.judge(error);
                }
                if CommandReply::read(&raw).ok { Ok(reply) } else { Failure::of_reply(&reply).map_or(Ok(reply), Err) }
            }
            Err((fault, text)) => {
                self.condition = Condition::Errored;
                self.judge(OperationError::new(fault, Cause::new(&text)));
                let kind = match fault {
                    Fault::Network => FailureKind::Network { timeout: false },
                    Fault::Timeout => FailureKind::Network { timeout: true },
                    Fault::Server { .. } | Fault::Other | _ => FailureKind::Client,
                };
                Err(Failure::new(kind, text))
            }
        }
    }
}

impl Drop for CoreConnection {
    fn drop(&mut self) {
        let Some(socket) = self.socket.take() else { return };
        let (handle, condition) = (self.handle, self.condition);
        self.client.world.borrow_mut().with(self.client.id, |machine, now, network| {
            machine.check_in(now, network, handle, socket, condition);
        });
    }
}

fn gone() -> Failure {
    Failure::client("the client is gone")
}
