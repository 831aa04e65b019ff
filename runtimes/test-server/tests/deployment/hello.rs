//! What the members say of their set.

use core::time::Duration;

use bson::rawdoc;
use cmap_core::wire::Flags;
use cmap_test_server::MemberRole;

use super::network::{Network, hosts, member, set};

#[test]
fn every_member_names_all_that_clients_may_know() {
    let mut network = Network::new(set([
        member(0),
        member(1),
        member(2).with_role(MemberRole::Passive),
        member(3).with_role(MemberRole::Hidden),
        member(4).with_role(MemberRole::Arbiter),
    ]));

    for id in 0..5 {
        let hello = network.hello(id);
        assert_eq!(hello.get_str("setName").unwrap(), "rs0");
        assert_eq!(hello.get_str("me").unwrap(), format!("host{id}:27017"));
        assert_eq!(hello.get_str("primary").unwrap(), "host0:27017");
        assert_eq!(hosts(&hello, "hosts"), ["host0:27017", "host1:27017"]);
        assert_eq!(hosts(&hello, "passives"), ["host2:27017"]);
        assert_eq!(hosts(&hello, "arbiters"), ["host4:27017"]);
        assert_eq!(hello.get_bool("isWritablePrimary").unwrap(), id == 0);
        assert_eq!(hello.get_bool("secondary").unwrap(), (1..4).contains(&id));
        assert_eq!(hello.get_bool("passive").unwrap_or_default(), id == 2 || id == 3);
        assert_eq!(hello.get_bool("hidden").unwrap_or_default(), id == 3);
        assert_eq!(hello.get_bool("arbiterOnly").unwrap_or_default(), id == 4);
        assert_eq!(hello.get("electionId").unwrap().is_some(), id == 0, "the primary alone tells its election");
    }
}

#[test]
fn a_member_tells_its_tags() {
    let mut network = Network::new(set([member(0), member(1).with_tag("dc", "ny").with_tag("use", "reporting")]));

    let hello = network.hello(1);

    assert_eq!(hello.get_document("tags").unwrap(), &*rawdoc! { "dc": "ny", "use": "reporting" });
    assert!(network.hello(0).get("tags").unwrap().is_none());
}

#[test]
fn a_secondary_that_lags_behind_has_an_older_last_write() {
    let mut network = Network::of_three_with_lag(Duration::from_secs(120));
    network.pass(Duration::from_secs(300));

    let date =
        |hello: &bson::RawDocument| hello.get_document("lastWrite").unwrap().get_datetime("lastWriteDate").unwrap();
    let (primary, secondary) = (date(&network.hello(0)), date(&network.hello(1)));

    assert_eq!(primary.timestamp_millis() - secondary.timestamp_millis(), 120_000);
}

#[test]
fn a_hello_that_streams_tells_of_an_election_at_once() {
    let mut network = Network::of_three();
    let watcher = network.connect(1);
    let known = network.run(watcher, "admin", &rawdoc! { "hello": 1 });
    let known = known.get_document("topologyVersion").unwrap().to_owned();
    let hello = rawdoc! { "hello": 1, "topologyVersion": known, "maxAwaitTimeMS": 60_000 };
    network.start_with(watcher, Flags::EXHAUST_ALLOWED, "admin", &hello);
    assert!(network.replies(watcher).is_empty());

    network.admin(0, &rawdoc! { "replSetStepDown": 10 });
    network.pass(Duration::from_millis(50));

    let replies = network.replies(watcher);
    let counters: Vec<_> =
        replies.iter().map(|it| it.get_document("topologyVersion").unwrap().get_i64("counter").unwrap()).collect();
    assert!(counters.windows(2).all(|pair| pair[0] < pair[1]), "{counters:?}");
    assert!(replies.first().unwrap().get("primary").unwrap().is_none());
    assert_eq!(replies.last().unwrap().get_str("primary").unwrap(), "host1:27017");
}

#[test]
fn every_member_has_a_process_and_connections_of_its_own() {
    let mut network = Network::of_three();

    let hellos = [network.hello(0), network.hello(1), network.hello(2)];

    let process =
        |index: usize| hellos[index].get_document("topologyVersion").unwrap().get_object_id("processId").unwrap();
    assert!(process(0) != process(1) && process(1) != process(2));
    let connection = |index: usize| hellos[index].get_i32("connectionId").unwrap();
    assert!(connection(0) != connection(1) && connection(1) != connection(2));
}
