//! A driver with a loop and a monitor of its own: the pool, and the protocol on each socket, in one thread on mio.
//!
//! ```sh
//! cargo run -p cmap-conformance --example own-monitor -- mongodb://user:password@localhost/ 10000
//! ```
//!
//! pings so often, on as many connections as maxPoolSize says. The monitor has a socket without a login and asks `hello` on it
//! twice a second: an answer makes the pool ready, a failure clears it, as *Server Discovery and Monitoring* has it. The loop is
//! the driving rule: call, drain, sleep until the next event or timeout.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use bson::{RawDocument, rawdoc};
use cmap_core::address::ServerAddress;
use cmap_core::connection::{
    ClientMetadata, Command, Connection, ConnectionOptions, Establish, EstablishError, Fault, Phase, Progress,
};
use cmap_core::options::ClientOptions;
use cmap_core::pool::{
    Action, Cause, CheckOutId, CheckOutRequest, Clear, Condition, Delivery, Handle, Output, Pool, PoolState, Reaction,
    Stats,
};
use cmap_core::time::Instant;
use cmap_core::wire::CommandReply;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Registry, Token};

/// The time between two checks of the server.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// connectTimeoutMS: for an establishment, and for the answer to a check (X-17).
const CONNECT: Duration = Duration::from_secs(10);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A socket, and the protocol on it.
#[derive(Debug)]
struct Wire {
    token: Token,
    socket: TcpStream,
    unsent: Vec<u8>,
    protocol: Protocol,
}

#[derive(Debug)]
enum Protocol {
    Establishing(Option<Box<Establish>>),
    Established(Box<Connection>),
}

/// What a socket's event has led to.
enum News {
    Nothing,
    Established,
    Replied { ok: bool },
}

/// What a socket of the pool does; idle ones are in the pool.
enum Work {
    Establishing { connection: Handle, wire: Wire, until: Instant },
    Pinging { check_out: CheckOutId, connection: Handle, wire: Wire },
    Idle { connection: Handle },
}

/// The monitor: one socket, and when it asks next.
struct Monitor {
    wire: Option<Wire>,
    /// A question is open since then.
    asked: Option<Instant>,
    next: Instant,
}

struct Driver {
    poll: Poll,
    pool: Pool<Wire>,
    address: SocketAddr,
    options: Arc<ConnectionOptions>,
    work: BTreeMap<Token, Work>,
    monitor: Monitor,
    start: Clock,
    last_token: usize,
    /// Pings that are still to be made, and check-outs that were begun for some of them.
    wanted: usize,
    begun: usize,
    workers: usize,
    failed: usize,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let uri = arguments.next().unwrap_or_else(|| "mongodb://localhost/".into());
    let pings = arguments.next().map_or(Ok(10_000), |pings| pings.parse())?;
    let (stats, failed) = run(&uri, pings)?;
    println!(
        "{pings} pings, {failed} failures on the way, {} connections, cleared {} times",
        stats.created, stats.cleared
    );
    Ok(())
}

/// Pings so often; returns the pool's figures, and how many check-outs and pings failed and were tried again.
pub(crate) fn run(uri: &str, pings: usize) -> Result<(Stats, usize)> {
    let (options, _warnings) = ClientOptions::parse(uri)?;
    let Some(ServerAddress::Tcp { host, port }) = options.hosts.first() else { return Err("no TCP address".into()) };
    let address = (host.as_str(), *port).to_socket_addrs()?.next().ok_or("the host has no address")?;
    let mut pool_options = options.pool.clone();
    let workers = *pool_options.max_pool_size.get_or_insert(10) as usize;
    let pool = Pool::new(ServerAddress::tcp(host, *port), pool_options, Instant::ORIGIN)?;
    #[expect(clippy::disallowed_methods, reason = "a driver is where time comes from")]
    let start = Clock::now();
    let mut driver = Driver {
        poll: Poll::new()?,
        pool,
        address,
        options: Arc::new(ConnectionOptions::of_client(&options, ClientMetadata::new(std::env::consts::OS))),
        work: BTreeMap::new(),
        monitor: Monitor { wire: None, asked: None, next: Instant::ORIGIN },
        start,
        last_token: 0,
        wanted: pings,
        begun: 0,
        workers,
        failed: 0,
    };
    driver.run()?;
    Ok((driver.pool.stats(), driver.failed))
}

