//! A host with a MongoDB server on it, which tests can crash, restart, hang and cut off.

mod channel;
mod deployment;
mod process;
mod tls;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use cmap_runtime::Runtime;
use cmap_runtime::bson::{RawDocument, RawDocumentBuf};
use cmap_test_server::{ServerConfig, TestServer};

pub use self::deployment::Servers;
use self::process::Process;
use crate::network::{Listener, Reachability};
use crate::runtime::SimRuntime;
use crate::world::World;

/// MongoDB's port.
pub(crate) const PORT: u16 = 27017;

/// What a server that is restarted still has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// All documents.
    Kept,
    /// Nothing.
    Lost,
}

/// A server in a simulation: a handle, whose clones are one.
///
/// Faults happen at once, when they are called. What a client notices of them, and when, is up to the network.
#[derive(Clone)]
pub struct Server {
    host: Arc<Host>,
}

struct Host {
    runtime: SimRuntime,
    name: String,
    ip: IpAddr,
    config: ServerConfig,
    /// Its side of TLS; without it, it speaks in the clear.
    tls: Option<Arc<rustls::ServerConfig>>,
    /// How many processes there are: one, or one for each service behind a load balancer.
    services: usize,
    /// How often it was started. Each start is another process, with ids of its own.
    starts: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    listener: Option<Listener>,
    /// None if the server is down.
    processes: Vec<Arc<Process>>,
    /// What was in their memory when they were killed.
    remains: Vec<TestServer>,
}

