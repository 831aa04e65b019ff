//! Change streams of deployments: members that show the same, elections, and what they take back.

use core::time::Duration;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use cmap_test_server::DeploymentConfig;

use super::network::{Client, Network, insert, server_config};

/// Opens a stream of `db.c`, whichever member it is of.
fn watch(network: &mut Network, client: Client, stage: RawDocumentBuf) -> RawDocumentBuf {
    let preference = rawdoc! { "mode": "secondaryPreferred" };
    let aggregate = rawdoc! {
        "aggregate": "c", "pipeline": [{ "$changeStream": stage }], "cursor": {}, "$readPreference": preference,
    };
    network.run(client, "db", &aggregate)
}

fn cursor(reply: &RawDocument) -> &RawDocument {
    reply.get_document("cursor").unwrap()
}

fn get_more(network: &mut Network, client: Client, opened: &RawDocument) -> RawDocumentBuf {
    start_get_more(network, client, opened);
    network.pass(Duration::from_millis(1));
    network.finish(client).unwrap()
}

fn start_get_more(network: &mut Network, client: Client, opened: &RawDocument) {
    let id = cursor(opened).get_i64("id").unwrap();
    network.start(client, "db", &rawdoc! { "getMore": id, "collection": "c", "maxTimeMS": 1 });
}

fn events(reply: &RawDocument) -> Vec<RawDocumentBuf> {
    let batch = cursor(reply).get_array("nextBatch").or_else(|_| cursor(reply).get_array("firstBatch")).unwrap();
    batch.into_iter().map(|event| event.unwrap().as_document().unwrap().to_owned()).collect()
}

fn keys(reply: &RawDocument) -> Vec<i32> {
    let key = |event: &RawDocumentBuf| event.get_document("documentKey").unwrap().get_i32("_id").unwrap();
    events(reply).iter().map(key).collect()
}

fn token(reply: &RawDocument) -> RawDocumentBuf {
    cursor(reply).get_document("postBatchResumeToken").unwrap().to_owned()
}

#[test]
fn all_members_show_the_same_events_with_the_same_tokens() {
    let mut network = Network::of_three();
    let clients = [0, 1, 2].map(|member| network.connect(member));
    let opened = clients.map(|client| watch(&mut network, client, rawdoc! {}));
    network.pass(Duration::from_secs(5));

    network.run(clients[0], "db", &insert(1));
    network.run(clients[0], "db", &rawdoc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "x": 1 } } }] });
    network.run(clients[0], "db", &rawdoc! { "drop": "c" });

    let mut seen = Vec::new();
    for (client, opened) in clients.into_iter().zip(&opened) {
        seen.push(events(&get_more(&mut network, client, opened)));
    }
    assert_eq!(seen[0].len(), 4, "the last one says that the stream is invalid");
    assert!(seen[0] == seen[1] && seen[1] == seen[2], "{seen:?}");
}

#[test]
fn a_stream_goes_on_at_another_member_after_a_failover() {
    let mut network = Network::of_three();
    let client = network.connect(0);
    let opened = watch(&mut network, client, rawdoc! {});
    network.run(client, "db", &insert(1));
    let seen = get_more(&mut network, client, &opened);
    network.kill(0);
    network.pass(Duration::from_secs(1));
    let primary = network.primary().unwrap();
    let other = network.connect(primary);
    network.run(other, "db", &insert(2));

    let resumed = watch(&mut network, other, rawdoc! { "resumeAfter": token(&seen) });

    assert_eq!((keys(&seen), keys(&resumed)), (vec![1], vec![2]));
}

#[test]
fn a_write_that_no_majority_has_is_not_shown() {
    let mut network = Network::of_three_with_lag(Duration::from_secs(1));
    let client = network.connect(0);
    let opened = watch(&mut network, client, rawdoc! {});
    network.pass(Duration::from_secs(2));
    network.run(client, "db", &insert(1));
    start_get_more(&mut network, client, &opened);
    network.pass(Duration::from_millis(1));
    let before = network.finish(client).unwrap();

    network.pass(Duration::from_secs(1));

    let after = get_more(&mut network, client, &opened);
    assert_eq!((keys(&before), keys(&after)), (vec![], vec![1]));
}

