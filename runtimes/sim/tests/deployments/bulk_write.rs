//! Writes of any number: through failovers, and the prose tests of MongoDB's specification *Bulk Write* (`crud/tests/README.md`), by their
//! numbers.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

use cmap_sim::bson::{Document, RawDocument, RawDocumentBuf, doc};
use cmap_sim::cmap_core::options::ClientOptions;
use cmap_sim::cmap_core::random::Random;
use cmap_sim::cmap_core::server::CommandEvent;
use cmap_sim::cmap_core::wire::Limits;
use cmap_sim::{
    BatchError, Client, DeploymentConfig, Event, MemberConfig, Notice, OperationError, OperationErrorKind, Server,
    ServerVersion, SetConfig, Sim, Subscription, WriteResult, campaign,
};

use super::failover::fail_over;

/// The limits that the server's hello names.
const MAX_WRITE_BATCH: usize = Limits::DEFAULT.max_write_batch as usize;
const MAX_MESSAGE: usize = Limits::DEFAULT.max_message_size as usize;
const MAX_DOCUMENT: usize = Limits::DEFAULT.max_document_size as usize;

/// What a test has.
struct Scene {
    _server: Server,
    client: Client,
    events: Subscription,
}

/// Runs a test with a server of version 8.0, the only member of a set; `query` are options of the client.
fn test<T: Future<Output = ()>>(query: &str, test: impl FnOnce(Scene) -> T) {
    let sim = Sim::new(0);
    sim.set_splits(false);
    let server = sim.server_with("db.example", |config| {
        *config = config.clone().with_version(ServerVersion::V8_0);
        config.replica_set = Some("rs".into());
    });
    sim.run(async {
        let uri = format!("mongodb://db.example/?directConnection=true&{query}");
        let (options, _) = ClientOptions::parse(&uri).unwrap();
        let client = Client::builder(options).observe_commands(true).build().await.unwrap();
        client.run(("db", doc! { "create": "coll" })).await.unwrap();
        let events = client.subscribe(1000);
        test(Scene { _server: server, client, events }).await;
    });
}

impl Scene {
    async fn fail(&self, command: &str, what: Document) {
        let mut data = doc! { "failCommands": [command] };
        data.extend(what.clone());
        data.remove("times");
        let mode = doc! { "times": what.get_i32("times").unwrap_or(1) };
        let fail_point = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data };
        self.client.run(("admin", fail_point)).await.unwrap();
    }

    async fn write(
        &self,
        command: Document,
        ops: impl IntoIterator<Item = Document, IntoIter: Send>,
        namespaces: &[&str],
    ) -> Result<WriteResult, OperationError> {
        let namespaces: Vec<_> = namespaces.iter().map(|name| doc! { "ns": *name }).collect();
        let operation = self.client.operation(("admin", command));
        operation.sequence("ops", ops).sequence("nsInfo", namespaces).with_ids().run().await
    }

    /// The commands of this name that were sent, with the numbers of their operations.
    fn sent(&mut self, wanted: &str) -> Vec<(RawDocumentBuf, Option<u64>)> {
        let mut found = Vec::new();
        while let Some(notice) = self.events.try_next() {
            let Notice::Event { event: Event::Command(event), .. } = notice else { continue };
            if let CommandEvent::CommandStarted { document, sent } = &*event
                && document.iter().next().unwrap().unwrap().0.as_str() == wanted
            {
                found.push((document.clone(), sent.operation_id));
            }
        }
        found
    }

    /// How many operations each bulkWrite had, all of which belong to one operation of the client's.
    fn sizes(&mut self) -> Vec<usize> {
        let sent = self.sent("bulkWrite");
        assert!(sent.iter().all(|(_, operation)| *operation == sent[0].1));
        sent.iter().map(|(command, _)| count(command, "ops")).collect()
    }

    async fn documents(&self) -> i32 {
        self.client.run(("db", doc! { "count": "coll" })).await.unwrap().get_i32("n").unwrap()
    }
}

