//! A MongoDB server for tests, as a machine without I/O: the other side of the wire protocol.
//!
//! It answers drivers as MongoDB 7.0 does, or [8.0](ServerVersion), in everything that concerns their connections: hello (streamed, too),
//! compression, authentication by SCRAM-SHA-1, SCRAM-SHA-256, PLAIN and MONGODB-X509, users, sessions, the fail point
//! `failCommand`, and the commands that test harnesses send first (SRV-1 to SRV-8). Commands on data go to a
//! [`Store`](store::Store) in memory. Unknown commands get MongoDB's error 59.
//!
//! The driving rule is the pool's: call any method, then drain [`poll_output`](TestServer::poll_output), then ask
//! [`poll_timeout`](TestServer::poll_timeout) when to come back. Every method takes `now`. No bytes make it panic;
//! a client that breaks the protocol loses its own connection and nothing else.
//!
//! [`ServerConfig::limits`] bounds what clients use: 1 GiB of documents, 256 MiB in open cursors, 100 MiB for one
//! command, and about a second of work for it; more is an error. A cursor ends with its session or its connection, or
//! after ten idle minutes. A client whose commands take long rests for as long, so that others have their turn.
//!
//! ```
//! use bson::rawdoc;
//! use cmap_core::time::Instant;
//! use cmap_core::wire::{CommandReply, Field, Flags, Limits, Message, MessageIds, MessageWriter};
//! use cmap_test_server::{Peer, ServerConfig, ServerOutput, TestServer};
//!
//! let now = Instant::ORIGIN;
//! let mut server = TestServer::new(ServerConfig::new("localhost:27017"), now);
//! let client = server.accept(now, Peer::at("127.0.0.1:50000"));
//!
//! let (mut request, limits) = (Vec::new(), Limits::DEFAULT);
//! let database = [Field::String("$db", "admin")];
//! MessageWriter::begin(&mut request, MessageIds::request(1), Flags::NONE, &rawdoc! { "ping": 1 }, &database, &limits)?
//!     .finish();
//! server.handle_bytes(now, client, &request);
//!
//! let Some(ServerOutput::Send { bytes, .. }) = server.poll_output() else { unreachable!() };
//! assert!(CommandReply::read(Message::decode(&bytes, &limits)?.body).ok);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The files follow a request: `client` collects its bytes, `request` reads it, `exchange` takes it through its stages,
//! `service` finds the command (`command_kinds` says who may give it), which is in the file of its subject (`api`, `hello`, `sasl`, `users`, `fail_points`, `fail_command`,
//! `parameters`, `diagnostics`, `sessions`, `transactions`, `snapshots`, `common_arguments`, `read_concern`, `write_concern`, `replica_set`) or in the store, and `replies`
//! encodes what it says. A [`Deployment`] is several servers that belong together. Documents are in [`store`].

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod api;
#[cfg(feature = "certificates")]
pub mod certificates;
mod client;
mod clock;
mod cluster_time;
mod command_kinds;
mod common_arguments;
mod config;
mod deployment;
mod diagnostics;
mod document;
mod exchange;
pub mod fail_command;
mod fail_points;
mod failure;
mod hello;
mod identity;
mod ingress;
mod known;
mod parameters;
mod read_concern;
mod replica_set;
mod replication;
mod replies;
mod request;
mod sasl;
mod service;
mod sessions;
mod snapshots;
pub mod store;
mod traffic;
mod transactions;
mod users;
mod version;
mod write_concern;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use self::config::{Peer, ServerConfig, User};
pub use self::deployment::{Deployment, DeploymentConfig, DeploymentOutput};
pub use self::known::{KNOWN, Known};
pub use self::replica_set::config::{MemberConfig, MemberId, MemberRole, SetConfig};
pub use self::version::ServerVersion;

use self::client::{Client, Stage, Waiting};
use self::exchange::{Exchange, Progress};
use self::identity::Identity;
use self::ingress::Admission;
use self::service::Service;
use cmap_core::time::Instant;
use cmap_core::wire::{Limits, TopologyVersion};

/// How many bytes of replies may be queued for one client before its next request waits.
const MAX_QUEUED: usize = 1 << 20;
/// The delay before the server tries again to send a reply to a client with too many queued.
const CONGESTED: Duration = Duration::from_millis(100);
/// How long a client's commands may take in a row before it rests for as long.
const PATIENCE: Duration = Duration::from_millis(50);
/// How many bytes of requests one client may have waiting: two of the greatest messages.
const MAX_BACKLOG: usize = 96_000_000;

/// The server. See the [module](self).
#[derive(Debug)]
pub struct TestServer {
    now: Instant,
    clients: BTreeMap<ClientId, Client>,
    exchange: Exchange,
    /// The clients that have a backlog and are free to go on with it.
    eager: BTreeSet<ClientId>,
}

/// One connection's number, from 1, never used twice; its `connectionId`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(u64);

/// An instruction to the driver of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerOutput {
    /// Send these bytes.
    Send {
        /// The client.
        client: ClientId,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Close the connection, once all earlier replies are sent. The server has forgotten the client.
    HangUp {
        /// The client.
        client: ClientId,
    },
}

