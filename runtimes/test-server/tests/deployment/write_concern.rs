//! Writes that wait for other members.

use core::time::Duration;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use cmap_test_server::MemberRole;

use super::network::{Network, insert, member, set};

fn insert_with(concern: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! { "insert": "c", "documents": [{}], "writeConcern": concern }
}

fn error_code(reply: &RawDocument) -> Option<i32> {
    reply.get_document("writeConcernError").ok().map(|error| error.get_i32("code").unwrap())
}

#[test]
fn a_write_waits_for_as_many_members_as_it_says() {
    let mut network = Network::of_three();
    network.set_lag(1, Duration::from_secs(1));
    network.set_lag(2, Duration::from_secs(2));
    for (w, delay) in [(bson::RawBson::from(1), 0), (2.into(), 1_000), (3.into(), 2_000), ("majority".into(), 1_000)] {
        let client = network.connect(0);
        network.start(client, "db", &insert_with(rawdoc! { "w": w.clone() }));
        if delay > 0 {
            network.pass(Duration::from_millis(delay - 1));
            assert!(network.finish(client).is_none(), "{w:?}");
            network.pass(Duration::from_millis(1));
        }
        let reply = network.finish(client).unwrap();
        assert_eq!((reply.get_i32("n").unwrap(), error_code(&reply)), (1, None), "{w:?}");
        network.pass(Duration::from_secs(10));
    }
}

#[test]
fn a_write_that_says_nothing_waits_for_a_majority() {
    let mut network = Network::of_three_with_lag(Duration::from_secs(1));
    let client = network.connect(0);

    network.start(client, "db", &rawdoc! { "insert": "c", "documents": [{}] });

    assert!(network.finish(client).is_none());
    network.pass(Duration::from_secs(1));
    assert!(network.finish(client).is_some());
}

#[test]
fn a_write_that_says_nothing_waits_for_no_other_member_where_an_arbiter_could_make_that_impossible() {
    let mut network = Network::new(set([member(0), member(1), member(2).with_role(MemberRole::Arbiter)]));
    network.kill(1);
    let client = network.connect(0);

    let reply = network.run(client, "db", &rawdoc! { "insert": "c", "documents": [{}] });

    assert_eq!(reply.get_i32("n").unwrap(), 1);
}

#[test]
fn a_write_whose_wait_is_over_was_done_all_the_same() {
    let mut network = Network::of_three_with_lag(Duration::from_secs(60));
    let client = network.connect(0);

    network.start(client, "db", &insert_with(rawdoc! { "w": "majority", "wtimeout": 100 }));
    network.pass(Duration::from_millis(100));

    let reply = network.finish(client).unwrap();
    assert_eq!((reply.get_i32("n").unwrap(), error_code(&reply)), (1, Some(64)));
    let information = reply.get_document("writeConcernError").unwrap().get_document("errInfo").unwrap();
    assert!(information.get_bool("wtimeout").unwrap());
}

#[test]
fn the_time_limit_of_a_command_ends_its_wait() {
    let mut network = Network::of_three_with_lag(Duration::from_secs(60));
    let client = network.connect(0);
    let mut insert = insert_with(rawdoc! { "w": 2 });
    insert.append(bson::cstr!("maxTimeMS"), 100);

    network.start(client, "db", &insert);
    network.pass(Duration::from_millis(100));

    assert_eq!(error_code(&network.finish(client).unwrap()), Some(50));
}

#[test]
fn a_write_that_more_members_must_have_than_there_are_is_told_at_once() {
    let mut network = Network::of_three();
    let client = network.connect(0);

    let reply = network.run(client, "db", &insert_with(rawdoc! { "w": 4 }));

    assert_eq!((reply.get_i32("n").unwrap(), error_code(&reply)), (1, Some(100)));
}

#[test]
fn a_write_that_waits_is_interrupted_when_the_primary_steps_down() {
    let mut network = Network::of_three_with_lag(Duration::from_secs(60));
    let (client, admin) = (network.connect(0), network.connect(0));
    network.start(client, "db", &insert_with(rawdoc! { "w": 3 }));

    network.run(admin, "admin", &rawdoc! { "replSetStepDown": 10 });

    assert_eq!(error_code(&network.finish(client).unwrap()), Some(11602));
}

#[test]
fn a_member_that_is_down_holds_a_write_up_until_it_is_back() {
    let mut network = Network::of_three();
    network.kill(2);
    let client = network.connect(0);
    network.start(client, "db", &insert_with(rawdoc! { "w": 3 }));
    network.pass(Duration::from_secs(60));
    assert!(network.finish(client).is_none());

    network.restart(2);

    assert_eq!(error_code(&network.finish(client).unwrap()), None);
}

#[test]
fn an_arbiter_acknowledges_nothing() {
    let mut network = Network::new(set([member(0), member(1), member(2).with_role(MemberRole::Arbiter)]));
    network.set_lag(1, Duration::from_secs(1));
    let client = network.connect(0);
    network.start(client, "db", &insert_with(rawdoc! { "w": 2 }));
    assert!(network.finish(client).is_none());
    network.pass(Duration::from_secs(1));
    assert!(network.finish(client).is_some());

    let reply = network.run(client, "db", &insert_with(rawdoc! { "w": 3 }));
    assert_eq!(error_code(&reply), Some(100));
    network.run(client, "db", &insert(7));
}

#[test]
fn a_write_whose_client_was_hung_up_on_holds_no_other_command_up() {
    let mut network = Network::of_three();
    [1, 2].into_iter().for_each(|member| network.set_lag(member, Duration::MAX));
    let fail_point =
        rawdoc! { "configureFailPoint": "onPrimaryTransactionalWrite", "mode": { "times": 1 }, "data": {} };
    network.admin(0, &fail_point);
    let client = network.connect(0);
    let mut insert = insert_with(rawdoc! { "w": "majority" });
    let session = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![3; 16] };
    insert.append(bson::cstr!("lsid"), rawdoc! { "id": session });
    insert.append(bson::cstr!("txnNumber"), 1_i64);

    network.start(client, "db", &insert);

    assert!(network.has_hung_up_on(client));
    network.hello(0);
}
