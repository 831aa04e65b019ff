//! Polling of SRV records in virtual time: the prose tests of the specification, and what they leave open.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test fails by panicking")]

use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::options::ClientOptions;
use cmap_core::pool::Cause;
use cmap_core::random::Random;
use cmap_core::time::Instant;
use cmap_core::topology::TopologyType;
use cmap_core::topology::seed_list::{Output, SeedList, SrvPolling, SrvRecord};

const MINUTE: Duration = Duration::from_secs(60);
const HEARTBEAT_FREQUENCY: Duration = Duration::from_secs(10);

/// A client that polls, with the servers of its topology.
struct Client {
    polling: SrvPolling,
    servers: Vec<ServerAddress>,
    now: Instant,
    /// What was told to the log.
    log: Vec<String>,
}

/// Port 1 of `a.example.com` and so on: the records that DNS has.
fn records(ports: &[u16]) -> Vec<SrvRecord> {
    ports.iter().map(|port| SrvRecord::new("a.example.com", *port, MINUTE)).collect()
}

fn servers(ports: &[u16]) -> Vec<ServerAddress> {
    ports.iter().map(|port| ServerAddress::tcp("a.example.com", *port)).collect()
}

impl Client {
    /// A client of a sharded cluster. DNS named these ports when it was made.
    fn of(options: &str, ports: &[u16]) -> Self {
        let uri = format!("mongodb+srv://test.example.com/?{options}");
        let (options, _) = ClientOptions::parse(&uri).unwrap();
        let seed_list = SeedList::of(&options).unwrap();
        let resolved = seed_list.resolve(options, Ok(records(ports)), Ok(Vec::new()), &mut Random::new(1)).unwrap();
        let (now, random) = (Instant::ORIGIN, Random::new(2));
        let mut polling = SrvPolling::new(seed_list, HEARTBEAT_FREQUENCY, resolved.time_to_live, random, now);
        polling.handle_topology_type(now, TopologyType::Sharded);
        Self { polling, servers: resolved.options.hosts, now, log: Vec::new() }
    }

    /// Waits for the next request, which is due `after` this time, and returns the name that it asks for.
    #[track_caller]
    fn next_request(&mut self, after: Duration) -> String {
        assert_eq!(self.polling.poll_timeout(), Some(self.now + after));
        self.now = self.now + after;
        self.polling.handle_timeout(self.now);
        let Some(Output::ResolveSrv { name }) = self.polling.poll_output() else { panic!("nothing is asked for") };
        assert_eq!((self.polling.poll_output(), self.polling.poll_timeout()), (None, None));
        name
    }

    /// DNS answers; returns whether the servers changed.
    fn answer(&mut self, answer: Result<Vec<SrvRecord>, Cause>) -> bool {
        self.polling.handle_srv(self.now, answer, &self.servers);
        let mut has_changed = false;
        while let Some(output) = self.polling.poll_output() {
            match output {
                Output::Changed { added, removed } => {
                    self.servers.retain(|server| !removed.contains(server));
                    self.servers.extend(added);
                    has_changed = true;
                }
                Output::Ignored { reason } => self.log.push(reason),
                Output::Failed { cause } => self.log.push(cause.to_string()),
                Output::ResolveSrv { name } => panic!("{name} is asked for twice"),
                _ => panic!("an unknown output"),
            }
        }
        has_changed
    }

    /// A scan that finds these ports.
    fn scan(&mut self, ports: &[u16]) -> bool {
        self.next_request(MINUTE);
        self.answer(Ok(records(ports)))
    }

    fn has(&self, ports: &[u16]) -> bool {
        let mut actual = self.servers.clone();
        actual.sort();
        actual == servers(ports)
    }
}

#[test]
fn prose_1_a_new_record_adds_a_server() {
    let mut client = Client::of("", &[17, 18]);

    assert!(client.scan(&[17, 18, 19]) && client.has(&[17, 18, 19]));
}

#[test]
fn prose_2_a_record_that_is_gone_removes_its_server() {
    let mut client = Client::of("", &[17, 18]);

    assert!(client.scan(&[17]) && client.has(&[17]));
}

#[test]
fn prose_3_a_record_that_is_replaced_replaces_its_server_alone() {
    let mut client = Client::of("", &[17, 18]);

    assert!(client.scan(&[17, 19]) && client.has(&[17, 19]));
    // The server that stays was never removed: it is where it was.
    assert_eq!(client.servers[0], servers(&[17])[0]);
}

#[test]
fn prose_4_and_5_all_records_may_be_replaced() {
    let mut client = Client::of("", &[17, 18]);

    assert!(client.scan(&[19]) && client.has(&[19]));
    assert!(client.scan(&[20, 21]) && client.has(&[20, 21]));
}

#[test]
fn prose_6_and_7_a_failed_lookup_changes_nothing_and_is_repeated_after_a_heartbeat() {
    let mut client = Client::of("", &[17, 18]);
    client.next_request(MINUTE);

    assert!(!client.answer(Err(Cause::new("timed out"))));
    client.next_request(HEARTBEAT_FREQUENCY);
    assert!(!client.answer(Err(Cause::new("refused"))));

    assert!(client.has(&[17, 18]));
    assert_eq!(client.log, ["timed out", "refused"]);
    client.next_request(HEARTBEAT_FREQUENCY);
    assert!(client.answer(Ok(records(&[17]))));
    assert!(client.scan(&[18]), "after a success the interval is the usual one");
}

