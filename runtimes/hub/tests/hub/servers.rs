//! A deployment of test servers on TCP, until it is dropped.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cmap_core::time::Instant;
use cmap_test_server::{
    ClientId, Deployment, DeploymentConfig, DeploymentOutput, MemberConfig, MemberId, Peer, ServerConfig, ServerOutput,
    SetConfig,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

/// The servers.
pub(crate) struct Servers {
    shared: Arc<Shared>,
    hosts: Vec<String>,
    set: Option<&'static str>,
    _tasks: JoinSet<()>,
}

struct Shared {
    state: Mutex<State>,
    origin: tokio::time::Instant,
    earlier: Notify,
    accepted: AtomicUsize,
    /// By how many milliseconds their time is ahead of the clock.
    ahead: AtomicU64,
}

struct State {
    deployment: Deployment,
    /// The bytes for each client; it is hung up on when its sender is dropped.
    routes: BTreeMap<(MemberId, ClientId), UnboundedSender<Vec<u8>>>,
}

/// How much later than the primary the other members of a set in a folder have what was written.
const LAG: Duration = Duration::from_millis(50);

/// By how much the servers' time goes on at once.
const STEP: Duration = Duration::from_secs(60);

impl Servers {
    /// The only member of a replica set.
    pub(crate) async fn single() -> Self {
        Self::set_of(1).await
    }

    /// A server that stands alone.
    pub(crate) async fn standalone() -> Self {
        Self::start(1, None, |server, _| DeploymentConfig::single(server)).await
    }

    /// A replica set of three members.
    pub(crate) async fn replica_set() -> Self {
        Self::set_of(3).await
    }

    /// The same on Unix sockets in a folder. What is written to such a socket is there at once, so that no time passes on the way. What is
    /// written to the primary is elsewhere a little later, so that failovers meet writes that wait for a majority.
    pub(crate) async fn replica_set_in(folder: &Path) -> Self {
        let listen = |index: usize| {
            let path = folder.join(format!("member-{index}.sock"));
            (path.display().to_string(), Listener::Unix(UnixListener::bind(&path).unwrap()))
        };
        Self::on((0..3).map(listen).collect(), Some("rs0"), |server, hosts| {
            let mut config = replica_set(server, hosts);
            config.lag = LAG;
            config
        })
    }

    /// A sharded cluster with two routers.
    pub(crate) async fn sharded() -> Self {
        Self::start(2, None, |server, hosts| DeploymentConfig::sharded(server, hosts.to_vec())).await
    }

    /// The connection string; `query` are further options.
    pub(crate) fn uri(&self, query: &str) -> String {
        let set = self.set.map(|name| format!("replicaSet={name}&")).unwrap_or_default();
        format!("mongodb://{}/?{set}{query}", self.hosts.join(",").replace('/', "%2F"))
    }

    /// Where a server listens.
    pub(crate) fn host(&self, index: usize) -> &str {
        &self.hosts[index]
    }

    /// Kills the primary: its connections are hung up on, and nobody is served there.
    pub(crate) fn kill_primary(&self) {
        let kill = |deployment: &mut Deployment, now| {
            let primary = deployment.primary();
            primary.into_iter().for_each(|primary| deployment.kill(now, primary));
        };
        drop(self.shared.with(kill));
    }

    /// Starts all members that were killed.
    pub(crate) fn restart(&self) {
        let restart = |deployment: &mut Deployment, now| {
            let members: Vec<_> = deployment.members().map(|(member, _)| member).collect();
            members.into_iter().for_each(|member| deployment.restart(now, member));
        };
        drop(self.shared.with(restart));
    }

    /// The primary steps down.
    pub(crate) fn step_down(&self) {
        drop(self.shared.with(|deployment, now| deployment.step_down(now, Duration::from_secs(2))));
    }

    /// All connections are lost. What waits for a majority is carried out all the same, and nobody hears of it.
    pub(crate) fn cut_connections(&self) {
        self.shared.state.lock().unwrap().routes.clear();
    }

    /// The servers' time goes on by so much at once.
    pub(crate) fn pass(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap();
        self.shared.ahead.fetch_add(millis, Ordering::SeqCst);
        drop(self.shared.with(|deployment, now| deployment.handle_timeout(now)));
    }

    /// Their time goes on until something has ended that waits for it. What is still on its way to them begins only when it is there, so
    /// that one step may not be enough.
    pub(crate) async fn pass_until<F: Future>(&self, ends: F) -> F::Output {
        let mut ends = pin!(ends);
        loop {
            self.pass(STEP);
            if let Ok(ended) = tokio::time::timeout(Duration::from_millis(50), ends.as_mut()).await {
                return ended;
            }
        }
    }

    /// How many connections there are.
    pub(crate) fn connected(&self) -> usize {
        self.shared.state.lock().unwrap().routes.len()
    }

    /// How many connections were accepted so far.
    pub(crate) fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    async fn set_of(count: usize) -> Self {
        Self::start(count, Some("rs0"), replica_set).await
    }

    async fn start(
        count: usize,
        set: Option<&'static str>,
        config: impl FnOnce(ServerConfig, &[String]) -> DeploymentConfig,
    ) -> Self {
        let mut listeners = Vec::new();
        for _ in 0..count {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listeners.push((listener.local_addr().unwrap().to_string(), Listener::Tcp(listener)));
        }
        Self::on(listeners, set, config)
    }

    fn on(
        listeners: Vec<(String, Listener)>,
        set: Option<&'static str>,
        config: impl FnOnce(ServerConfig, &[String]) -> DeploymentConfig,
    ) -> Self {
        let (hosts, listeners): (Vec<_>, Vec<_>) = listeners.into_iter().unzip();
        let deployment = Deployment::new(config(ServerConfig::new(hosts[0].clone()), &hosts), Instant::ORIGIN);
        let members: Vec<_> = deployment.members().map(|(member, _)| member).collect();
        let shared = Arc::new(Shared {
            state: Mutex::new(State { deployment, routes: BTreeMap::new() }),
            origin: tokio::time::Instant::now(),
            earlier: Notify::new(),
            accepted: AtomicUsize::new(0),
            ahead: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(keep_time(Arc::clone(&shared)));
        for (member, listener) in members.into_iter().zip(listeners) {
            tasks.spawn(accept(listener, member, Arc::clone(&shared)));
        }
        Self { shared, hosts, set, _tasks: tasks }
    }
}

fn replica_set(server: ServerConfig, hosts: &[String]) -> DeploymentConfig {
    let members = (0..).zip(hosts).map(|(id, host)| MemberConfig::new(id, host.clone())).collect();
    DeploymentConfig::replica_set(server, SetConfig::new("rs0", members))
}

/// Where clients come in.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

impl Listener {
    async fn accept(&self) -> (Box<dyn Socket>, String) {
        match self {
            Self::Tcp(listener) => {
                let (socket, from) = listener.accept().await.unwrap();
                (Box::new(socket), from.to_string())
            }
            Self::Unix(listener) => (Box::new(listener.accept().await.unwrap().0), "unix".into()),
        }
    }
}

impl Shared {
    fn now(&self) -> Instant {
        let ahead = self.ahead();
        Instant::from_nanos(u64::try_from((self.origin.elapsed() + ahead).as_nanos()).unwrap())
    }

    fn ahead(&self) -> Duration {
        Duration::from_millis(self.ahead.load(Ordering::SeqCst))
    }

    /// Calls the deployment, and sends its outputs.
    fn with<T>(&self, call: impl FnOnce(&mut Deployment, Instant) -> T) -> (T, MutexGuard<'_, State>) {
        let mut state = self.state.lock().unwrap();
        let answer = call(&mut state.deployment, self.now());
        state.send();
        self.earlier.notify_one();
        (answer, state)
    }
}

impl State {
    fn send(&mut self) {
        while let Some(output) = self.deployment.poll_output() {
            match output {
                DeploymentOutput::Server { member, output: ServerOutput::Send { client, bytes } } => {
                    // A client that is gone gets nothing.
                    let _ = self.routes.get(&(member, client)).map(|route| route.send(bytes));
                }
                DeploymentOutput::Server { member, output: ServerOutput::HangUp { client } } => {
                    self.routes.remove(&(member, client));
                }
                DeploymentOutput::Server { .. }
                | DeploymentOutput::Listen { .. }
                | DeploymentOutput::StopListening { .. }
                | _ => {}
            }
        }
    }
}

async fn keep_time(shared: Arc<Shared>) {
    loop {
        let next = {
            let mut state = shared.state.lock().unwrap();
            state.deployment.handle_timeout(shared.now());
            state.send();
            state.deployment.poll_timeout()
        };
        match next {
            Some(at) => {
                let at = shared.origin + Duration::from_nanos(at.as_nanos()).saturating_sub(shared.ahead());
                let _ = tokio::time::timeout_at(at, shared.earlier.notified()).await;
            }
            None => shared.earlier.notified().await,
        }
    }
}

async fn accept(listener: Listener, member: MemberId, shared: Arc<Shared>) {
    let mut clients = JoinSet::new();
    loop {
        let (socket, from) = listener.accept().await;
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        let (sender, bytes) = unbounded_channel();
        let (client, mut state) = shared.with(|deployment, now| deployment.accept(now, member, Peer::at(from)));
        if !state.deployment.is_up(member) {
            continue;
        }
        state.routes.insert((member, client), sender);
        drop(state);
        clients.spawn(serve(socket, (member, client), bytes, Arc::clone(&shared)));
    }
}

async fn serve(
    socket: impl AsyncRead + AsyncWrite,
    (member, client): (MemberId, ClientId),
    mut bytes: UnboundedReceiver<Vec<u8>>,
    shared: Arc<Shared>,
) {
    let (mut reader, mut writer) = tokio::io::split(socket);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        tokio::select! {
            read = reader.read(&mut buffer) => match read {
                Ok(count) if count > 0 => {
                    drop(shared.with(|deployment, now| deployment.handle_bytes(now, member, client, &buffer[..count])));
                }
                _ => break,
            },
            out = bytes.recv() => match out {
                Some(out) if writer.write_all(&out).await.is_ok() => {}
                _ => break,
            },
        }
    }
    let (_, mut state) = shared.with(|deployment, now| deployment.handle_hang_up(now, member, client));
    state.routes.remove(&(member, client));
}
