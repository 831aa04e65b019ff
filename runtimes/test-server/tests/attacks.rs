//! Attacks on the store, as they once succeeded: each has to end soon, with an error, and in little memory.
//!
//! They are one test, because the memory of a process is measured as a whole.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test fails by panicking, and an attack is measured"
)]

use std::time::{Duration, Instant};

use bson::{Document, RawDocumentBuf, doc};
use cmap_core::time::Instant as Moment;
use cmap_test_server::store::{Caller, CommandFailure, Store, StoreCommand, StoreLimits};

fn run(store: &mut Store, command: &RawDocumentBuf) -> Result<RawDocumentBuf, CommandFailure> {
    let name = cmap_core::wire::document::command_name(command).unwrap();
    store.run(&StoreCommand { name, database: "test", body: command }).unwrap()
}

fn raw(command: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(command).unwrap()
}

/// A store whose collection `pets` has 100,000 documents.
fn store() -> Store {
    let mut store = Store::default();
    let documents: Vec<_> = (0..100_000).map(|id| doc! { "_id": id, "x": 1 }).collect();
    run(&mut store, &raw(&doc! { "insert": "pets", "documents": documents })).unwrap();
    store
}

/// The memory that the process has now, and the most it ever had, in MiB.
fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap_or(0_u64) >> 10
    };
    (of("VmRSS"), of("VmHWM"))
}

/// The result of an attack and its costs: time, and memory.
fn measured<T>(name: &str, attack: impl FnOnce() -> T) -> (T, Duration, u64) {
    // The peak starts anew.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let (before, start) = (memory().0, Instant::now());
    let result = attack();
    let (time, (after, peak)) = (start.elapsed(), memory());
    println!("{name}: {time:?}, {before} MiB before, {peak} MiB at most, {after} MiB after");
    (result, time, peak.saturating_sub(before))
}

/// The time that any of them may take, in a build for tests and on a machine that has much else to do.
const SOON: Duration = Duration::from_secs(60);
/// The memory that any of them may take, in MiB.
const LITTLE: u64 = 450;

/// It took 3 GiB.
fn a_short_pipeline_that_doubles_each_document(store: &mut Store) {
    let stages: Vec<_> = (0..21).map(|field| doc! { "$set": { format!("f{field}"): "$$ROOT" } }).collect();
    let pipeline = raw(&doc! { "aggregate": "pets", "pipeline": stages, "cursor": {} });
    assert!(pipeline.as_bytes().len() < 954);

    let (outcome, time, memory) = measured("pipeline", || run(store, &pipeline));

    // Whichever comes first: too many bytes, or too much work.
    assert!([50, 146].contains(&outcome.unwrap_err().code));
    assert!(time < SOON && memory < LITTLE, "{time:?}, {memory} MiB");
}

/// They held 965 MB, also after their client had hung up.
fn six_hundred_cursors_that_nobody_reads(store: &mut Store) {
    let find = raw(&doc! { "find": "pets", "batchSize": 0 });
    let command = StoreCommand { name: "find", database: "test", body: &find };
    let caller = Caller::new(Moment::ORIGIN, 7);

    let (outcomes, time, memory) = measured("cursors", || {
        (0..600).map(|_| store.run_as(caller, &command).unwrap().0.map_err(|failure| failure.code)).collect::<Vec<_>>()
    });
    let opened = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let held = memory_now();
    store.end_connection(7);

    assert!(outcomes.contains(&Err(146)));
    assert!(opened > 100 && time < SOON && memory < LITTLE, "{opened} cursors, {time:?}, {memory} MiB");
    assert!(memory_now() < held - 100, "those of a client that is gone are gone");
}

/// It ran for eight seconds, and every other client waited.
fn a_query_with_a_thousand_branches(store: &mut Store) {
    let branches: Vec<_> = (0..1000).map(|y| doc! { "y": y }).collect();
    let query = doc! { "find": "pets", "filter": { "$or": branches } };
    let with_limit = query.clone().into_iter().chain(doc! { "maxTimeMS": 50 }).collect();

    let (endless, time, _) = measured("query", || run(store, &raw(&query)));
    let (limited, time_of_limited, _) = measured("query of 50 ms", || run(store, &raw(&with_limit)));

    assert_eq!((endless.unwrap_err().code, limited.unwrap_err().code), (50, 50));
    assert!(time < SOON && time_of_limited < SOON, "{time:?} and {time_of_limited:?}");
}

/// It took whatever memory there was. The limit is lower here, so that the test is short.
fn inserts_without_end() {
    let mut limits = StoreLimits::default();
    limits.bytes = 200 << 20;
    let mut store = Store::new(limits);
    let megabytes: Vec<_> = (0..20).map(|_| doc! { "x": "x".repeat(1 << 20) }).collect();
    let insert = raw(&doc! { "insert": "big", "documents": megabytes });

    let (last, time, memory) = measured("inserts", || (0..30).map(|_| run(&mut store, &insert).unwrap()).last());

    let last = Document::try_from(last.unwrap()).unwrap();
    let error = last.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(error.get_i32("code").unwrap(), 14031);
    assert!(time < SOON && memory < LITTLE, "{time:?}, {memory} MiB");
}

fn memory_now() -> u64 {
    memory().0
}

#[test]
fn attacks_on_the_store_fail_soon_and_in_little_memory() {
    let mut store = store();

    a_short_pipeline_that_doubles_each_document(&mut store);
    six_hundred_cursors_that_nobody_reads(&mut store);
    a_query_with_a_thousand_branches(&mut store);
    inserts_without_end();
}
