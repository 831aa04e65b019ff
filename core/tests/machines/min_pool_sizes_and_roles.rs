//! Minimum sizes that follow another server's pool, and limits that follow the servers' roles.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::Fault;
use cmap_core::monitor::Finding;
use cmap_core::options::{PoolLimits, PoolOptions, PoolSizes, QueueDepth};
use cmap_core::pool::{Action, Cause, CheckOutId, CheckOutRequest, Condition, Counts, Handle, Output as PoolOutput};
use cmap_core::server::{ServerDescription, ServerId, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{
    Criteria, MinPoolSizePolicy, Output, ServerSelector, SizesByRole, Topology, TopologyOptions,
};

const MEMBERS: [&str; 3] = ["a", "b", "c"];

fn address(name: &str) -> ServerAddress {
    ServerAddress::tcp(name, 27017)
}

/// A client whose connections are established at once.
struct Client {
    topology: Topology<()>,
    now: Instant,
    in_use: Vec<(CheckOutId, Handle)>,
}

impl Client {
    fn new(change: impl FnOnce(&mut TopologyOptions, &mut PoolOptions)) -> Self {
        let mut options = TopologyOptions::of_seeds(MEMBERS.map(address).into());
        let mut pool_options = PoolOptions::default();
        change(&mut options, &mut pool_options);
        let mut topology = Topology::new(options, pool_options).unwrap();
        let now = Instant::from_millis(1);
        topology.open(now);
        Self { topology, now, in_use: Vec::new() }
    }

    /// A replica set whose primary is "a".
    fn of_set(change: impl FnOnce(&mut TopologyOptions, &mut PoolOptions)) -> Self {
        let mut client = Self::new(change);
        client.elect("a", 1);
        client
    }

    /// The set has a primary from now on, and the others are its secondaries.
    fn elect(&mut self, primary: &str, election: u8) {
        let mut order = MEMBERS.to_vec();
        order.sort_by_key(|name| *name != primary);
        for name in order {
            let is_primary = name == primary;
            let server_type = if is_primary { ServerType::RsPrimary } else { ServerType::RsSecondary };
            self.describe(name, server_type, is_primary.then_some([election; 12]));
        }
    }

    fn describe(&mut self, name: &str, server_type: ServerType, election_id: Option<[u8; 12]>) {
        let mut description = ServerDescription::new(address(name).into(), server_type);
        description.wire_versions = Some((0, 21));
        if matches!(server_type, ServerType::RsPrimary | ServerType::RsSecondary) {
            description.set_name = Some("rs".into());
            description.hosts = MEMBERS.map(|member| format!("{member}:27017")).into();
            (description.election_id, description.set_version) = (election_id, election_id.map(|_| 1));
        }
        let id = self.id(name);
        self.topology.handle_check(self.now, id, Finding::Description(Box::new(description))).unwrap();
        self.carry_out();
    }

    fn id(&self, name: &str) -> ServerId {
        self.topology.servers().find(|(_, it)| *it.description().address == address(name)).unwrap().0
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.topology.poll_output() {
            if let Output::Pool { output: PoolOutput::Action(Action::Connect { connection }), .. } = output {
                self.topology.handle_established(self.now, connection, ()).unwrap();
            } else if let Output::Pool { output: PoolOutput::Action(action), .. } = output
                && let Action::Deliver { check_out, connection, .. } = action
            {
                self.in_use.push((check_out, connection));
            }
        }
    }

    /// Checks out this many connections of a server.
    fn use_at(&mut self, name: &str, number: usize) {
        let criteria = Criteria { selector: ServerSelector::AnyOf([address(name)].into()), ..Criteria::default() };
        for _ in 0..number {
            let (_, delivery) = self.topology.check_out(self.now, &criteria, CheckOutRequest::default());
            self.in_use.extend(delivery.map(|delivery| (delivery.check_out, delivery.connection)));
            self.carry_out();
        }
    }

    fn check_in_all(&mut self) {
        for (check_out, connection) in std::mem::take(&mut self.in_use) {
            let _ = self.topology.check_in(self.now, check_out, connection, (), Condition::Usable).unwrap();
            self.carry_out();
        }
    }

    /// Lets time pass; the client does what is due.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.topology.poll_timeout().filter(|due| due.at <= end) {
            self.now = self.now.max(due.at);
            self.topology.handle_timeout(self.now);
            self.carry_out();
        }
        self.now = end;
    }

    fn counts(&self, name: &str) -> Counts {
        self.topology.server(self.id(name)).unwrap().pool().counts()
    }

    fn sizes(&self) -> [u32; 3] {
        MEMBERS.map(|name| self.counts(name).total())
    }

    fn max_pool_sizes(&self) -> [Option<u32>; 3] {
        MEMBERS.map(|name| self.topology.server(self.id(name)).unwrap().pool().options().max_pool_size)
    }
}

const SOON: Duration = Duration::from_secs(5);

#[test]
fn without_a_policy_every_pool_keeps_its_own_minimum() {
    let mut client = Client::of_set(|_, pool| pool.min_pool_size = Some(1));

    client.use_at("a", 8);
    client.pass(SOON);

    assert_eq!(client.sizes(), [8, 1, 1]);
}

#[test]
fn secondaries_keep_as_many_connections_as_the_primary_has() {
    let mut client = Client::of_set(|options, _| options.min_pool_size_policy = MinPoolSizePolicy::MatchPrimaryNode);

    client.use_at("a", 8);
    client.pass(SOON);

    assert_eq!(client.sizes(), [8, 8, 8]);
    assert_eq!(client.counts("b").available, 8);
}