impl Server {
    pub(crate) fn start(
        runtime: &SimRuntime,
        name: &str,
        config: ServerConfig,
        services: usize,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> Self {
        let ip = runtime.world().network().add_host(name);
        let host = Host {
            runtime: runtime.clone(),
            name: name.to_owned(),
            ip,
            config,
            tls,
            services: services.max(1),
            starts: AtomicU64::new(0),
            state: Mutex::default(),
        };
        let server = Self { host: Arc::new(host) };
        server.restart(Data::Lost);
        server
    }

    /// The connection string of this server; `options` are its options.
    pub fn uri(&self, options: &str) -> String {
        format!("mongodb://{}:{PORT}/?{options}", self.host.name)
    }

    /// Its host's name.
    pub fn name(&self) -> &str {
        &self.host.name
    }

    /// Its host's address.
    pub fn ip(&self) -> IpAddr {
        self.host.ip
    }

    /// The runtime of other programs on its host, which dial out from there. They go on when the server's process is killed.
    pub fn runtime(&self) -> SimRuntime {
        self.host.runtime.at(self.host.ip)
    }

    /// Kills its process: nobody listens any more, and every connection is closed by the operating system.
    pub fn crash(&self) {
        let mut state = self.host.state();
        if let Some(listener) = state.listener.take() {
            listener.close();
        }
        let processes = std::mem::take(&mut state.processes);
        if !processes.is_empty() {
            state.remains = processes.into_iter().map(|process| process.kill()).collect();
        }
    }

    /// Starts it again, with its documents or without; kills it before if it runs.
    pub fn restart(&self, data: Data) {
        self.crash();
        let host = &self.host;
        let (runtime, world) = (&host.runtime, host.runtime.world());
        world.network().switch_on(host.ip);
        let mut state = host.state();
        let mut remains = std::mem::take(&mut state.remains).into_iter();
        let now = process::time(runtime);
        let processes: Vec<_> = (0..host.services)
            .map(|service| {
                let mut config = host.config.clone();
                // Each start is another process, with ids of its own.
                config.seed = config.seed.wrapping_add(host.starts.fetch_add(1, Ordering::Relaxed));
                // Connections of different services have different numbers.
                config.first_connection_id = 1 + 1_000_000 * service as u64;
                config.time_of_day = World::START_OF_TIME + runtime.elapsed();
                let machine = match (data, remains.next()) {
                    (Data::Kept, Some(remains)) => remains.restarted(config, now),
                    _ => TestServer::new(config, now),
                };
                Process::start(runtime, machine)
            })
            .collect();
        state.processes.clone_from(&processes);
        let listener = Listener::bind(world, SocketAddr::new(host.ip, PORT));
        state.listener = Some(listener.clone());
        drop(state);
        runtime.spawn(process::accept(processes, listener, host.tls.clone()));
    }

    /// Switches its machine off: connections stay as they are at the other end, which hears nothing any more.
    pub fn switch_off(&self) {
        self.host.runtime.world().network().switch_off(self.host.ip);
        self.crash();
    }

    /// Stops it, like a process that gets no more time, or lets it go on.
    pub fn hang(&self, hangs: bool) {
        self.host.state().processes.iter().for_each(|process| process.hang(hangs));
    }

    /// Cuts its host off from the others: packets are lost both ways, and connections stay.
    pub fn partition(&self) {
        self.host.runtime.world().network().cut(self.host.ip);
    }

    /// Ends a partition: what was sent meanwhile arrives, connection by connection in random order.
    pub fn heal(&self) {
        let runtime = &self.host.runtime;
        let wakers = runtime.world().network().heal(runtime.world().executor.now(), self.host.ip);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Breaks all its connections: both ends read a reset.
    pub fn reset_connections(&self) {
        let world = self.host.runtime.world();
        let wakers = world.network().reset_all(world.executor.now(), self.host.ip);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Loses one connection by chance, as a router that forgets it: neither end notices. Returns whether there was one that
    /// was not lost yet.
    pub fn lose_connection(&self) -> bool {
        self.host.runtime.world().network().lose_one(self.host.ip)
    }

    /// Its operating system finds out, as by keep-alive probes, which of its connections were lost and are not used by their clients
    /// any more, and ends them.
    pub fn end_lost_connections(&self) {
        let world = self.host.runtime.world();
        let wakers = world.network().abandon(world.executor.now(), self.host.ip);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Closes one connection, by the number that its hello told (`connectionId`). Returns whether there was one.
    pub fn hang_up(&self, connection_id: i64) -> bool {
        self.host.state().processes.iter().any(|process| process.hang_up(connection_id))
    }

    /// Breaks one connection, by the number that its hello told: both ends read a reset. Returns whether there was one.
    pub fn reset_connection(&self, connection_id: i64) -> bool {
        let world = self.host.runtime.world();
        let place = self.host.place_of(connection_id);
        let wakers = place.map(|place| world.network().reset(world.executor.now(), place));
        wakers.is_some_and(|wakers| {
            wakers.into_iter().for_each(Waker::wake);
            true
        })
    }

    /// Loses one connection, by the number that its hello told: neither end notices. Returns whether there was one.
    pub fn lose(&self, connection_id: i64) -> bool {
        let place = self.host.place_of(connection_id);
        place.into_iter().for_each(|place| self.host.runtime.world().network().lose(place));
        place.is_some()
    }

    /// What happens from now on to those who talk to it.
    pub fn set_reachability(&self, reachability: Reachability) {
        self.host.runtime.world().network().set_reachability(self.host.ip, reachability);
    }

    /// Runs a command at the server itself, past the network and without a login: for what a test prepares, or looks at
    /// afterwards. One reply for each service. Commands that wait are not for this.
    pub fn run_command(&self, database: &str, command: impl AsRef<RawDocument>) -> Vec<RawDocumentBuf> {
        let processes = self.host.state().processes.clone();
        processes.iter().filter_map(|process| process.run_command(database, command.as_ref())).collect()
    }

    /// Runs a command at the service that the next connection reaches, past the network and without a login.
    pub fn run_command_at_next(&self, database: &str, command: impl AsRef<RawDocument>) -> Option<RawDocumentBuf> {
        let (accepted, processes) = (self.accepted(), self.host.state().processes.clone());
        let next = accepted.checked_rem(processes.len() as u64)?;
        processes.get(usize::try_from(next).ok()?)?.run_command(database, command.as_ref())
    }

    /// What the resolver says about its name from now on: addresses, or an error; after `delay`.
    pub fn resolve_to(&self, addresses: Result<Vec<IpAddr>, &'static str>, delay: Option<Duration>) {
        self.host.runtime.world().network().set_answer(&self.host.name, addresses, delay);
    }

    /// How many connections it has accepted since it was started.
    pub fn accepted(&self) -> u64 {
        self.host.state().processes.iter().map(|process| process.accepted()).sum()
    }
}

impl Host {
    fn place_of(&self, connection_id: i64) -> Option<usize> {
        self.state().processes.iter().find_map(|process| process.place_of(connection_id))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
