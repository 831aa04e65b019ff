//! A set whose configuration changes.

use core::time::Duration;

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};

use super::network::{Network, hosts, insert};

fn reconfig(version: i32, members: impl IntoIterator<Item = RawDocumentBuf>) -> RawDocumentBuf {
    let members: RawArrayBuf = members.into_iter().collect();
    rawdoc! { "replSetReconfig": { "_id": "rs0", "version": version, "members": members } }
}

fn member(id: i32) -> RawDocumentBuf {
    rawdoc! { "_id": id, "host": format!("host{id}:27017") }
}

fn version(hello: &RawDocument) -> i32 {
    hello.get_i32("setVersion").unwrap()
}

#[test]
fn the_configuration_that_a_member_tells_can_be_given_back() {
    let mut network = Network::of_three();
    let config = network.admin(0, &rawdoc! { "replSetGetConfig": 1 }).get_document("config").unwrap().to_owned();
    let mut changed = RawDocumentBuf::new();
    for (name, value) in config.iter().map(Result::unwrap).filter(|(name, _)| name.as_str() != "version") {
        changed.append(name, value);
    }
    changed.append(bson::cstr!("version"), 2);

    network.admin(0, &rawdoc! { "replSetReconfig": changed });

    assert_eq!(version(&network.hello(1)), 2);
}

#[test]
fn a_member_that_is_added_copies_the_documents() {
    let mut network = Network::of_three();
    let client = network.connect(0);
    network.run(client, "db", &insert(1));

    network.run(client, "admin", &reconfig(2, (0..4).map(member)));

    assert_eq!(network.listening, [(3, Some("host3:27017".into()))]);
    assert_eq!(network.count(3), 1);
    assert_eq!(hosts(&network.hello(1), "hosts").len(), 4);
    network.run(client, "db", &insert(2));
    assert_eq!(network.count(3), 2);
}

#[test]
fn a_member_that_is_removed_belongs_to_no_set() {
    let mut network = Network::of_three();

    network.admin(0, &reconfig(2, (0..2).map(member)));

    let hello = network.hello(2);
    assert!(hello.get_bool("isreplicaset").unwrap() && hello.get("setName").unwrap().is_none());
    assert!(!hello.get_bool("isWritablePrimary").unwrap() && !hello.get_bool("secondary").unwrap());
    assert_eq!(hosts(&network.hello(0), "hosts"), ["host0:27017", "host1:27017"]);
    let client = network.connect(2);
    let find = rawdoc! { "find": "c", "$readPreference": { "mode": "nearest" } };
    assert_eq!(network.fail(client, "db", &find).code, Some(13436));
}

#[test]
fn a_member_that_is_hidden_is_listed_no_more() {
    let mut network = Network::of_three();
    let hidden = rawdoc! { "_id": 2, "host": "host2:27017", "priority": 0, "hidden": true };

    network.admin(0, &reconfig(2, [member(0), member(1), hidden]));

    assert_eq!(hosts(&network.hello(0), "hosts"), ["host0:27017", "host1:27017"]);
    assert!(network.hello(2).get_bool("hidden").unwrap());
}

#[test]
fn tags_change_with_the_version() {
    let mut network = Network::of_three();
    let before = network.hello(1).get_document("topologyVersion").unwrap().get_i64("counter").unwrap();
    let tagged = rawdoc! { "_id": 1, "host": "host1:27017", "tags": { "dc": "sf" } };

    network.admin(0, &reconfig(7, [member(0), tagged, member(2)]));

    let hello = network.hello(1);
    assert_eq!((version(&hello), hello.get_document("tags").unwrap().get_str("dc").unwrap()), (7, "sf"));
    assert!(hello.get_document("topologyVersion").unwrap().get_i64("counter").unwrap() > before);
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused() {
    let mut network = Network::of_three();
    let (primary, secondary) = (network.connect(0), network.connect(1));
    let hidden = rawdoc! { "_id": 1, "host": "host1:27017", "hidden": true };
    let elsewhere = rawdoc! { "_id": 1, "host": "host9:27017" };
    for (members, version, code) in [
        (vec![member(0), member(1)], 1, 103),
        (vec![member(1), member(2)], 2, 103),
        (vec![member(0), elsewhere], 2, 103),
        (vec![member(0), hidden], 2, 93),
        (vec![member(0), member(0)], 2, 93),
        (vec![], 2, 93),
    ] {
        let command = reconfig(version, members);
        assert_eq!(network.fail(primary, "admin", &command).code, Some(code), "{command:?}");
    }
    assert_eq!(network.fail(secondary, "admin", &reconfig(2, (0..3).map(member))).code, Some(10107));
    assert_eq!(version(&network.hello(0)), 1);
}

#[test]
fn the_test_itself_can_remove_the_primary() {
    let mut network = Network::of_three();
    let mut set = cmap_test_server::SetConfig::new("rs0", (1..3).map(super::network::member).collect());
    set.version = 2;

    network.deployment.reconfigure(network.now, set);
    network.pass(Duration::from_millis(50));

    assert_eq!(network.primary(), Some(1));
}
