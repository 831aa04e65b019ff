//! Writes of any number of items: batches, their retries and their time, what they have done together, and the results of bulkWrite.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bson::{Document, RawArrayBuf, RawDocumentBuf, doc, rawdoc};
use cmap_core::server::CommandEvent;
use cmap_core::topology::ServerSelector::Writable;
use cmap_runtime::{BatchError, Client, OperationError, OperationErrorKind, Runtime, Subscription, WriteResult};
use cmap_test_server::ServerVersion;

use super::rogue::Rogue;
use super::{
    ClientOf, Harness, LocalServer, Setup, assert_nothing_lost, command_events, connect, options, poll_once, roomy,
    run, until, yield_now,
};

/// The fewest writes of one command that a client believes.
const MOST: usize = 1000;

/// A member of a set that takes a thousand writes at once.
fn member() -> LocalServer {
    LocalServer::start_as(Setup {
        version: ServerVersion::V8_0,
        write_batch: Some(MOST),
        replica_set: true,
        ..Setup::default()
    })
}

/// A client that tells of its commands.
async fn observed<H: Harness>(server: &LocalServer, query: &str) -> ClientOf<H> {
    super::builder::<H>(options(server, query)).observe_commands(true).build().await.unwrap()
}

fn numbers(count: usize) -> impl Iterator<Item = Document> + Send {
    (0..count).map(|n| doc! { "_id": i64::try_from(n).unwrap() })
}

async fn insert<R: Runtime>(
    client: &Client<R>,
    ordered: bool,
    values: impl Iterator<Item = Document> + Send,
) -> Result<WriteResult, OperationError> {
    let insert = doc! { "insert": "numbers", "ordered": ordered };
    client.operation(("db", insert)).on(Writable).sequence("documents", values).run().await
}

/// A bulkWrite whose results come one by one.
async fn bulk_write<R: Runtime>(client: &Client<R>, ops: Vec<Document>) -> Result<WriteResult, OperationError> {
    let command = doc! { "bulkWrite": 1, "errorsOnly": false, "cursor": { "batchSize": 1 } };
    let operation = client.operation(("admin", command)).on(Writable);
    operation.sequence("ops", ops).sequence("nsInfo", [doc! { "ns": "db.numbers" }]).run().await
}

fn upserts(count: i32) -> Vec<Document> {
    let upsert = |n| doc! { "update": 0, "filter": { "_id": n }, "updateMods": { "$set": { "x": n } }, "upsert": true };
    (0..count).map(upsert).collect()
}

async fn count<R: Runtime>(client: &Client<R>) -> i32 {
    let reply = client.operation(("db", doc! { "count": "numbers" })).on(Writable).run().await.unwrap();
    reply.get_i32("n").unwrap()
}

async fn fail<R: Runtime>(client: &Client<R>, mode: RawDocumentBuf, data: RawDocumentBuf) {
    let fail_point = rawdoc! { "configureFailPoint": "failCommand", "mode": mode, "data": data };
    client.operation(("admin", fail_point)).on(Writable).run().await.unwrap();
}

async fn open_cursors<R: Runtime>(client: &Client<R>) -> i32 {
    let reply = client.operation(("db", rawdoc! { "dbStats": 1 })).on(Writable).run().await.unwrap();
    reply.get_i32("openCursors").unwrap()
}

/// The commands of this name that were sent since the events were last read, and the numbers of their operations.
async fn sent<R: Runtime>(
    client: &Client<R>,
    events: &mut Subscription,
    wanted: &str,
) -> Vec<(RawDocumentBuf, Option<u64>)> {
    let started = |event: &Arc<CommandEvent>| {
        let CommandEvent::CommandStarted { document, sent: command } = &**event else { return None };
        (command.name == wanted).then(|| (document.clone(), command.operation_id))
    };
    command_events(client, events).await.iter().filter_map(started).collect()
}

fn items(command: &RawDocumentBuf, field: &str) -> usize {
    command.get_array(field).unwrap().into_iter().count()
}

pub fn documents_of_any_number_are_inserted_in_batches_of_one_operation_bw_9<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        let mut events = client.subscribe(1000);

        let result = insert(&client, true, numbers(2 * MOST + 1)).await.unwrap();

        assert_eq!((result.inserted, count(&client).await), (2001, 2001));
        let sent = sent(&client, &mut events, "insert").await;
        let sizes: Vec<_> = sent.iter().map(|(command, _)| items(command, "documents")).collect();
        assert_eq!(sizes, [MOST, MOST, 1], "BW-2");
        let first = sent[0].0.get_i64("txnNumber").unwrap();
        let numbers: Vec<_> = sent.iter().map(|(command, _)| command.get_i64("txnNumber").unwrap() - first).collect();
        assert_eq!(numbers, [0, 1, 2]);
        assert!(sent.iter().all(|(_, operation)| *operation == sent[0].1), "one operation");
        let lsid = |command: &RawDocumentBuf| command.get_document("lsid").unwrap().to_owned();
        assert!(sent.iter().all(|(command, _)| lsid(command) == lsid(&sent[0].0)), "one session");
        assert_nothing_lost(&client);
    });
}

