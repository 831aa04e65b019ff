//! Failovers upstream.

use std::time::Duration;

use cmap_core::wire::CommandReply;
use cmap_tokio::Client;
use cmap_tokio::ServerSelector;
use cmap_tokio::bson::spec::BinarySubtype;
use cmap_tokio::bson::{Binary, RawDocumentBuf, cstr, rawdoc};
use tokio::task::JoinSet;

use super::house::{Plan, ask, code, eventually};
use super::servers::Servers;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_down_is_no_error_of_a_read_nor_of_a_write_that_may_be_repeated_x_134() {
    let servers = Servers::replica_set().await;
    let house = Plan::before(&servers, "maxPoolSize=4").start().await;
    let directly = Client::connect(&servers.uri("")).await.unwrap();
    let mut tasks = JoinSet::new();
    let mut clients = Vec::new();
    for number in 0..8 {
        // The driver does not repeat reads itself; its writes are numbered.
        let client = Client::connect(&house.uri("retryReads=false")).await.unwrap();
        clients.push(client.clone());
        tasks.spawn(async move {
            for round in 0..40 {
                let insert = rawdoc! { "insert": "c", "documents": [{ "_id": number * 1000 + round }] };
                let written = client.operation(("test", insert)).on(ServerSelector::Writable).run().await.unwrap();
                assert_eq!(written.get_i32("n").unwrap(), 1, "once, and not twice");
                client.operation(("test", rawdoc! { "count": "c" })).on(ServerSelector::Writable).run().await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
    tokio::time::sleep(Duration::from_millis(200)).await;

    // The reply may be lost with the primary's role.
    drop(directly.run(("admin", rawdoc! { "replSetStepDown": 5, "force": true })).await);
    tasks.join_all().await;

    let cleared: u64 = clients.iter().map(|client| client.stats().cleared).sum();
    assert_eq!(cleared, 0, "no driver has cleared its pool");
    let count =
        directly.operation(("test", rawdoc! { "count": "c" })).on(ServerSelector::Writable).run().await.unwrap();
    assert_eq!(count.get_i32("n").unwrap(), 8 * 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_stream_goes_on_after_its_server_is_lost_cs_10() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").start().await;
    let (client, directly) = (house.client().await, Client::connect(&servers.uri("")).await.unwrap());
    let watch = rawdoc! { "aggregate": "c", "pipeline": [{ "$changeStream": {} }] };
    let mut changes = client.operation(("test", watch)).within(None).watch().await.unwrap();

    for (id, data) in [
        (1, rawdoc! { "errorCode": 10107, "closeConnection": false }),
        (2, rawdoc! { "errorCode": 91, "closeConnection": true }),
    ] {
        let mode = rawdoc! { "times": 1 };
        let fails = rawdoc! { "configureFailPoint": "failGetMoreAfterCursorCheckout", "mode": mode, "data": data };
        directly.operation(("admin", fails)).on(ServerSelector::Writable).run().await.unwrap();
        client.run(("test", rawdoc! { "insert": "c", "documents": [{ "_id": id }] })).await.unwrap();

        let change = changes.try_next().await.unwrap().unwrap();

        assert_eq!(change.get_document("documentKey").unwrap(), &*rawdoc! { "_id": id });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_a_step_down_ends_can_be_repeated_as_a_whole_x_134() {
    let servers = Servers::replica_set().await;
    let house = Plan::before(&servers, "").start().await;
    let directly = Client::connect(&servers.uri("")).await.unwrap();
    directly.run(("test", rawdoc! { "create": "c" })).await.unwrap();
    let client = house.client().await;
    let mut session = client.start_session().unwrap();
    session.start_transaction().unwrap();
    let insert = || rawdoc! { "insert": "c", "documents": [{ "_id": 1 }] };
    client.operation(("test", insert())).on(ServerSelector::Writable).in_session(&mut session).run().await.unwrap();

    drop(directly.run(("admin", rawdoc! { "replSetStepDown": 5, "force": true })).await);
    let failed = client.operation(("test", rawdoc! { "find": "c" })).on(ServerSelector::Writable);
    let failed = failed.in_session(&mut session).run().await;

    let error = failed.unwrap_err();
    assert!(error.has_label("TransientTransactionError"), "{error}");
    assert_eq!(client.stats().cleared, 0);
    drop(session.abort_transaction().await);
    session.start_transaction().unwrap();
    client.operation(("test", insert())).on(ServerSelector::Writable).in_session(&mut session).run().await.unwrap();
    session.commit_transaction().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_a_step_down_has_overtaken_is_decided_by_the_new_primary_x_134() {
    let servers = Servers::replica_set().await;
    let house = Plan::before(&servers, "").start().await;
    let client = house.client().await;
    client.run(("test", rawdoc! { "create": "c" })).await.unwrap();
    let mut connection = client.check_out().await.unwrap();
    let part = |mut body: RawDocumentBuf| {
        let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
        body.append(cstr!("lsid"), rawdoc! { "id": id });
        body.append(cstr!("txnNumber"), 1_i64);
        body.append(cstr!("autocommit"), false);
        body
    };
    let insert = rawdoc! { "insert": "c", "documents": [{ "_id": 1 }], "startTransaction": true };
    assert_eq!(code(&ask(&mut connection, "test", part(insert)).await), None);

    servers.step_down();

    eventually("the commit has a result", async || {
        let reply = ask(&mut connection, "admin", part(rawdoc! { "commitTransaction": 1 })).await;
        // NoSuchTransaction: it was not committed, and can be repeated as a whole.
        code(&reply) == Some(251)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_wait_for_a_primary_keep_no_place_from_reads_of_secondaries_x_135() {
    let servers = Servers::replica_set().await;
    let house = Plan::before(&servers, "maxPoolSize=1&heartbeatFrequencyMS=500").start().await;
    let (writer, reader) = (house.client().await, house.client().await);
    let insert = |id: i32| rawdoc! { "insert": "c", "documents": [{ "_id": id }] };
    writer.operation(("test", insert(1))).on(ServerSelector::Writable).run().await.unwrap();
    let mut connection = reader.check_out().await.unwrap();
    // The last member is no majority.
    servers.kill_primary();
    writer.operation(("test", insert(2))).on(ServerSelector::Writable).run().await.unwrap();
    servers.kill_primary();
    let write = tokio::spawn(async move {
        writer.operation(("test", insert(3))).on(ServerSelector::Writable).run().await.map(drop)
    });
    tokio::time::sleep(Duration::from_millis(500)).await;

    let begun = tokio::time::Instant::now();
    let count = rawdoc! { "count": "c", "$readPreference": { "mode": "secondary" } };
    let reply = ask(&mut connection, "test", count).await;

    assert_eq!(code(&reply), None, "{reply:?}");
    assert!(begun.elapsed() < Duration::from_secs(10), "after {:?}", begun.elapsed());
    assert!(!write.is_finished(), "there is no primary");
    servers.restart();
    write.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_is_not_waited_for_as_long_as_a_primary_x_134() {
    let servers = Servers::replica_set().await;
    let house = Plan::before(&servers, "").start().await;
    let client = house.client().await;
    client.run(("test", rawdoc! { "insert": "c", "documents": [{}, {}] })).await.unwrap();
    let mut connection = client.check_out().await.unwrap();
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
    let found =
        ask(&mut connection, "test", rawdoc! { "find": "c", "batchSize": 1, "lsid": { "id": id.clone() } }).await;
    let cursor = found.get_document("cursor").unwrap().get_i64("id").unwrap();
    servers.kill_primary();
    // The first one may meet the connection that is lost.
    let end = rawdoc! { "killCursors": "c", "cursors": [cursor], "lsid": { "id": id } };
    ask(&mut connection, "test", end.clone()).await;

    let begun = tokio::time::Instant::now();
    let reply = ask(&mut connection, "test", end).await;

    assert_eq!(code(&reply), Some(6), "{reply:?}");
    assert!(begun.elapsed() < Duration::from_secs(12), "after {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_handshake_says_of_an_overload_reaches_the_driver_x_134() {
    let servers = Servers::replica_set().await;
    let house = Plan::before(&servers, "").status().start().await;
    let client = house.client().await;
    client.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    // The only connection upstream that there is has something to do.
    let running = house.begin_slow(&house.client().await).await;
    let directly = Client::connect(&servers.uri("")).await.unwrap();
    let fail_point = rawdoc! {
        "configureFailPoint": "failCommand", "mode": "alwaysOn",
        "data": {
            "failCommands": ["hello", "isMaster"], "errorCode": 462,
            "errorLabels": ["SystemOverloadedError", "RetryableError"],
        },
    };
    directly.operation(("admin", fail_point)).on(ServerSelector::Writable).run().await.unwrap();
    let mut connection = client.check_out().await.unwrap();

    // Unnumbered: the hub does not repeat it. A driver may, since nothing was sent.
    let reply = ask(&mut connection, "test", rawdoc! { "insert": "c", "documents": [{ "_id": 1 }] }).await;

    let error = CommandReply::read(&reply).failure().unwrap();
    assert_eq!(error.code, Some(6), "{reply:?}");
    assert_eq!(error.labels, ["SystemOverloadedError", "RetryableError"], "{reply:?}");
    servers.pass_until(running).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_leaves_retries_to_drivers_sends_a_command_once_x_134() {
    let servers = Servers::replica_set().await;
    let directly = Client::connect(&servers.uri("")).await.unwrap();
    let repeats = Plan::before(&servers, "heartbeatFrequencyMS=500").start().await;
    let leaves_it = Plan::before(&servers, "heartbeatFrequencyMS=500").upstream("retries = false").start().await;
    let mut codes = Vec::new();

    for house in [repeats, leaves_it] {
        let client = house.client().await;
        let mut connection = client.check_out().await.unwrap();
        let fail_point = rawdoc! {
            "configureFailPoint": "failCommand", "mode": { "times": 1 },
            "data": { "failCommands": ["find"], "errorCode": 11600 },
        };
        directly.operation(("admin", fail_point)).on(ServerSelector::Writable).run().await.unwrap();
        let first = ask(&mut connection, "test", rawdoc! { "find": "c" }).await;
        let second = ask(&mut connection, "test", rawdoc! { "find": "c" }).await;
        codes.push([code(&first), code(&second)]);
        assert_eq!(client.stats().cleared, 0);
    }

    assert_eq!(codes, [[None, None], [Some(6), None]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_reply_is_lost_is_repeated_twice_at_most_x_134() {
    let servers = Servers::replica_set().await;
    let directly = Client::connect(&servers.uri("")).await.unwrap();
    let house = Plan::before(&servers, "heartbeatFrequencyMS=500").start().await;
    let client = house.client().await;
    let mut connection = client.check_out().await.unwrap();
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
    let insert = rawdoc! { "insert": "c", "documents": [{ "_id": 1 }], "lsid": { "id": id }, "txnNumber": 1_i64 };

    for (name, command) in [("find", rawdoc! { "find": "c" }), ("insert", insert)] {
        for (losses, is_lost) in [(2, false), (3, true)] {
            // It kills what serves it.
            let fail_point = rawdoc! {
                "configureFailPoint": "failCommand", "mode": { "times": losses },
                "data": { "failCommands": [name], "closeConnection": true },
            };
            directly.operation(("admin", fail_point)).on(ServerSelector::Writable).run().await.unwrap();
            let reply = ask(&mut connection, "test", command.clone()).await;
            assert_eq!(code(&reply), is_lost.then_some(6), "{name} after {losses} losses: {reply:?}");
            assert_eq!(code(&ask(&mut connection, "test", command.clone()).await), None, "{name}: no loss is left");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_operator_has_set_up_is_in_no_error_x_134() {
    // Nobody listens there.
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let uri = format!("mongodb://upstream-user:secret@{nowhere}/?maxPoolSize=3");
    let house = Plan::at(&uri).upstream("patience-ms = 300").start().await;
    let mut connection = house.client().await.check_out().await.unwrap();

    let reply = ask(&mut connection, "test", rawdoc! { "find": "c" }).await;

    let error = CommandReply::read(&reply).failure().unwrap();
    assert_eq!(error.code, Some(6));
    assert_eq!(error.message, "no server upstream could take the command in time; try again later");
}
