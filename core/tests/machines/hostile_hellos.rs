//! One server that nobody has authenticated names new hosts in each of its hellos: the topology has a bound, and each hello costs no
//! more than it is long.

use cmap_core::address::ServerAddress;
use cmap_core::monitor::Finding;
use cmap_core::options::PoolOptions;
use cmap_core::server::{ServerDescription, ServerId, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{MonitorCall, Output, Topology, TopologyOptions};

const NOW: Instant = Instant::from_millis(1);
const SEEDS: [&str; 3] = ["a", "b", "c"];
/// Three seeds, and the most servers beside them.
const MOST_SERVERS: usize = 103;

/// A client of the three seeds, and the monitors that it has.
struct Client {
    topology: Topology<()>,
    monitors: usize,
}

/// What a hello led to.
#[derive(Clone, Copy, Debug)]
struct Work {
    outputs: usize,
    allocations: u64,
}

impl Client {
    fn new() -> Self {
        let seeds = SEEDS.map(|name| ServerAddress::tcp(name, 27017)).into();
        let topology = Topology::new(TopologyOptions::of_seeds(seeds), PoolOptions::default()).unwrap();
        let mut client = Self { topology, monitors: 0 };
        client.topology.open(NOW);
        client.drain();
        client
    }

    fn id(&self, name: &str) -> ServerId {
        let address = ServerAddress::tcp(name, 27017);
        let mut servers = self.topology.servers().filter(|(_, server)| !server.has_left());
        servers.find(|(_, server)| *server.description().address == address).unwrap().0
    }

    /// A hello of the server `name` says this.
    fn learn(&mut self, name: &str, description: ServerDescription) -> Work {
        let server = self.id(name);
        let finding = Finding::Description(Box::new(description));
        let mut outputs = 0;
        let allocations = allocation_counter::measure(|| {
            self.topology.handle_check(NOW, server, finding).unwrap();
            outputs = self.drain();
        });
        Work { outputs, allocations: allocations.count_total }
    }

    fn drain(&mut self) -> usize {
        let mut outputs = 0;
        while let Some(output) = self.topology.poll_output() {
            outputs += 1;
            match output {
                Output::Monitor { call: MonitorCall::Begin { .. }, .. } => self.monitors += 1,
                Output::Monitor { call: MonitorCall::End, .. } => self.monitors -= 1,
                _ => {}
            }
        }
        outputs
    }

    fn names(&self) -> Vec<String> {
        self.topology.description().servers.iter().map(|server| server.address.to_string()).collect()
    }

    /// The error of the server `name`; empty if it has none.
    fn error(&self, name: &str) -> String {
        let server = self.topology.server(self.id(name)).unwrap();
        server.description().error.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}

/// A member of the set that names these hosts.
fn member(name: &str, server_type: ServerType, hosts: impl IntoIterator<Item = String>) -> ServerDescription {
    let mut description = ServerDescription::new(ServerAddress::tcp(name, 27017).into(), server_type);
    description.wire_versions = Some((0, 21));
    description.set_name = Some("rs".into());
    description.hosts = hosts.into_iter().collect();
    description
}

/// `count` hosts that no other hello names.
fn new_hosts(hello: usize, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |number| format!("h{number}-of-{hello}:27017"))
}

/// A client whose topology is full: the secondary "a" has named new hosts in a hundred hellos.
fn full() -> Client {
    let mut client = Client::new();
    for hello in 0..100 {
        client.learn("a", member("a", ServerType::RsSecondary, new_hosts(hello, 99)));
        assert!(client.names().len() <= MOST_SERVERS, "{} servers after {hello} hellos", client.names().len());
    }
    client
}

#[test]
fn hellos_that_name_ever_new_hosts_leave_a_hundred_servers_beside_the_seeds_x_154() {
    let client = full();

    assert_eq!((client.names().len(), client.monitors), (102, 102));
    let why = client.error("a");
    assert!(why.contains("the topology would have 201 servers, and it may have 103: 3 seeds and 100 others"), "{why}");
    assert!(why.contains("list the set's members in the connection string"), "{why}");
}

#[test]
fn what_no_host_can_be_called_names_no_server() {
    let mut client = Client::new();
    let hosts = ["x\n2030-01-01 ERROR forged\u{1b}[2J:27017".to_owned(), format!("{}:27017", "y".repeat(100_000))];

    client.learn("a", member("a", ServerType::RsSecondary, hosts));

    assert_eq!(client.names(), SEEDS.map(|name| format!("{name}:27017")));
}

#[test]
fn a_refused_hello_adds_none_of_its_hosts_and_concerns_no_other_server_x_154() {
    let mut client = full();
    let before = client.topology.description().servers.clone();

    client.learn("b", member("b", ServerType::RsSecondary, ["x:27017".into(), "y:27017".into()]));

    let after = &client.topology.description().servers;
    let changed = before.iter().zip(after).filter(|(before, after)| before != after);
    assert_eq!(changed.map(|(_, after)| after.address.to_string()).collect::<Vec<_>>(), ["b:27017"]);
    assert_eq!(before.len(), after.len());
    assert!(client.error("b").contains("the topology would have 104 servers"), "{}", client.error("b"));
}

#[test]
fn a_member_that_names_known_servers_is_believed_however_full_the_topology_is_x_154() {
    let mut client = full();

    client.learn("b", member("b", ServerType::RsSecondary, SEEDS.map(|name| format!("{name}:27017"))));

    assert_eq!(client.error("b"), "");
}

#[test]
fn a_primary_has_room_for_its_members_whatever_others_have_named_x_154() {
    let mut client = full();
    let hosts = || ["b:27017".to_owned()].into_iter().chain(new_hosts(100, 99));

    client.learn("b", member("b", ServerType::RsPrimary, hosts()));

    let (mut names, mut expected) = (client.names(), hosts().collect::<Vec<_>>());
    names.sort();
    expected.sort();
    assert_eq!((client.error("b"), names), (String::new(), expected));
    assert_eq!(client.monitors, 100);
}

#[test]
fn the_work_for_a_hello_grows_with_its_hosts_and_not_with_the_hellos_before_x_154() {
    for server_type in [ServerType::RsSecondary, ServerType::RsPrimary] {
        for hosts in [24, 49, 99] {
            let mut client = Client::new();
            for hello in 0..100 {
                let named = ["a:27017".to_owned()].into_iter().chain(new_hosts(hello, hosts));
                let work = client.learn("a", member("a", server_type, named));
                // The hosts of the hello before may leave: an end and an event for each, as for each that comes.
                assert!(work.outputs <= 6 * (hosts + 1), "{server_type}, hello {hello} with {hosts} hosts: {work:?}");
                // The last eight that have left are remembered.
                let allocations = 16 * (hosts as u64 + 1) + 3 * 8;
                assert!(work.allocations <= allocations, "{server_type}, {hello}, {hosts}: {work:?}");
            }
        }
    }
}
