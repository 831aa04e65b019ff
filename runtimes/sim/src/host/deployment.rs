//! Servers that belong together, each on a host of its own: a replica set, or the mongos of a sharded cluster.
//!
//! One machine has them all, so what happens between the members takes the machine's own time and no network. What happens
//! between a member and its clients goes through the network, with all faults that it has.

mod faults;

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cmap_core::time::Instant;
use cmap_core::wire::{Field, Flags, Limits, Message, MessageIds, MessageWriter};
use cmap_runtime::Runtime;
use cmap_runtime::bson::{RawDocument, RawDocumentBuf};
use cmap_test_server::{
    ClientId, Deployment, DeploymentConfig, DeploymentOutput, MemberId, Peer, ServerOutput, SetConfig,
};

use super::PORT;
use super::channel::{Channel, Outbox};
use super::process::{MOST_UNSENT, time};
use crate::network::Listener;
use crate::runtime::{SimRuntime, Sleep};

/// A replica set, or several mongos, in a simulation: a handle, whose clones are one.
///
/// What is done to it happens at once, when it is called. What a client notices of that, and when, is up to the network.
#[derive(Clone)]
pub struct Servers {
    cluster: Arc<Cluster>,
}

struct Cluster {
    runtime: SimRuntime,
    state: Mutex<State>,
}

struct State {
    deployment: Deployment,
    listeners: BTreeMap<MemberId, Listener>,
    outboxes: BTreeMap<Connection, Outbox>,
    /// The members whose processes get no time for clients.
    hanging: BTreeSet<MemberId>,
    timekeeper: Option<Waker>,
    /// When the timekeeper wakes.
    armed: Option<Instant>,
}

/// A connection to a member.
type Connection = (MemberId, ClientId);

/// What follows from the machine's outputs, once it is free again.
#[derive(Default)]
struct Consequences {
    wake: Vec<Waker>,
    listen: Vec<(MemberId, String)>,
    closed: Vec<Listener>,
}

impl Servers {
    pub(crate) fn start(runtime: &SimRuntime, config: DeploymentConfig) -> Self {
        let members = config.members();
        let deployment = Deployment::new(config, time(runtime));
        let (listeners, outboxes) = (BTreeMap::new(), BTreeMap::new());
        let state = State { deployment, listeners, outboxes, hanging: BTreeSet::new(), timekeeper: None, armed: None };
        let cluster = Arc::new(Cluster { runtime: runtime.clone(), state: Mutex::new(state) });
        members.into_iter().for_each(|(member, host)| cluster.listen(member, &host));
        runtime.spawn(keep_time(Arc::clone(&cluster)));
        Self { cluster }
    }

    /// The connection string of all members; `options` are its options.
    pub fn uri(&self, options: &str) -> String {
        let state = self.cluster.state();
        let hosts: Vec<_> = state.deployment.members().map(|(_, host)| host).collect();
        format!("mongodb://{}/?{options}", hosts.join(","))
    }

    /// The members, and their hosts.
    pub fn members(&self) -> Vec<(MemberId, String)> {
        self.cluster.state().deployment.members().map(|(member, host)| (member, host.to_owned())).collect()
    }

    /// The primary, if there is one.
    pub fn primary(&self) -> Option<MemberId> {
        self.cluster.state().deployment.primary()
    }

    /// The runtime of other programs on a member's host, which dial out from there. They go on when the member is killed.
    pub fn runtime(&self, member: MemberId) -> Option<SimRuntime> {
        self.cluster.address(member).map(|address| self.cluster.runtime.at(address.ip()))
    }

    /// The primary steps down, and is not elected for so long.
    pub fn step_down(&self, period: Duration) {
        self.cluster.drive(|deployment, now| deployment.step_down(now, period));
    }

    /// Sets how much later than the primary a member has what was written.
    pub fn set_lag(&self, member: MemberId, lag: Duration) {
        self.cluster.drive(|deployment, now| deployment.set_lag(now, member, lag));
    }

