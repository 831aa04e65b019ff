//! The virtual network: hosts, names, connections between them, and everything that can go wrong on the way.
//!
//! Nothing happens here by itself. A write says when its bytes arrive, and the reader wakes at that time; a fault changes
//! what has not arrived yet. Bytes of one direction of a connection stay in order, as TCP's do. Connections are not in
//! step with each other: each segment draws its own latency.
//!
//! | file | content |
//! |---|---|
//! | `mod` | hosts, names and listeners |
//! | `connection` | what two ends send each other, and when it arrives |
//! | `stream` | one end, for those who read and write |
//! | `dns` | SRV and TXT records |
//! | `listen` | listening, as programs do |
//! | `faults` | what tests do to the network |

mod connection;
mod dns;
mod faults;
#[cfg(feature = "reverse")]
mod listen;
mod stream;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::{pending, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use cmap_core::random::Random;
use slab::Slab;

use self::connection::Connection;
use self::dns::Dns;
pub(crate) use self::dns::{Records, Zone};
#[cfg(feature = "reverse")]
pub use self::listen::Bound;
pub use self::stream::Stream;
use crate::runtime::SimRuntime;
use crate::world::World;

/// The host that the application runs on.
pub(crate) const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// Its name.
const HOME_NAME: &str = "application";

/// The addresses of localhost.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// The first port that is given to listeners who want any.
const FIRST_FREE_PORT: u16 = 49152;

/// How long bytes are on their way, unless a test says otherwise.
const LATENCY: RangeInclusive<u64> = 50_000..=500_000;

/// How long a resolver takes.
pub(crate) const LOOK_UP: Duration = Duration::from_millis(1);

pub(crate) struct Network {
    random: Random,
    hosts: BTreeMap<IpAddr, Host>,
    names: BTreeMap<String, Answer>,
    dns: Dns,
    /// The hosts that no packet reaches or leaves.
    cut: BTreeSet<IpAddr>,
    connections: Slab<Connection>,
    /// How many listeners there have been.
    listeners: u64,
    /// How long bytes are on their way, in nanoseconds.
    latency: RangeInclusive<u64>,
    /// What a byte adds to that, in nanoseconds.
    per_byte: u64,
    /// Whether a write may be taken in part, and a read end anywhere.
    splits: bool,
}

/// A machine with an address.
#[derive(Default)]
struct Host {
    listeners: BTreeMap<u16, Listening>,
    /// The last port that was given to a listener who wanted any.
    last_free_port: Option<u16>,
    is_off: bool,
    reachability: Reachability,
}

/// What happens to those who talk to a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reachability {
    /// They are heard.
    #[default]
    Up,
    /// New connections are refused, and a connection that is written to is closed.
    Refuses,
    /// New connections hang, and what is written is lost for ever, with its connection.
    Silent,
    /// New connections are accepted, and a connection that is written to is reset.
    Resets,
}

/// A port that someone listens on.
struct Listening {
    /// The number of the listener.
    listener: u64,
    /// Connections that were not accepted yet.
    backlog: VecDeque<usize>,
    acceptor: Option<Waker>,
}

/// What a resolver says about a name.
#[derive(Clone)]
struct Answer {
    addresses: Result<Vec<IpAddr>, &'static str>,
    delay: Duration,
}

/// What becomes of an attempt to connect.
enum Attempt {
    Accepted(usize),
    Refused,
    Hangs,
    Unreachable,
}

