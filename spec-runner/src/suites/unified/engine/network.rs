//! The network of the virtual world: links between clients and embedded servers, which take time and keep order.

use alloc::collections::BTreeMap;
use core::time::Duration;

use cmap_core::sim::{Random, Schedule};
use cmap_core::time::Instant;
use cmap_test_server::{ClientId, Peer, ServerOutput, TestServer};

/// A connection between a client and a server. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkId(u64);

/// An arrival at a client's end.
#[derive(Debug)]
pub(super) enum Arrival {
    /// The server has accepted the connection.
    Accepted,
    /// Bytes came from the server.
    Bytes(Vec<u8>),
    /// The server has hung up.
    HungUp,
}

/// The servers, and the links that lead to them.
pub(super) struct Network {
    random: Random,
    /// What chance may add to the time of a way.
    jitter: Duration,
    servers: Vec<TestServer>,
    links: BTreeMap<LinkId, Link>,
    opened: u64,
    ways: Schedule<(LinkId, Way)>,
}

struct Link {
    server: usize,
    /// The server's id of the client, once it has accepted.
    peer: Option<ClientId>,
    /// When the last message arrives, in each direction: later messages arrive later.
    last_up: Instant,
    last_down: Instant,
}

/// A message under way.
enum Way {
    Opening,
    Up(Vec<u8>),
    Leaving,
    Down(Arrival),
}

/// The shortest latency in one direction.
const LATENCY: Duration = Duration::from_micros(100);

/// Two messages on one link never arrive at once.
const GAP: Duration = Duration::from_nanos(1);

impl Network {
    /// Links to `servers`. Seeds differ in how long a way can take: from a tenth of a millisecond to two.
    pub(super) fn new(servers: Vec<TestServer>, seed: u64) -> Self {
        let jitter = Duration::from_micros([0, 100, 1000, 2000][usize::try_from(seed % 4).unwrap_or_default()]);
        Self { random: Random::new(seed), jitter, servers, links: BTreeMap::new(), opened: 0, ways: Schedule::new() }
    }

    /// The chance of this world.
    pub(super) fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// The servers.
    pub(super) fn servers_mut(&mut self) -> &mut [TestServer] {
        &mut self.servers
    }

    /// Begins to connect to a server.
    pub(super) fn open(&mut self, now: Instant, server: usize) -> LinkId {
        self.opened += 1;
        let id = LinkId(self.opened);
        self.links.insert(id, Link { server, peer: None, last_up: now, last_down: now });
        self.send(now, id, Way::Opening);
        id
    }

    /// Sends bytes to the server.
    pub(super) fn write(&mut self, now: Instant, link: LinkId, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.send(now, link, Way::Up(bytes));
        }
    }

    /// Closes the client's end. Bytes sent before still arrive.
    pub(super) fn close(&mut self, now: Instant, link: LinkId) {
        self.send(now, link, Way::Leaving);
    }

    /// The time of the next event.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let servers = self.servers.iter().filter_map(TestServer::poll_timeout);
        servers.chain(self.ways.next_at()).min()
    }

    /// Makes one event happen that is due. Returns its arrival at a client, if it was one.
    pub(super) fn step(&mut self, now: Instant) -> Option<(LinkId, Arrival)> {
        let due = |server: &TestServer| server.poll_timeout().is_some_and(|at| at <= now);
        let waiting = self.servers.iter().position(due);
        if let Some(index) =
            waiting.filter(|_| self.ways.next_at().is_none_or(|at| at > now) || self.random.up_to(1) == 0)
        {
            if let Some(server) = self.servers.get_mut(index) {
                server.handle_timeout(now);
            }
            self.drain(now, index);
            return None;
        }
        let (id, way) = self.ways.pop_due(now)?;
        let link = self.links.get_mut(&id)?;
        let index = link.server;
        let server = self.servers.get_mut(index)?;
        match (way, link.peer) {
            (Way::Opening, _) => {
                link.peer = Some(server.accept(now, Peer::at("client.example:50000")));
                self.send(now, id, Way::Down(Arrival::Accepted));
            }
            (Way::Up(bytes), Some(peer)) => {
                server.handle_bytes(now, peer, &bytes);
                self.drain(now, index);
            }
            (Way::Leaving, peer) => {
                if let Some(peer) = peer {
                    server.handle_hang_up(now, peer);
                }
                self.links.remove(&id);
                self.drain(now, index);
            }
            (Way::Up(_), None) => {}
            (Way::Down(arrival), _) => return Some((id, arrival)),
        }
        None
    }

    fn drain(&mut self, now: Instant, index: usize) {
        while let Some(output) = self.servers.get_mut(index).and_then(TestServer::poll_output) {
            match output {
                ServerOutput::Send { client, bytes } => {
                    if let Some(id) = self.link_of(index, client) {
                        self.send(now, id, Way::Down(Arrival::Bytes(bytes)));
                    }
                }
                ServerOutput::HangUp { client } => {
                    if let Some(id) = self.link_of(index, client) {
                        self.send(now, id, Way::Down(Arrival::HungUp));
                    }
                }
                // The server has no other outputs.
                _ => {}
            }
        }
    }

    fn link_of(&self, server: usize, peer: ClientId) -> Option<LinkId> {
        self.links.iter().find(|(_, link)| link.server == server && link.peer == Some(peer)).map(|(id, _)| *id)
    }

    fn send(&mut self, now: Instant, id: LinkId, way: Way) {
        let extra = self.random.up_to(u64::try_from(self.jitter.as_nanos()).unwrap_or_default());
        let Some(link) = self.links.get_mut(&id) else { return };
        let last = if matches!(way, Way::Down(_)) { &mut link.last_down } else { &mut link.last_up };
        *last = (now + LATENCY + Duration::from_nanos(extra)).max(*last + GAP);
        let at = *last;
        self.ways.insert(&mut self.random, at, (id, way));
    }
}
