//! A client that vanishes leaves nothing behind.

use std::time::Duration;

use cmap_core::wire::{Flags, Limits, MessageIds, MessageWriter};
use cmap_tokio::Client;
use cmap_tokio::ServerSelector;
use cmap_tokio::bson::spec::BinarySubtype;
use cmap_tokio::bson::{Binary, RawDocument, RawDocumentBuf, cstr, rawdoc};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::house::{House, Plan, SOON, ask, code, eventually, get, numbered, slow};
use super::servers::Servers;

async fn house(servers: &Servers) -> (House, Client) {
    let house = Plan::before(servers, "maxPoolSize=3").status().drain_seconds(60).start().await;
    let directly = Client::connect(&servers.uri("")).await.unwrap();
    let documents = numbered(10);
    directly.run(("test", rawdoc! { "insert": "c", "documents": documents })).await.unwrap();
    (house, directly)
}

fn uuid(byte: u8) -> Binary {
    Binary { subtype: BinarySubtype::Uuid, bytes: vec![byte; 16] }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_cursors_are_killed_x_137() {
    let servers = Servers::replica_set().await;
    let (house, directly) = house(&servers).await;
    let client = house.client().await;
    let mut connection = client.check_out().await.unwrap();
    let reply = ask(&mut connection, "test", rawdoc! { "find": "c", "batchSize": 2 }).await;
    let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    assert_ne!(id, 0);
    let more = rawdoc! { "getMore": id, "collection": "c", "batchSize": 2 };
    assert_eq!(code(&ask(&mut connection, "test", more.clone()).await), None);

    drop(connection);
    client.close(Duration::ZERO).await.unwrap();

    let mut connection = directly.check_out().await.unwrap();
    eventually("the cursor is killed", async || {
        // Each look reads two of the documents that are left, at most.
        tokio::time::sleep(Duration::from_millis(50)).await;
        code(&ask(&mut connection, "test", more.clone()).await) == Some(43)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_transactions_are_aborted_x_137() {
    let servers = Servers::replica_set().await;
    let (house, directly) = house(&servers).await;
    let client = house.client().await;
    let mut connection = client.check_out().await.unwrap();
    let update = rawdoc! {
        "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "x": 1 } } }],
        "lsid": { "id": uuid(7) }, "txnNumber": 1_i64, "autocommit": false, "startTransaction": true,
    };
    assert_eq!(code(&ask(&mut connection, "test", update).await), None);

    drop(connection);
    client.close(Duration::ZERO).await.unwrap();

    // The other side's transaction conflicts for as long as the first one is open.
    eventually("the transaction is aborted", async || {
        let mut session = directly.start_session().unwrap();
        session.start_transaction().unwrap();
        let update = rawdoc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "x": 2 } } }] };
        let ran =
            directly.operation(("test", update)).on(ServerSelector::Writable).in_session(&mut session).run().await;
        ran.is_ok() && session.commit_transaction().await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_for_it_is_cut_off_and_its_place_is_free_x_137() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "maxPoolSize=1").status().start().await;
    let client = house.client().await;
    let other = house.client().await;
    client.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    let task = house.begin_slow(&client).await;

    client.close(Duration::ZERO).await.unwrap();
    assert!(task.await.unwrap().is_err());

    // The only connection upstream was its.
    let begun = tokio::time::Instant::now();
    other.operation(("test", rawdoc! { "count": "c" })).on(ServerSelector::Writable).run().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20), "after {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_unacknowledged_writes_are_carried_out_up_to_a_command_that_wants_a_reply_x_137() {
    // More than the hub reads at once, and no more than it carries out in five seconds.
    const WRITES: i32 = 30;
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "maxPoolSize=1").status().start().await;
    let directly = Client::connect(&servers.uri("")).await.unwrap();
    let busy = house.client().await;
    busy.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    let running = house.begin_slow(&busy).await;
    let mut socket = house.socket().await;
    let hello = rawdoc! { "hello": 1, "loadBalanced": true, "$db": "admin" };
    socket.write_all(&message(&hello, Flags::NONE)).await.unwrap();
    assert!(socket.read(&mut [0; 1024]).await.unwrap() > 0);
    let write = |id: i32| {
        let insert = rawdoc! { "insert": "w", "documents": [{ "_id": id }], "writeConcern": { "w": 0 }, "$db": "test" };
        message(&insert, Flags::MORE_TO_COME)
    };
    let mut bytes: Vec<u8> = (0..WRITES).flat_map(write).collect();
    bytes.extend(message(&rawdoc! { "count": "w", "$db": "test" }, Flags::NONE));
    bytes.extend(write(WRITES));

    socket.write_all(&bytes).await.unwrap();
    eventually("the first write waits", async || house.report().await["queue"]["waiting"] == 1).await;
    drop(socket);

    servers.pass_until(running).await.unwrap().unwrap();
    drop(busy);
    eventually("it has gone", async || house.hub.connections() == 0).await;
    let mut connection = directly.check_out().await.unwrap();
    let mut count = async || ask(&mut connection, "test", rawdoc! { "count": "w" }).await.get_i32("n").unwrap();
    // Nobody hears when the last one is carried out.
    eventually("all are carried out", async || count().await == WRITES).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(count().await, WRITES, "the one behind the count is not");
}

