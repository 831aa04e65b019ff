//! Members that were killed and are started again: what they have, and what they lose.

use core::time::Duration;

use bson::rawdoc;

use super::network::{Network, insert, retryable_insert};

#[test]
fn a_member_that_is_back_catches_up() {
    let mut network = Network::of_three();
    let client = network.connect(0);
    network.run(client, "db", &insert(1));
    network.kill(2);
    network.run(client, "db", &insert(2));

    network.restart(2);

    assert_eq!(network.count(2), 2);
    assert_eq!(network.listening, [(2, None), (2, Some("host2:27017".into()))]);
}

#[test]
fn a_primary_that_is_back_is_a_secondary() {
    let mut network = Network::of_three();
    network.kill(0);
    network.pass(Duration::from_millis(500));

    network.restart(0);

    let hello = network.hello(0);
    assert!(hello.get_bool("secondary").unwrap());
    assert_eq!(hello.get_str("primary").unwrap(), "host1:27017");
}

#[test]
fn a_member_that_is_back_is_another_process() {
    let mut network = Network::of_three();
    let process = |network: &mut Network| {
        network.hello(1).get_document("topologyVersion").unwrap().get_object_id("processId").unwrap()
    };
    let before = process(&mut network);

    network.kill(1);
    network.restart(1);

    assert_ne!(process(&mut network), before);
}

#[test]
fn what_only_the_old_primary_had_is_lost() {
    let mut network = Network::of_three_with_lag(Duration::from_secs(60));
    let client = network.connect(0);
    network.run(client, "db", &insert(1));

    network.kill(0);
    network.pass(Duration::from_millis(500));
    assert_eq!((network.primary(), network.count(1)), (Some(1), 0));

    network.restart(0);
    assert_eq!(network.count(0), 0);
}

#[test]
fn what_a_majority_had_is_kept() {
    let mut network = Network::of_three_with_lag(Duration::from_millis(10));
    let client = network.connect(0);
    let insert = rawdoc! { "insert": "c", "documents": [{}], "writeConcern": { "w": "majority" } };
    network.start(client, "db", &insert);
    network.pass(Duration::from_millis(10));
    assert!(network.finish(client).is_some());

    network.kill(0);
    network.pass(Duration::from_millis(500));

    assert_eq!(network.count(1), 1);
}

#[test]
fn a_write_that_is_sent_again_to_the_next_primary_is_done_once() {
    let mut network = Network::of_three();
    let client = network.connect(0);
    network.run(client, "db", &retryable_insert(1, 1));
    network.kill(0);
    network.pass(Duration::from_millis(500));

    let client = network.connect(1);
    let reply = network.run(client, "db", &retryable_insert(1, 1));

    assert_eq!(reply.get_i32("n").unwrap(), 1);
    assert!(reply.get("writeErrors").unwrap().is_none());
    assert_eq!(network.count(1), 1);
}

#[test]
fn a_set_that_was_down_as_a_whole_has_its_documents_again() {
    let mut network = Network::of_three();
    let client = network.connect(0);
    network.run(client, "db", &insert(1));
    (0..3).for_each(|member| network.kill(member));
    network.pass(Duration::from_secs(10));

    (0..3).for_each(|member| network.restart(member));
    network.pass(Duration::from_millis(500));

    assert!(network.primary().is_some());
    assert_eq!([network.count(0), network.count(1), network.count(2)], [1, 1, 1]);
}

#[test]
fn clients_can_kill_and_restart_members() {
    let mut network = Network::of_three();
    let client = network.connect(0);

    network.run(client, "admin", &rawdoc! { "testDeployment": "kill", "member": "host0:27017" });
    assert!(network.has_hung_up_on(client), "after the reply");
    network.pass(Duration::from_millis(500));
    network.admin(1, &rawdoc! { "testDeployment": "restart", "member": "host0:27017" });

    assert!(network.hello(0).get_bool("secondary").unwrap());
    let lag = rawdoc! { "testDeployment": "lag", "member": "host0:27017", "milliseconds": 1000 };
    network.admin(1, &lag);
    let client = network.connect(1);
    network.run(client, "db", &insert(1));
    assert_eq!(network.count(0), 0);
    let unknown = rawdoc! { "testDeployment": "kill", "member": "host9:27017" };
    assert_eq!(network.fail(client, "admin", &unknown).code, Some(74));
}

#[test]
fn what_is_on_its_way_from_a_primary_that_is_killed_does_not_arrive() {
    let mut network = Network::of_three_with_lag(Duration::from_millis(100));
    let client = network.connect(0);
    network.run(client, "db", &insert(1));

    network.kill(0);
    network.pass(Duration::from_millis(500));

    assert_eq!([network.count(1), network.count(2)], [0, 0]);
}

#[test]
fn no_number_of_a_connection_is_used_twice() {
    let mut network = Network::of_three();
    let before = network.hello(1).get_i32("connectionId").unwrap();

    network.kill(1);
    network.restart(1);

    assert!(network.hello(1).get_i32("connectionId").unwrap() > before);
}

#[test]
fn a_member_that_needs_more_than_the_log_has_copies_the_documents() {
    let mut network = Network::of_three();
    network.set_lag(2, Duration::MAX);
    let client = network.connect(0);
    let text = "x".repeat(9_000_000);

    for id in 0..10 {
        let documents: bson::RawArrayBuf = [rawdoc! { "_id": id, "text": text.as_str() }].into_iter().collect();
        network.run(client, "db", &rawdoc! { "insert": "c", "documents": documents });
    }

    assert!((1..10).contains(&network.count(2)), "it lags behind by what the log has");
}
