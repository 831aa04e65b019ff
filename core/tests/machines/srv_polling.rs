//! Polling of SRV records in virtual time: the prose tests of the specification, and what they leave open.

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::monitor::Finding;
use cmap_core::options::{ClientOptions, PoolOptions};
use cmap_core::pool::{Action, Cause, CheckOutRequest, Event as PoolEvent, Output as PoolOutput};
use cmap_core::random::Random;
use cmap_core::server::{ServerDescription, ServerEvent, ServerId, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::seed_list::{PolledSeedList, SeedList, SrvRecord};
use cmap_core::topology::{
    CheckOut, Criteria, MonitorCall, Output, TimeoutReason, Topology, TopologyEvent, TopologyOptions, TopologyType,
};
use proptest::prelude::*;

const MINUTE: Duration = Duration::from_secs(60);
const HEARTBEAT_FREQUENCY: Duration = Duration::from_secs(10);

/// The topology of a client of `mongodb+srv://test.example.com`, and the time.
struct Client {
    topology: Topology<()>,
    now: Instant,
}

/// Port 1 of `a.example.com` and so on: the records that DNS has.
fn records(ports: &[u16]) -> Vec<SrvRecord> {
    ports.iter().map(|port| SrvRecord::new("a.example.com", *port, MINUTE)).collect()
}

fn server(port: u16) -> ServerAddress {
    ServerAddress::tcp("a.example.com", port)
}

fn described(port: u16, server_type: ServerType) -> Finding {
    let mut description = ServerDescription::new(server(port).into(), server_type);
    description.wire_versions = Some((0, 21));
    if server_type == ServerType::RsPrimary {
        description.set_name = Some("rs".into());
        description.hosts = vec![format!("a.example.com:{port}")];
    }
    Finding::Description(Box::new(description))
}

impl Client {
    /// A client that DNS named these ports when it was made; nothing more is known of them.
    fn unknown(options: &str, ports: &[u16]) -> Self {
        let uri = format!("mongodb+srv://test.example.com/?{options}");
        let (options, _) = ClientOptions::parse(&uri).unwrap();
        let seed_list = SeedList::of(&options).unwrap();
        let resolved = seed_list.resolve(options, Ok(records(ports)), Ok(Vec::new()), &mut Random::new(1)).unwrap();
        let mut options = TopologyOptions::of_client(&resolved.options);
        options.heartbeat_frequency = HEARTBEAT_FREQUENCY;
        options.polled_seed_list = Some(PolledSeedList::new(seed_list, resolved.time_to_live));
        let now = Instant::from_millis(1);
        let mut topology = Topology::new(options, PoolOptions::default()).unwrap();
        topology.open(now);
        let mut client = Self { topology, now };
        client.drain();
        client
    }

    /// The same of a sharded cluster.
    fn of(options: &str, ports: &[u16]) -> Self {
        let mut client = Self::unknown(options, ports);
        client.find(ports[0], ServerType::Mongos);
        client
    }

    fn drain(&mut self) -> Vec<Output<()>> {
        std::iter::from_fn(|| self.topology.poll_output()).collect()
    }

    fn id(&self, port: u16) -> ServerId {
        let address = server(port);
        let mut servers = self.topology.servers();
        servers.find(|(_, known)| !known.has_left() && *known.description().address == address).unwrap().0
    }

    /// A check finds a server of this type.
    fn find(&mut self, port: u16, server_type: ServerType) -> Vec<Output<()>> {
        let id = self.id(port);
        self.topology.handle_check(self.now, id, described(port, server_type)).unwrap();
        self.drain()
    }

    /// When polling needs the next call, from now on.
    fn next_poll(&self) -> Option<Duration> {
        let timeout = self.topology.poll_timeout().filter(|timeout| timeout.reason == TimeoutReason::SrvPolling);
        timeout.map(|timeout| timeout.at.saturating_since(self.now))
    }

    /// Waits for the next request, which is due `after` this time, and returns the name that it asks for.
    #[track_caller]
    fn next_request(&mut self, after: Duration) -> String {
        assert_eq!(self.next_poll(), Some(after));
        self.now = self.now + after;
        self.topology.handle_timeout(self.now);
        let [Output::ResolveSrv { name }] = &*self.drain() else { panic!("nothing is asked for") };
        assert_eq!(self.next_poll(), None, "it is asked for once");
        name.clone()
    }

    /// DNS answers.
    fn answer(&mut self, answer: Result<Vec<SrvRecord>, Cause>) -> Vec<Output<()>> {
        self.topology.handle_srv(self.now, answer);
        self.drain()
    }

    /// A scan that finds these ports.
    #[track_caller]
    fn scan(&mut self, ports: &[u16]) -> Vec<Output<()>> {
        self.next_request(MINUTE);
        self.answer(Ok(records(ports)))
    }

    fn ports(&self) -> Vec<u16> {
        let servers = self.topology.description().servers.iter();
        servers
            .map(|server| match &*server.address {
                ServerAddress::Tcp { port, .. } => *port,
                ServerAddress::Unix { path } => panic!("{path} is no host"),
            })
            .collect()
    }
}

/// What happened, in words.
fn words(outputs: &[Output<()>]) -> Vec<&'static str> {
    let word = |output: &Output<()>| match output {
        Output::Server { event, .. } => event.name(),
        Output::Topology(event) => event.name(),
        Output::Monitor { call: MonitorCall::Begin { .. }, .. } => "begin to check",
        Output::Monitor { call: MonitorCall::End, .. } => "end the checks",
        Output::Monitor { call: MonitorCall::Forget, .. } => "forget",
        Output::Pool { output: PoolOutput::Event(event), .. } => event.name(),
        _ => "something else",
    };
    outputs.iter().map(word).collect()
}

