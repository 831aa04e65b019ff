//! A deployment of test servers on TCP, until it is dropped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cmap_core::time::Instant;
use cmap_test_server::{
    ClientId, Deployment, DeploymentConfig, DeploymentOutput, MemberConfig, MemberId, Peer, ServerConfig, ServerOutput,
    SetConfig,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
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
}

struct State {
    deployment: Deployment,
    /// The bytes for each client; it is hung up on when its sender is dropped.
    routes: BTreeMap<(MemberId, ClientId), UnboundedSender<Vec<u8>>>,
}

impl Servers {
    /// The only member of a replica set.
    pub(crate) async fn single() -> Self {
        Self::set_of(1).await
    }

    /// A replica set of three members.
    pub(crate) async fn replica_set() -> Self {
        Self::set_of(3).await
    }

    /// A sharded cluster with two routers.
    pub(crate) async fn sharded() -> Self {
        Self::start(2, None, |server, hosts| DeploymentConfig::sharded(server, hosts.to_vec())).await
    }

    /// The connection string; `query` are further options.
    pub(crate) fn uri(&self, query: &str) -> String {
        let set = self.set.map(|name| format!("replicaSet={name}&")).unwrap_or_default();
        format!("mongodb://{}/?{set}{query}", self.hosts.join(","))
    }

    /// How many connections were accepted so far.
    pub(crate) fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    async fn set_of(count: usize) -> Self {
        let set = |server, hosts: &[String]| {
            let members = (0..).zip(hosts).map(|(id, host)| MemberConfig::new(id, host.clone())).collect();
            DeploymentConfig::replica_set(server, SetConfig::new("rs0", members))
        };
        Self::start(count, Some("rs0"), set).await
    }

    async fn start(
        count: usize,
        set: Option<&'static str>,
        config: impl FnOnce(ServerConfig, &[String]) -> DeploymentConfig,
    ) -> Self {
        let mut listeners = Vec::new();
        for _ in 0..count {
            listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let hosts: Vec<_> = listeners.iter().map(|it| it.local_addr().unwrap().to_string()).collect();
        let deployment = Deployment::new(config(ServerConfig::new(hosts[0].clone()), &hosts), Instant::ORIGIN);
        let members: Vec<_> = deployment.members().map(|(member, _)| member).collect();
        let shared = Arc::new(Shared {
            state: Mutex::new(State { deployment, routes: BTreeMap::new() }),
            origin: tokio::time::Instant::now(),
            earlier: Notify::new(),
            accepted: AtomicUsize::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(keep_time(Arc::clone(&shared)));
        for (member, listener) in members.into_iter().zip(listeners) {
            tasks.spawn(accept(listener, member, Arc::clone(&shared)));
        }
        Self { shared, hosts, set, _tasks: tasks }
    }
}

impl Shared {
    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap())
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
                let at = shared.origin + Duration::from_nanos(at.as_nanos());
                let _ = tokio::time::timeout_at(at, shared.earlier.notified()).await;
            }
            None => shared.earlier.notified().await,
        }
    }
}

async fn accept(listener: TcpListener, member: MemberId, shared: Arc<Shared>) {
    let mut clients = JoinSet::new();
    loop {
        let (socket, from) = listener.accept().await.unwrap();
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        let (sender, bytes) = unbounded_channel();
        let (client, mut state) =
            shared.with(|deployment, now| deployment.accept(now, member, Peer::at(from.to_string())));
        state.routes.insert((member, client), sender);
        drop(state);
        clients.spawn(serve(socket, (member, client), bytes, Arc::clone(&shared)));
    }
}

async fn serve(
    mut socket: TcpStream,
    (member, client): (MemberId, ClientId),
    mut bytes: UnboundedReceiver<Vec<u8>>,
    shared: Arc<Shared>,
) {
    let (mut reader, mut writer) = socket.split();
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
