//! The simulation as a runtime: what an adapter implements, in virtual time.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use cmap_core::topology::seed_list::{SrvRecord, TxtRecord};
use cmap_runtime::RuntimeGone;
use cmap_runtime::runtime::{Runtime, Target};

use crate::executor::TimerKey;
use crate::network::{HOME, LOOK_UP, Listener, Records, Stream, Zone, connect};
use crate::world::World;

/// The runtime of a simulation, for tasks on one of its hosts: the application's, unless it is a
/// [server's](crate::Server::runtime). Clones are one.
#[derive(Clone)]
pub struct SimRuntime {
    world: Arc<World>,
    host: IpAddr,
}

thread_local! {
    /// The simulations that run on this thread, the innermost last.
    static RUNNING: RefCell<Vec<SimRuntime>> = const { RefCell::new(Vec::new()) };
}

/// While this lives, its simulation is the current one.
pub(crate) struct Entered(());

/// How long a client asks a name server that is silent: twice for five seconds, as with one name server in `resolv.conf`.
const PATIENCE: Duration = Duration::from_secs(10);

impl SimRuntime {
    pub(crate) fn new(world: Arc<World>) -> Self {
        Self { world, host: HOME }
    }

    /// The simulation for tasks that run on `host`.
    pub(crate) fn at(&self, host: IpAddr) -> Self {
        Self { world: Arc::clone(&self.world), host }
    }

    pub(crate) fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// The address of the host.
    pub fn ip(&self) -> IpAddr {
        self.host
    }

    pub(crate) fn enter(&self) -> Entered {
        RUNNING.with_borrow_mut(|running| running.push(self.clone()));
        Entered(())
    }

    /// The virtual time since the simulation was made.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.world.executor.now())
    }

    /// Waits for `time`, which is virtual.
    pub fn sleep(&self, time: Duration) -> Sleep {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.sleep_until_nanos(self.world.executor.now().saturating_add(nanos))
    }

    /// How long bytes are on their way, and how many pass in a second ([`Sim::set_pace`](crate::Sim::set_pace)).
    pub fn set_pace(&self, latency: RangeInclusive<Duration>, bytes_a_second: Option<u64>) {
        self.world.network().set_pace(latency, bytes_a_second);
    }

    /// What the application's clock shows from now on ([`Sim::set_unix_time`](crate::Sim::set_unix_time)).
    pub fn set_unix_time(&self, time: Duration) {
        self.world.set_unix_time(time);
    }

    /// Whether a write may be taken in part, and a read end anywhere ([`Sim::set_splits`](crate::Sim::set_splits)).
    pub fn set_splits(&self, splits: bool) {
        self.world.network().set_splits(splits);
    }

    /// Listens at an address of any host. With port 0 it is a port that nobody has had.
    pub fn listen(&self, address: SocketAddr) -> Listener {
        Listener::bind(&self.world, address)
    }

    pub(crate) fn sleep_until_nanos(&self, at: u64) -> Sleep {
        Sleep { world: Arc::clone(&self.world), at, timer: None }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // Dropped when it is not borrowed any more.
        let _left = RUNNING.with_borrow_mut(Vec::pop);
    }
}

/// Compiles the driver here, and not in each program.
#[cfg(all(debug_assertions, not(test)))]
static _INSTANCE: cmap_runtime::instance::Life = cmap_runtime::instance::live::<SimRuntime>;

impl Runtime for SimRuntime {
    const NAME: &'static str = "sim";

    type Stream = Stream;

    fn current() -> Result<Self, RuntimeGone> {
        RUNNING.with_borrow(|running| running.last().cloned()).ok_or(RuntimeGone)
    }

    fn now(&self) -> Instant {
        self.world.origin + self.elapsed()
    }

    fn unix_time(&self) -> Duration {
        self.world.unix_time()
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + 'static {
        let age = at.saturating_duration_since(self.world.origin);
        self.sleep_until_nanos(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX))
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.world.executor.spawn(std::any::type_name_of_val(&task), Box::pin(task));
    }

    /// The job is a task like others, which takes no time.
    async fn spawn_blocking<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.yield_now().await;
        (!self.world.executor.has_ended()).then(job)
    }

    fn read_now(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize> {
        stream.read_now(buffer)
    }

    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let (answer, delay) = self.world.network().look_up(host);
        self.sleep(delay).await;
        Ok(answer?.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
    }

    async fn resolve_srv(&self, name: &str) -> io::Result<Vec<SrvRecord>> {
        Ok(self.records(name.strip_prefix("_mongodb._tcp.").unwrap_or_default()).await?.srv)
    }

    async fn resolve_txt(&self, name: &str) -> io::Result<Vec<TxtRecord>> {
        Ok(self.records(name).await?.txt)
    }

    async fn connect(&self, target: Target) -> io::Result<Self::Stream> {
        match target {
            Target::Tcp(address) => connect(self, self.at_home(address)).await,
            #[cfg(unix)]
            Target::Unix(_) => Err(io::Error::new(io::ErrorKind::Unsupported, "a simulation has no Unix sockets")),
        }
    }

    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.world.fill_random(bytes);
        Ok(())
    }
}

impl SimRuntime {
    /// The address as others see it: of a server's host, its own addresses are one. The application's localhost is a host of its
    /// own, on which tests have servers.
    pub(crate) fn at_home(&self, address: SocketAddr) -> SocketAddr {
        let is_own = address.ip().is_unspecified() || (address.ip().is_loopback() && self.host != HOME);
        SocketAddr::new(if is_own { self.host } else { address.ip() }, address.port())
    }

    /// What DNS has for this host of a connection string.
    async fn records(&self, host: &str) -> io::Result<Records> {
        let zone = self.world.network().dns().zone(host);
        if let Zone::Hangs = zone {
            self.sleep(PATIENCE).await;
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the name server did not answer"));
        }
        self.sleep(LOOK_UP).await;
        match zone {
            Zone::Has(records) => Ok(records),
            Zone::Fails | Zone::Hangs => Err(io::Error::other("the name server failed")),
        }
    }

    /// Lets other tasks run that can.
    pub(crate) async fn yield_now(&self) {
        let mut has_yielded = false;
        std::future::poll_fn(|cx| {
            if std::mem::replace(&mut has_yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

/// Waits for a virtual time. Made by [`SimRuntime::sleep`].
#[must_use = "time passes only while it is awaited"]
pub struct Sleep {
    world: Arc<World>,
    at: u64,
    timer: Option<TimerKey>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let executor = &self.world.executor;
        let previous = self.timer;
        previous.into_iter().for_each(|timer| executor.remove_timer(timer));
        if executor.now() >= self.at {
            self.timer = None;
            return Poll::Ready(());
        }
        self.timer = Some(executor.add_timer(self.at, cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.timer.into_iter().for_each(|timer| self.world.executor.remove_timer(timer));
    }
}
