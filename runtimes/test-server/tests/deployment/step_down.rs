//! A primary that steps down: what its clients see, and who takes over.

use core::time::Duration;

use bson::rawdoc;
use cmap_core::wire::CommandReply;

use super::network::{Network, insert, member, retryable_insert, set};

const HANDOVER: Duration = Duration::from_millis(50);

#[test]
fn another_member_takes_over_and_connections_survive() {
    let mut network = Network::of_three();
    let (old, new) = (network.connect(0), network.connect(1));

    network.run(old, "admin", &rawdoc! { "replSetStepDown": 10 });
    network.pass(HANDOVER);

    assert_eq!(network.primary(), Some(1));
    assert!(!network.has_hung_up_on(old));
    assert_eq!(network.fail(old, "db", &insert(1)).code, Some(10107));
    assert_eq!(network.run(new, "db", &insert(1)).get_i32("n").unwrap(), 1);
}

#[test]
fn the_error_of_a_member_that_is_no_longer_primary_has_its_topology_version_and_label() {
    let mut network = Network::of_three();
    let client = network.connect(0);
    network.run(client, "admin", &rawdoc! { "replSetStepDown": 10 });

    network.start(client, "db", &retryable_insert(1, 1));

    let reply = network.finish(client).unwrap();
    let hello = network.hello(0);
    assert_eq!(reply.get_document("topologyVersion").unwrap(), hello.get_document("topologyVersion").unwrap());
    assert_eq!(CommandReply::read(&reply).failure().unwrap().labels, ["RetryableWriteError"]);
}

#[test]
fn there_is_no_primary_until_another_one_is_elected() {
    let mut network = Network::of_three();

    network.admin(0, &rawdoc! { "replSetStepDown": 10 });

    assert_eq!(network.primary(), None);
    assert!(network.hello(2).get("primary").unwrap().is_none());
}

#[test]
fn a_member_that_stepped_down_is_not_elected_before_its_time() {
    let mut network = Network::new(set([member(0), member(1)]));
    network.set_lag(1, Duration::MAX);
    let client = network.connect(0);
    network.run(client, "db", &insert(1));

    network.run(client, "admin", &rawdoc! { "replSetStepDown": 10, "force": true });

    network.pass(Duration::from_millis(9_999));
    assert_eq!(network.primary(), None);
    network.pass(Duration::from_millis(1));
    assert_eq!(network.primary(), Some(0));
}

#[test]
fn without_a_successor_it_takes_force() {
    let mut network = Network::of_three();
    network.set_lag(1, Duration::MAX);
    network.set_lag(2, Duration::MAX);
    let client = network.connect(0);

    assert_eq!(network.fail(client, "admin", &rawdoc! { "replSetStepDown": 10 }).code, Some(262));
    assert_eq!(network.primary(), Some(0));
}

#[test]
fn the_successor_has_caught_up() {
    let mut network = Network::of_three_with_lag(Duration::from_secs(60));
    let client = network.connect(0);
    network.run(client, "db", &insert(1));

    network.run(client, "admin", &rawdoc! { "replSetStepDown": 10 });
    network.pass(HANDOVER);

    assert_eq!((network.primary(), network.count(1)), (Some(1), 1));
}

#[test]
fn a_cursor_goes_on_on_the_member_that_opened_it() {
    let mut network = Network::of_three();
    let client = network.connect(0);
    let documents = rawdoc! { "insert": "c", "documents": [{}, {}, {}] };
    network.run(client, "db", &documents);
    let reply = network.run(client, "db", &rawdoc! { "find": "c", "batchSize": 2 });
    let cursor = reply.get_document("cursor").unwrap().get_i64("id").unwrap();

    network.run(client, "admin", &rawdoc! { "replSetStepDown": 10 });

    let more = network.run(client, "db", &rawdoc! { "getMore": cursor, "collection": "c" });
    assert_eq!(more.get_document("cursor").unwrap().get_array("nextBatch").unwrap().into_iter().count(), 1);
}

#[test]
fn a_write_that_runs_is_interrupted() {
    let mut network = Network::of_three();
    let (client, admin) = (network.connect(0), network.connect(0));
    network.run(client, "db", &insert(1));
    let statement = rawdoc! { "q": { "$where": "sleep(1000) || true" }, "u": { "$set": { "x": 1 } } };
    network.start(client, "db", &rawdoc! { "update": "c", "updates": [statement] });
    assert!(network.finish(client).is_none());

    network.run(admin, "admin", &rawdoc! { "replSetStepDown": 10 });

    let reply = network.finish(client).unwrap();
    assert_eq!(CommandReply::read(&reply).failure().unwrap().code, Some(11602));
}

#[test]
fn a_read_that_runs_goes_on() {
    let mut network = Network::of_three();
    let (client, admin) = (network.connect(0), network.connect(0));
    network.run(client, "db", &insert(1));
    network.start(client, "db", &rawdoc! { "find": "c", "filter": { "$where": "sleep(1000) || true" } });

    network.run(admin, "admin", &rawdoc! { "replSetStepDown": 10 });
    network.pass(Duration::from_secs(1));

    assert!(CommandReply::read(&network.finish(client).unwrap()).ok);
}

#[test]
fn a_frozen_member_is_not_elected() {
    let mut network = Network::of_three();
    network.admin(1, &rawdoc! { "replSetFreeze": 60 });

    network.admin(0, &rawdoc! { "replSetStepDown": 10 });
    network.pass(HANDOVER);

    assert_eq!(network.primary(), Some(2));
}

#[test]
fn an_end_of_the_freeze_leads_to_an_election() {
    let mut network = Network::of_three();
    network.admin(1, &rawdoc! { "replSetFreeze": 60 });
    network.admin(2, &rawdoc! { "replSetFreeze": 60 });
    network.admin(0, &rawdoc! { "replSetStepDown": 60, "force": true });
    network.pass(Duration::from_secs(1));
    assert_eq!(network.primary(), None);

    network.admin(2, &rawdoc! { "replSetFreeze": 0 });
    network.pass(HANDOVER);

    assert_eq!(network.primary(), Some(2));
}
