//! A server upstream that stands alone, which knows no numbers of writes.

use cmap_tokio::Client;
use cmap_tokio::ServerSelector::Writable;
use cmap_tokio::bson::spec::BinarySubtype;
use cmap_tokio::bson::{Binary, RawDocumentBuf, cstr, rawdoc};

use super::house::{Plan, ask, code, numbered};
use super::servers::Servers;

fn numbered_insert(number: i64) -> RawDocumentBuf {
    rawdoc! { "insert": "c", "documents": [{ "x": 1 }], "lsid": lsid(7), "txnNumber": number }
}

fn lsid(byte: u8) -> RawDocumentBuf {
    rawdoc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![byte; 16] } }
}

async fn count(client: &Client) -> i32 {
    client.operation(("test", rawdoc! { "count": "c" })).on(Writable).run().await.unwrap().get_i32("n").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drivers_need_no_option_before_it_x_140() {
    let servers = Servers::standalone().await;
    let house = Plan::before(&servers, "").start().await;
    let client = house.client().await;

    for _ in 0..3 {
        client.run(("test", rawdoc! { "insert": "c", "documents": [{ "x": 1 }] })).await.unwrap();
    }

    assert_eq!(count(&client).await, 3);
    let mut session = client.start_session().unwrap();
    session.start_transaction().unwrap();
    let insert = client.operation(("test", rawdoc! { "insert": "c", "documents": [{}] }));
    let error = insert.in_session(&mut session).run().await.unwrap_err().to_string();
    assert!(error.contains("(20, IllegalOperation)"), "the server refuses it: {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_reply_was_lost_is_repeated_by_nobody_x_140() {
    let servers = Servers::standalone().await;
    let house = Plan::before(&servers, "").start().await;
    let directly = Client::connect(&servers.uri("")).await.unwrap();
    let fails = rawdoc! {
        "configureFailPoint": "failCommand", "mode": { "times": 1 },
        "data": { "failCommands": ["insert"], "closeConnection": true },
    };
    directly.operation(("admin", fails)).on(Writable).run().await.unwrap();
    let client = house.client().await;
    let mut connection = client.check_out().await.unwrap();

    let lost = ask(&mut connection, "test", numbered_insert(1)).await;

    assert_eq!(code(&lost), Some(6), "{lost:?}");
    assert!(lost.get_array("errorLabels").is_err(), "no label lets a driver repeat it: {lost:?}");
    let again = ask(&mut connection, "test", numbered_insert(1)).await;
    assert_eq!(code(&again), Some(6));
    assert!(again.get_str("errmsg").unwrap().contains("whether it was done is not known"), "{again:?}");
    assert_eq!(code(&ask(&mut connection, "test", numbered_insert(2)).await), None);
    assert_eq!(count(&client).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_an_overloaded_server_has_refused_can_be_repeated_x_140() {
    let servers = Servers::standalone().await;
    let house = Plan::before(&servers, "").start().await;
    let directly = Client::connect(&servers.uri("")).await.unwrap();
    let fails = rawdoc! {
        "configureFailPoint": "failCommand", "mode": { "times": 1 },
        "data": {
            "failCommands": ["insert"], "errorCode": 462, "errorLabels": ["SystemOverloadedError", "RetryableError"],
        },
    };
    directly.operation(("admin", fails)).on(Writable).run().await.unwrap();
    let client = house.client().await;
    let mut connection = client.check_out().await.unwrap();

    let replies = [
        ask(&mut connection, "test", numbered_insert(1)).await,
        ask(&mut connection, "test", numbered_insert(1)).await,
        ask(&mut connection, "test", numbered_insert(1)).await,
    ];

    assert_eq!(replies.map(|reply| code(&reply)), [Some(462), None, Some(6)], "it is done once");
    assert_eq!(count(&client).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_a_write_ends_no_cursor_and_no_session_of_another_user_x_132() {
    let servers = Servers::standalone().await;
    let house = Plan::before(&servers, "").user("anna", "").user("ben", "").start().await;
    let anna = house.client_as("anna", "").await;
    anna.run(("test", rawdoc! { "insert": "c", "documents": numbered(10) })).await.unwrap();
    let (mut anna, mut ben) =
        (anna.check_out().await.unwrap(), house.client_as("ben", "").await.check_out().await.unwrap());
    let mut cursors = Vec::new();
    for (connection, session) in [(&mut anna, 1), (&mut ben, 2)] {
        let opened = ask(connection, "test", rawdoc! { "find": "c", "batchSize": 2, "lsid": lsid(session) }).await;
        cursors.push(opened.get_document("cursor").unwrap().get_i64("id").unwrap());
    }

    // The servers are asked, because one of each is the user's own.
    for (database, mut ends) in [
        ("test", rawdoc! { "killCursors": "c", "cursors": [cursors[0], cursors[1]] }),
        ("admin", rawdoc! { "killSessions": [lsid(1), lsid(2)] }),
    ] {
        ends.append(cstr!("lsid"), lsid(3));
        ends.append(cstr!("txnNumber"), 1_i64);
        ask(&mut ben, database, ends).await;
    }

    let more = rawdoc! { "getMore": cursors[0], "collection": "c", "lsid": lsid(1) };
    assert_eq!(code(&ask(&mut anna, "test", more).await), None);
}