#[test]
fn prose_8_an_answer_without_records_changes_nothing() {
    let mut client = Client::of("", &[17, 18]);

    assert!(!client.scan(&[]) && client.has(&[17, 18]));
    assert_eq!(client.log, ["no record has a host that can be used"]);
    client.next_request(HEARTBEAT_FREQUENCY);
}

#[test]
fn prose_9_only_an_unknown_or_sharded_topology_is_polled() {
    for topology_type in [
        TopologyType::LoadBalanced,
        TopologyType::Single,
        TopologyType::ReplicaSetNoPrimary,
        TopologyType::ReplicaSetWithPrimary,
    ] {
        let mut client = Client::of("", &[17]);
        client.polling.handle_topology_type(client.now, topology_type);

        assert_eq!(client.polling.poll_timeout(), None, "{topology_type}");
        client.polling.handle_timeout(client.now + 2 * MINUTE);
        assert_eq!(client.polling.poll_output(), None, "{topology_type}");
    }
    let mut client = Client::of("", &[17]);
    client.polling.handle_topology_type(client.now, TopologyType::Unknown);
    client.next_request(MINUTE);
}

#[test]
fn prose_10_and_11_all_records_are_taken_if_there_is_room() {
    for options in ["srvMaxHosts=0", "srvMaxHosts=2"] {
        let mut client = Client::of(options, &[17, 18]);

        assert!(client.scan(&[19, 20]) && client.has(&[19, 20]), "{options}");
    }
}

#[test]
fn prose_12_servers_that_are_still_listed_stay_and_new_ones_fill_the_room() {
    for options in ["srvMaxHosts=2", "srvMaxHosts=2&srvServiceName=custom"] {
        let mut client = Client::of(options, &[17, 18]);

        assert!(client.scan(&[17, 19, 20]));

        assert_eq!(client.servers.len(), 2);
        assert!(client.servers.contains(&servers(&[17])[0]) && !client.servers.contains(&servers(&[18])[0]));
    }
}

#[test]
fn prose_13_the_service_of_the_connection_string_is_asked_for() {
    assert_eq!(Client::of("", &[17]).next_request(MINUTE), "_mongodb._tcp.test.example.com");
    assert_eq!(Client::of("srvServiceName=custom", &[17]).next_request(MINUTE), "_custom._tcp.test.example.com");
}

#[test]
fn servers_beyond_srv_max_hosts_do_not_come_while_all_others_are_listed_dns_18() {
    let mut client = Client::of("srvMaxHosts=2", &[17, 18]);

    assert!(!client.scan(&[17, 18, 19, 20]) && client.has(&[17, 18]));
}

#[test]
fn a_host_of_another_domain_is_ignored_and_told_to_the_log_dns_15() {
    let mut client = Client::of("", &[17, 18]);
    client.next_request(MINUTE);
    let mut found = records(&[17, 19]);
    found.push(SrvRecord::new("a.evil.com", 17, MINUTE));

    assert!(client.answer(Ok(found)) && client.has(&[17, 19]));

    assert_eq!(client.log.len(), 1);
    assert!(client.log[0].contains("a.evil.com"), "{:?}", client.log);
}

#[test]
fn an_answer_with_hosts_of_another_domain_alone_changes_nothing_dns_16() {
    let mut client = Client::of("", &[17, 18]);
    client.next_request(MINUTE);

    assert!(!client.answer(Ok(vec![SrvRecord::new("a.evil.com", 17, MINUTE)])) && client.has(&[17, 18]));

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

    assert!(!client.answer(Ok(found)));

    client.next_request(Duration::from_secs(300));
    let mut short = records(&[17, 18]);
    short[0].time_to_live = Duration::ZERO;
    client.answer(Ok(short));
    client.next_request(MINUTE);
}

#[test]
fn an_answer_for_a_topology_that_is_not_polled_any_more_is_ignored_dns_12() {
    let mut client = Client::of("", &[17]);
    client.next_request(MINUTE);

    client.polling.handle_topology_type(client.now, TopologyType::ReplicaSetNoPrimary);

    assert!(!client.answer(Ok(records(&[18]))) && client.has(&[17]));
    assert_eq!(client.polling.poll_timeout(), None);
}

#[test]
fn an_answer_that_was_not_asked_for_is_ignored() {
    let mut client = Client::of("", &[17]);

    assert!(!client.answer(Ok(records(&[18]))) && client.has(&[17]));
    client.next_request(MINUTE);
}

#[test]
fn polling_goes_on_from_a_stored_state() {
    let mut client = Client::of("srvMaxHosts=2", &[17, 18]);
    let mut restored = Client::of("srvMaxHosts=2", &[17, 18]);
    restored.polling = serde_json::from_str(&serde_json::to_string(&client.polling).unwrap()).unwrap();

    assert!(client.scan(&[1, 2, 3, 4, 5]) && restored.scan(&[1, 2, 3, 4, 5]));

    assert_eq!(client.servers, restored.servers);
}
