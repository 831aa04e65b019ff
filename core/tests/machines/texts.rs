//! The sentences that errors are, each as a whole: what happened, why, and what to do next.
//!
//! | who is told of what | test |
//! |---|---|
//! | a check-out whose connection is another's by affinity | `the_connection_of_a_key_bound` |
//! | a check-out that the rate of new connections held back | `the_rate_of_new_connections_bound` |
//! | a check-out that a limit of all pools held back | `a_limit_that_pools_share_bound` |
//! | a check-out that waited for a server first | `a_check_out_says_how_long_its_caller_has_waited` |
//! | a check-out while too many wait for a server | `too_many_check_outs_that_wait_for_a_server_are_told_with_its_state` |
//! | a client of another set | `a_wrong_set_name_names_both_sets` |
//! | a client of several standalone servers | `a_standalone_server_beside_others_says_why_it_was_left_out` |
//! | a client whose seed has another name in its set | `a_seed_that_its_primary_does_not_name_is_told_beside_the_members` |
//! | a read whose tags nobody has | `tags_that_no_member_has_are_said_so` |
//! | a client of a port for something else | `a_server_that_speaks_another_protocol_is_told_by_its_name` |
//! | a command of many large documents | `documents_that_are_too_long_together_are_told_from_a_document_that_is_too_long` |
//!
//! Those of adapters: a refused login and a silent TLS handshake in their suite (`logins`, `unusable`), names that lead nowhere in
//! `establish/resolve.rs`, certificates in `conformance/tests/tls/trust.rs`, name servers in `dns/transport.rs`.

use std::sync::Arc;
use std::time::Duration;

use cmap_core::address::ServerAddress;
use cmap_core::monitor::Finding;
use cmap_core::options::{Affinity, PoolOptions, QueueDepth, ReadMode, ReadPreference};
use cmap_core::pool::{self, Action, AffinityKey, CheckOutError, CheckOutRequest, Handle, Output as PoolOutput, Pool};
use cmap_core::server::{ServerDescription, ServerType};
use cmap_core::time::Instant;
use cmap_core::topology::{Criteria, Output, ServerSelector, Topology, TopologyOptions};

const NOW: Instant = Instant::from_millis(1_000);

fn later(millis: u64) -> Instant {
    NOW + Duration::from_millis(millis)
}

fn pool(set: impl FnOnce(&mut PoolOptions)) -> Pool<()> {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(2);
    options.wait_queue_timeout = Some(Duration::from_millis(50));
    set(&mut options);
    let mut pool = Pool::new(ServerAddress::tcp("db.example", 27017), options, NOW).unwrap();
    pool.ready(NOW);
    pool
}

/// Establishes what is to be established, and returns the last failure.
fn drain(pool: &mut Pool<()>, now: Instant) -> Option<Arc<CheckOutError>> {
    let mut failure = None;
    while let Some(output) = pool.poll_output() {
        match output {
            PoolOutput::Action(Action::Connect { connection }) => pool.handle_established(now, connection, ()).unwrap(),
            PoolOutput::Action(Action::Fail { error, .. }) => failure = Some(error),
            PoolOutput::Action(_) | PoolOutput::Event(_) => {}
        }
    }
    failure
}

#[test]
fn the_connection_of_a_key_bound() {
    let mut pool = pool(|options| options.affinity = Some(Affinity::Require));
    for _ in 0..2 {
        let _ = pool.check_out(NOW, CheckOutRequest::default().affinity(AffinityKey(1)));
        drain(&mut pool, NOW);
    }

    pool.handle_timeout(later(50));

    assert_eq!(
        drain(&mut pool, later(50)).unwrap().to_string(),
        "Timed out while checking out a connection from connection pool (db.example:27017, after 50ms; 1 in use, 0 available, 0 \
         pending, 1 waiting, maxPoolSize 2); affinity bound: the connection of its key has been in use for 50ms; check in the \
         connection of a key before its next check-out, allow more time, or take any connection by Affinity::Prefer"
    );
}

#[test]
fn the_rate_of_new_connections_bound() {
    let mut pool = pool(|options| {
        options.max_connecting = Some(1);
        options.max_new_connections_per_second = Some(1);
    });
    for _ in 0..2 {
        let _ = pool.check_out(NOW, CheckOutRequest::default());
        drain(&mut pool, NOW);
    }

    pool.handle_timeout(later(50));

    assert_eq!(
        drain(&mut pool, later(50)).unwrap().to_string(),
        "Timed out while checking out a connection from connection pool (db.example:27017, after 50ms; 1 in use, 0 available, 0 \
         pending, 1 waiting, maxPoolSize 2); maxNewConnectionsPerSecond bound; raise maxNewConnectionsPerSecond, keep \
         connections ready by minPoolSize, or allow more time"
    );
}

fn address(name: &str) -> ServerAddress {
    ServerAddress::tcp(name, 27017)
}

/// A client of these servers, and what it has been told last.
struct Client {
    topology: Topology<()>,
    connecting: Vec<Handle>,
    error: Option<String>,
}