#[test]
fn a_get_more_ends_when_a_majority_has_the_write() {
    let mut network = Network::of_three_with_lag(Duration::from_secs(1));
    let (client, other) = (network.connect(0), network.connect(0));
    let opened = watch(&mut network, client, rawdoc! {});
    network.pass(Duration::from_secs(2));
    let id = cursor(&opened).get_i64("id").unwrap();
    network.start(client, "db", &rawdoc! { "getMore": id, "collection": "c", "maxTimeMS": 60_000 });
    network.run(other, "db", &insert(1));

    network.pass(Duration::from_millis(999));
    assert!(network.finish(client).is_none());
    network.pass(Duration::from_millis(1));

    assert_eq!(keys(&network.finish(client).unwrap()), [1]);
}

#[test]
fn what_an_election_takes_back_was_never_shown() {
    let mut network = Network::of_three();
    let client = network.connect(0);
    let opened = watch(&mut network, client, rawdoc! {});
    let start = token(&opened);
    for member in [1, 2] {
        network.set_lag(member, Duration::MAX);
    }
    network.run(client, "db", &insert(1));
    let seen = get_more(&mut network, client, &opened);
    network.kill(0);
    for member in [1, 2] {
        network.set_lag(member, Duration::ZERO);
    }
    network.pass(Duration::from_secs(1));
    let primary = network.primary().unwrap();
    let other = network.connect(primary);
    network.run(other, "db", &insert(2));
    network.restart(0);
    network.pass(Duration::from_secs(1));

    let back = network.connect(0);
    let resumed = watch(&mut network, back, rawdoc! { "resumeAfter": start });

    assert_eq!((keys(&seen), keys(&resumed)), (vec![], vec![2]));
}

#[test]
fn a_member_that_was_restarted_still_has_its_history() {
    let mut network = Network::of_three();
    let client = network.connect(0);
    let start = token(&watch(&mut network, client, rawdoc! {}));
    network.run(client, "db", &insert(1));
    network.kill(2);
    network.run(client, "db", &insert(2));
    network.restart(2);
    network.pass(Duration::from_secs(1));

    let restarted = network.connect(2);
    let resumed = watch(&mut network, restarted, rawdoc! { "resumeAfter": start });

    assert_eq!(keys(&resumed), [1, 2]);
}

#[test]
fn transactions_are_the_same_on_every_member() {
    let mut network = Network::of_three();
    let (client, secondary) = (network.connect(0), network.connect(1));
    let opened = [client, secondary].map(|client| watch(&mut network, client, rawdoc! {}));
    let session = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] };
    let part = |command: RawDocumentBuf, starts: bool| {
        let mut command: RawDocumentBuf = command;
        command.append(bson::cstr!("lsid"), rawdoc! { "id": session.clone() });
        command.append(bson::cstr!("txnNumber"), 1_i64);
        command.append(bson::cstr!("autocommit"), false);
        if starts {
            command.append(bson::cstr!("startTransaction"), true);
        }
        command
    };
    let write = |id: i32| rawdoc! { "insert": "c", "documents": [{ "_id": id }] };

    network.run(client, "db", &part(write(2), true));
    network.run(client, "db", &part(write(1), false));
    network.run(client, "admin", &part(rawdoc! { "commitTransaction": 1 }, false));

    let seen = [get_more(&mut network, client, &opened[0]), get_more(&mut network, secondary, &opened[1])];
    assert_eq!(keys(&seen[0]), [2, 1]);
    assert_eq!(events(&seen[0]), events(&seen[1]));
}

#[test]
fn each_mongos_shows_what_the_others_write() {
    let hosts = (0..2).map(|id| format!("mongos{id}:27017"));
    let mut network = Network::new(DeploymentConfig::sharded(server_config(), hosts));
    let clients = [0, 1].map(|member| network.connect(member));
    let opened = watch(&mut network, clients[0], rawdoc! { "showExpandedEvents": true });

    network.run(clients[1], "admin", &rawdoc! { "shardCollection": "db.c", "key": { "_id": 1 } });
    network.run(clients[1], "db", &insert(1));

    let events = events(&get_more(&mut network, clients[0], &opened));
    let kind = |event: &RawDocumentBuf| match event.get("operationType") {
        Ok(Some(RawBsonRef::String(kind))) => kind.to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(events.iter().map(kind).collect::<Vec<_>>(), ["create", "shardCollection", "insert"]);
}
