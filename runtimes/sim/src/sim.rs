//! The simulation, as tests see it.

use std::future::Future;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cmap_core::topology::seed_list::{SrvRecord, TxtRecord};
use cmap_runtime::Runtime;
use cmap_test_server::{DeploymentConfig, MemberConfig, ServerConfig, SetConfig};

use crate::executor::Stuck;
use crate::host::{PORT, Server, Servers};
use crate::network::{Listener, Records, Zone};
use crate::runtime::{SimRuntime, Sleep};
use crate::world::World;

/// A world in virtual time: an application, its servers, and the network between them. All chance in it comes from one seed.
///
/// It ends when this is dropped: tasks are dropped, and calls of its clients say that their runtime has gone.
pub struct Sim {
    runtime: SimRuntime,
}

impl Sim {
    /// A simulation without servers, whose clock shows the beginning of 2026.
    pub fn new(seed: u64) -> Self {
        Self { runtime: SimRuntime::new(World::new(seed)) }
    }

    /// A standalone server on a host of this name, at MongoDB's port.
    pub fn server(&self, host: &str) -> Server {
        self.server_with(host, |_| {})
    }

    /// A server on a host of this name, after a look at its configuration.
    pub fn server_with(&self, host: &str, configure: impl FnOnce(&mut ServerConfig)) -> Server {
        let mut config = self.config(host);
        configure(&mut config);
        Server::start(&self.runtime, host, config, 1, None)
    }

    /// A server under TLS on a host of this name, after a look at its configuration. Its certificate must be valid by the
    /// simulation's [time of day](Self::unix_time).
    pub fn server_under_tls(
        &self,
        host: &str,
        tls: Arc<rustls::ServerConfig>,
        configure: impl FnOnce(&mut ServerConfig),
    ) -> Server {
        let mut config = self.config(host);
        configure(&mut config);
        Server::start(&self.runtime, host, config, 1, Some(tls))
    }

    /// A load balancer on a host of this name, which gives each new connection to the next of so many services, after a look
    /// at their configuration.
    pub fn load_balancer(&self, host: &str, services: usize, configure: impl FnOnce(&mut ServerConfig)) -> Server {
        let mut config = self.config(host);
        config.load_balanced = true;
        configure(&mut config);
        Server::start(&self.runtime, host, config, services, None)
    }

    /// A replica set with an electable member on a host of each of these names; the first is the primary.
    pub fn replica_set(&self, name: &str, hosts: &[&str]) -> Servers {
        let member = |(id, host): (i32, &&str)| MemberConfig::new(id, format!("{host}:{PORT}"));
        let members = (0..).zip(hosts).map(member).collect();
        self.deployment(|server| DeploymentConfig::replica_set(server, SetConfig::new(name, members)))
    }

    /// Servers that belong together, each on the host that its address names. `configure` gets what they have in common.
    pub fn deployment(&self, configure: impl FnOnce(ServerConfig) -> DeploymentConfig) -> Servers {
        let mut server = self.config("");
        server.time_of_day = World::START_OF_TIME + self.runtime.elapsed();
        Servers::start(&self.runtime, configure(server))
    }

    /// Listens at `port` of a new host of this name, for a server that a test plays itself.
    pub fn listen(&self, host: &str, port: u16) -> Listener {
        let world = self.runtime.world();
        let ip = world.network().add_host(host);
        Listener::bind(world, SocketAddr::new(ip, port))
    }

    /// What DNS has from now on for `mongodb+srv` connection strings with this host, and the usual service.
    pub fn set_dns(&self, host: &str, srv: Vec<SrvRecord>, txt: Vec<TxtRecord>) {
        self.runtime.world().network().dns().set(host, Zone::Has(Records { srv, txt }));
    }

    /// Every lookup of these records fails from now on, until they are [set](Self::set_dns).
    pub fn fail_dns(&self, host: &str) {
        self.runtime.world().network().dns().set(host, Zone::Fails);
    }

    /// Every lookup of these records that begins from now on, until they are [set](Self::set_dns), has no answer: it fails after ten seconds,
    /// as one does whose only name server is silent.
    pub fn hang_dns(&self, host: &str) {
        self.runtime.world().network().dns().set(host, Zone::Hangs);
    }

    /// Runs `main`, the application, to its end. Its tasks go on with the next run.
    ///
    /// # Panics
    /// `main` cannot end ([`Stuck`]), or it panics.
    #[track_caller]
    #[expect(clippy::panic, reason = "a test fails by panicking; `try_run` does not")]
    pub fn run<T>(&self, main: impl Future<Output = T>) -> T {
        match self.try_run(main) {
            Ok(output) => output,
            Err(stuck) => panic!("{stuck}"),
        }
    }

    /// Runs `main` to its end.
    ///
    /// # Errors
    /// It cannot end: every task waits for another one, or tasks run on and on while time stands still.
    pub fn try_run<T>(&self, main: impl Future<Output = T>) -> Result<T, Stuck> {
        let _entered = self.runtime.enter();
        self.runtime.world().executor.run(pin!(main))
    }

    /// Runs `task` next to the application.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Waits for `time`, which is virtual.
    pub fn sleep(&self, time: Duration) -> Sleep {
        self.runtime.sleep(time)
    }

    /// The virtual time since the simulation was made.
    pub fn elapsed(&self) -> Duration {
        self.runtime.elapsed()
    }

    /// The virtual time of day, since 1970.
    pub fn unix_time(&self) -> Duration {
        self.runtime.unix_time()
    }

    /// The application's clock shows this time of day from now on, and goes on from there. Time itself goes on as it did, and so do
    /// the clocks of servers.
    pub fn set_unix_time(&self, time: Duration) {
        self.runtime.set_unix_time(time);
    }

    /// The number of tasks that have not ended, those of servers included: a test compares it before and after.
    pub fn tasks(&self) -> usize {
        self.runtime.world().executor.tasks()
    }

    /// The runtime, for what is made by hand.
    pub fn runtime(&self) -> &SimRuntime {
        &self.runtime
    }

    /// How long bytes are on their way from now on, and how many a connection takes in a second (`None`: any number). At
    /// first 50 to 500 µs, and any number.
    pub fn set_pace(&self, latency: RangeInclusive<Duration>, bytes_a_second: Option<u64>) {
        self.runtime.set_pace(latency, bytes_a_second);
    }

    /// Whether a write may be taken in part, and a read end anywhere, as is the case at first: one in four of each.
    pub fn set_splits(&self, splits: bool) {
        self.runtime.set_splits(splits);
    }

    fn config(&self, host: &str) -> ServerConfig {
        let mut config = ServerConfig::new(format!("{host}:{PORT}"));
        let mut seed = [0; 8];
        self.runtime.world().fill_random(&mut seed);
        config.seed = u64::from_le_bytes(seed);
        config
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        let _entered = self.runtime.enter();
        self.runtime.world().executor.end();
    }
}
