//! Documents on their way to the secondaries, and reads there.

use core::time::Duration;

use bson::rawdoc;
use cmap_core::wire::CommandReply;
use cmap_test_server::MemberRole;

use super::network::{Network, insert, member, set};

#[test]
fn a_secondary_has_what_the_primary_wrote() {
    let mut network = Network::of_three();
    let client = network.connect(0);

    network.run(client, "db", &insert(1));

    assert_eq!([network.count(0), network.count(1), network.count(2)], [1, 1, 1]);
}

#[test]
fn a_secondary_that_lags_behind_has_it_later() {
    let mut network = Network::of_three_with_lag(Duration::from_secs(2));
    let client = network.connect(0);
    network.run(client, "db", &insert(1));

    network.pass(Duration::from_millis(1_999));
    assert_eq!([network.count(0), network.count(1)], [1, 0]);
    network.pass(Duration::from_millis(1));
    assert_eq!([network.count(0), network.count(1)], [1, 1]);
}

#[test]
fn documents_are_the_same_everywhere() {
    let mut network = Network::of_three();
    let client = network.connect(0);
    let insert = rawdoc! { "insert": "c", "documents": [{ "name": "Ada" }, { "name": "Grace" }] };
    let update = rawdoc! { "update": "c", "updates": [{ "q": {}, "u": { "$inc": { "n": 1 } }, "multi": true }] };
    let out = rawdoc! { "aggregate": "c", "pipeline": [{ "$out": "d" }], "cursor": {} };
    for command in [insert, update, out] {
        network.run(client, "db", &command);
    }

    let preference = rawdoc! { "mode": "nearest" };
    let find = rawdoc! { "find": "d", "$readPreference": preference };
    let [first, second] = [0, 1].map(|member| {
        let client = network.connect(member);
        network.run(client, "db", &find).get_document("cursor").unwrap().to_owned()
    });
    assert_eq!(first, second);
}

#[test]
fn a_write_that_had_to_wait_for_its_turn_is_replicated_and_answered() {
    let mut network = Network::of_three();
    let client = network.connect(0);
    let pets: bson::RawArrayBuf = (0..20_000).map(|_| rawdoc! { "x": 1 }).collect();
    let insert = rawdoc! { "insert": "c", "documents": pets, "writeConcern": { "w": 1 } };
    network.run(client, "db", &insert);
    network.pass(Duration::from_secs(60));
    let any: bson::RawArrayBuf = (0..30).map(|y| rawdoc! { "y": y }).collect();
    network.run(client, "db", &rawdoc! { "count": "c", "query": { "$or": any } });

    network.start(client, "db", &rawdoc! { "insert": "d", "documents": [{}] });
    assert!(network.finish(client).is_none(), "it waits");
    network.pass(Duration::from_secs(10));

    let reply = network.finish(client).unwrap();
    assert_eq!(reply.get_i32("n").unwrap(), 1);
}

#[test]
fn a_read_on_a_secondary_needs_a_read_preference() {
    let mut network = Network::of_three();
    let client = network.connect(1);

    assert_eq!(network.fail(client, "db", &rawdoc! { "find": "c" }).code, Some(13435));
    let primary = rawdoc! { "find": "c", "$readPreference": { "mode": "primary" } };
    assert_eq!(network.fail(client, "db", &primary).code, Some(13435));
    network.run(client, "db", &rawdoc! { "find": "c", "$readPreference": { "mode": "secondary" } });
}

#[test]
fn a_write_on_a_secondary_is_refused() {
    let mut network = Network::of_three();
    let client = network.connect(1);

    assert_eq!(network.fail(client, "db", &insert(1)).code, Some(10107));
}

#[test]
fn an_aggregation_that_writes_is_not_supported_on_a_secondary() {
    let mut network = Network::of_three();
    let client = network.connect(1);
    let mut aggregate = rawdoc! { "aggregate": "c", "pipeline": [{ "$out": "d" }], "cursor": {} };
    assert_eq!(network.fail(client, "db", &aggregate).code, Some(10107));

    aggregate.append(bson::cstr!("$readPreference"), rawdoc! { "mode": "secondary" });

    assert_eq!(network.fail(client, "db", &aggregate).code, Some(115));
}

#[test]
fn an_arbiter_has_no_documents() {
    let mut network = Network::new(set([member(0), member(1).with_role(MemberRole::Arbiter)]));
    let client = network.connect(1);

    let find = rawdoc! { "find": "c", "$readPreference": { "mode": "secondaryPreferred" } };

    assert_eq!(network.fail(client, "db", &find).code, Some(13436));
    assert_eq!(network.fail(client, "db", &insert(1)).code, Some(10107));
}

