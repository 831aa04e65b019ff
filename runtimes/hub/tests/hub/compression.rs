//! Compression between clients and the hub.

use cmap_tokio::ServerSelector::Writable;
use cmap_tokio::bson::rawdoc;

use super::house::{Plan, ask, code, numbered};
use super::servers::Servers;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_may_compress_by_what_the_hub_offers_logins_and_all() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").user("app", "").start().await;

    for (number, name) in (0..).zip(["snappy", "zlib", "zstd"]) {
        let client = house.client_as("app", &format!("compressors={name}")).await;
        let large = rawdoc! { "insert": "c", "documents": [{ "_id": number, "x": "x".repeat(1_000_000) }] };
        client.operation(("test", large)).on(Writable).run().await.unwrap();
        let found = client
            .operation(("test", rawdoc! { "find": "c", "filter": { "_id": number } }))
            .on(Writable)
            .run()
            .await
            .unwrap();

        let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        assert_eq!(batch.get_document(0).unwrap().get_str("x").unwrap().len(), 1_000_000, "{name}");
        let connection = client.check_out().await.unwrap();
        let agreed = &connection.description().unwrap().compressors;
        assert_eq!(agreed.iter().map(|id| id.name()).collect::<Vec<_>>(), [name]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_configuration_says_what_is_offered() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").first("compressors = ['zlib']").start().await;
    let client = house.client_with("compressors=snappy,zlib").await;
    let mut connection = client.check_out().await.unwrap();

    assert_eq!(connection.description().unwrap().compressors.iter().map(|id| id.name()).collect::<Vec<_>>(), ["zlib"]);
    let insert = rawdoc! { "insert": "c", "documents": numbered(100) };
    assert_eq!(code(&ask(&mut connection, "test", insert).await), None);
}
