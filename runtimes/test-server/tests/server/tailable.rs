//! Tailable cursors with awaitData: a getMore that finds nothing waits.

use core::time::Duration;

use bson::{RawDocumentBuf, rawdoc};

use super::network::{Client, Network, config};

const MS: Duration = Duration::from_millis(1);

/// A capped collection with one document, which a cursor of the client has read.
fn tail(await_data: bool) -> (Network, Client, i64) {
    let mut network = Network::new(config());
    let mut client = network.connect();
    network.run(&mut client, "db", &rawdoc! { "create": "log", "capped": true, "size": 10_000 });
    network.run(&mut client, "db", &rawdoc! { "insert": "log", "documents": [{ "_id": 1 }] });
    let find = rawdoc! { "find": "log", "tailable": true, "awaitData": await_data };
    let id = network.run(&mut client, "db", &find).get_document("cursor").unwrap().get_i64("id").unwrap();
    (network, client, id)
}

fn get_more(id: i64, max_time_ms: i32) -> RawDocumentBuf {
    rawdoc! { "getMore": id, "collection": "log", "maxTimeMS": max_time_ms }
}

fn count(reply: &RawDocumentBuf) -> usize {
    reply.get_document("cursor").unwrap().get_array("nextBatch").unwrap().into_iter().count()
}

#[test]
fn it_waits_for_as_long_as_the_client_says() {
    let (mut network, mut client, id) = tail(true);

    network.start(&mut client, "db", &get_more(id, 300));

    network.pass(299 * MS);
    assert!(network.finish(&mut client).is_none());
    network.pass(MS);
    let reply = network.finish(&mut client).unwrap();
    assert_eq!((count(&reply), reply.get_document("cursor").unwrap().get_i64("id").unwrap()), (0, id));
}

#[test]
fn it_waits_for_a_second_if_the_client_says_nothing() {
    let (mut network, mut client, id) = tail(true);

    network.start(&mut client, "db", &rawdoc! { "getMore": id, "collection": "log" });

    network.pass(999 * MS);
    assert!(network.finish(&mut client).is_none());
    network.pass(MS);
    assert!(network.finish(&mut client).is_some());
}

#[test]
fn a_document_that_is_inserted_comes_at_once() {
    let (mut network, mut client, id) = tail(true);
    let mut other = network.connect();
    network.start(&mut client, "db", &get_more(id, 10_000));
    network.pass(100 * MS);

    network.run(&mut other, "db", &rawdoc! { "insert": "elsewhere", "documents": [{}] });
    assert!(network.finish(&mut client).is_none(), "that was another collection");
    network.run(&mut other, "db", &rawdoc! { "insert": "log", "documents": [{ "_id": 2 }] });

    assert_eq!(count(&network.finish(&mut client).unwrap()), 1);
    network.pass(20_000 * MS);
    assert!(network.receive(client.id).is_empty(), "one reply is enough");
}

#[test]
fn a_cursor_that_is_killed_waits_no_longer() {
    let (mut network, mut client, id) = tail(true);
    let mut other = network.connect();
    network.start(&mut client, "db", &get_more(id, 10_000));

    network.run(&mut other, "db", &rawdoc! { "killCursors": "log", "cursors": [id] });

    assert_eq!(network.finish(&mut client).unwrap().get_i32("code").unwrap(), 43);
}

#[test]
fn a_cursor_whose_session_is_killed_waits_no_longer() {
    for command in ["killSessions", "killAllSessions"] {
        let (mut network, mut client, _) = tail(true);
        let mut other = network.connect();
        let uuid = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] };
        let session = rawdoc! { "id": uuid };
        let find = rawdoc! { "find": "log", "tailable": true, "awaitData": true, "lsid": session.clone() };
        let id = network.run(&mut client, "db", &find).get_document("cursor").unwrap().get_i64("id").unwrap();
        let mut more = get_more(id, 10_000);
        more.append(bson::cstr!("lsid"), session.clone());
        network.start(&mut client, "db", &more);
        let mut kill = RawDocumentBuf::new();
        let ids = if command == "killSessions" { bson::rawbson!([session]) } else { bson::rawbson!([]) };
        kill.append(bson::raw::CString::try_from(command).unwrap(), ids);

        network.admin(&mut other, &kill);

        assert_eq!(network.finish(&mut client).unwrap().get_i32("code").unwrap(), 43, "{command}");
    }
}

#[test]
fn a_client_that_hangs_up_is_forgotten() {
    let (mut network, mut client, id) = tail(true);
    network.start(&mut client, "db", &get_more(id, 10_000));

    network.server.handle_hang_up(network.now, client.id);

    let mut other = network.connect();
    network.run(&mut other, "db", &rawdoc! { "insert": "log", "documents": [{ "_id": 2 }] });
    assert!(network.receive(client.id).is_empty());
}

#[test]
fn without_await_data_nothing_waits_and_a_time_limit_makes_no_sense() {
    let (mut network, mut client, id) = tail(false);

    let reply = network.run(&mut client, "db", &rawdoc! { "getMore": id, "collection": "log" });
    let refused = network.fail(&mut client, "db", &get_more(id, 100));

    assert_eq!(count(&reply), 0);
    assert_eq!(refused.message, "cannot set maxTimeMS on getMore command for a non-awaitData cursor");
}

#[test]
fn the_first_documents_can_be_skipped() {
    let (mut network, mut client, _) = tail(false);
    network.run(&mut client, "db", &rawdoc! { "insert": "log", "documents": [{ "_id": 2 }, { "_id": 3 }] });
    let find = rawdoc! { "find": "log", "tailable": true, "skip": 1, "limit": 1 };

    let found = network.run(&mut client, "db", &find);

    let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let ids: Vec<_> = batch.into_iter().map(|it| it.unwrap().as_document().unwrap().get_i32("_id").unwrap()).collect();
    assert_eq!(ids, [2]);
}