fn message(body: &RawDocument, flags: Flags) -> Vec<u8> {
    let mut out = Vec::new();
    MessageWriter::begin(&mut out, MessageIds::request(1), flags, body, &[], &Limits::DEFAULT).unwrap().finish();
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_cut_off_keeps_its_connection_where_the_late_reply_comes_soon_x_137() {
    let servers = Servers::single().await;
    let (house, _) = house(&servers).await;
    let other = house.client().await;
    // Two connections upstream: one for what is cut off, one for the end of its session.
    let slow = |millis: u32, byte: u8| {
        rawdoc! { "find": "c", "limit": 1, "filter": { "$where": format!("sleep({millis}) || true") }, "lsid": { "id": uuid(byte) } }
    };
    let vanish = async |byte: u8| {
        let client = house.client().await;
        let mut connection = client.check_out().await.unwrap();
        let running = tokio::spawn(async move { ask(&mut connection, "test", slow(600, byte)).await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        running.abort();
        client.close(Duration::ZERO).await.unwrap();
        eventually("its command has ended", async || {
            let text = house.get("/status.json").await.1;
            let report: serde_json::Value = serde_json::from_str(&text).unwrap();
            report["queue"]["running"] == 0
        })
        .await;
    };
    vanish(1).await;
    other.operation(("test", rawdoc! { "count": "c" })).on(ServerSelector::Writable).run().await.unwrap();
    let before = servers.accepted();

    for byte in 2..6 {
        vanish(byte).await;
    }

    assert_eq!(servers.accepted(), before, "connections upstream were made anew");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_transaction_is_aborted_though_the_server_of_its_cursor_is_gone_x_137() {
    let servers = Servers::replica_set().await;
    let (house, directly) = house(&servers).await;
    let client = house.client().await;
    let mut connection = client.check_out().await.unwrap();
    let find = rawdoc! { "find": "c", "batchSize": 2, "lsid": { "id": uuid(6) } };
    let found = ask(&mut connection, "test", find).await;
    assert_ne!(found.get_document("cursor").unwrap().get_i64("id").unwrap(), 0);
    servers.kill_primary();
    servers.pass(Duration::from_secs(11));
    // The hub waits for the new primary.
    client.run(("test", rawdoc! { "insert": "d", "documents": [{}] })).await.unwrap();
    let update = rawdoc! {
        "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "x": 1 } } }],
        "lsid": { "id": uuid(7) }, "txnNumber": 1_i64, "autocommit": false, "startTransaction": true,
    };
    assert_eq!(code(&ask(&mut connection, "test", update).await), None);

    drop(connection);
    client.close(Duration::ZERO).await.unwrap();

    // It waits for a transaction that has written there.
    let update = rawdoc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "x": 2 } } }] };
    let written =
        tokio::time::timeout(SOON, directly.operation(("test", update)).on(ServerSelector::Writable).run()).await;
    written.expect("the transaction is aborted").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_its_driver_has_lost_patience_with_is_carried_out_x_137() {
    let servers = Servers::replica_set().await;
    let (house, directly) = house(&servers).await;
    let client = house.client().await;
    let (mut first, mut second) = (client.check_out().await.unwrap(), client.check_out().await.unwrap());
    let part = |mut body: RawDocumentBuf| {
        body.append(cstr!("lsid"), rawdoc! { "id": uuid(7) });
        body.append(cstr!("txnNumber"), 1_i64);
        body.append(cstr!("autocommit"), false);
        body
    };
    let insert = rawdoc! { "insert": "c", "documents": [{ "_id": 100 }], "startTransaction": true };
    assert_eq!(code(&ask(&mut first, "test", part(insert)).await), None);
    let fail_point = rawdoc! {
        "configureFailPoint": "failCommand", "mode": { "times": 1 },
        "data": { "failCommands": ["commitTransaction"], "blockConnection": true, "blockTimeMS": 1_000 },
    };
    directly.operation(("admin", fail_point)).on(ServerSelector::Writable).run().await.unwrap();
    let commit = part(rawdoc! { "commitTransaction": 1 });
    let slow = commit.clone();
    let running = tokio::spawn(async move { ask(&mut first, "admin", slow).await });
    eventually("the commit is sent", async || {
        let report = house.report().await;
        let mut running = report["running"].as_array().unwrap().iter();
        let commit = running.find(|line| line["command"] == "commitTransaction");
        // One that is not listed any more has its reply.
        report["counts"]["commands"] == 2 && commit.is_none_or(|line| line["server"].is_string())
    })
    .await;

    running.abort();
    eventually("the hub has noticed it", async || house.hub.connections() == 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;

    assert_eq!(code(&ask(&mut second, "admin", commit).await), None);
    let count = rawdoc! { "count": "c", "query": { "_id": 100 } };
    assert_eq!(ask(&mut second, "test", count).await.get_i32("n").unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_driver_has_repeated_on_another_connection_goes_on_x_137() {
    let servers = Servers::replica_set().await;
    let (house, _) = house(&servers).await;
    let client = house.client().await;
    let (mut first, mut second) = (client.check_out().await.unwrap(), client.check_out().await.unwrap());
    let lsid = || rawdoc! { "id": uuid(7) };
    let mut slow = slow();
    slow.append(cstr!("lsid"), lsid());
    let running = tokio::spawn(async move { ask(&mut first, "test", slow).await });
    house.until_at_server("find", 1).await;
    let found = ask(&mut second, "test", rawdoc! { "find": "c", "batchSize": 2, "lsid": lsid() }).await;
    let id = found.get_document("cursor").unwrap().get_i64("id").unwrap();

    // The first connection is lost, as after a time-out.
    running.abort();
    eventually("the hub has noticed it", async || house.hub.connections() == 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;

    let more = rawdoc! { "getMore": id, "collection": "c", "lsid": lsid() };
    assert_eq!(code(&ask(&mut second, "test", more).await), None, "its session was not killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_drains_lets_a_transaction_end_and_hangs_up_on_idle_clients() {
    let servers = Servers::replica_set().await;
    let (house, _) = house(&servers).await;
    let (idle, busy) = (house.client().await, house.client().await);
    let count = || idle.operation(("test", rawdoc! { "count": "c" })).on(ServerSelector::Writable);
    count().run().await.unwrap();
    let mut session = busy.start_session().unwrap();
    session.start_transaction().unwrap();
    let insert = |id: i32| rawdoc! { "insert": "c", "documents": [{ "_id": id }] };
    busy.operation(("test", insert(100))).on(ServerSelector::Writable).in_session(&mut session).run().await.unwrap();

    let status = house.hub.status_address().unwrap();
    let House { hub, .. } = house;
    let draining = tokio::spawn(hub.drain(std::future::pending()));
    let ends = (503, "the hub ends\n".to_owned());
    eventually("it drains", async || get(status, "/healthz").await == ends).await;
    assert_eq!(get(status, "/status.json").await.0, 200, "the status is there to the end (X-143)");
    assert!(count().within(Duration::from_millis(500)).run().await.is_err(), "nobody comes in");
    busy.operation(("test", insert(101))).on(ServerSelector::Writable).in_session(&mut session).run().await.unwrap();
    session.commit_transaction().await.unwrap();

    assert_eq!(draining.await.unwrap(), 0, "all have ended in time");
}