pub fn a_batch_that_was_cut_off_is_sent_again_and_written_once<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        let data = rawdoc! { "failCommands": ["insert"], "closeConnection": true };
        fail(&client, rawdoc! { "times": 1 }, data).await;
        let mut events = client.subscribe(1000);

        let result = insert(&client, true, numbers(2 * MOST)).await.unwrap();

        assert_eq!((result.inserted, count(&client).await), (2000, 2000));
        let numbers: Vec<_> = sent(&client, &mut events, "insert")
            .await
            .iter()
            .map(|(command, _)| command.get_i64("txnNumber").unwrap())
            .collect();
        assert!(numbers.len() == 3 && numbers[0] == numbers[1] && numbers[1] < numbers[2], "{numbers:?}");
        assert_nothing_lost(&client);
    });
}

pub fn a_batch_with_a_write_of_several_documents_runs_once_and_others_are_repeated_bw_10<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        let update = |n: usize, multi| doc! { "q": { "_id": i64::try_from(n).unwrap() }, "u": { "$set": { "x": 1 } }, "multi": multi };
        let updates = move || (0..2 * MOST).map(move |n| update(n, n == MOST));
        let run = || {
            let operation = client.operation(("db", doc! { "update": "numbers" })).on(Writable);
            operation.sequence("updates", updates()).run()
        };
        insert(&client, true, numbers(2 * MOST)).await.unwrap();
        let cut_off = || rawdoc! { "failCommands": ["update"], "closeConnection": true };

        fail(&client, rawdoc! { "times": 1 }, cut_off()).await;
        let mut events = client.subscribe(1000);
        assert_eq!(run().await.unwrap().matched, 2000);
        let numbered: Vec<_> = sent(&client, &mut events, "update")
            .await
            .iter()
            .map(|(command, _)| command.get("txnNumber").unwrap().is_some())
            .collect();
        assert_eq!(numbered, [true, true, false]);

        fail(&client, rawdoc! { "skip": 1 }, cut_off()).await;
        let error = run().await.unwrap_err();
        assert!(error.is_network() && error.retries == 0, "{error}");
        assert_eq!(error.written().unwrap().matched, 1000, "BW-14");
    });
}

pub fn the_first_error_ends_an_ordered_insert_and_says_what_was_done_bw_12<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        insert(&client, true, [doc! { "_id": 1500_i64 }].into_iter()).await.unwrap();

        let error = insert(&client, true, numbers(3 * MOST)).await.unwrap_err();

        assert!(error.is_duplicate_key() && !error.is_retryable(), "{error}");
        let OperationErrorKind::Writes(result) = &error.kind else { panic!("{error}") };
        assert_eq!((result.inserted, result.errors.len(), result.errors[0].index), (1500, 1, Some(1500)));
        assert_eq!(count(&client).await, 1501);
    });
}

pub fn an_unordered_insert_goes_on_and_gathers_all_errors_bw_12<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        let there = [7_i64, 1500, 2999].map(|n| doc! { "_id": n });
        insert(&client, true, there.into_iter()).await.unwrap();

        let error = insert(&client, false, numbers(3 * MOST)).await.unwrap_err();

        let result = error.written().unwrap();
        let failed: Vec<_> = result.errors.iter().map(|error| error.index).collect();
        assert_eq!((result.inserted, failed), (2997, vec![Some(7), Some(1500), Some(2999)]));
        assert_eq!(count(&client).await, 3000);
    });
}

pub fn write_concern_errors_stop_nothing_and_are_told_at_the_end_bw_13<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true&retryWrites=false").await;
        let concern = rawdoc! { "code": 100, "errmsg": "no such members" };
        let data = rawdoc! { "failCommands": ["insert"], "writeConcernError": concern };
        fail(&client, rawdoc! { "times": 2 }, data).await;

        let error = insert(&client, true, numbers(3 * MOST)).await.unwrap_err();

        let result = error.written().unwrap();
        assert_eq!((result.inserted, result.errors.len(), result.concern_errors.len()), (3000, 0, 2));
        assert_eq!((error.code(), count(&client).await), (Some(100), 3000));
    });
}

