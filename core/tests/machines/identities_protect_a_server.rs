//! The limits that protect a server hold for all users of a client together: a storm of eight users is no
//! greater than one of a single user.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::{EstablishError, Fault, Phase};
use cmap_core::monitor::Finding;
use cmap_core::options::{PoolOptions, QueueDepth};
use cmap_core::pool::{
    Action, CheckOutErrorKind, CheckOutRequest, Condition, Handle, IdentityId, Output as PoolOutput,
};
use cmap_core::server::{ServerDescription, ServerId, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{Criteria, Output, Topology, TopologyOptions};

/// A client of one server, whose users all ask for connections.
struct Client {
    topology: Topology<()>,
    now: Instant,
    users: Vec<IdentityId>,
    pending: Vec<Handle>,
    /// The users whose check-outs were refused because too many waited.
    refused: usize,
}

impl Client {
    fn new(users: usize, set: impl FnOnce(&mut PoolOptions)) -> Self {
        let mut options = PoolOptions::default();
        options.check_after_idle = Some(Duration::MAX);
        set(&mut options);
        let topology = TopologyOptions::of_seeds(vec![ServerAddress::tcp("a", 27017)]);
        let mut topology = Topology::new(topology, options).unwrap();
        let now = Instant::from_millis(1);
        topology.open(now);
        let users = (0..users).map(|_| topology.add_identity(now)).collect();
        let server = server(&topology);
        let mut description = ServerDescription::new(ServerAddress::tcp("a", 27017).into(), ServerType::Standalone);
        description.wire_versions = Some((0, 21));
        topology.handle_check(now, server, Finding::Description(Box::new(description))).unwrap();
        let mut client = Self { topology, now, users, pending: Vec::new(), refused: 0 };
        client.drain();
        client
    }

    fn check_out(&mut self, user: usize) {
        let request = CheckOutRequest::default().identity(self.users[user]);
        let (_, delivery) = self.topology.check_out(self.now, Criteria::WRITABLE, request);
        assert!(delivery.is_none(), "every connection stays in use");
        self.drain();
    }

    /// A user's check-out gets a connection, and gives it back.
    fn check_out_and_in(&mut self, user: usize) -> Handle {
        let request = CheckOutRequest::default().identity(self.users[user]);
        let (_, delivery) = self.topology.check_out(self.now, Criteria::WRITABLE, request);
        assert!(delivery.is_none());
        self.drain();
        let connection = self.pending.remove(0);
        self.topology.handle_established(self.now, connection, ()).unwrap();
        let delivered = core::iter::from_fn(|| self.topology.poll_output()).find_map(|output| match output {
            Output::Pool { output: PoolOutput::Action(Action::Deliver { check_out, .. }), .. } => Some(check_out),
            _ => None,
        });
        let check_out = delivered.unwrap();
        let _ = self.topology.check_in(self.now, check_out, connection, (), Condition::Usable).unwrap();
        self.drain();
        connection
    }

    /// The server refuses the oldest connection that is being established.
    fn refuse(&mut self) {
        let connection = self.pending.remove(0);
        let error = EstablishError::new(Phase::Connect, Fault::Network, "connection refused");
        self.topology.handle_establish_failed(self.now, connection, error).unwrap();
        self.drain();
    }

    fn establish(&mut self) -> IdentityId {
        let connection = self.pending.remove(0);
        self.topology.handle_established(self.now, connection, ()).unwrap();
        self.drain();
        self.topology.identity_of(connection).unwrap()
    }

    /// Lets time pass until something is due, but not beyond `end`. Returns whether there was something.
    fn pass(&mut self, end: Instant) -> bool {
        let due = self.topology.poll_timeout().filter(|timeout| timeout.at <= end);
        self.now = due.map_or(end, |timeout| timeout.at);
        self.topology.handle_timeout(self.now);
        self.drain();
        due.is_some()
    }

    fn drain(&mut self) {
        while let Some(output) = self.topology.poll_output() {
            if let Output::Pool { output: PoolOutput::Action(action), .. } = output {
                match action {
                    Action::Connect { connection } => self.pending.push(connection),
                    Action::Fail { error, .. } => {
                        self.refused += usize::from(matches!(error.kind, CheckOutErrorKind::WaitQueueFull { .. }));
                    }
                    _ => {}
                }
            }
        }
    }
}

fn server(topology: &Topology<()>) -> ServerId {
    topology.servers().next().unwrap().0
}

/// Connections that a client of so many users creates in three seconds, of which each has ten waiters, at ten a second.
fn created_in_three_seconds(users: usize) -> usize {
    let set = |options: &mut PoolOptions| {
        options.max_new_connections_per_second = Some(10);
        options.max_connecting = Some(2);
        options.max_pool_size = Some(1000);
    };
    let mut client = Client::new(users, set);
    let end = client.now + Duration::from_secs(3);
    for user in (0..users).cycle().take(10 * users) {
        client.check_out(user);
    }
    for _ in 0..50 {
        client.check_out(0);
    }
    let mut created = 0;
    while client.now < end {
        while !client.pending.is_empty() {
            client.establish();
            created += 1;
        }
        client.pass(end);
    }
    created
}

#[test]
fn the_limit_of_new_connections_is_that_of_one_user_for_all_together_x_82() {
    assert_eq!(created_in_three_seconds(8), created_in_three_seconds(1));
}

#[test]
fn what_the_limit_allows_goes_to_the_longest_waiter_whichever_user_that_is_x_91() {
    let set = |options: &mut PoolOptions| {
        options.max_new_connections_per_second = Some(1);
        options.max_connecting = Some(1);
    };
    let mut client = Client::new(3, set);
    let order = [2, 1, 0, 1, 2, 0];
    for user in order {
        client.now = client.now + Duration::from_millis(1);
        client.check_out(user);
    }

    let end = client.now + Duration::from_secs(10);
    let mut served = Vec::new();
    while served.len() < order.len() && client.now < end {
        if client.pending.is_empty() {
            client.pass(end);
        } else {
            served.push(client.establish());
        }
    }

    assert_eq!(served, order.map(|user| client.users[user]));
}

#[test]
fn a_refusal_that_one_user_meets_holds_back_the_connections_of_all_x_63() {
    let set = |options: &mut PoolOptions| {
        options.max_connecting = Some(1);
    };
    let mut client = Client::new(4, set);
    for user in 0..4 {
        client.check_out(user);
        client.check_out(user);
    }
    assert_eq!(client.pending.len(), 1);

    client.refuse();

    assert_eq!(client.pending.len(), 0, "nobody connects during the pause");
    let began = client.now;
    while client.pending.is_empty() {
        assert!(client.pass(began + Duration::from_secs(1)));
    }
    assert!(client.now >= began + Duration::from_millis(50));
    assert_eq!(client.pending.len(), 1, "one connection is tried");
    client.establish();
    assert_eq!(client.pending.len(), 1, "the backoff is over for all, within maxConnecting");
}

#[test]
fn one_connection_at_a_time_is_tried_for_all_users_during_a_backoff_x_63() {
    let set = |options: &mut PoolOptions| {
        options.max_connecting = Some(4);
    };
    let mut client = Client::new(4, set);
    for user in 0..4 {
        client.check_out(user);
        client.check_out(user);
    }
    assert_eq!(client.pending.len(), 4);

    let end = client.now + Duration::from_secs(5);
    while client.now < end {
        while !client.pending.is_empty() {
            client.refuse();
        }
        client.pass(end);
        assert!(client.pending.len() <= 1, "the others wait until it is established");
    }
}

#[test]
fn the_queues_of_all_users_are_as_deep_together_as_that_of_one_may_be_x_80() {
    let set = |options: &mut PoolOptions| {
        options.max_pool_size = Some(1);
        options.max_wait_queue_depth = Some(QueueDepth::Waiters(3));
    };
    let mut client = Client::new(4, set);

    for user in 0..4 {
        client.check_out(user);
    }

    assert_eq!(client.refused, 1, "the fourth waiter is one too many, though the first in the queue of its user");
}

#[test]
fn a_user_for_whom_a_connection_is_available_is_served_however_many_others_wait_x_80() {
    let set = |options: &mut PoolOptions| {
        options.max_pool_size = Some(2);
        options.max_connecting = Some(1);
        options.max_wait_queue_depth = Some(QueueDepth::Waiters(1));
    };
    let mut client = Client::new(2, set);
    let idle = client.check_out_and_in(0);
    client.check_out(1);

    let request = CheckOutRequest::default().identity(client.users[0]);
    let (_, delivery) = client.topology.check_out(client.now, Criteria::WRITABLE, request);

    assert_eq!(delivery.map(|delivery| delivery.connection), Some(idle));
    assert_eq!(client.refused, 0);
}

#[test]
fn a_user_who_comes_during_a_backoff_waits_for_its_end_like_the_others_x_63() {
    let mut client = Client::new(2, |options| options.max_connecting = Some(1));
    client.check_out(0);
    client.check_out(0);
    client.refuse();

    client.check_out(1);

    assert_eq!(client.pending.len(), 0);
}

#[test]
fn a_removed_user_whose_connection_is_tried_holds_nobody_back_x_63() {
    let mut client = Client::new(2, |options| options.max_connecting = Some(1));
    client.check_out(0);
    client.check_out(1);
    client.refuse();
    client.check_out(0);
    let end = client.now + Duration::from_secs(1);
    while client.pending.is_empty() {
        assert!(client.pass(end));
    }
    let tried = client.topology.identity_of(client.pending[0]).unwrap();

    client.topology.remove_identity(client.now, tried);
    client.drain();
    client.refuse();

    let end = client.now + Duration::from_secs(1);
    while client.pending.is_empty() {
        assert!(client.pass(end), "the other user connects");
    }
    assert_ne!(client.establish(), tried);
}
