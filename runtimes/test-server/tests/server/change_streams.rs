//! Change streams of one server: getMore that waits, transactions, and fail points.

use core::time::Duration;

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use cmap_test_server::ServerConfig;

use super::network::{Client, Network, config};

const MS: Duration = Duration::from_millis(1);

fn replica_set() -> ServerConfig {
    let mut config = config();
    config.replica_set = Some("rs0".into());
    config
}

/// A client that has opened a stream of `db.c`, and another one.
fn watch(stage: RawDocumentBuf) -> (Network, Client, Client, i64) {
    let mut network = Network::new(replica_set());
    let (mut client, other) = (network.connect(), network.connect());
    let aggregate = rawdoc! { "aggregate": "c", "pipeline": [{ "$changeStream": stage }], "cursor": {} };
    let cursor = cursor(&network.run(&mut client, "db", &aggregate));
    (network, client, other, cursor)
}

fn cursor(reply: &RawDocument) -> i64 {
    reply.get_document("cursor").unwrap().get_i64("id").unwrap()
}

fn get_more(cursor: i64) -> RawDocumentBuf {
    rawdoc! { "getMore": cursor, "collection": "c", "maxTimeMS": 300 }
}

fn insert(id: i32) -> RawDocumentBuf {
    rawdoc! { "insert": "c", "documents": [{ "_id": id }] }
}

fn events(reply: &RawDocument) -> Vec<RawDocumentBuf> {
    let batch = reply.get_document("cursor").unwrap().get_array("nextBatch").unwrap();
    batch.into_iter().map(|event| event.unwrap().as_document().unwrap().to_owned()).collect()
}

fn labels(reply: &RawDocument) -> Vec<String> {
    let labels = reply.get_array("errorLabels").ok().into_iter().flatten();
    labels.map(|label| label.unwrap().as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_standalone_server_has_none() {
    let mut network = Network::new(config());
    let mut client = network.connect();

    let aggregate = rawdoc! { "aggregate": "c", "pipeline": [{ "$changeStream": {} }], "cursor": {} };
    let failure = network.fail(&mut client, "db", &aggregate);

    assert_eq!(failure.code, Some(40573));
}

#[test]
fn a_get_more_waits_and_shows_how_far_it_has_looked() {
    let (mut network, mut client, _, cursor) = watch(rawdoc! {});
    network.start(&mut client, "db", &get_more(cursor));

    network.pass(299 * MS);
    assert!(network.finish(&mut client).is_none());
    network.pass(MS);

    let reply = network.finish(&mut client).unwrap();
    assert_eq!(events(&reply), [] as [RawDocumentBuf; 0]);
    assert!(reply.get_document("cursor").unwrap().get_document("postBatchResumeToken").is_ok());
    assert!(reply.get_timestamp("operationTime").is_ok());
}

#[test]
fn a_write_ends_the_wait() {
    let (mut network, mut client, mut other, cursor) = watch(rawdoc! {});
    network.start(&mut client, "db", &get_more(cursor));
    assert!(network.finish(&mut client).is_none());

    let written = network.run(&mut other, "db", &insert(1));

    let reply = network.finish(&mut client).unwrap();
    let event = &events(&reply)[0];
    assert_eq!(event.get_timestamp("clusterTime").unwrap(), written.get_timestamp("operationTime").unwrap());
}

#[test]
fn the_writes_of_a_transaction_come_with_its_commit_and_in_their_order() {
    let (mut network, mut client, mut other, cursor) = watch(rawdoc! {});
    let session = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] };
    let part = |mut command: RawDocumentBuf, starts: bool| {
        command.append(bson::cstr!("lsid"), rawdoc! { "id": session.clone() });
        command.append(bson::cstr!("txnNumber"), 7_i64);
        command.append(bson::cstr!("autocommit"), false);
        if starts {
            command.append(bson::cstr!("startTransaction"), true);
        }
        command
    };
    network.start(&mut client, "db", &get_more(cursor));

    network.run(&mut other, "db", &part(insert(2), true));
    network.run(&mut other, "db", &part(insert(1), false));
    let update = rawdoc! { "update": "c", "updates": [{ "q": { "_id": 2 }, "u": { "$set": { "x": 1 } } }] };
    network.run(&mut other, "db", &part(update, false));
    assert!(network.finish(&mut client).is_none(), "it is not committed");
    network.admin(&mut other, &part(rawdoc! { "commitTransaction": 1 }, false));

    let events = events(&network.finish(&mut client).unwrap());
    let seen: Vec<_> = events.iter().map(|event| event.get_str("operationType").unwrap()).collect();
    assert_eq!(seen, ["insert", "insert", "update"]);
    let times: Vec<_> = events.iter().map(|event| event.get_timestamp("clusterTime").unwrap()).collect();
    assert!(times.iter().all(|time| *time == times[0]));
    let event = &events[0];
    assert_eq!(event.get_i64("txnNumber").unwrap(), 7);
    assert_eq!(event.get_document("lsid").unwrap().get_binary("id").unwrap().bytes, [1; 16]);
}