    /// Gives a replica set another configuration. Members that are new get hosts of their own.
    pub fn reconfigure(&self, set: SetConfig) {
        self.cluster.drive(|deployment, now| deployment.reconfigure(now, set));
    }

    /// Runs a command at a member, past the network and without a login. `None` if it is down, or does not answer at once.
    pub fn run_command(
        &self,
        member: MemberId,
        database: &str,
        command: impl AsRef<RawDocument>,
    ) -> Option<RawDocumentBuf> {
        let (mut request, limits) = (Vec::new(), Limits::DEFAULT);
        let field = [Field::String("$db", database)];
        let ids = MessageIds::request(1);
        MessageWriter::begin(&mut request, ids, Flags::NONE, command.as_ref(), &field, &limits).ok()?.finish();
        let now = time(&self.cluster.runtime);
        let mut state = self.cluster.state();
        let client = state.deployment.accept(now, member, Peer::operator());
        // Nobody sends what is in it.
        state.outboxes.insert((member, client), Outbox::new(0, Waker::noop().clone()));
        drop(state);
        self.cluster.drive(|deployment, now| deployment.handle_bytes(now, member, client, &request));
        self.cluster.drive(|deployment, now| deployment.handle_hang_up(now, member, client));
        let reply = self.cluster.state().outboxes.remove(&(member, client))?.take();
        Message::decode(&reply, &limits).ok().map(|message| message.body.to_owned())
    }
}

impl Cluster {
    /// Listens for a member, at its host.
    fn listen(self: &Arc<Self>, member: MemberId, host: &str) {
        let (name, port) =
            host.rsplit_once(':').map_or((host, PORT), |(name, port)| (name, port.parse().unwrap_or(PORT)));
        let world = self.runtime.world();
        let known = world.network().look_up(name).0.ok().and_then(|addresses| addresses.first().copied());
        let ip = known.unwrap_or_else(|| world.network().add_host(name));
        let listener = Listener::bind(world, SocketAddr::new(ip, port));
        self.state().listeners.insert(member, listener.clone());
        self.runtime.spawn(accept(Arc::clone(self), member, listener));
    }

    /// Whether a member gets no time for a client. `cx` is woken when it does.
    fn hangs(&self, connection: Connection, cx: &Context<'_>) -> bool {
        let mut state = self.state();
        if !state.hanging.contains(&connection.0) {
            return false;
        }
        state.outboxes.get_mut(&connection).into_iter().for_each(|outbox| outbox.wait(cx.waker()));
        true
    }

    fn address(&self, member: MemberId) -> Option<SocketAddr> {
        self.state().listeners.get(&member).map(Listener::address)
    }