/// Why polling changed nothing.
fn failures(outputs: &[Output<()>]) -> Vec<String> {
    let failure = |output: &Output<()>| match output {
        Output::Topology(TopologyEvent::SrvPollingFailed { cause }) => Some(cause.to_string()),
        _ => None,
    };
    outputs.iter().filter_map(failure).collect()
}

#[test]
fn a_standalone_server_is_the_whole_topology_also_where_dns_has_listed_others_since_x_35() {
    let mut client = Client::unknown("", &[1]);
    client.scan(&[1, 2]);

    client.find(1, ServerType::Standalone);

    assert_eq!(client.topology.description().topology_type, TopologyType::Single);
    assert_eq!(client.ports(), [1]);
}

#[test]
fn prose_1_a_new_record_adds_a_server() {
    let mut client = Client::of("", &[17, 18]);

    client.scan(&[17, 18, 19]);

    assert_eq!(client.ports(), [17, 18, 19]);
}

#[test]
fn prose_2_a_record_that_is_gone_removes_its_server() {
    let mut client = Client::of("", &[17, 18]);

    client.scan(&[17]);

    assert_eq!(client.ports(), [17]);
}

#[test]
fn prose_3_a_record_that_is_replaced_replaces_its_server_alone() {
    let mut client = Client::of("", &[17, 18]);
    let stays = client.id(17);

    client.scan(&[17, 19]);

    assert_eq!((client.ports(), client.id(17)), (vec![17, 19], stays));
    assert_eq!(client.topology.server(stays).unwrap().description().server_type, ServerType::Mongos);
}

#[test]
fn prose_4_and_5_all_records_may_be_replaced() {
    let mut client = Client::of("", &[17, 18]);

    client.scan(&[19]);
    assert_eq!(client.ports(), [19]);
    client.scan(&[20, 21]);
    assert_eq!(client.ports(), [20, 21]);
    assert_eq!(client.topology.description().topology_type, TopologyType::Sharded);
}

#[test]
fn prose_6_and_7_a_failed_lookup_changes_nothing_and_is_repeated_after_a_heartbeat_x_56() {
    let mut client = Client::of("", &[17, 18]);
    client.next_request(MINUTE);

    assert_eq!(failures(&client.answer(Err(Cause::new("timed out")))), ["timed out"]);
    client.next_request(HEARTBEAT_FREQUENCY);
    assert_eq!(failures(&client.answer(Err(Cause::new("refused")))), ["refused"]);

    assert_eq!(client.ports(), [17, 18]);
    client.next_request(HEARTBEAT_FREQUENCY);
    client.answer(Ok(records(&[17])));
    assert_eq!(client.next_poll(), Some(MINUTE), "after a success the interval is the usual one");
}

#[test]
fn prose_8_an_answer_without_records_changes_nothing_dns_16() {
    let mut client = Client::of("", &[17, 18]);

    let outputs = client.scan(&[]);

    assert_eq!(failures(&outputs), ["no record has a host that can be used"]);
    assert_eq!((outputs.len(), client.ports()), (1, vec![17, 18]));
    client.next_request(HEARTBEAT_FREQUENCY);
}