fn count(command: &RawDocument, field: &str) -> usize {
    command.get_array(field).unwrap().into_iter().count()
}

fn insert(document: Document) -> Document {
    doc! { "insert": 0, "document": document }
}

fn text(length: usize) -> String {
    "b".repeat(length)
}

/// Two upserts whose `_id`s do not fit into one reply.
fn large_upserts() -> [Document; 2] {
    ["a", "b"].map(|letter| {
        let filter = doc! { "_id": letter.repeat(MAX_DOCUMENT / 2) };
        doc! { "update": 0, "filter": filter, "updateMods": { "$set": { "x": 1 } }, "multi": false, "upsert": true }
    })
}

fn verbose() -> Document {
    doc! { "bulkWrite": 1, "errorsOnly": false }
}

#[test]
fn each_document_is_there_once_through_failovers() {
    const DOCUMENTS: i32 = 30_000;
    campaign(20, |seed| {
        let sim = Sim::new(seed);
        sim.set_pace(Duration::from_millis(20)..=Duration::from_millis(200), None);
        let set = sim.deployment(|mut config| {
            // The fewest writes of one command that a client believes.
            config.limits.write_batch = 1000;
            let member = |(id, host): (i32, &str)| MemberConfig::new(id, format!("{host}.example:27017"));
            let members = (0..).zip(["a", "b", "c"]).map(member).collect();
            DeploymentConfig::replica_set(config, SetConfig::new("rs", members))
        });
        sim.run(async {
            let client = Client::connect(&set.uri("heartbeatFrequencyMS=500&connectTimeoutMS=500")).await.unwrap();
            let insert = doc! { "insert": "coll", "writeConcern": { "w": "majority" } };
            let operation = client.operation(("db", insert)).within(Duration::from_secs(600));
            let documents = (0..DOCUMENTS).map(|n| doc! { "_id": n });
            let mut writing = pin!(operation.sequence("documents", documents).run());
            let mut random = Random::new(seed);
            let mut troubles = pin!(async {
                for _ in 0..3 {
                    sim.sleep(Duration::from_millis(random.up_to(1500))).await;
                    fail_over(&sim, &set, &mut random).await;
                }
            });
            let mut is_over = false;
            let written = poll_fn(|cx| {
                is_over = is_over || troubles.as_mut().poll(cx).is_ready();
                writing.as_mut().poll(cx)
            });

            let result = written.await.unwrap();

            assert_eq!(result.inserted, u64::try_from(DOCUMENTS).unwrap());
            let count = client.operation(("db", doc! { "count": "coll" })).within(Duration::from_secs(60)).run();
            assert_eq!(count.await.unwrap().get_i32("n").unwrap(), DOCUMENTS);
        });
    });
}

#[test]
fn prose_3_a_batch_has_as_many_operations_as_the_server_takes() {
    test("", async |mut scene| {
        let ops = (0..=MAX_WRITE_BATCH).map(|_| insert(doc! { "a": "b" }));

        let result = scene.write(doc! { "bulkWrite": 1 }, ops, &["db.coll"]).await.unwrap();

        assert_eq!(result.inserted, MAX_WRITE_BATCH as u64 + 1);
        assert_eq!(scene.sizes(), [MAX_WRITE_BATCH, 1]);
    });
}

#[test]
fn prose_4_a_batch_has_as_many_bytes_as_a_message_takes() {
    test("", async |mut scene| {
        let models = MAX_MESSAGE / MAX_DOCUMENT + 1;
        let ops = (0..models).map(|_| insert(doc! { "a": text(MAX_DOCUMENT - 500) }));

        let result = scene.write(doc! { "bulkWrite": 1 }, ops, &["db.coll"]).await.unwrap();

        assert_eq!(result.inserted, models as u64);
        assert_eq!(scene.sizes(), [models - 1, 1]);
    });
}