impl ClientId {
    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl TestServer {
    /// A server without clients. Takes some time for each user with a password (10 ms or so).
    pub fn new(config: ServerConfig, now: Instant) -> Self {
        Self {
            now,
            clients: BTreeMap::new(),
            exchange: Exchange::new(Service::new(config, now)),
            eager: BTreeSet::new(),
        }
    }

    /// The server that replaces this one after its end, at the same place and with the same documents: another process, with
    /// `config`, without clients, cursors or transactions under way. It knows which numbered writes have been carried out.
    #[must_use]
    pub fn restarted(self, config: ServerConfig, now: Instant) -> Self {
        let mut service = Service::new(config, now);
        service.keep_documents_of(self.exchange.service);
        Self { now, clients: BTreeMap::new(), exchange: Exchange::new(service), eager: BTreeSet::new() }
    }

    /// A client has connected. Where the parameters of ingress rate limiting forbid it, the next output hangs up.
    pub fn accept(&mut self, now: Instant, peer: Peer) -> ClientId {
        self.advance(now);
        self.exchange.service.clients_ever += 1;
        let id = ClientId(self.exchange.service.clients_ever);
        let is_exempt = peer.is_operator;
        let admission = if is_exempt { Admission::Now } else { self.exchange.service.ingress.admit(self.now) };
        let identity = Identity::new(i64::try_from(id.0).unwrap_or(i64::MAX), peer);
        self.clients.insert(id, Client::new(id, identity));
        self.exchange.service.clients = self.clients.len();
        match admission {
            Admission::Now => {}
            Admission::At(until) => {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.line.rests_until = Some(until);
                    self.exchange.due.insert((until, id));
                }
            }
            Admission::Refused => self.hang_up(id),
        }
        id
    }

    /// Bytes came from a client. They are ignored if the connection was closed by either side.
    pub fn handle_bytes(&mut self, now: Instant, client: ClientId, bytes: &[u8]) {
        self.advance(now);
        self.exchange.service.traffic.bytes_in += bytes.len() as u64;
        self.work(client, bytes);
    }

    /// A client has closed its connection, or it broke. Outputs and commands for it are dropped.
    pub fn handle_hang_up(&mut self, now: Instant, client: ClientId) {
        self.advance(now);
        self.forget(client);
    }