impl Client {
    fn new(names: &[&str], change: impl FnOnce(&mut TopologyOptions, &mut PoolOptions)) -> Self {
        let mut options = TopologyOptions::of_seeds(names.iter().map(|name| address(name)).collect());
        let mut pool_options = PoolOptions::default();
        change(&mut options, &mut pool_options);
        let topology = Topology::new(options, pool_options).unwrap();
        let mut client = Self { topology, connecting: Vec::new(), error: None };
        client.topology.open(NOW);
        client.drain();
        client
    }

    fn drain(&mut self) {
        while let Some(output) = self.topology.poll_output() {
            match output {
                Output::SelectionFailed { error, .. } => self.error = Some(error.to_string()),
                Output::Pool { output: pool::Output::Action(Action::Fail { error, .. }), .. } => {
                    self.error = Some(error.to_string());
                }
                Output::Pool { output: pool::Output::Action(Action::Connect { connection }), .. } => {
                    self.connecting.push(connection);
                }
                _ => {}
            }
        }
    }

    fn learn(&mut self, now: Instant, description: ServerDescription) {
        let found = self.topology.servers().find(|(_, server)| *server.description().address == *description.address);
        let server = found.unwrap().0;
        self.topology.handle_check(now, server, Finding::Description(Box::new(description))).unwrap();
        self.drain();
    }

    /// The error of a check-out that has waited for 30 s.
    fn error_of(&mut self, selector: ServerSelector) -> String {
        let criteria = Criteria { selector, ..Criteria::default() };
        let _ = self.topology.check_out(NOW, &criteria, CheckOutRequest::until(later(30_000)));
        self.topology.handle_timeout(later(30_000));
        self.drain();
        self.error.take().unwrap()
    }
}

fn member(name: &str, server_type: ServerType, set: &str, members: &[&str]) -> ServerDescription {
    let mut description = ServerDescription::new(address(name).into(), server_type);
    description.wire_versions = Some((0, 21));
    description.set_name = Some(set.into());
    description.hosts = members.iter().map(|member| format!("{member}:27017")).collect();
    description
}

#[test]
fn a_limit_that_pools_share_bound() {
    let mut client = Client::new(&["a"], |options, _| options.max_connections = 1);
    client.learn(NOW, member("a", ServerType::Mongos, "", &[]));
    let _ = client.topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    client.drain();
    let connection = client.connecting.pop().unwrap();
    client.topology.handle_established(NOW, connection, ()).unwrap();
    client.drain();

    assert_eq!(
        client.error_of(ServerSelector::Writable),
        "Timed out while checking out a connection from connection pool (a:27017, after 30s; 1 in use, 0 available, 0 pending, 1 \
         waiting, maxPoolSize 100); the limit of connections that pools share bound; raise the limit that pools share \
         (max_connections, or maxPoolSize for the users of a server), or look for connections that are kept too long"
    );
}

#[test]
fn a_check_out_says_how_long_its_caller_has_waited() {
    for reselects in [true, false] {
        let mut client = Client::new(&["a"], |options, _| options.reselect = reselects);
        let _ = client.topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::until(later(25_000)));
        client.learn(later(20_000), member("a", ServerType::Mongos, "", &[]));

        client.topology.handle_timeout(later(25_000));
        client.drain();

        let error = client.error.unwrap();
        assert!(error.contains("(a:27017, after 25s; "), "{error}");
    }
}

#[test]
fn too_many_check_outs_that_wait_for_a_server_are_told_with_its_state() {
    let mut client = Client::new(&["a"], |_, options| options.max_wait_queue_depth = Some(QueueDepth::Waiters(1)));
    for _ in 0..2 {
        let _ = client.topology.check_out(NOW, Criteria::WRITABLE, CheckOutRequest::default());
    }
    client.drain();

    assert_eq!(
        client.error.unwrap(),
        "too many check-outs wait for a server already, and maxWaitQueueDepth allows 1: a:27017 is Unknown; try again after a pause, \
         or raise maxWaitQueueDepth"
    );
}

#[test]
fn a_wrong_set_name_names_both_sets() {
    let mut client = Client::new(&["a", "b"], |options, _| options.replica_set = Some("rs1".into()));
    client.learn(NOW, member("a", ServerType::RsPrimary, "rs0", &["a", "b"]));
    client.learn(NOW, member("b", ServerType::RsSecondary, "rs0", &["a", "b"]));

    assert_eq!(
        client.error_of(ServerSelector::Writable),
        "no server became suitable for writes within 30s: a:27017 was left out (it belongs to the set \"rs0\", not to \"rs1\"), \
         b:27017 was left out (it belongs to the set \"rs0\", not to \"rs1\"); correct the hosts or replicaSet in the connection \
         string"
    );
}