#[test]
fn a_transaction_opens_none() {
    let (mut network, mut client, ..) = watch(rawdoc! {});
    let session = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] };
    let aggregate = rawdoc! {
        "aggregate": "c", "pipeline": [{ "$changeStream": {} }], "cursor": {}, "lsid": { "id": session },
        "txnNumber": 1_i64, "autocommit": false, "startTransaction": true,
    };

    assert_eq!(network.fail(&mut client, "db", &aggregate).code, Some(263));
}

#[test]
fn an_error_of_a_get_more_says_whether_the_stream_can_be_resumed() {
    for (code, expected) in
        [(6, vec!["ResumableChangeStreamError"]), (10107, vec!["ResumableChangeStreamError"]), (216, vec![])]
    {
        let (mut network, mut client, mut other, cursor) = watch(rawdoc! {});
        let fail_point = rawdoc! {
            "configureFailPoint": "failGetMoreAfterCursorCheckout", "mode": { "times": 1 },
            "data": { "errorCode": code, "closeConnection": false },
        };
        network.admin(&mut other, &fail_point);

        let reply = network.run(&mut client, "db", &get_more(cursor));

        assert_eq!(
            (reply.get_i32("code").unwrap(), labels(&reply)),
            (code, expected.into_iter().map(String::from).collect())
        );
    }
}

#[test]
fn a_get_more_of_another_cursor_has_no_such_label() {
    let mut network = Network::new(replica_set());
    let (mut client, mut other) = (network.connect(), network.connect());
    network.run(&mut client, "db", &insert(1));
    let found = network.run(&mut client, "db", &rawdoc! { "find": "c", "batchSize": 0 });
    let fail_point = rawdoc! {
        "configureFailPoint": "failGetMoreAfterCursorCheckout", "mode": { "times": 1 }, "data": { "errorCode": 6 },
    };
    network.admin(&mut other, &fail_point);

    let reply = network.run(&mut client, "db", &rawdoc! { "getMore": cursor(&found), "collection": "c" });

    assert_eq!((reply.get_i32("code").unwrap(), labels(&reply)), (6, vec![]));
}

#[test]
fn fail_command_gives_the_labels_that_it_names_and_no_others() {
    let (mut network, mut client, mut other, cursor) = watch(rawdoc! {});
    let fail_point = rawdoc! {
        "configureFailPoint": "failCommand", "mode": { "times": 1 },
        "data": { "failCommands": ["getMore"], "errorCode": 6 },
    };
    network.admin(&mut other, &fail_point);

    let reply = network.run(&mut client, "db", &get_more(cursor));

    assert_eq!((reply.get_i32("code").unwrap(), labels(&reply)), (6, vec![]));
}

#[test]
fn a_fail_point_closes_the_connection_of_a_get_more() {
    let (mut network, mut client, mut other, cursor) = watch(rawdoc! {});
    let fail_point = rawdoc! {
        "configureFailPoint": "failGetMoreAfterCursorCheckout", "mode": { "times": 1 }, "data": { "closeConnection": true },
    };
    network.admin(&mut other, &fail_point);

    network.start(&mut client, "db", &get_more(cursor));

    assert!(network.has_hung_up_on(client.id));
}

#[test]
fn the_time_limit_of_the_command_is_not_that_of_its_get_more() {
    let mut network = Network::new(replica_set());
    let (mut client, mut other) = (network.connect(), network.connect());
    let aggregate = rawdoc! { "aggregate": "c", "pipeline": [{ "$changeStream": {} }], "cursor": {}, "maxTimeMS": 1 };
    let id = cursor(&network.run(&mut client, "db", &aggregate));

    for id in 0..20 {
        let mut documents = RawArrayBuf::new();
        (0..500).for_each(|number| documents.push(rawdoc! { "_id": id * 500 + number }));
        network.run(&mut other, "db", &rawdoc! { "insert": "c", "documents": documents });
    }

    assert_eq!(events(&network.run(&mut client, "db", &get_more(id))).len(), 10_000);
}