#[test]
fn prose_5_write_concern_errors_of_all_batches_are_kept() {
    test("retryWrites=false", async |mut scene| {
        let concern = doc! { "code": 91, "errmsg": "Replication is being shut down" };
        scene.fail("bulkWrite", doc! { "times": 2, "writeConcernError": concern }).await;
        let ops = (0..=MAX_WRITE_BATCH).map(|_| insert(doc! { "a": "b" }));

        let error = scene.write(doc! { "bulkWrite": 1 }, ops, &["db.coll"]).await.unwrap_err();

        let OperationErrorKind::Writes(result) = &error.kind else { panic!("{error}") };
        assert_eq!((result.concern_errors.len(), result.inserted), (2, MAX_WRITE_BATCH as u64 + 1));
        assert_eq!(scene.sizes().len(), 2);
    });
}

#[test]
fn prose_6_errors_of_single_writes_are_gathered_over_all_batches_or_end_the_first() {
    for (ordered, errors, batches) in [(false, MAX_WRITE_BATCH + 1, 2), (true, 1, 1)] {
        test("", async |mut scene| {
            scene.client.run(("db", doc! { "insert": "coll", "documents": [{ "_id": 1 }] })).await.unwrap();
            let ops = (0..=MAX_WRITE_BATCH).map(|_| insert(doc! { "_id": 1 }));

            let error = scene.write(doc! { "bulkWrite": 1, "ordered": ordered }, ops, &["db.coll"]).await.unwrap_err();

            let OperationErrorKind::Writes(result) = &error.kind else { panic!("{error}") };
            assert_eq!((result.errors.len(), result.has_written()), (errors, false));
            assert_eq!(result.errors.last().unwrap().index, Some(u32::try_from(errors - 1).unwrap()));
            assert_eq!(scene.sizes().len(), batches);
        });
    }
}

#[test]
fn prose_7_a_results_cursor_is_read_on_with_get_more() {
    test("", async |mut scene| {
        let result = scene.write(verbose(), large_upserts(), &["db.coll"]).await.unwrap();

        assert_eq!((result.upserts, result.outcomes.len()), (2, 2));
        assert_eq!(scene.sent("getMore").len(), 1);
    });
}

#[test]
fn prose_8_a_results_cursor_is_read_on_in_a_transaction() {
    test("", async |mut scene| {
        let mut session = scene.client.start_session().unwrap();
        session.start_transaction().unwrap();

        let operation = session.operation(("admin", verbose())).sequence("ops", large_upserts());
        let result = operation.sequence("nsInfo", [doc! { "ns": "db.coll" }]).run().await.unwrap();

        assert_eq!((result.upserts, result.outcomes.len()), (2, 2));
        let get_mores = scene.sent("getMore");
        assert_eq!(get_mores.len(), 1);
        assert!(get_mores[0].0.get("txnNumber").unwrap().is_some());
        session.abort_transaction().await.unwrap();
    });
}

#[test]
fn prose_9_a_get_more_that_fails_ends_the_cursor_and_leaves_partial_results() {
    test("", async |mut scene| {
        scene.fail("getMore", doc! { "errorCode": 8 }).await;

        let error = scene.write(verbose(), large_upserts(), &["db.coll"]).await.unwrap_err();

        assert_eq!(error.code(), Some(8));
        let partial = error.written().unwrap();
        assert_eq!((partial.upserts, partial.outcomes.len()), (2, 1));
        let mut names = Vec::new();
        while let Some(notice) = scene.events.try_next() {
            let Notice::Event { event: Event::Command(event), .. } = notice else { continue };
            if let CommandEvent::CommandStarted { document, .. } = &*event {
                names.push(document.iter().next().unwrap().unwrap().0.as_str().to_owned());
            }
        }
        assert_eq!(names[names.len() - 3..], ["bulkWrite", "getMore", "killCursors"]);
    });
}