impl Driver {
    fn now(&self) -> Instant {
        Instant::ORIGIN + self.start.elapsed()
    }

    fn run(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(128);
        loop {
            self.check()?;
            self.pool.handle_timeout(self.now());
            self.begin()?;
            self.drain()?;
            if self.wanted == 0 && self.pool.state() != PoolState::Closed {
                self.pool.close(self.now());
                self.drain()?;
            }
            if self.pool.state() == PoolState::Closed && self.pool.counts().total() == 0 {
                return Ok(());
            }
            let deadlines = self.work.values().filter_map(|work| match work {
                Work::Establishing { until, .. } => Some(*until),
                Work::Pinging { .. } | Work::Idle { .. } => None,
            });
            let timeout = self.pool.poll_timeout().map(|timeout| timeout.at);
            let next = deadlines.chain(timeout).fold(self.monitor.next, Instant::min);
            match self.poll.poll(&mut events, Some(next.saturating_since(self.now()))) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            for event in &events {
                self.handle_event(event.token())?;
            }
            self.give_up_late_ones()?;
        }
    }

    /// Begins check-outs for pings, while the pool is ready.
    fn begin(&mut self) -> Result<()> {
        while self.pool.state() == PoolState::Ready && self.begun < self.workers.min(self.wanted) {
            self.begun += 1;
            let (_, delivery) = self.pool.check_out(self.now(), CheckOutRequest::default());
            self.deliver(delivery)?;
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        while let Some(output) = self.pool.poll_output() {
            match output {
                Output::Action(Action::Connect { connection }) => self.connect(connection)?,
                Output::Action(Action::Deliver { check_out, connection, socket }) => {
                    self.deliver(Some(Delivery { check_out, connection, socket }))?;
                }
                // The ping begins again when the monitor has made the pool ready.
                Output::Action(Action::Fail { .. }) => self.fail(),
                Output::Action(Action::Check { connection }) => {
                    let alive = self.pool.socket(connection).is_some_and(|wire| wire.is_silent());
                    self.pool.handle_checked(self.now(), connection, alive)?;
                }
                // The options ask for no refresh.
                Output::Action(Action::Refresh { connection, .. }) => {
                    self.pool.handle_refresh_failed(self.now(), connection)?;
                }
                Output::Action(Action::Close { socket, .. }) => _ = self.work.remove(&socket.token),
                Output::Action(Action::Interrupt { connection }) => self.interrupt(connection)?,
                // Nobody asks for a warm-up.
                Output::Action(Action::WarmedUp { .. }) | Output::Event(_) => {}
            }
        }
        Ok(())
    }

    fn fail(&mut self) {
        (self.failed, self.begun) = (self.failed + 1, self.begun.saturating_sub(1));
    }

    fn open(&mut self, options: Arc<ConnectionOptions>) -> Result<Wire> {
        self.last_token += 1;
        Wire::connect(self.poll.registry(), Token(self.last_token), self.address, options)
    }

    fn connect(&mut self, connection: Handle) -> Result<()> {
        let until = self.now() + CONNECT;
        let wire = self.open(Arc::clone(&self.options))?;
        self.work.insert(wire.token, Work::Establishing { connection, wire, until });
        Ok(())
    }

    /// A connection is there for the next ping.
    fn deliver(&mut self, delivery: Option<Delivery<Wire>>) -> Result<()> {
        let Some(Delivery { check_out, connection, mut socket }) = delivery else { return Ok(()) };
        match socket.send(&rawdoc! { "ping": 1 }) {
            Ok(()) => _ = self.work.insert(socket.token, Work::Pinging { check_out, connection, wire: socket }),
            Err(error) => self.broke(check_out, connection, socket, &*error)?,
        }
        Ok(())
    }

    fn handle_event(&mut self, token: Token) -> Result<()> {
        if self.monitor.wire.as_ref().is_some_and(|wire| wire.token == token) {
            return self.hear_monitor();
        }
        match self.work.remove(&token) {
            Some(Work::Establishing { connection, mut wire, until }) => match wire.go_on() {
                Ok(News::Established) => {
                    self.work.insert(token, Work::Idle { connection });
                    if self.pool.handle_established(self.now(), connection, wire).is_err() {
                        self.work.remove(&token);
                    }
                }
                Ok(_) => _ = self.work.insert(token, Work::Establishing { connection, wire, until }),
                Err(error) => self.refused(connection, &*error)?,
            },
            Some(Work::Pinging { check_out, connection, mut wire }) => match wire.go_on() {
                Ok(News::Replied { ok }) => {
                    (self.wanted, self.begun) = (self.wanted.saturating_sub(1), self.begun.saturating_sub(1));
                    self.failed += usize::from(!ok);
                    self.work.insert(token, Work::Idle { connection });
                    let checked_in = self.pool.check_in(self.now(), check_out, connection, wire, Condition::Usable);
                    self.deliver(checked_in?.delivery())?;
                }
                Ok(_) => _ = self.work.insert(token, Work::Pinging { check_out, connection, wire }),
                Err(error) => self.broke(check_out, connection, wire, &*error)?,
            },
            Some(Work::Idle { connection }) => {
                self.work.insert(token, Work::Idle { connection });
                // Nobody asked it anything: it has hung up, or is not to be trusted.
                if self.pool.socket(connection).is_some_and(|wire| !wire.is_silent()) {
                    self.pool.handle_peer_closed(self.now(), connection)?;
                }
            }
            None => {}
        }
        Ok(())
    }

    /// A connection broke in use: it does not come back, and the server is unknown until the next check (SDAM-10).
    fn broke(&mut self, check_out: CheckOutId, connection: Handle, wire: Wire, error: &dyn Error) -> Result<()> {
        self.fail();
        let is_current = !self.pool.is_stale(connection);
        let checked_in = self.pool.check_in(self.now(), check_out, connection, wire, Condition::Errored)?;
        self.deliver(checked_in.delivery())?;
        if is_current {
            self.clear(error)?;
        }
        Ok(())
    }

    /// A connection was not established (SDAM-7).
    fn refused(&mut self, connection: Handle, error: &(dyn Error + 'static)) -> Result<()> {
        let text = || EstablishError::new(Phase::Connect, Fault::Network, error.to_string());
        let error = error.downcast_ref::<EstablishError>().cloned().unwrap_or_else(text);
        self.pool.handle_establish_failed(self.now(), connection, error, Reaction::ClearPool)?;
        self.monitor.next = self.now();
        Ok(())
    }

    fn clear(&mut self, error: &dyn Error) -> Result<()> {
        self.pool.clear(self.now(), Clear::pool(Cause::of(error)))?;
        self.monitor.next = self.now();
        Ok(())
    }

    fn interrupt(&mut self, connection: Handle) -> Result<()> {
        let is_meant = |work: &Work| matches!(work, Work::Establishing { connection: it, .. } | Work::Pinging { connection: it, .. } if *it == connection);
        let token = self.work.iter().find(|(_, work)| is_meant(work)).map(|(token, _)| *token);
        if let Some(Work::Pinging { check_out, wire, .. }) = token.and_then(|token| self.work.remove(&token)) {
            self.broke(check_out, connection, wire, &io::Error::from(ErrorKind::TimedOut))?;
        }
        Ok(())
    }

    fn give_up_late_ones(&mut self) -> Result<()> {
        let now = self.now();
        let is_late = |work: &Work| matches!(work, Work::Establishing { until, .. } if *until <= now);
        let late: Vec<_> = self.work.iter().filter(|(_, work)| is_late(work)).map(|(token, _)| *token).collect();
        for token in late {
            if let Some(Work::Establishing { connection, .. }) = self.work.remove(&token) {
                self.refused(connection, &EstablishError::new(Phase::Connect, Fault::Timeout, "its time was up"))?;
            }
        }
        Ok(())
    }

    /// The monitor: asks when it is time, and gives up a question that is open for too long.
    fn check(&mut self) -> Result<()> {
        let now = self.now();
        if self.pool.state() == PoolState::Closed || now < self.monitor.next {
            return Ok(());
        }
        self.monitor.next = now + HEARTBEAT;
        if self.monitor.asked.is_some_and(|asked| now.saturating_since(asked) < CONNECT) {
            return Ok(());
        }
        if self.monitor.asked.take().is_some() {
            self.monitor.wire = None;
            return self.clear(&io::Error::from(ErrorKind::TimedOut));
        }
        self.monitor.asked = Some(now);
        match self.monitor.wire.as_mut().map(|wire| wire.send(&rawdoc! { "hello": 1 })) {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => self.monitor_failed(&*error),
            // A new socket: its first hello is the check.
            None => {
                let mut options = (*self.options).clone();
                options.credential = None;
                self.monitor.wire = Some(self.open(Arc::new(options))?);
                Ok(())
            }
        }
    }

    fn hear_monitor(&mut self) -> Result<()> {
        let Some(wire) = &mut self.monitor.wire else { return Ok(()) };
        match wire.go_on() {
            Ok(News::Nothing) => Ok(()),
            Ok(News::Replied { ok: false }) => self.monitor_failed(&io::Error::other("the server refused a hello")),
            Ok(News::Established | News::Replied { ok: true }) => {
                self.monitor.asked = None;
                self.pool.ready(self.now());
                Ok(())
            }
            Err(error) => self.monitor_failed(&*error),
        }
    }

    fn monitor_failed(&mut self, error: &dyn Error) -> Result<()> {
        (self.monitor.wire, self.monitor.asked) = (None, None);
        self.pool.clear(self.now(), Clear::pool(Cause::of(error)))?;
        Ok(())
    }
}

impl Wire {
    fn connect(registry: &Registry, token: Token, to: SocketAddr, options: Arc<ConnectionOptions>) -> Result<Self> {
        let mut socket = TcpStream::connect(to)?;
        registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
        let mut random = [0; 24];
        getrandom::fill(&mut random)?;
        let mut establish = Establish::new(options, random)?;
        let mut unsent = Vec::new();
        establish.write_to(&mut unsent);
        Ok(Self { token, socket, unsent, protocol: Protocol::Establishing(Some(Box::new(establish))) })
    }

    fn send(&mut self, command: &RawDocument) -> Result<()> {
        let Protocol::Established(connection) = &mut self.protocol else { return Err("not established".into()) };
        connection.send(&mut self.unsent, &Command::new("admin", command))?;
        self.flush()
    }

    /// Sends and reads what can be sent and read.
    fn go_on(&mut self) -> Result<News> {
        let mut buffer = [0; 16 * 1024];
        let mut news = News::Nothing;
        loop {
            self.flush()?;
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server hung up").into()),
                Ok(count) => match self.protocol.handle_bytes(&buffer[..count], &mut self.unsent)? {
                    News::Nothing => {}
                    other @ (News::Established | News::Replied { .. }) => news = other,
                },
                Err(error) if is_not_ready(&error) => return Ok(news),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(count) => _ = self.unsent.drain(..count),
                // The event that it can be written to comes later.
                Err(error) if is_not_ready(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether the peer has neither hung up nor said anything.
    fn is_silent(&self) -> bool {
        self.socket.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

impl Protocol {
    fn handle_bytes(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<News> {
        match self {
            Self::Established(connection) => match connection.read(&mut bytes)? {
                Some(reply) => Ok(News::Replied { ok: CommandReply::read(reply.body).ok }),
                None => Ok(News::Nothing),
            },
            Self::Establishing(establish) => {
                let Some(machine) = establish else { return Ok(News::Nothing) };
                let mut progress = machine.handle_bytes(bytes)?;
                // A driver with more to do derives keys in another thread: that takes some milliseconds.
                while let Progress::Derive(request) = progress {
                    progress = machine.handle_keys(&request.run())?;
                }
                machine.write_to(out);
                if !matches!(progress, Progress::Established) {
                    return Ok(News::Nothing);
                }
                let connection = establish.take().and_then(|establish| establish.finish()).ok_or("not established")?;
                *self = Self::Established(Box::new(connection));
                Ok(News::Established)
            }
        }
    }
}

fn is_not_ready(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected | ErrorKind::Interrupted)
}
