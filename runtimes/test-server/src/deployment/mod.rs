//! Several servers that belong together, as one machine: a replica set, or the mongos of a sharded cluster.
//!
//! Each member is a [`TestServer`] with its own address and its own connections. The deployment moves what they have in
//! common: documents, by a log of commands that each member carries out; the members' roles, by elections; and what every
//! member knows of the others. It is driven as a server is, with the member in each call, and says in addition which members
//! listen.
//!
//! `config` says how it is set up, `member` what is done to a server, `replication` carries the log to the members, `election`
//! finds the primary, `orders` does what clients ask for.

mod config;
mod election;
mod log;
mod member;
mod orders;
mod replication;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use cmap_core::time::Instant;

pub use self::config::DeploymentConfig;
use self::config::Kind;
use self::election::Elections;
use self::log::Log;
use self::member::Member;
use crate::replica_set::view::{MemberStatus, Position, View};
use crate::replication::Membership;
use crate::{ClientId, MemberId, Peer, ServerOutput, SetConfig, TestServer};

/// Several servers that belong together: a replica set, or the mongos of a sharded cluster.
///
/// It is driven as a [`TestServer`] is, with the member in each call: call any method, drain [`poll_output`](Self::poll_output), ask
/// [`poll_timeout`](Self::poll_timeout) when to come back.
///
/// ```
/// use cmap_core::time::Instant;
/// use cmap_test_server::{Deployment, DeploymentConfig, MemberConfig, Peer, ServerConfig, SetConfig};
///
/// let members = (0..3).map(|id| MemberConfig::new(id, format!("host{id}:27017"))).collect();
/// let config = DeploymentConfig::replica_set(ServerConfig::new(""), SetConfig::new("rs0", members));
/// let mut set = Deployment::new(config, Instant::ORIGIN);
///
/// let primary = set.primary().unwrap();
/// let client = set.accept(Instant::ORIGIN, primary, Peer::at("127.0.0.1:50000"));
/// set.kill(Instant::ORIGIN, primary);
/// set.handle_timeout(Instant::from_millis(500));
/// assert_ne!(set.primary(), Some(primary));
/// # let _ = client;
/// ```
#[derive(Debug)]
pub struct Deployment {
    config: DeploymentConfig,
    started: Instant,
    now: Instant,
    members: BTreeMap<MemberId, Member>,
    outputs: VecDeque<DeploymentOutput>,
    log: Log,
    /// The set, if it is one.
    set: Option<Arc<SetConfig>>,
    elections: Elections,
    /// What the members know is no longer true.
    is_outdated: bool,
}

/// An instruction to the driver of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeploymentOutput {
    /// An instruction for a connection of a member.
    Server {
        /// The member.
        member: MemberId,
        /// The instruction.
        output: ServerOutput,
    },
    /// The member was started, or is new: listen at its host. The members of the configuration listen from the beginning.
    Listen {
        /// The member.
        member: MemberId,
        /// Its host and port.
        host: String,
    },
    /// The member was killed: its connections have been hung up on, and nobody listens at its host any more.
    StopListening {
        /// The member.
        member: MemberId,
    },
}

impl Deployment {
    /// The deployment at its beginning: every member is up, and a set has a primary.
    pub fn new(config: DeploymentConfig, now: Instant) -> Self {
        let set = match &config.kind {
            Kind::ReplicaSet(set) => Some(Arc::new(set.clone())),
            Kind::Single | Kind::Sharded(_) => None,
        };
        let mut deployment = Self {
            started: now,
            now,
            members: BTreeMap::new(),
            outputs: VecDeque::new(),
            log: Log::default(),
            set,
            elections: Elections::default(),
            is_outdated: true,
            config,
        };
        for (id, host) in deployment.config.members() {
            deployment.add(id, host);
        }
        if deployment.set.is_some() {
            deployment.elect_first();
        }
        deployment.settle();
        deployment
    }

    /// The members, and their hosts.
    pub fn members(&self) -> impl Iterator<Item = (MemberId, &str)> {
        self.members.iter().map(|(id, member)| (*id, member.host.as_str()))
    }

    /// The primary, if the deployment is a set that has one.
    pub fn primary(&self) -> Option<MemberId> {
        self.elections.primary
    }

    /// Whether a member is up.
    pub fn is_up(&self, member: MemberId) -> bool {
        self.members.get(&member).is_some_and(|member| member.is_up)
    }

    /// A client has connected to a member. One that is down, or does not exist, hangs up.
    pub fn accept(&mut self, now: Instant, member: MemberId, peer: Peer) -> ClientId {
        self.advance(now);
        let Some(Member { server, is_up, .. }) = self.members.get_mut(&member) else {
            return self.refuse(member, ClientId(0));
        };
        let client = server.accept(self.now, peer);
        if !*is_up {
            server.handle_hang_up(self.now, client);
            return self.refuse(member, client);
        }
        client
    }

    /// Bytes came from a client of a member.
    pub fn handle_bytes(&mut self, now: Instant, member: MemberId, client: ClientId, bytes: &[u8]) {
        self.with(now, member, |server, now| server.handle_bytes(now, client, bytes));
    }

