//! The mongos of a sharded cluster.

use bson::rawdoc;
use cmap_test_server::DeploymentConfig;

use super::network::{Network, insert, retryable_insert, server_config};

fn two_mongos() -> Network {
    let hosts = (0..2).map(|number| format!("mongos{number}:27017"));
    Network::new(DeploymentConfig::sharded(server_config(), hosts))
}

#[test]
fn each_says_that_it_is_a_mongos() {
    let mut network = two_mongos();

    for member in 0..2 {
        let hello = network.hello(member);
        assert_eq!(hello.get_str("msg").unwrap(), "isdbgrid");
        assert!(hello.get_bool("isWritablePrimary").unwrap() && hello.get("setName").unwrap().is_none());
        assert_eq!(network.admin(member, &rawdoc! { "serverStatus": 1 }).get_str("process").unwrap(), "mongos");
    }
}

#[test]
fn both_have_the_same_documents() {
    let mut network = two_mongos();
    let (first, second) = (network.connect(0), network.connect(1));

    network.run(first, "db", &insert(1));
    network.run(second, "db", &insert(2));

    assert_eq!([network.count(0), network.count(1)], [2, 2]);
    let duplicate = network.run(first, "db", &insert(2));
    assert!(duplicate.get_array("writeErrors").is_ok());
}

#[test]
fn a_write_that_is_sent_again_through_the_other_is_done_once() {
    let mut network = two_mongos();
    let (first, second) = (network.connect(0), network.connect(1));
    network.run(first, "db", &retryable_insert(1, 1));

    let reply = network.run(second, "db", &retryable_insert(1, 1));

    assert!(reply.get("writeErrors").unwrap().is_none());
    assert_eq!(network.count(1), 1);
}

#[test]
fn a_cursor_belongs_to_the_mongos_that_opened_it() {
    let mut network = two_mongos();
    let (first, second) = (network.connect(0), network.connect(1));
    network.run(first, "db", &rawdoc! { "insert": "c", "documents": [{}, {}, {}] });
    let reply = network.run(first, "db", &rawdoc! { "find": "c", "batchSize": 1 });
    let cursor = reply.get_document("cursor").unwrap().get_i64("id").unwrap();

    let get_more = rawdoc! { "getMore": cursor, "collection": "c" };

    assert_eq!(network.fail(second, "db", &get_more).code, Some(43));
    network.run(first, "db", &get_more);
}

#[test]
fn one_that_was_killed_has_all_when_it_is_back() {
    let mut network = two_mongos();
    let second = network.connect(1);
    network.kill(0);
    network.run(second, "db", &insert(1));

    network.restart(0);

    assert_eq!(network.count(0), 1);
}

#[test]
fn the_documents_outlive_all_mongos() {
    let mut network = two_mongos();
    network.kill(0);
    let second = network.connect(1);
    network.run(second, "db", &insert(1));
    network.kill(1);

    network.restart(0);

    assert_eq!(network.count(0), 1);
    let first = network.connect(0);
    network.run(first, "db", &insert(2));
    network.restart(1);
    assert_eq!(network.count(1), 2);
}
