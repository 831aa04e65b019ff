//! Many clients on few connections upstream.

use std::time::Duration;

use cmap_tokio::ServerSelector;
use cmap_tokio::bson::rawdoc;
use cmap_tokio::{ReadMode, ReadPreference};
use tokio::task::JoinSet;

use super::house::{Plan, ask, code, numbered};
use super::servers::Servers;

/// Clients, each with a pool of its own.
const CLIENTS: i32 = 40;

/// What each does in turn.
const ROUNDS: i32 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reply_goes_to_whoever_asked_x_131() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "maxPoolSize=2").start().await;

    let mut tasks = JoinSet::new();
    for number in 0..CLIENTS {
        let client = house.client().await;
        tasks.spawn(async move {
            for round in 0..ROUNDS {
                let id = number * ROUNDS + round;
                let insert = rawdoc! { "insert": "notes", "documents": [{ "_id": id, "by": number }] };
                client.operation(("test", insert)).on(ServerSelector::Writable).run().await.unwrap();
                let find = rawdoc! { "find": "notes", "filter": { "_id": id } };
                let reply = client.operation(("test", find)).on(ServerSelector::Writable).run().await.unwrap();
                let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
                assert_eq!(batch.get_document(0).unwrap().get_i32("by").unwrap(), number);
            }
        });
    }
    tasks.join_all().await;

    // Two of the pool, the monitor's and its measurement of round trips.
    assert!(servers.accepted() <= 4, "{} connections upstream", servers.accepted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "full: takes half a minute, and tests of the queue have a thousand seeds in virtual time"]
async fn two_users_share_the_servers_time_however_long_their_commands_take_x_135() {
    let servers = Servers::single().await;
    let plan = Plan::before(&servers, "maxPoolSize=20").user("anna", "").user("ben", "").status();
    let house = plan.more("[limits]\nwait-ms = 60000").start().await;
    let anna = house.client_as("anna", "maxPoolSize=64").await;
    let ben = house.client_as("ben", "maxPoolSize=32").await;
    anna.run(("test", rawdoc! { "insert": "c", "documents": [{}] })).await.unwrap();
    let mut tasks = JoinSet::new();
    // The short ones take longer than what clients and hub do between two of them, so that some always wait.
    for (client, millis, count) in [(anna, 1_500, 64), (ben, 10, 32)] {
        let command = rawdoc! { "find": "c", "filter": { "$where": format!("sleep({millis}) || true") } };
        for _ in 0..count {
            let (client, command) = (client.clone(), command.clone());
            tasks.spawn(async move {
                loop {
                    client.operation(("test", command.clone())).on(ServerSelector::Writable).run().await.unwrap();
                }
            });
        }
    }
    let seconds = async || {
        let report: serde_json::Value = serde_json::from_str(&house.get("/status.json").await.1).unwrap();
        ["anna", "ben"].map(|user| report["users"][user]["times"]["server"].as_f64().unwrap())
    };

    tokio::time::sleep(Duration::from_secs(6)).await;
    let before = seconds().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let after = seconds().await;

    let [anna, ben] = [0, 1].map(|user| after[user] - before[user]);
    println!("at the server: {anna:.1} s and {ben:.1} s");
    assert!((anna / ben - 1.0).abs() < 0.1, "{anna} and {ben}");
    tasks.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_holds_no_connection_upstream_x_131() {
    let servers = Servers::replica_set().await;
    let house = Plan::before(&servers, "maxPoolSize=1&readPreference=primary").start().await;
    let client = house.client().await;
    let documents = numbered(100);
    client.run(("test", rawdoc! { "insert": "c", "documents": documents })).await.unwrap();

    // Each has a cursor open, on the only connection upstream.
    let mut cursors = Vec::new();
    for _ in 0..5 {
        let find = rawdoc! { "find": "c", "batchSize": 7, "sort": { "_id": 1 } };
        cursors
            .push((client.operation(("test", find)).on(ServerSelector::Writable).cursor().await.unwrap(), Vec::new()));
    }
    for _ in 0..100 {
        for (cursor, ids) in &mut cursors {
            ids.push(cursor.try_next().await.unwrap().unwrap().get_i32("_id").unwrap());
        }
    }

    assert!(cursors.iter().all(|(_, ids)| *ids == (0..100).collect::<Vec<_>>()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_keeps_to_its_router_and_holds_no_connection_x_131() {
    let servers = Servers::sharded().await;
    let house = Plan::before(&servers, "maxPoolSize=2").start().await;
    let client = house.client().await;
    client.run(("test", rawdoc! { "create": "c" })).await.unwrap();

    let mut tasks = JoinSet::new();
    for number in 0..10 {
        let client = client.clone();
        tasks.spawn(async move {
            let mut session = client.start_session().unwrap();
            session.start_transaction().unwrap();
            for round in 0..3 {
                let insert = rawdoc! { "insert": "c", "documents": [{ "_id": number * 10 + round }] };
                client
                    .operation(("test", insert))
                    .on(ServerSelector::Writable)
                    .in_session(&mut session)
                    .run()
                    .await
                    .unwrap();
            }
            session.commit_transaction().await.unwrap();
        });
    }
    tasks.join_all().await;

    let reply = client.operation(("test", rawdoc! { "count": "c" })).on(ServerSelector::Writable).run().await.unwrap();
    assert_eq!(reply.get_i32("n").unwrap(), 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_read_preference_of_a_command_selects_its_server() {
    let servers = Servers::replica_set().await;
    let house = Plan::before(&servers, "").start().await;
    let client = house.client().await;

    let secondary = ReadPreference::new(ReadMode::Secondary);
    let reply = client.operation(("test", rawdoc! { "hello": 1 })).on(secondary).run().await.unwrap();
    assert_eq!(reply.get_str("msg").unwrap(), "isdbgrid", "the hub itself answers hellos");
    let mut connection = client.check_out().await.unwrap();
    let written = ask(&mut connection, "test", rawdoc! { "insert": "c", "documents": [{ "_id": 1 }] }).await;
    assert_eq!(code(&written), None);
    for mode in ["secondary", "nearest", "primaryPreferred"] {
        let find = rawdoc! { "find": "c", "$readPreference": { "mode": mode } };
        assert_eq!(code(&ask(&mut connection, "test", find).await), None, "{mode}");
    }
    let find = rawdoc! { "find": "c", "$readPreference": { "mode": "secondary", "tags": [{ "dc": "nowhere" }] }, "maxTimeMS": 200 };
    assert_eq!(code(&ask(&mut connection, "test", find).await), Some(6), "no such server");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_without_a_reply_is_carried_out() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "maxPoolSize=1").start().await;
    let client = house.client().await;
    let mut connection = client.check_out().await.unwrap();

    let body = rawdoc! { "insert": "c", "documents": [{ "_id": 1 }], "writeConcern": { "w": 0 } };
    let mut command = cmap_tokio::cmap_core::connection::Command::new("test", &body);
    command.acknowledged = false;
    connection.exchange(&command).await.unwrap();

    let found = ask(&mut connection, "test", rawdoc! { "count": "c" }).await;
    assert_eq!(found.get_i32("n").unwrap(), 1);
}
