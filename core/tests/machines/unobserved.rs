//! A topology whose outputs nobody but its driver reads: no events tell that something has changed, and everything goes on as with them.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::connection::Fault;
use cmap_core::monitor::Finding;
use cmap_core::options::{PoolOptions, ReadMode, ReadPreference};
use cmap_core::pool::{Action, Cause, CheckOutRequest, Handle, Output as PoolOutput};
use cmap_core::server::{OperationError, ServerDescription, ServerId, ServerType, StateChange};
use cmap_core::time::Instant;
use cmap_core::topology::{CheckOut, Criteria, MonitorCall, Output, ServerSelector, Topology, TopologyOptions};

const NOW: Instant = Instant::from_millis(1);

fn address(name: &str) -> ServerAddress {
    ServerAddress::tcp(name, 27017)
}

/// A client with one connection at a time to each server.
struct Client {
    topology: Topology<()>,
    outputs: Vec<Output<()>>,
}

impl Client {
    fn of(names: &[&str]) -> Self {
        let options = TopologyOptions::of_seeds(names.iter().map(|name| address(name)).collect());
        let mut pool_options = PoolOptions::default();
        pool_options.max_pool_size = Some(1);
        let mut topology = Topology::new(options, pool_options).unwrap();
        topology.observe(false);
        topology.open(NOW);
        let mut client = Self { topology, outputs: Vec::new() };
        client.drain();
        client
    }

    fn set() -> Self {
        let mut client = Self::of(&["a", "b", "c"]);
        client.learn("a", ServerType::RsPrimary, 1, &["a", "b", "c"]);
        client.learn("b", ServerType::RsSecondary, 0, &["a", "b", "c"]);
        client.learn("c", ServerType::RsSecondary, 0, &["a", "b", "c"]);
        client
    }

    fn id(&self, name: &str) -> ServerId {
        self.topology.servers().find(|(_, it)| *it.description().address == address(name)).unwrap().0
    }

    /// A member of the set answers a check: with its role, the election that it has won, and the hosts of the set.
    fn learn(&mut self, name: &str, server_type: ServerType, election: u8, hosts: &[&str]) {
        let mut description = ServerDescription::new(address(name).into(), server_type);
        description.wire_versions = Some((0, 21));
        description.set_name = Some("rs".into());
        description.hosts = hosts.iter().map(|host| format!("{host}:27017")).collect();
        if election > 0 {
            (description.election_id, description.set_version) = (Some([election; 12]), Some(1));
        }
        let id = self.id(name);
        self.topology.handle_check(NOW, id, Finding::Description(Box::new(description))).unwrap();
        self.drain();
    }

    /// The outputs since the last call; connections are established at once.
    fn drain(&mut self) -> &[Output<()>] {
        self.outputs.clear();
        while let Some(output) = self.topology.poll_output() {
            if let Output::Pool { output: PoolOutput::Action(Action::Connect { connection }), .. } = output {
                self.topology.handle_established(NOW, connection, ()).unwrap();
            }
            self.outputs.push(output);
        }
        &self.outputs
    }

    /// Takes the only connection of a server.
    fn exhaust(&mut self, name: &str) -> Handle {
        let criteria = Criteria { selector: ServerSelector::AnyOf([address(name)].into()), ..Criteria::default() };
        let _ = self.topology.check_out(NOW, &criteria, CheckOutRequest::default());
        let delivered = self.drain().iter().find_map(|output| match output {
            Output::Pool { output: PoolOutput::Action(Action::Deliver { connection, .. }), .. } => Some(*connection),
            _ => None,
        });
        delivered.unwrap()
    }

    fn waits_at(&self, check_out: CheckOut) -> Option<ServerId> {
        let CheckOut::Started(check_out) = check_out else { return None };
        self.topology.server_of_check_out(check_out)
    }

    /// The server that a check-out has gone on to.
    fn selected(&self) -> Option<ServerId> {
        let selected = self.outputs.iter().find_map(|output| match output {
            Output::Selected { check_out, .. } => Some(*check_out),
            _ => None,
        });
        self.topology.server_of_check_out(selected?)
    }
}

#[test]
fn a_check_out_goes_on_at_once_at_another_server_that_suits() {
    let mut client = Client::set();
    let connection = client.exhaust("a");
    let nearest = ServerSelector::from(ReadPreference::new(ReadMode::Nearest));
    let criteria = Criteria { selector: nearest, ..Criteria::default() };
    // Until one waits at the primary, whose connection is in use.
    let primary = client.id("a");
    let waits = (0..20).map(|_| client.topology.check_out(NOW, &criteria, CheckOutRequest::default()).0);
    let waits: Vec<_> = waits.collect();
    assert!(waits.iter().any(|&check_out| client.waits_at(check_out) == Some(primary)));
    client.drain();

    // It leaves the pool as it is.
    let mut error = OperationError::new(Fault::Server { code: Some(10107) }, Cause::new("not primary"));
    error.state_change = Some(StateChange::NotWritablePrimary);
    client.topology.handle_operation_failed(NOW, connection, error).unwrap();
    client.drain();

    assert_eq!(client.topology.selecting(), 0, "other members suit");
}

#[test]
fn those_who_wait_at_a_primary_that_was_replaced_go_to_the_new_one() {
    let mut client = Client::set();
    let _in_use = client.exhaust("a");
    let (waits, _) = client.topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    assert_eq!(client.waits_at(waits), Some(client.id("a")));
    client.drain();

    client.learn("b", ServerType::RsPrimary, 2, &["a", "b", "c"]);

    assert_eq!(client.selected(), Some(client.id("b")));
}

#[test]
fn a_server_that_leaves_without_connections_is_ended_and_then_forgotten_top_35() {
    let mut client = Client::set();
    let c = client.id("c");

    client.learn("a", ServerType::RsPrimary, 1, &["a", "b"]);

    let calls = client.outputs.iter().filter_map(|output| match output {
        Output::Monitor { server, call } if *server == c => Some(call.clone()),
        _ => None,
    });
    assert_eq!(calls.collect::<Vec<_>>(), [MonitorCall::End, MonitorCall::Forget]);
    assert!(client.topology.server(c).is_none());
}

#[test]
fn a_server_that_was_never_found_is_forgotten_when_it_leaves_top_35() {
    let mut client = Client::of(&["a", "b", "d"]);
    let d = client.id("d");

    client.learn("a", ServerType::RsPrimary, 1, &["a", "b"]);

    assert!(client.topology.server(d).is_none());
}

#[test]
fn a_pool_has_of_a_deadline_what_the_selection_leaves_csot_4() {
    let mut options = TopologyOptions::of_seeds(vec![address("a")]);
    options.server_selection_timeout = Duration::from_secs(30);
    let mut pool_options = PoolOptions::default();
    pool_options.max_pool_size = Some(1);
    let mut topology = Topology::<()>::new(options, pool_options).unwrap();
    topology.observe(false);
    topology.open(NOW);
    let mut client = Client { topology, outputs: Vec::new() };
    let _ = client.topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    for _ in 0..2 {
        let _ =
            client.topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::until(NOW + Duration::from_secs(60)));
    }
    let mut description = ServerDescription::new(address("a").into(), ServerType::Standalone);
    description.wire_versions = Some((0, 21));
    let found = NOW + Duration::from_secs(20);
    let a = client.id("a");
    client.topology.handle_check(found, a, Finding::Description(Box::new(description))).unwrap();
    client.drain();
    assert_eq!(client.topology.stats().counts.waiting, 2);

    client.topology.handle_timeout(NOW + Duration::from_secs(30));

    assert_eq!(client.topology.stats().counts.waiting, 0);
}
