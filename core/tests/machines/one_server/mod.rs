//! A topology of one server, for tests of what happens to a server.

#![allow(dead_code, reason = "each file of tests uses what it needs")]

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use cmap_core::address::ServerAddress;
use cmap_core::monitor::{Finding, HeartbeatEvent, ServerDescription};
use cmap_core::options::PoolOptions;
use cmap_core::pool::{ApiMisuse, Pool, PoolState};
use cmap_core::server::{Server, ServerId, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{Topology, TopologyOptions};

pub(crate) struct OneServer<C> {
    topology: Topology<C>,
    id: ServerId,
}

impl<C> OneServer<C> {
    /// A monitored server that is open, at "db.example:27017".
    pub(crate) fn new(now: Instant, pool: PoolOptions, change: impl FnOnce(&mut TopologyOptions)) -> Self {
        let mut options = TopologyOptions::of_seeds(vec![address()]);
        // Errors of single check-outs are what these tests are about.
        options.reselect = false;
        options.load_balanced = pool.load_balanced;
        change(&mut options);
        let mut topology = Topology::new(options, pool).unwrap();
        topology.open(now);
        Self::of(topology)
    }

    /// A server that its owner checks.
    pub(crate) fn unmonitored(now: Instant) -> Self {
        Self::of(Topology::unmonitored(Pool::new(address(), PoolOptions::default(), now).unwrap()))
    }

    pub(crate) fn of(topology: Topology<C>) -> Self {
        let (id, _) = topology.servers().next().unwrap();
        Self { topology, id }
    }

    pub(crate) fn id(&self) -> ServerId {
        self.id
    }

    fn server(&self) -> &Server<C> {
        self.topology.server(self.id).unwrap()
    }

    pub(crate) fn pool(&self) -> &Pool<C> {
        self.server().pool()
    }

    pub(crate) fn description(&self) -> &Arc<ServerDescription> {
        self.server().description()
    }

    /// Whether check-outs go on in the pool at once.
    pub(crate) fn is_usable(&self) -> bool {
        self.description().server_type != ServerType::Unknown && self.pool().state() == PoolState::Ready
    }

    pub(crate) fn handle_check(&mut self, now: Instant, finding: Finding) -> Result<(), ApiMisuse> {
        self.topology.handle_check(now, self.id, finding)
    }

    pub(crate) fn handle_heartbeat(&mut self, now: Instant, event: HeartbeatEvent) {
        self.topology.handle_heartbeat(now, self.id, event);
    }

    pub(crate) fn topology(&self) -> &Topology<C> {
        &self.topology
    }
}

fn address() -> ServerAddress {
    ServerAddress::tcp("db.example", 27017)
}

impl<C> Deref for OneServer<C> {
    type Target = Topology<C>;

    fn deref(&self) -> &Topology<C> {
        &self.topology
    }
}

impl<C> DerefMut for OneServer<C> {
    fn deref_mut(&mut self) -> &mut Topology<C> {
        &mut self.topology
    }
}