#[test]
fn prose_9_only_an_unknown_or_sharded_topology_is_polled_dns_12_x_55() {
    for server_type in [ServerType::RsPrimary, ServerType::Standalone] {
        let mut client = Client::unknown("", &[17]);
        client.find(17, server_type);

        assert_eq!(client.next_poll(), None, "{server_type}");
        client.topology.handle_timeout(client.now + 2 * MINUTE);
        assert!(!client.drain().iter().any(|output| matches!(output, Output::ResolveSrv { .. })), "{server_type}");
    }
    for options in ["replicaSet=rs", "loadBalanced=true"] {
        assert_eq!(Client::unknown(options, &[17]).next_poll(), None, "{options}");
    }
    Client::unknown("", &[17]).next_request(MINUTE);
    Client::of("", &[17]).next_request(MINUTE);
}

#[test]
fn prose_10_and_11_all_records_are_taken_if_there_is_room() {
    for options in ["srvMaxHosts=0", "srvMaxHosts=2"] {
        let mut client = Client::of(options, &[17, 18]);

        client.scan(&[19, 20]);

        assert_eq!(client.ports(), [19, 20], "{options}");
    }
}

#[test]
fn prose_12_servers_that_are_still_listed_stay_and_new_ones_fill_the_room_dns_18() {
    for options in ["srvMaxHosts=2", "srvMaxHosts=2&srvServiceName=custom"] {
        let mut client = Client::of(options, &[17, 18]);

        client.scan(&[17, 19, 20]);

        let ports = client.ports();
        assert_eq!((ports.len(), ports[0]), (2, 17));
        assert!([19, 20].contains(&ports[1]));
    }
}

#[test]
fn prose_13_the_service_of_the_connection_string_is_asked_for() {
    assert_eq!(Client::of("", &[17]).next_request(MINUTE), "_mongodb._tcp.test.example.com");
    assert_eq!(Client::of("srvServiceName=custom", &[17]).next_request(MINUTE), "_custom._tcp.test.example.com");
}

#[test]
fn an_answer_is_one_update_of_the_topology_dns_19() {
    let mut client = Client::of("", &[17, 18]);
    client.find(18, ServerType::Mongos);

    let outputs = client.scan(&[17, 19]);

    let expected = [
        "ServerOpening",
        "begin to check",
        "ServerClosed",
        "TopologyDescriptionChanged",
        "end the checks",
        PoolEvent::PoolClosed.name(),
        "forget",
    ];
    assert_eq!(words(&outputs), expected);
    let opened = |output: &&Output<()>| matches!(output, Output::Server { event: ServerEvent::ServerOpening, .. });
    assert_eq!(outputs.iter().filter(opened).count(), 1);
}

#[test]
fn a_check_out_on_a_router_that_leaves_goes_on_at_another_dns_19() {
    let mut client = Client::of("", &[17]);
    client.next_request(MINUTE);
    let (check_out, _) = client.topology.check_out(client.now, Criteria::WRITABLE, CheckOutRequest::default());
    let CheckOut::Started(check_out) = check_out else { panic!("the router is known") };
    client.drain();

    let outputs = client.answer(Ok(records(&[18])));
    let waits = |output: &Output<()>| matches!(output, Output::Reselecting { check_out: own, .. } if *own == check_out);
    assert!(outputs.iter().any(waits), "{outputs:?}");

    let outputs = client.find(18, ServerType::Mongos);
    let router = client.id(18);
    let connects = |output: &Output<()>| matches!(output, Output::Pool { server, output: PoolOutput::Action(Action::Connect { .. }) } if *server == router);
    assert!(outputs.iter().any(connects), "{outputs:?}");
}

#[test]
fn servers_beyond_srv_max_hosts_do_not_come_while_all_others_are_listed_dns_18() {
    let mut client = Client::of("srvMaxHosts=2", &[17, 18]);

    let outputs = client.scan(&[17, 18, 19, 20]);

    assert_eq!((outputs, client.ports()), (Vec::new(), vec![17, 18]));
}

#[test]
fn a_host_of_another_domain_is_left_out_and_told_to_the_log_dns_15() {
    let mut client = Client::of("", &[17, 18]);
    client.next_request(MINUTE);
    let mut found = records(&[17, 19]);
    found.extend([SrvRecord::new("a.evil.com", 17, MINUTE), SrvRecord::new("b.evil.com", 17, MINUTE)]);

    let outputs = client.answer(Ok(found));

    let Output::Topology(TopologyEvent::SrvRecordsIgnored { count, cause }) = &outputs[0] else { panic!("no word") };
    assert_eq!((*count, client.ports()), (2, vec![17, 19]));
    assert!(cause.to_string().contains("a.evil.com"), "{cause}");
}