#[test]
fn a_floor_that_follows_stays_within_max_pool_size() {
    let mut client = Client::of_set(|options, pool| {
        options.min_pool_size_policy = MinPoolSizePolicy::MatchPrimaryNode;
        options.sizes_by_role = SizesByRole::default().secondary(PoolSizes::default().max_pool_size(3));
        pool.max_pool_size = Some(10);
    });

    client.use_at("a", 8);
    client.pass(SOON);

    assert_eq!(client.sizes(), [8, 3, 3]);
}

#[test]
fn the_new_primary_has_its_connections_before_the_failover() {
    let mut client = Client::of_set(|options, _| options.min_pool_size_policy = MinPoolSizePolicy::Automatic);
    client.use_at("a", 6);
    client.pass(SOON);
    client.check_in_all();

    let created = client.topology.stats().created;
    client.elect("b", 2);
    client.use_at("b", 6);

    assert_eq!(client.topology.stats().created, created, "none had to be created");
}

#[test]
fn the_minimum_sinks_with_the_primarys_pool() {
    let mut client = Client::of_set(|options, pool| {
        options.min_pool_size_policy = MinPoolSizePolicy::MatchPrimaryNode;
        pool.max_idle_time = Some(Duration::from_secs(60));
    });
    client.use_at("a", 5);
    client.pass(SOON);
    client.check_in_all();

    client.pass(Duration::from_secs(300));

    assert_eq!(client.sizes(), [0, 0, 0]);
}

#[test]
fn routers_follow_the_busiest() {
    let mut client = Client::new(|options, _| options.min_pool_size_policy = MinPoolSizePolicy::Automatic);
    for name in MEMBERS {
        client.describe(name, ServerType::Mongos, None);
    }

    client.use_at("b", 2);
    client.use_at("c", 7);
    client.pass(SOON);

    assert_eq!(client.sizes(), [7, 7, 7]);
}

#[test]
fn what_followed_the_busiest_sinks_when_it_is_busy_no_more() {
    let mut client = Client::of_set(|options, pool| {
        options.min_pool_size_policy = MinPoolSizePolicy::MatchBusiestNode;
        pool.max_idle_time = Some(Duration::from_secs(60));
    });
    client.use_at("c", 4);
    client.pass(SOON);
    assert_eq!(client.sizes(), [4, 4, 4]);
    client.check_in_all();

    client.pass(Duration::from_secs(300));

    assert_eq!(client.sizes(), [0, 0, 0], "no minimum holds up another");
}

#[test]
fn limits_change_with_the_roles_after_a_failover() {
    let mut client = Client::of_set(|options, _| {
        let (large, small) = (PoolSizes::default().max_pool_size(50), PoolSizes::default().max_pool_size(5));
        options.sizes_by_role = SizesByRole::default().primary(large).secondary(small);
    });
    assert_eq!(client.max_pool_sizes(), [Some(50), Some(5), Some(5)]);
    client.use_at("a", 20);
    client.check_in_all();

    client.elect("c", 2);

    assert_eq!(client.max_pool_sizes(), [Some(5), Some(5), Some(50)]);
    assert_eq!(client.sizes(), [5, 0, 0], "the old primary's pool has shrunk");
}

#[test]
fn a_role_leaves_alone_what_it_does_not_name_and_new_limits_of_all_count_then() {
    let mut client = Client::of_set(|options, pool| {
        options.sizes_by_role = SizesByRole::default().primary(PoolSizes::default().max_pool_size(50));
        pool.max_pool_size = Some(7);
    });

    client.topology.resize(client.now, PoolSizes::default().max_pool_size(9)).unwrap();

    assert_eq!(client.max_pool_sizes(), [Some(50), Some(9), Some(9)]);
}

#[test]
fn new_limits_of_all_close_no_connection_that_a_role_allows() {
    let mut client = Client::of_set(|options, _| {
        options.sizes_by_role = SizesByRole::default().primary(PoolSizes::default().max_pool_size(50));
    });
    client.use_at("a", 20);
    client.check_in_all();

    client.topology.resize(client.now, PoolSizes::default().max_pool_size(9)).unwrap();
    client.carry_out();

    assert_eq!(client.sizes(), [20, 0, 0]);
}

#[test]
fn a_server_that_is_unknown_keeps_the_sizes_of_its_last_role_x_74() {
    let mut client = Client::of_set(|options, _| {
        options.sizes_by_role = SizesByRole::default().primary(PoolSizes::default().max_pool_size(50));
    });
    let failure = Finding::Failure { fault: Fault::Network, cause: Cause::new("gone") };
    client.topology.handle_check(client.now, client.id("a"), failure).unwrap();

    let limits = PoolLimits::from(PoolSizes::default().max_pool_size(9)).max_wait_queue_depth(QueueDepth::Waiters(3));
    client.topology.resize(client.now, limits).unwrap();

    assert_eq!(client.max_pool_sizes(), [Some(50), Some(9), Some(9)]);
    let depth = |name| client.topology.server(client.id(name)).unwrap().pool().options().max_wait_queue_depth;
    assert_eq!(MEMBERS.map(depth), [Some(QueueDepth::Waiters(3)); 3]);
}

#[test]
fn limits_of_a_role_that_contradict_the_others_are_refused() {
    let mut options = TopologyOptions::of_seeds(vec![address("a")]);
    options.sizes_by_role = SizesByRole::default().secondary(PoolSizes::default().min_pool_size(200));

    let error = Topology::<()>::new(options, PoolOptions::default()).unwrap_err();

    assert_eq!((error.option, error.value.as_str()), ("minPoolSize", "200"));
}
