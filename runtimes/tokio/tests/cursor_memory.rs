//! A cursor holds one batch in memory, however many documents it has.
//!
//! Counted is what the test's own thread allocates, where the client lives: the server has threads of its own. `CMAP_DOCUMENTS` says
//! how many documents there are (20,000 without it).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use cmap_conformance::LocalServer;
use cmap_tokio::Client;
use cmap_tokio::ServerSelector::Writable;
use cmap_tokio::bson::{RawArrayBuf, RawDocumentBuf, rawdoc};

/// Documents of a batch.
const BATCH: i32 = 1000;

#[test]
fn a_cursor_over_many_documents_holds_one_batch() {
    let documents = std::env::var("CMAP_DOCUMENTS").map_or(20_000, |count| count.parse().unwrap());
    let server = LocalServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(async {
        let client = Client::connect(&server.uri("")).await.unwrap();
        for first in (0..documents).step_by(BATCH as usize) {
            fill(&client, first..(first + BATCH).min(documents)).await;
        }
        // Warms the connection.
        read(&client, BATCH * 2).await;
        client
    });

    let mut count = 0;
    let allocated = allocation_counter::measure(|| count = runtime.block_on(read(&client, 0)));

    assert_eq!(count, documents);
    let batch = u64::from(BATCH.unsigned_abs()) * document(0).as_bytes().len() as u64;
    println!(
        "{documents} documents: at most {} KiB at once, where a batch has {} KiB; {} allocations",
        allocated.bytes_max / 1024,
        batch / 1024,
        allocated.count_total
    );
    // The reply as it is received and its copy, each in a buffer that may be twice as large.
    assert!(allocated.bytes_max < 4 * batch + 64 * 1024, "{allocated:?}");
    // None for a document.
    assert!(allocated.count_total < u64::from(documents.unsigned_abs()) / 10, "{allocated:?}");
}

/// Reads the documents, up to `limit` unless that is zero; returns how many there were.
async fn read(client: &Client, limit: i32) -> i32 {
    let find = rawdoc! { "find": "numbers", "batchSize": BATCH, "limit": limit };
    let mut cursor = client.operation(("db", find)).on(Writable).cursor().await.unwrap();
    let mut count = 0;
    while cursor.try_next().await.unwrap().is_some() {
        count += 1;
    }
    count
}

async fn fill(client: &Client, numbers: std::ops::Range<i32>) {
    let mut documents = RawArrayBuf::new();
    numbers.for_each(|number| documents.push(document(number)));
    client.run(("db", rawdoc! { "insert": "numbers", "documents": documents })).await.unwrap();
}

fn document(number: i32) -> RawDocumentBuf {
    rawdoc! { "_id": number, "text": "a hundred bytes, which is what a small document of an application may have, or a little more" }
}
