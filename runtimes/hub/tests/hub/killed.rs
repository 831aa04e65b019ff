//! A hub that is killed leaves nothing that upstream's own limits do not end.

use std::time::Duration;

use cmap_tokio::Client;
use cmap_tokio::ServerSelector::Writable;
use cmap_tokio::bson::spec::BinarySubtype;
use cmap_tokio::bson::{Binary, rawdoc};

use super::house::{ask, code, eventually, numbered};
use super::program::HubProgram;
use super::servers::Servers;

/// Upstream's limits: of a transaction, and of a cursor that is not used.
const TRANSACTION: Duration = Duration::from_secs(60);
const CURSOR: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_hub_leaves_that_is_killed_upstream_ends_by_its_own_limits() {
    let servers = Servers::replica_set().await;
    let folder = tempfile::tempdir().unwrap();
    let hub = HubProgram::start(folder.path(), &servers.uri("maxPoolSize=5"), &[], "");
    let client =
        Client::connect(&format!("mongodb://{}/?loadBalanced=true&retryReads=false", hub.address)).await.unwrap();
    let insert = rawdoc! { "insert": "c", "documents": numbered(10) };
    client.operation(("test", insert)).on(Writable).run().await.unwrap();
    let mut connection = client.check_out().await.unwrap();
    // Those without a session end with their connection.
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
    let find = rawdoc! { "find": "c", "batchSize": 2, "lsid": { "id": id } };
    let found = ask(&mut connection, "test", find).await;
    assert_ne!(found.get_document("cursor").unwrap().get_i64("id").unwrap(), 0);
    let mut session = client.start_session().unwrap();
    session.start_transaction().unwrap();
    let update = || rawdoc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "x": 1 } } }] };
    client.operation(("test", update())).on(Writable).in_session(&mut session).run().await.unwrap();
    let slow = client.clone();
    let running = tokio::spawn(async move {
        let find = rawdoc! { "find": "c", "filter": { "$where": "sleep(30000) || true" } };
        slow.operation(("test", find)).on(Writable).run().await.map(drop)
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(servers.connected() > 0 && !running.is_finished());

    drop(hub);

    assert!(running.await.unwrap().is_err(), "its client is told by the end of the connection");
    eventually("all its connections are closed", async || servers.connected() == 0).await;
    let directly = Client::connect(&servers.uri("")).await.unwrap();
    let mut connection = directly.check_out().await.unwrap();
    let locked = async || {
        let mut session = directly.start_session().unwrap();
        session.start_transaction().unwrap();
        let ran = directly.operation(("test", update())).on(Writable).in_session(&mut session).run().await;
        drop(session.abort_transaction().await);
        ran.is_err()
    };
    let mut cursors = async || {
        let stats = ask(&mut connection, "test", rawdoc! { "dbStats": 1 }).await;
        assert_eq!(code(&stats), None);
        stats.get_i32("openCursors").unwrap()
    };
    assert!(locked().await, "nobody has told upstream to abort the transaction");
    assert_eq!(cursors().await, 1);
    servers.pass(TRANSACTION);
    assert!(!locked().await);
    servers.pass(CURSOR);
    assert_eq!(cursors().await, 0);
}