#[test]
fn an_answer_with_hosts_of_another_domain_alone_changes_nothing_dns_16() {
    let mut client = Client::of("", &[17, 18]);
    client.next_request(MINUTE);

    client.answer(Ok(vec![SrvRecord::new("a.evil.com", 17, MINUTE)]));

    assert_eq!(client.ports(), [17, 18]);
    client.next_request(HEARTBEAT_FREQUENCY);
}

#[test]
fn the_least_time_to_live_says_when_to_ask_again_dns_13() {
    let mut client = Client::of("", &[17, 18]);
    client.next_request(MINUTE);
    let mut found = records(&[17, 18]);
    found[0].time_to_live = Duration::from_secs(600);
    found[1].time_to_live = Duration::from_secs(300);
    // The interval begins when the answer is there.
    client.now = client.now + Duration::from_secs(5);

    client.answer(Ok(found));

    client.next_request(Duration::from_secs(300));
    let mut short = records(&[17, 18]);
    short[0].time_to_live = Duration::ZERO;
    client.answer(Ok(short));
    client.next_request(MINUTE);
}

#[test]
fn an_answer_for_a_topology_that_is_not_polled_any_more_is_ignored_dns_12() {
    let mut client = Client::unknown("", &[17]);
    client.next_request(MINUTE);
    client.find(17, ServerType::RsPrimary);

    assert_eq!((client.answer(Ok(records(&[18]))), client.ports()), (Vec::new(), vec![17]));
    assert_eq!(client.next_poll(), None);
}

#[test]
fn an_answer_that_was_not_asked_for_is_ignored() {
    let mut client = Client::of("", &[17]);

    assert_eq!((client.answer(Ok(records(&[18]))), client.ports()), (Vec::new(), vec![17]));
    client.next_request(MINUTE);
}

#[test]
fn a_closed_topology_asks_for_nothing_and_ignores_answers() {
    let mut client = Client::of("", &[17]);
    client.next_request(MINUTE);

    client.topology.close(client.now);
    client.drain();

    assert_eq!(client.answer(Ok(records(&[18]))), []);
    assert_eq!(client.topology.poll_timeout(), None);
}

#[test]
fn a_lookup_that_a_fork_interrupted_is_begun_again() {
    let mut client = Client::of("", &[17]);
    client.next_request(MINUTE);

    client.topology.reset_after_fork(client.now);
    client.drain();

    client.next_request(Duration::ZERO);
}

#[test]
fn polling_goes_on_from_a_stored_state() {
    let mut client = Client::of("srvMaxHosts=2", &[17, 18]);
    let stored = serde_json::to_string(&client.topology).unwrap();
    let mut restored = Client { topology: serde_json::from_str(&stored).unwrap(), now: client.now };

    assert_eq!(client.scan(&[1, 2, 3, 4, 5]), restored.scan(&[1, 2, 3, 4, 5]));

    assert_eq!(client.ports(), restored.ports());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The reference is what the documentation says of one answer: what is listed and known stays, the rest of the room is
    /// filled by what is listed and new.
    #[test]
    fn servers_follow_the_answers_whatever_the_routers_say(
        most in 0..4_usize,
        answers in prop::collection::vec((prop::collection::btree_set(1..8_u16, 0..6), any::<bool>(), 1..8_u16), 0..12),
    ) {
        let mut client = Client::unknown(&format!("srvMaxHosts={most}"), &[1, 2, 3]);
        for (listed, fails, checked) in answers {
            if client.ports().contains(&checked) {
                client.find(checked, ServerType::Mongos);
            }
            let before = client.ports();
            let after = client.next_poll().unwrap();
            client.next_request(after);
            let ports: Vec<u16> = listed.iter().copied().collect();
            client.answer(if fails { Err(Cause::new("no answer")) } else { Ok(records(&ports)) });

            let now = client.ports();
            if fails || listed.is_empty() {
                prop_assert_eq!(now, before);
                continue;
            }
            let staying: Vec<u16> = before.iter().copied().filter(|port| listed.contains(port)).collect();
            let room = if most == 0 { usize::MAX } else { most.saturating_sub(staying.len()) };
            prop_assert_eq!(&now[..staying.len()], &*staying);
            prop_assert_eq!(now.len() - staying.len(), room.min(listed.len() - staying.len()));
            prop_assert!(now.iter().all(|port| listed.contains(port)));
            let members = client.topology.servers().filter(|(_, server)| !server.has_left()).count();
            prop_assert_eq!(members, now.len());
        }
    }
}