    /// Carries out everything that is due by now. Harmless if nothing is.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        let before = self.exchange.service.topology_version();
        self.exchange.service.handle_timeout(self.now);
        let later = self.exchange.due.split_off(&(self.now, ClientId(u64::MAX)));
        for (_, id) in std::mem::replace(&mut self.exchange.due, later) {
            self.resume(id);
        }
        self.note_topology(before);
    }

    /// The driver cannot send the replies of a client: no further request of that client is carried out before
    /// [`release`](Self::release). Without this a client that does not read could make replies pile up.
    pub fn hold(&mut self, now: Instant, client: ClientId) {
        self.advance(now);
        if let Some(held) = self.clients.get_mut(&client) {
            held.is_held = true;
            self.eager.remove(&client);
        }
    }

    /// Undoes [`hold`](Self::hold).
    pub fn release(&mut self, now: Instant, client: ClientId) {
        self.advance(now);
        if let Some(held) = self.clients.get_mut(&client) {
            held.is_held = false;
            self.note_eagerness(client);
        }
    }

    /// The next instruction; call it until it returns nothing.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<ServerOutput> {
        loop {
            if let Some(output) = self.exchange.outputs.pop_front() {
                if let ServerOutput::Send { client: id, bytes } = &output
                    && let Some(client) = self.clients.get_mut(id)
                {
                    client.line.queued = client.line.queued.saturating_sub(bytes.len());
                    let id = *id;
                    self.note_eagerness(id);
                }
                return Some(output);
            }
            let id = self.eager.pop_first()?;
            self.work(id, &[]);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); while outputs are queued, now.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.exchange.outputs.is_empty() || !self.eager.is_empty() {
            return Some(self.now);
        }
        let waiting = self.exchange.due.first().map(|(at, _)| *at);
        waiting.into_iter().chain(self.exchange.service.poll_timeout()).min()
    }

    /// The namespaces that commands have opened since the last call ([`Store::take_opened`](store::Store::take_opened)).
    pub fn take_opened(&mut self) -> BTreeSet<String> {
        self.exchange.service.store.take_opened()
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    fn forget(&mut self, id: ClientId) {
        if let Some(client) = self.clients.remove(&id) {
            let until =
                client.line.waiting.and_then(|waiting| waiting.until).into_iter().chain(client.line.rests_until);
            until.for_each(|until| _ = self.exchange.due.remove(&(until, id)));
            self.exchange.service.forget(id.0);
        }
        self.eager.remove(&id);
        self.exchange.service.clients = self.clients.len();
    }

    fn hang_up(&mut self, id: ClientId) {
        self.forget(id);
        self.exchange.outputs.push_back(ServerOutput::HangUp { client: id });
    }

    fn note_eagerness(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get(&id)
            && !client.backlog.is_empty()
            && client.is_free(MAX_QUEUED)
        {
            self.eager.insert(id);
        }
    }

    /// Carries out a client's requests while it is free for them; the rest waits in its backlog.
    fn work(&mut self, id: ClientId, bytes: &[u8]) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let mut backlog = std::mem::take(&mut client.backlog);
        let from_backlog = !backlog.is_empty();
        if from_backlog {
            backlog.push(bytes);
        }
        let mut input = if from_backlog { backlog.rest() } else { bytes };
        let progress = self.read(id, &mut input);
        let left = input.len();
        if matches!(progress, Progress::HangUp) || left > MAX_BACKLOG {
            return self.hang_up(id);
        }
        match from_backlog {
            true => backlog.keep_last(left),
            false => backlog.push(&bytes[bytes.len() - left..]),
        }
        if let Some(client) = self.clients.get_mut(&id) {
            client.backlog = backlog;
        }
        self.note_eagerness(id);
    }

    fn read(&mut self, id: ClientId, input: &mut &[u8]) -> Progress {
        self.exchange.service.work = Duration::ZERO;
        while let Some(client) = self.clients.get_mut(&id)
            && client.is_free(MAX_QUEUED)
        {
            let frame = match client.frames.read(input, &Limits::DEFAULT) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Progress::Done,
                Err(_) => return Progress::HangUp,
            };
            let before = self.exchange.service.topology_version();
            let changes = self.exchange.service.changes;
            let progress = self.exchange.go_on(self.now, &mut client.line, frame, None, Stage::Fresh);
            self.note_topology(before);
            if matches!(progress, Progress::HangUp) {
                return progress;
            }
            self.rest(id);
            if self.exchange.service.changes != changes {
                self.wake_those_who_await_data();
            }
        }
        Progress::Done
    }

    /// Lets a client rest whose commands took long, so that the other clients have their turn.
    fn rest(&mut self, id: ClientId) {
        let work = self.exchange.service.work;
        if work < PATIENCE {
            return;
        }
        self.exchange.service.work = Duration::ZERO;
        if let Some(client) = self.clients.get_mut(&id) {
            // The work itself takes time, too.
            let until = self.now + work * 2;
            client.line.rests_until = Some(until);
            self.exchange.due.insert((until, id));
        }
    }

    /// Goes on with a command that waited.
    fn resume(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.line.rests_until.take().is_some() {
            return self.note_eagerness(id);
        }
        if client.is_congested(MAX_QUEUED)
            && let Some(waiting) = &mut client.line.waiting
        {
            // A stream of hellos would otherwise pile up before a client that does not read.
            let until = self.now + CONGESTED;
            waiting.until = Some(until);
            self.exchange.due.insert((until, id));
            return;
        }
        let Some(Waiting { frame, last_reply, stage, .. }) = client.line.waiting.take() else { return };
        self.exchange.service.work = Duration::ZERO;
        let changes = self.exchange.service.changes;
        match self.exchange.go_on(self.now, &mut client.line, &frame, last_reply, stage) {
            Progress::HangUp => self.hang_up(id),
            Progress::Done => {
                self.rest(id);
                self.note_eagerness(id);
            }
        }
        if self.exchange.service.changes != changes {
            self.wake_those_who_await_data();
        }
    }

    /// The getMore of tailable cursors look again, since there may be documents.
    fn wake_those_who_await_data(&mut self) {
        for id in std::mem::take(&mut self.exchange.awaiting_data) {
            if let Some(waiting) = self.clients.get(&id).and_then(|client| client.line.waiting.as_ref())
                && matches!(waiting.stage, Stage::AwaitedData { .. })
            {
                self.go_on_with(id);
            }
        }
    }

    /// Commands that wait for the replica set look again.
    fn wake_those_who_wait_for_the_set(&mut self) {
        let waits =
            |client: &Client| client.line.waiting.as_ref().is_some_and(|waiting| waiting.stage.depends_on_set());
        let ids: Vec<_> = self.clients.iter().filter(|(_, client)| waits(client)).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.go_on_with(id));
    }

    /// Goes on with a command that waited, before its time.
    fn go_on_with(&mut self, id: ClientId) {
        let waiting = self.clients.get(&id).and_then(|client| client.line.waiting.as_ref());
        if let Some(until) = waiting.and_then(|waiting| waiting.until) {
            self.exchange.due.remove(&(until, id));
        }
        self.resume(id);
    }

    /// Wakes those who wait for a change of the set, if there was one since the topologyVersion was `before`.
    fn note_topology(&mut self, before: TopologyVersion) {
        if self.exchange.service.topology_version() != before {
            self.wake_those_who_wait_for_the_set();
            self.wake_those_who_await_news();
        }
    }

    /// Hellos that await news get them.
    fn wake_those_who_await_news(&mut self) {
        let awaits =
            |client: &Client| matches!(&client.line.waiting, Some(Waiting { stage: Stage::Awaited { .. }, .. }));
        let ids: Vec<_> = self.clients.iter().filter(|(_, client)| awaits(client)).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.go_on_with(id));
    }
}