    /// Calls the machine, and does what it says.
    fn drive(self: &Arc<Self>, call: impl FnOnce(&mut Deployment, Instant)) {
        let now = time(&self.runtime);
        let mut state = self.state();
        call(&mut state.deployment, now);
        let mut follows = state.drain(now);
        let next = state.deployment.poll_timeout();
        if next.is_some_and(|next| state.armed.is_none_or(|armed| next < armed)) {
            follows.wake.extend(state.timekeeper.take());
        }
        drop(state);
        follows.closed.iter().for_each(Listener::close);
        follows.listen.iter().for_each(|(member, host)| self.listen(*member, host));
        follows.wake.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn drain(&mut self, now: Instant) -> Consequences {
        let mut follows = Consequences::default();
        while let Some(output) = self.deployment.poll_output() {
            match output {
                DeploymentOutput::Server { member, output } => follows.wake.extend(self.hand_over(now, member, output)),
                DeploymentOutput::Listen { member, host } => follows.listen.push((member, host)),
                DeploymentOutput::StopListening { member } => {
                    // Another process begins, which does not hang.
                    follows.wake.extend(self.let_go_on(member));
                    follows.closed.extend(self.listeners.get(&member).cloned());
                }
                _ => {}
            }
        }
        follows
    }

    fn hand_over(&mut self, now: Instant, member: MemberId, output: ServerOutput) -> Option<Waker> {
        match output {
            ServerOutput::Send { client, bytes } => {
                let outbox = self.outboxes.get_mut(&(member, client))?;
                if outbox.len() + bytes.len() > MOST_UNSENT {
                    self.deployment.hold(now, member, client);
                }
                outbox.push(&bytes)
            }
            ServerOutput::HangUp { client } => self.outboxes.get_mut(&(member, client))?.close(),
            _ => None,
        }
    }
}

/// Accepts a member's connections, until it listens no more.
async fn accept(cluster: Arc<Cluster>, member: MemberId, listener: Listener) {
    while let Some(stream) = listener.accept().await {
        cluster.runtime.spawn(serve(Arc::clone(&cluster), member, Channel::new(stream, None)));
    }
}

/// Serves one client until either side hangs up.
async fn serve(cluster: Arc<Cluster>, member: MemberId, mut channel: Channel) {
    let place = channel.connection();
    let client = poll_fn(|cx| {
        let now = time(&cluster.runtime);
        let mut state = cluster.state();
        let client = state.deployment.accept(now, member, Peer::at("the simulation"));
        state.outboxes.insert((member, client), Outbox::new(place, cx.waker().clone()));
        Poll::Ready(client)
    });
    let connection = (member, client.await);
    // It may be one too many.
    cluster.drive(|_, _| {});
    let mut buffer = vec![0; 16 * 1024];
    poll_fn(|cx| {
        loop {
            if cluster.hangs(connection, cx) {
                return Poll::Pending;
            }
            if send(&cluster, connection, &mut channel, cx).is_ready() {
                return Poll::Ready(());
            }
            match channel.poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(count @ 1..)) => {
                    let (member, client) = connection;
                    cluster.drive(|deployment, now| deployment.handle_bytes(now, member, client, &buffer[..count]));
                }
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
    let (member, client) = connection;
    cluster.drive(|deployment, now| deployment.handle_hang_up(now, member, client));
    let _outbox = cluster.state().outboxes.remove(&connection);
}

/// Sends what waits to be sent. Ends with the connection.
fn send(cluster: &Arc<Cluster>, connection: Connection, channel: &mut Channel, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        let mut state = cluster.state();
        let Some(outbox) = state.outboxes.get_mut(&connection) else { return Poll::Ready(()) };
        outbox.wait(cx.waker());
        let bytes = outbox.take();
        let is_closed = outbox.is_closed();
        drop(state);
        if bytes.is_empty() {
            return if is_closed { Poll::Ready(()) } else { Poll::Pending };
        }
        let sent = match channel.poll_write(cx, &bytes) {
            Poll::Ready(Ok(count)) => Some(count),
            Poll::Ready(Err(_)) => return Poll::Ready(()),
            Poll::Pending => None,
        };
        if let Some(outbox) = cluster.state().outboxes.get_mut(&connection) {
            outbox.put_back(&bytes[sent.unwrap_or_default()..]);
        }
        if sent.is_none() {
            return Poll::Pending;
        }
        let (member, client) = connection;
        cluster.drive(|deployment, now| deployment.release(now, member, client));
    }
}

/// Calls the machine when time has passed.
async fn keep_time(cluster: Arc<Cluster>) {
    let mut sleep: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        loop {
            cluster.drive(Deployment::handle_timeout);
            let mut state = cluster.state();
            state.timekeeper = Some(cx.waker().clone());
            state.armed = state.deployment.poll_timeout();
            let Some(at) = state.armed else { return Poll::Pending };
            drop(state);
            let timer = sleep.insert(Box::pin(cluster.runtime.sleep_until_nanos(at.as_nanos())));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::<()>::Pending;
            }
        }
    })
    .await;
}