    /// A client has closed its connection to a member, or it broke.
    pub fn handle_hang_up(&mut self, now: Instant, member: MemberId, client: ClientId) {
        self.with(now, member, |server, now| server.handle_hang_up(now, client));
    }

    /// The driver cannot send the replies of a member's client; see [`TestServer::hold`].
    pub fn hold(&mut self, now: Instant, member: MemberId, client: ClientId) {
        self.with(now, member, |server, now| server.hold(now, client));
    }

    /// Undoes [`hold`](Self::hold).
    pub fn release(&mut self, now: Instant, member: MemberId, client: ClientId) {
        self.with(now, member, |server, now| server.release(now, client));
    }

    /// Carries out everything that is due by now. Harmless if nothing is.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        let now = self.now;
        // First what happened between the members, so that a command whose time is over finds it done.
        self.settle();
        for id in self.ids() {
            self.with(now, id, TestServer::handle_timeout);
        }
    }

    /// The next instruction; call it until it returns nothing.
    #[must_use]
    pub fn poll_output(&mut self) -> Option<DeploymentOutput> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            // A server whose replies are taken goes on with its clients' next requests.
            let mut up = self.members.iter_mut().filter(|(_, member)| member.is_up);
            let next = up.find_map(|(id, member)| {
                let output = member.server.poll_output()?;
                Some(DeploymentOutput::Server { member: *id, output })
            });
            let is_any = next.is_some();
            self.outputs.extend(next);
            // A request that was gone on with may have no output yet, but consequences for others.
            if !self.settle() && !is_any {
                return None;
            }
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); while outputs are queued, now.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.outputs.is_empty() {
            return Some(self.now);
        }
        let servers = self.members.values().filter(|member| member.is_up).map(|member| member.server.poll_timeout());
        servers.flatten().chain(self.next_replication()).chain(self.next_election()).min()
    }

    /// Calls a member's server, if it is up, and does what follows for the others.
    fn with(&mut self, now: Instant, member: MemberId, call: impl FnOnce(&mut TestServer, Instant)) {
        self.advance(now);
        let now = self.now;
        if let Some(member) = self.members.get_mut(&member).filter(|member| member.is_up) {
            call(&mut member.server, now);
            self.settle();
        }
    }

    /// Brings the members to what follows from what has happened: entries of the log, orders, elections, and what they know.
    /// Returns whether that was anything.
    fn settle(&mut self) -> bool {
        let mut is_any = false;
        if matches!(self.config.kind, Kind::Single) {
            return is_any;
        }
        loop {
            let has_written = self.collect();
            let has_changed = self.carry_out_orders() | self.elect() | self.replicate();
            if has_written || has_changed || self.is_outdated {
                self.tell();
                is_any = true;
            } else {
                return is_any;
            }
        }
    }

    /// Tells every member what the set looks like. That may wake clients, who may write.
    fn tell(&mut self) {
        self.is_outdated = false;
        let Some(view) = self.view() else { return };
        for member in self.members.values_mut().filter(|member| member.is_up) {
            member.server.see(self.now, view.clone());
        }
    }

    /// The set as all members see it.
    fn view(&self) -> Option<View> {
        let status = |(id, member): (&MemberId, &Member)| {
            let Member { is_up, position, lag, .. } = *member;
            (*id, MemberStatus { is_up, position, lag })
        };
        Some(View {
            config: Arc::clone(self.set.as_ref()?),
            term: self.elections.term,
            primary: self.elections.primary,
            members: self.members.iter().map(status).collect(),
            has_successor: self.successor().is_some(),
            primary_lost_at: self.elections.lost_at,
            election_timeout: self.config.election_timeout,
        })
    }

    /// Adds a member, which is up and has nothing.
    fn add(&mut self, id: MemberId, host: String) {
        let mut member = Member {
            server: TestServer::new(self.config.server_at(id, &host, 0, self.uptime()), self.now),
            host,
            is_up: true,
            position: Position::default(),
            has_diverged: false,
            lag: if self.set.is_some() { self.config.lag } else { Duration::ZERO },
            ineligible_until: None,
            starts: 0,
        };
        self.introduce(id, &mut member.server);
        self.members.insert(id, member);
        self.is_outdated = true;
        let hosts = self.hosts();
        self.members.values_mut().for_each(|member| member.server.know(hosts.clone()));
    }

    /// Makes a server, which is new or was started again, a member.
    fn introduce(&self, id: MemberId, server: &mut TestServer) {
        if !matches!(self.config.kind, Kind::Single) {
            server.join(Membership::new(self.hosts()), self.view().map(|view| (id, view)));
        }
    }

    fn hosts(&self) -> Vec<(String, MemberId)> {
        self.members.iter().map(|(id, member)| (member.host.clone(), *id)).collect()
    }

    fn ids(&self) -> Vec<MemberId> {
        self.members.keys().copied().collect()
    }

    fn refuse(&mut self, member: MemberId, client: ClientId) -> ClientId {
        let output = ServerOutput::HangUp { client };
        self.outputs.push_back(DeploymentOutput::Server { member, output });
        client
    }

    fn uptime(&self) -> Duration {
        self.now.saturating_since(self.started)
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }
}