pub fn what_a_batch_has_written_is_told_though_its_retry_fails_bw_14<H: Harness>() {
    run::<H>(async {
        let inserts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&inserts);
        let server = Rogue::start(move || {
            let inserts = Arc::clone(&counted);
            move |name, _| {
                if name != "insert" {
                    return rawdoc! {
                        "ok": 1, "isWritablePrimary": true, "setName": "rs", "logicalSessionTimeoutMinutes": 30,
                        "maxWireVersion": 25,
                    };
                }
                if inserts.fetch_add(1, Ordering::SeqCst) == 0 {
                    let concern = rawdoc! { "code": 64, "errmsg": "waiting for replication timed out" };
                    let labels = ["RetryableWriteError"].into_iter().collect::<RawArrayBuf>();
                    return rawdoc! { "ok": 1, "n": 2, "writeConcernError": concern, "errorLabels": labels };
                }
                let labels = ["RetryableWriteError", "NoWritesPerformed"].into_iter().collect::<RawArrayBuf>();
                rawdoc! { "ok": 0, "code": 10107, "errmsg": "not primary", "errorLabels": labels }
            }
        });
        let client = connect::<H>(&format!("mongodb://{}/?directConnection=true", server.place())).await.unwrap();

        let error = insert(&client, true, numbers(2)).await.unwrap_err();

        assert_eq!((inserts.load(Ordering::SeqCst), error.retries, error.code()), (2, 1, Some(64)), "{error}");
        let result = error.written().unwrap();
        assert_eq!((result.inserted, result.concern_errors.len()), (2, 1), "BW-16");
    });
}

pub fn an_error_of_a_command_ends_an_unordered_insert_too_bw_14<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        fail(&client, rawdoc! { "skip": 1 }, rawdoc! { "failCommands": ["insert"], "errorCode": 8 }).await;

        let error = insert(&client, false, numbers(3 * MOST)).await.unwrap_err();

        assert!(matches!(error.kind, OperationErrorKind::Command(_)) && error.code() == Some(8), "{error}");
        assert_eq!((error.written().unwrap().inserted, count(&client).await), (1000, 1000));
    });
}

pub fn all_batches_have_one_limit_of_time_csot_29<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        let slow_millis = i64::try_from(roomy::<H>(Duration::from_millis(300)).as_millis()).unwrap();
        let slow = rawdoc! { "failCommands": ["insert"], "blockConnection": true, "blockTimeMS": slow_millis };
        fail(&client, rawdoc! { "times": 3 }, slow).await;
        let operation = client.operation(("db", doc! { "insert": "numbers" })).on(Writable);

        let limited = operation.within(roomy::<H>(Duration::from_millis(500)));
        let error = limited.sequence("documents", numbers(3 * MOST)).run().await.unwrap_err();

        assert!(error.is_timeout(), "{error}");
        assert_eq!(error.written().unwrap().inserted, 1000);
    });
}

pub fn an_item_that_fits_into_no_message_is_named_bw_4<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        let values = [doc! { "_id": 0 }, doc! { "_id": 1, "text": "x".repeat(48_000_000) }];

        let error = insert(&client, false, values.into_iter()).await.unwrap_err();

        let OperationErrorKind::Batch(BatchError::TooLarge { index, .. }) = &error.kind else { panic!("{error}") };
        assert_eq!((*index, error.written().unwrap().inserted), (1, 1));
        assert_nothing_lost(&client);
    });
}

pub fn an_item_that_is_no_document_is_named<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        let insert = client.operation(("db", doc! { "insert": "numbers" })).on(Writable);

        let error = insert.sequence("documents", [1, 2]).run().await.unwrap_err();

        assert!(matches!(error.kind, OperationErrorKind::Batch(BatchError::Unwritable { index: 0, .. })), "{error}");
        assert!(error.written().is_none());
    });
}

pub fn an_operation_without_items_is_an_error_bw_7<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        let mut events = client.subscribe(1000);

        let error = insert(&client, true, numbers(0)).await.unwrap_err();

        assert!(matches!(error.kind, OperationErrorKind::Batch(BatchError::NoItems { .. })), "{error}");
        assert!(sent(&client, &mut events, "insert").await.is_empty());
    });
}

pub fn an_insert_as_an_array_that_is_too_large_is_told_of_sequences_x_169<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        let documents: Vec<_> = (0..17).map(|_| doc! { "text": "x".repeat(1 << 20) }).collect();

        let error = client.run(("db", doc! { "insert": "numbers", "documents": documents })).await.unwrap_err();

        assert!(error.to_string().contains("use `sequence`"), "{error}");
    });
}

