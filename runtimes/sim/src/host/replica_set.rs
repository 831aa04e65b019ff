//! The hosts of a replica set, whose members tests can kill, restart, cut off and order to step down.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use cmap_runtime::Runtime;
use cmap_test_server::{Deployment, DeploymentConfig, MemberId};

use super::PORT;
use super::process::{self, Process};
use crate::network::Listener;
use crate::runtime::SimRuntime;

/// A replica set in a simulation: a handle, whose clones are one.
///
/// Its members hear of each other at once, whatever happens to the network: partitions are between them and the clients.
#[derive(Clone)]
pub struct ReplicaSet {
    set: Arc<Set>,
}

struct Set {
    runtime: SimRuntime,
    name: String,
    process: Arc<Process<Deployment>>,
    members: Vec<Member>,
}

struct Member {
    id: MemberId,
    host: String,
    ip: IpAddr,
    /// None if it is down.
    listener: Mutex<Option<Listener>>,
}

impl ReplicaSet {
    /// Starts a set with this name, and a host for each of its members.
    pub(crate) fn start(runtime: &SimRuntime, name: &str, config: DeploymentConfig) -> Self {
        let places = config.members();
        let process = Process::start(runtime, Deployment::new(config, process::time(runtime)));
        let member = |(id, place): (MemberId, String)| {
            let host = place.rsplit_once(':').map_or(place.clone(), |(host, _)| host.to_owned());
            let ip = runtime.world().network().add_host(&host);
            Member { id, host, ip, listener: Mutex::default() }
        };
        let members = places.into_iter().map(member).collect();
        let set = Self { set: Arc::new(Set { runtime: runtime.clone(), name: name.to_owned(), process, members }) };
        (0..set.set.members.len()).for_each(|member| set.listen(member));
        set
    }

    /// The connection string that names all members; `options` are its other options.
    pub fn uri(&self, options: &str) -> String {
        let hosts: Vec<String> = self.set.members.iter().map(|member| format!("{}:{PORT}", member.host)).collect();
        format!("mongodb://{}/?replicaSet={}&{options}", hosts.join(","), self.set.name)
    }

    /// How many members it has. They are numbered from 0.
    pub fn members(&self) -> usize {
        self.set.members.len()
    }

    /// The number of the primary, if there is one.
    pub fn primary(&self) -> Option<usize> {
        let primary = self.set.process.with(|set, _| set.primary())?;
        self.set.members.iter().position(|member| member.id == primary)
    }

    /// The primary steps down, and is not elected for so long. Does nothing if there is none.
    pub fn step_down(&self, period: Duration) {
        self.set.process.with(|set, now| set.step_down(now, period));
    }

    /// Kills a member's process: nobody listens any more, and its connections are closed.
    pub fn kill(&self, member: usize) {
        let Some(Member { id, listener, .. }) = self.set.members.get(member) else { return };
        if let Some(listener) = listener.lock().unwrap_or_else(PoisonError::into_inner).take() {
            listener.close();
        }
        self.set.process.with(|set, now| set.kill(now, *id));
    }

    /// Starts a member that was killed, with its documents.
    pub fn restart(&self, member: usize) {
        if let Some(Member { id, .. }) = self.set.members.get(member) {
            self.set.process.with(|set, now| set.restart(now, *id));
            self.listen(member);
        }
    }

    /// Cuts a member off from the clients: packets are lost both ways, and connections stay.
    pub fn partition(&self, member: usize) {
        if let Some(member) = self.set.members.get(member) {
            self.set.runtime.world().network().cut(member.ip);
        }
    }

    /// Ends a partition: what was sent meanwhile arrives, connection by connection in an order of chance.
    pub fn heal(&self, member: usize) {
        let Some(member) = self.set.members.get(member) else { return };
        let world = self.set.runtime.world();
        let wakers = world.network().heal(world.executor.now(), member.ip);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn listen(&self, member: usize) {
        let Some(Member { id, ip, listener, .. }) = self.set.members.get(member) else { return };
        let mut listener = listener.lock().unwrap_or_else(PoisonError::into_inner);
        if listener.is_some() {
            return;
        }
        let bound = Listener::bind(self.set.runtime.world(), SocketAddr::new(*ip, PORT));
        *listener = Some(bound.clone());
        let doors = vec![(Arc::clone(&self.set.process), *id)];
        self.set.runtime.spawn(process::accept(doors, bound, None));
    }
}