/// The operations that leave room for exactly one more in the collection of the first.
fn nearly_full() -> Vec<Document> {
    let bytes = MAX_MESSAGE - 1122;
    let (models, remainder) = (bytes / MAX_DOCUMENT, bytes % MAX_DOCUMENT);
    let mut ops: Vec<_> = (0..models).map(|_| insert(doc! { "a": text(MAX_DOCUMENT - 57) })).collect();
    if remainder >= 217 {
        ops.push(insert(doc! { "a": text(remainder - 57) }));
    }
    ops
}

#[test]
fn prose_11_a_collection_that_is_in_the_batch_takes_no_further_room() {
    test("", async |mut scene| {
        let mut ops = nearly_full();
        ops.push(insert(doc! { "a": "b" }));
        let models = ops.len();

        let result = scene.write(doc! { "bulkWrite": 1 }, ops, &["db.coll"]).await.unwrap();

        assert_eq!(result.inserted, models as u64);
        let sent = scene.sent("bulkWrite");
        assert_eq!(sent.len(), 1);
        assert_eq!((count(&sent[0].0, "ops"), count(&sent[0].0, "nsInfo")), (models, 1));
    });
}

#[test]
fn prose_11_a_new_collection_may_be_too_much_for_the_batch() {
    test("", async |mut scene| {
        let mut ops = nearly_full();
        let models = ops.len();
        ops.push(doc! { "insert": 1, "document": { "a": "b" } });
        let long = format!("db.{}", "c".repeat(200));

        let result = scene.write(doc! { "bulkWrite": 1 }, ops, &["db.coll", &long]).await.unwrap();

        assert_eq!(result.inserted, models as u64 + 1);
        let names = |command: &RawDocument| {
            let names = command.get_array("nsInfo").unwrap().into_iter();
            names.map(|ns| ns.unwrap().as_document().unwrap().get_str("ns").unwrap().to_owned()).collect::<Vec<_>>()
        };
        let sent = scene.sent("bulkWrite");
        let seen: Vec<_> = sent.iter().map(|(command, _)| (count(command, "ops"), names(command))).collect();
        assert_eq!(seen, [(models, vec!["db.coll".to_owned()]), (1, vec![long])]);
    });
}

#[test]
fn prose_12_an_operation_that_fits_into_no_message_is_an_error_of_the_client() {
    test("", async |mut scene| {
        let long = format!("db.{}", "c".repeat(MAX_MESSAGE));
        for (document, namespace) in [(doc! { "a": text(MAX_MESSAGE) }, "db.coll"), (doc! { "a": "b" }, &*long)] {
            let error = scene.write(doc! { "bulkWrite": 1 }, [insert(document)], &[namespace]).await.unwrap_err();

            let OperationErrorKind::Batch(BatchError::TooLarge { index: 0, .. }) = &error.kind else {
                panic!("{error}")
            };
            assert!(error.written().is_none());
        }
        assert!(scene.sent("bulkWrite").is_empty());
    });
}

#[test]
fn prose_15_an_unacknowledged_bulk_write_says_so_in_all_batches() {
    test("", async |mut scene| {
        let models = MAX_MESSAGE / MAX_DOCUMENT + 1;
        let ops = (0..models).map(|_| insert(doc! { "a": text(MAX_DOCUMENT - 500) }));
        let command = doc! { "bulkWrite": 1, "ordered": false, "writeConcern": { "w": 0 } };

        let result = scene.write(command, ops, &["db.coll"]).await.unwrap();

        assert!(!result.is_acknowledged);
        let sent = scene.sent("bulkWrite");
        assert_eq!(sent.iter().map(|(command, _)| count(command, "ops")).collect::<Vec<_>>(), [models - 1, 1]);
        assert!(sent.iter().all(|(_, operation)| *operation == sent[0].1));
        for (command, _) in &sent {
            assert_eq!(command.get_document("writeConcern").unwrap().get_i32("w").unwrap(), 0);
        }
        while scene.documents().await < i32::try_from(models).unwrap() {}
    });
}