/// A port that is listened on until it is [closed](Self::close). Clones are one.
#[derive(Clone)]
pub struct Listener {
    world: Arc<World>,
    address: SocketAddr,
    number: u64,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            hosts: BTreeMap::from([(HOME, Host::default())]),
            names: BTreeMap::from([
                ("localhost".to_owned(), Answer { addresses: Ok(LOOPBACK.to_vec()), delay: LOOK_UP }),
                (HOME_NAME.to_owned(), Answer { addresses: Ok(vec![HOME]), delay: LOOK_UP }),
            ]),
            dns: Dns::default(),
            cut: BTreeSet::new(),
            connections: Slab::new(),
            listeners: 0,
            latency: LATENCY,
            per_byte: 0,
            splits: true,
        }
    }

    /// A host with this name. Its address is new.
    pub(crate) fn add_host(&mut self, name: &str) -> IpAddr {
        let number = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        let ip = IpAddr::V4(Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 1).to_bits().saturating_add(number)));
        self.hosts.insert(ip, Host::default());
        self.names.insert(name.to_owned(), Answer { addresses: Ok(vec![ip]), delay: LOOK_UP });
        ip
    }

    /// What the resolver says about `name`, and how long it takes to.
    pub(crate) fn look_up(&self, name: &str) -> (io::Result<Vec<IpAddr>>, Duration) {
        let unknown = || io::Error::new(io::ErrorKind::NotFound, "no such host is known");
        if let Ok(ip) = name.parse() {
            return (Ok(vec![ip]), Duration::ZERO);
        }
        match self.names.get(name) {
            Some(Answer { addresses: Ok(addresses), delay }) => (Ok(addresses.clone()), *delay),
            Some(Answer { addresses: Err(problem), delay }) => (Err(io::Error::other(*problem)), *delay),
            None => (Err(unknown()), LOOK_UP),
        }
    }

    pub(crate) fn dns(&mut self) -> &mut Dns {
        &mut self.dns
    }

    /// Nanoseconds that a packet takes now.
    fn draw_latency(&mut self) -> u64 {
        let (least, most) = (*self.latency.start(), *self.latency.end());
        least + self.random.up_to(most.saturating_sub(least))
    }

    /// A packet leaves for `to`: how long it takes, and what it meets.
    fn depart(&mut self, to: SocketAddr) -> (u64, Reachability) {
        let reachability = self.hosts.get(&to.ip()).map(|host| host.reachability).unwrap_or_default();
        (self.draw_latency(), reachability)
    }

    fn attempt(&mut self, from: IpAddr, to: SocketAddr) -> (Attempt, Vec<Waker>) {
        let is_cut = self.is_cut_between(from, to.ip());
        let Some(host) = self.hosts.get_mut(&to.ip()) else { return (Attempt::Unreachable, Vec::new()) };
        if host.is_off || is_cut {
            return (Attempt::Hangs, Vec::new());
        }
        let Some(listening) = host.listeners.get_mut(&to.port()) else { return (Attempt::Refused, Vec::new()) };
        let connection = self.connections.insert(Connection::new([from, to.ip()]));
        listening.backlog.push_back(connection);
        (Attempt::Accepted(connection), listening.acceptor.take().into_iter().collect())
    }

    /// Whether no packet of one host reaches the other. What a host sends itself leaves it not.
    fn is_cut_between(&self, one: IpAddr, other: IpAddr) -> bool {
        one != other && (self.cut.contains(&one) || self.cut.contains(&other))
    }

    /// Listens at `address`, whose port may be 0 for a free one; an earlier listener there gets no more connections. Returns
    /// the port, and the listener's number.
    fn listen(&mut self, address: SocketAddr) -> (u16, u64) {
        self.listeners += 1;
        let host = self.hosts.entry(address.ip()).or_default();
        let port = match address.port() {
            // A port is not given away again: its listener may come back.
            0 => host.last_free_port.map_or(FIRST_FREE_PORT, |last| last.saturating_add(1)),
            port => port,
        };
        if address.port() == 0 {
            host.last_free_port = Some(port);
        }
        let listening = Listening { listener: self.listeners, backlog: VecDeque::new(), acceptor: None };
        host.listeners.insert(port, listening);
        (port, self.listeners)
    }

    fn stop_listening(&mut self, now: u64, address: SocketAddr, number: u64) -> Vec<Waker> {
        let Some(host) = self.hosts.get_mut(&address.ip()) else { return Vec::new() };
        let Entry::Occupied(entry) = host.listeners.entry(address.port()) else { return Vec::new() };
        if entry.get().listener != number {
            return Vec::new();
        }
        let listening = entry.remove();
        let resets = listening.backlog.into_iter().flat_map(|connection| self.reset(now, connection));
        resets.chain(listening.acceptor).collect()
    }
}

impl Listener {
    /// Listens at `address`, where nobody else does.
    pub(crate) fn bind(world: &Arc<World>, address: SocketAddr) -> Self {
        let (port, number) = world.network().listen(address);
        Self { world: Arc::clone(world), address: SocketAddr::new(address.ip(), port), number }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What happens from now on to those who talk to its host.
    pub fn set_reachability(&self, reachability: Reachability) {
        self.world.network().set_reachability(self.address.ip(), reachability);
    }

    /// Listens no more. Connections that nobody has accepted are reset.
    pub fn close(&self) {
        let now = self.world.executor.now();
        let wakers = self.world.network().stop_listening(now, self.address, self.number);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits for the next connection; there is none after the end.
    pub async fn accept(&self) -> Option<Stream> {
        let connection = poll_fn(|cx| {
            let mut network = self.world.network();
            let host = network.hosts.get_mut(&self.address.ip());
            let listening = host.and_then(|host| host.listeners.get_mut(&self.address.port()));
            // After the end another one may listen at the address.
            let Some(listening) = listening.filter(|listening| listening.listener == self.number) else {
                return Poll::Ready(None);
            };
            match listening.backlog.pop_front() {
                Some(connection) => Poll::Ready(Some(connection)),
                None => {
                    listening.acceptor = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        });
        connection.await.map(|connection| Stream::new(Arc::clone(&self.world), connection, 1))
    }
}

/// Connects to `address` from the runtime's host.
pub(crate) async fn connect(runtime: &SimRuntime, address: SocketAddr) -> io::Result<Stream> {
    let world = runtime.world();
    let (there, reachability) = world.network().depart(address);
    runtime.sleep(Duration::from_nanos(there)).await;
    let (attempt, wakers) = match reachability {
        Reachability::Up | Reachability::Resets => world.network().attempt(runtime.ip(), address),
        Reachability::Refuses => (Attempt::Refused, Vec::new()),
        Reachability::Silent => (Attempt::Hangs, Vec::new()),
    };
    wakers.into_iter().for_each(Waker::wake);
    // Held from now on, so that an attempt that is given up closes the connection.
    let outcome = match attempt {
        Attempt::Accepted(connection) => Ok(Stream::new(Arc::clone(world), connection, 0)),
        Attempt::Refused => Err(io::ErrorKind::ConnectionRefused.into()),
        Attempt::Unreachable => Err(io::ErrorKind::HostUnreachable.into()),
        Attempt::Hangs => pending().await,
    };
    let back = world.network().draw_latency();
    runtime.sleep(Duration::from_nanos(back)).await;
    outcome
}