#[test]
fn a_read_after_a_cluster_time_waits_for_it() {
    let mut network = Network::of_three_with_lag(Duration::from_secs(2));
    let (primary, secondary) = (network.connect(0), network.connect(1));
    let time = network.run(primary, "db", &insert(1)).get_timestamp("operationTime").unwrap();

    let mut count = rawdoc! { "count": "c", "$readPreference": { "mode": "secondary" } };
    count.append(bson::cstr!("readConcern"), rawdoc! { "afterClusterTime": time });
    network.start(secondary, "db", &count);

    network.pass(Duration::from_millis(1_999));
    assert!(network.finish(secondary).is_none());
    network.pass(Duration::from_millis(1));
    assert_eq!(network.finish(secondary).unwrap().get_i32("n").unwrap(), 1);
}

#[test]
fn a_read_that_waits_for_too_long_fails() {
    let mut network = Network::of_three_with_lag(Duration::from_secs(60));
    let (primary, secondary) = (network.connect(0), network.connect(1));
    let time = network.run(primary, "db", &insert(1)).get_timestamp("operationTime").unwrap();
    let mut count = rawdoc! { "count": "c", "$readPreference": { "mode": "secondary" }, "maxTimeMS": 100 };
    count.append(bson::cstr!("readConcern"), rawdoc! { "afterClusterTime": time });

    network.start(secondary, "db", &count);
    network.pass(Duration::from_millis(100));

    assert_eq!(CommandReply::read(&network.finish(secondary).unwrap()).failure().unwrap().code, Some(50));
}

#[test]
fn a_majority_read_waits_until_a_majority_has_what_it_sees() {
    let mut network = Network::of_three_with_lag(Duration::from_secs(2));
    let (writer, reader) = (network.connect(0), network.connect(0));
    network.run(writer, "db", &insert(1));

    network.start(reader, "db", &rawdoc! { "count": "c", "readConcern": { "level": "majority" } });

    assert!(network.finish(reader).is_none());
    network.pass(Duration::from_secs(2));
    assert_eq!(network.finish(reader).unwrap().get_i32("n").unwrap(), 1);
}

#[test]
fn a_linearizable_read_needs_the_primary() {
    let mut network = Network::of_three();
    let client = network.connect(1);
    let concern = rawdoc! { "level": "linearizable" };

    let find = rawdoc! { "find": "c", "$readPreference": { "mode": "secondary" }, "readConcern": concern };

    assert_eq!(network.fail(client, "db", &find).code, Some(10107));
}

#[test]
fn a_tailable_cursor_on_a_secondary_sees_what_the_primary_wrote() {
    let mut network = Network::of_three();
    let (primary, secondary) = (network.connect(0), network.connect(1));
    network.run(primary, "db", &rawdoc! { "create": "c", "capped": true, "size": 100_000 });
    network.run(primary, "db", &insert(1));
    let find = rawdoc! { "find": "c", "tailable": true, "awaitData": true, "$readPreference": { "mode": "secondary" } };
    let cursor = network.run(secondary, "db", &find).get_document("cursor").unwrap().get_i64("id").unwrap();
    let get_more = rawdoc! { "getMore": cursor, "collection": "c", "maxTimeMS": 10_000 };
    network.start(secondary, "db", &get_more);
    assert!(network.finish(secondary).is_none());

    network.run(primary, "db", &insert(2));

    let batch = network.finish(secondary).unwrap();
    assert_eq!(batch.get_document("cursor").unwrap().get_array("nextBatch").unwrap().into_iter().count(), 1);
}

#[test]
fn the_status_tells_how_far_each_member_has_got() {
    let mut network = Network::of_three_with_lag(Duration::from_secs(60));
    let client = network.connect(0);
    network.run(client, "db", &insert(1));
    network.kill(2);

    let status = network.admin(0, &rawdoc! { "replSetGetStatus": 1 });

    let members = status.get_array("members").unwrap();
    let member = |index: usize| members.get_document(index).unwrap();
    let states: Vec<_> = (0..3).map(|index| member(index).get_str("stateStr").unwrap()).collect();
    assert_eq!(states, ["PRIMARY", "SECONDARY", "(not reachable/healthy)"]);
    let time = |index: usize| member(index).get_document("optime").unwrap().get_timestamp("ts").unwrap().increment;
    assert_eq!(time(0) - time(1), 2, "its election and one write");
}
