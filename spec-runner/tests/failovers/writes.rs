//! No write ends in an error while its time lasts, and each that was acknowledged was carried out exactly once. What the set holds
//! in the end is asked of it through a client that has seen none of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use cmap_runtime::ServerSelector::Writable;
use cmap_runtime::bson::{RawDocument, rawdoc};
use cmap_runtime::{Client, Runtime};

use super::links::Linked;
use super::{Members, TASKS, Tally, on_tokio, pause, through_failovers};

const OPTIONS: &str = "heartbeatFrequencyMS=500&connectTimeoutMS=500&timeoutMS=30000&w=majority";

#[test]
fn every_acknowledged_write_is_there_once_on_tokio() {
    on_tokio(write_through_failovers::<cmap_tokio::Tokio>());
}

#[test]
fn every_acknowledged_write_is_there_once_on_smol() {
    smol::block_on(write_through_failovers::<cmap_smol::Smol>());
}

#[test]
fn every_acknowledged_write_is_there_once_on_async_std() {
    // async-std has threads of its own.
    smol::block_on(write_through_failovers::<cmap_async_std::AsyncStd>());
}

async fn write_through_failovers<R: Runtime>() {
    let members = Members::start(env!("CARGO_BIN_EXE_spec-runner"));
    let client = Client::<Linked<R>>::connect(&members.uri(OPTIONS)).await.unwrap();
    let tally = Arc::new(Tally::default());
    let acknowledged: Arc<[AtomicI64]> = (0..TASKS).map(|_| AtomicI64::new(0)).collect();

    let all = Arc::clone(&acknowledged);
    through_failovers(&members, &client, &tally, move |client, task, tally| {
        write(client, task, tally, Arc::clone(&all))
    })
    .await;

    client.close(Duration::from_secs(20)).await.unwrap();
    let witness = Client::<R>::connect(&members.uri("timeoutMS=10000")).await.unwrap();
    for (task, acknowledged) in (0_i64..).zip(acknowledged.iter()) {
        let acknowledged = acknowledged.load(Ordering::SeqCst);
        assert!(acknowledged > 0, "task {task} wrote nothing");
        let counter = rawdoc! { "find": "counters", "filter": { "_id": task }, "limit": 1 };
        let counter = witness.operation(("db", counter)).on(Writable).run().await.unwrap();
        assert_eq!(count_of(&counter), Some(acknowledged), "the counter of task {task}");
        let documents = rawdoc! { "count": "log", "query": { "task": task } };
        let documents = witness.operation(("db", documents)).on(Writable).run().await.unwrap();
        assert_eq!(i64::from(documents.get_i32("n").unwrap()), acknowledged, "the documents of task {task}");
    }
}

fn count_of(reply: &RawDocument) -> Option<i64> {
    let batch = reply.get_document("cursor").ok()?.get_array("firstBatch").ok()?;
    batch.get_document(0).ok()?.get_i64("n").ok()
}

/// Counts up, and inserts a document that nothing but the transaction number keeps from being inserted twice.
async fn write<R: Runtime>(client: Client<R>, task: usize, tally: Arc<Tally>, acknowledged: Arc<[AtomicI64]>) {
    let runtime = R::current().unwrap();
    let number = i64::try_from(task).unwrap();
    while !tally.is_over.load(Ordering::SeqCst) {
        let count = rawdoc! {
            "update": "counters",
            "updates": [{ "q": { "_id": number }, "u": { "$inc": { "n": 1_i64 } }, "upsert": true }],
        };
        let insert = rawdoc! { "insert": "log", "documents": [{ "task": number }] };
        for command in [count, insert] {
            if let Err(error) = client.operation(("db", command)).on(Writable).run().await {
                tally.errors.lock().unwrap().push(error.to_string());
            }
        }
        acknowledged[task].fetch_add(1, Ordering::SeqCst);
        tally.served.fetch_add(1, Ordering::SeqCst);
        pause(&runtime, Duration::from_millis(50)).await;
    }
    tally.running.fetch_sub(1, Ordering::SeqCst);
}