#[test]
fn a_standalone_server_beside_others_says_why_it_was_left_out() {
    let standalone = |name: &str| ServerDescription::new(address(name).into(), ServerType::Standalone);
    let mut several = Client::new(&["a", "b"], |_, _| {});
    several.learn(NOW, standalone("a"));
    let mut set = Client::new(&["a"], |options, _| options.replica_set = Some("rs0".into()));
    set.learn(NOW, standalone("a"));

    assert_eq!(
        several.error_of(ServerSelector::Writable),
        "no server became suitable for writes within 30s: b:27017 is Unknown, a:27017 was left out (it is a standalone server, and \
         the connection string names others beside it); none has answered yet: see whether the addresses are right and the \
         servers run"
    );
    assert_eq!(
        set.error_of(ServerSelector::Writable),
        "no server became suitable for writes within 30s: a:27017 was left out (it is Standalone, and no member of the set \"rs0\"); \
         correct the hosts or replicaSet in the connection string"
    );
}

#[test]
fn a_seed_that_its_primary_does_not_name_is_told_beside_the_members() {
    let mut client = Client::new(&["10.0.0.1"], |_, _| {});
    client.learn(NOW, member("10.0.0.1", ServerType::RsPrimary, "rs0", &["db1"]));

    assert_eq!(
        client.error_of(ServerSelector::Writable),
        "no server became suitable for writes within 30s: db1:27017 is Unknown, 10.0.0.1:27017 was left out (the primary \
         10.0.0.1:27017 does not name it as a member); none has answered yet: see whether the addresses are right and the servers \
         run"
    );
}

#[test]
fn a_server_that_joins_again_is_not_told_as_left_out() {
    let mut client = Client::new(&["a", "b"], |_, _| {});
    client.learn(NOW, member("a", ServerType::RsPrimary, "rs0", &["a"]));
    assert_eq!(client.topology.description().removed.len(), 1);

    client.learn(NOW, member("a", ServerType::RsPrimary, "rs0", &["a", "b"]));

    assert!(client.topology.description().removed.is_empty());
}

#[test]
fn eight_servers_that_were_left_out_are_remembered() {
    let names: Vec<String> = (0..20).map(|number| format!("s{number}")).collect();
    let seeds: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut client = Client::new(&seeds, |_, _| {});

    client.learn(NOW, member("s0", ServerType::RsPrimary, "rs0", &["s0"]));

    let removed = &client.topology.description().removed;
    assert_eq!((removed.len(), &removed[7].address.to_string()[..]), (8, "s19:27017"));
}

#[test]
fn tags_that_no_member_has_are_said_so() {
    let mut client = Client::new(&["a", "b"], |_, _| {});
    client.learn(NOW, member("a", ServerType::RsPrimary, "rs0", &["a", "b"]));
    client.learn(NOW, member("b", ServerType::RsSecondary, "rs0", &["a", "b"]));
    let tags = [("dc".to_owned(), "la".to_owned())].into();
    let preference = ReadPreference::new(ReadMode::Secondary).with_tag_sets(vec![tags]).unwrap();

    assert_eq!(
        client.error_of(preference.into()),
        "no server became suitable for reads (mode secondary, tag sets [{\"dc\": \"la\"}]) within 30s: a:27017 is RSPrimary, \
         b:27017 is RSSecondary; no member has these tags: see which they have (rs.conf()), or widen the read preference"
    );
}

mod wire {
    use std::sync::Arc;

    use bson::{RawArrayBuf, rawdoc};
    use cmap_core::connection::{ClientMetadata, ConnectionOptions, Establish};
    use cmap_core::options::ClientOptions;
    use cmap_core::wire::{Flags, Limits, MessageIds, MessageWriter};

    #[test]
    fn a_server_that_speaks_another_protocol_is_told_by_its_name() {
        let (options, _) = ClientOptions::parse("mongodb://a/").unwrap();
        let options = Arc::new(ConnectionOptions::of_client(&options, ClientMetadata::new("Linux")));
        for (answer, name) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], "HTTP"),
            (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
            (b"-ERR unknown command\r\n", "Redis' protocol"),
        ] {
            let begun = || Establish::new(Arc::clone(&options), [0; 24]).unwrap();
            let error = begun().handle_bytes(answer).unwrap_err();
            // Byte by byte, as a network may deliver it.
            let mut slow = begun();
            let late = answer.chunks(1).find_map(|piece| slow.handle_bytes(piece).err()).unwrap();
            assert_eq!(late, error);

            let expected = format!(
                "the hello failed: the server speaks {name} at this port, and not MongoDB's protocol; check host and port"
            );
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn documents_that_are_too_long_together_are_told_from_a_document_that_is_too_long() {
        let mut documents = RawArrayBuf::new();
        for _ in 0..3 {
            documents.push(rawdoc! { "text": "x".repeat(6 << 20) });
        }
        let command = rawdoc! { "insert": "things", "documents": documents };
        let mut out = Vec::new();

        let begun = MessageWriter::begin(&mut out, MessageIds::default(), Flags::NONE, &command, &[], &Limits::DEFAULT);

        assert_eq!(
            begun.err().unwrap().to_string(),
            "the command has 18874465 bytes with all of its documents, and the server takes 16793600: use `sequence` for the items of a \
             write, which sends as many commands as they take"
        );
    }
}