pub fn ids_are_made_in_front_where_that_is_asked_for_bw_17<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        let mut events = client.subscribe(1000);
        let values = [doc! { "x": 1 }, doc! { "x": 2, "_id": 5 }];

        let insert = client.operation(("db", doc! { "insert": "numbers" })).on(Writable);
        insert.sequence("documents", values).with_ids().run().await.unwrap();

        let sent = sent(&client, &mut events, "insert").await;
        let mut documents = sent[0].0.get_array("documents").unwrap().into_iter();
        let mut next = || documents.next().unwrap().unwrap().as_document().unwrap();
        let (name, id) = next().iter().next().unwrap().unwrap();
        assert!(name.as_str() == "_id" && id.as_object_id().is_some(), "{id:?}");
        assert_eq!(next(), &*rawdoc! { "x": 2, "_id": 5 }, "a document with an _id stays as it is");
    });
}

pub fn writes_without_a_reply_go_in_batches_too_bw_8<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        let mut events = client.subscribe(1000);
        let insert = client.operation(("db", doc! { "insert": "numbers", "writeConcern": { "w": 0 } })).on(Writable);

        let result = insert.sequence("documents", numbers(MOST + 1)).run().await.unwrap();

        assert_eq!((result.is_acknowledged, result.n()), (false, 0));
        let all = sent(&client, &mut events, "insert").await;
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|(command, _)| command.get("lsid").unwrap().is_none()), "{all:?}");
        while count(&client).await < 1001 {
            yield_now().await;
        }
    });
}

pub fn batches_of_a_transaction_are_committed_together<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();

        let insert = session.operation(("db", doc! { "insert": "numbers" })).on(Writable);
        insert.sequence("documents", numbers(MOST + 1)).run().await.unwrap();
        assert_eq!(count(&client).await, 0);
        session.commit_transaction().await.unwrap();

        assert_eq!(count(&client).await, 1001);
    });
}

pub fn the_results_of_a_bulk_write_are_read_to_their_end_bw_15<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        let mut events = client.subscribe(5000);

        let result = bulk_write(&client, upserts(3)).await.unwrap();

        let places: Vec<_> = result.outcomes.iter().map(|outcome| outcome.index).collect();
        assert_eq!((result.upserts, places, result.upserted.len()), (3, vec![0, 1, 2], 3));
        assert!(!sent(&client, &mut events, "getMore").await.is_empty());
        assert_eq!(open_cursors(&client).await, 0);
        assert_nothing_lost(&client);
    });
}

pub fn a_results_cursor_that_fails_is_ended_and_what_was_read_is_told_bw_15<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        fail(&client, rawdoc! { "times": 1 }, rawdoc! { "failCommands": ["getMore"], "errorCode": 8 }).await;

        let error = bulk_write(&client, upserts(3)).await.unwrap_err();

        assert_eq!(error.code(), Some(8));
        let done = error.written().unwrap();
        assert_eq!((done.upserts, done.outcomes.len()), (3, 1));
        assert_eq!(open_cursors(&client).await, 0);
        assert_nothing_lost(&client);
    });
}

pub fn an_ordered_error_of_a_bulk_write_ends_its_results_cursor_x_177<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        insert(&client, true, [doc! { "_id": 1_i64 }].into_iter()).await.unwrap();
        let ops = (0..3).map(|n| doc! { "insert": 0, "document": { "_id": n } }).collect();

        let error = bulk_write(&client, ops).await.unwrap_err();

        let result = error.written().unwrap();
        assert_eq!((result.inserted, result.errors[0].index, result.has_written()), (1, Some(1), true));
        assert_eq!(open_cursors(&client).await, 0);
    });
}

pub fn a_results_cursor_keeps_its_connection_behind_a_load_balancer_bw_15<H: Harness>() {
    run::<H>(async {
        let setup = Setup { version: ServerVersion::V8_0, services: 2, ..Setup::default() };
        let server = LocalServer::start_as(setup);
        let client = observed::<H>(&server, "loadBalanced=true").await;

        let result = bulk_write(&client, upserts(3)).await.unwrap();

        assert_eq!((result.upserts, result.outcomes.len()), (3, 3));
        assert_nothing_lost(&client);
    });
}

pub fn a_bulk_write_that_is_dropped_at_any_moment_leaves_nothing_behind<H: Harness>() {
    run::<H>(async {
        let server = member();
        let client = observed::<H>(&server, "directConnection=true").await;
        client.warm_up(1, Duration::from_secs(10)).await.unwrap();
        let mut most = 0;

        loop {
            let mut writing = Box::pin(bulk_write(&client, upserts(4)));
            let mut is_done = false;
            for _ in 0..most {
                is_done = poll_once(&mut writing).await.is_some();
                if is_done {
                    break;
                }
                yield_now().await;
            }
            drop(writing);
            until(|| client.stats().counts.in_use == 0).await;
            while open_cursors(&client).await > 0 {
                yield_now().await;
            }
            if is_done {
                break;
            }
            // Every moment at first, and fewer of those that take long to come.
            most += 1 + most / 8;
        }

        assert_nothing_lost(&client);
    });
}
