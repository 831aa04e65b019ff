//! Change streams: where they begin, where they go on after an error, and which errors end them. Those that are named `prose` are the prose
//! tests of the specification, by their numbers.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, Timestamp, doc, rawdoc};
use cmap_core::address::ServerAddress;
use cmap_core::server::{CommandEvent, ServerType};
use cmap_runtime::{
    Client, CommandErrorKind, Cursor, CursorError, CursorOptions, OperationError, OperationErrorKind, Runtime,
    Subscription,
};
use futures_core::Stream;
use serde::Deserialize;

use super::cursors::{fail, lsid, named, no_cursor_is_open, of_cursor, open_cursors, sent};
use super::rogue::Rogue;
use super::scripted_server::ScriptedServer;
use super::{
    ClientOf, Harness, LocalServer, Setup, assert_nothing_lost, command_events, connect, options, poll_once, roomy,
    run, until, yield_now,
};

const LABEL: &str = "ResumableChangeStreamError";

/// How long the server waits for a change, so that no case waits for a second.
const SHORT: Duration = Duration::from_millis(20);

/// A part of a change.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Change {
    operation_type: String,
}

pub fn a_collection_a_database_and_a_deployment_are_watched_cs_2<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let all = rawdoc! { "allChangesForCluster": true };
        let watch = |database, target: RawDocumentBuf, options: RawDocumentBuf| {
            let mut command = target;
            command.append(bson::cstr!("pipeline"), stages(options));
            client.operation((database, command)).watch_with(short())
        };
        let mut collection = watch("db", rawdoc! { "aggregate": "c" }, rawdoc! {}).await.unwrap();
        let mut database = watch("db", rawdoc! { "aggregate": 1 }, rawdoc! {}).await.unwrap();
        let mut deployment = watch("admin", rawdoc! { "aggregate": 1 }, all).await.unwrap();

        for (id, (database, collection)) in (1..).zip([("other", "c"), ("db", "d"), ("db", "c")]) {
            let insert = doc! { "insert": collection, "documents": [{ "_id": id }] };
            client.run((database, insert)).await.unwrap();
        }

        assert_eq!(next(&mut collection).await, 3);
        assert_eq!([next(&mut database).await, next(&mut database).await], [2, 3]);
        for id in 1..=3 {
            assert_eq!(next(&mut deployment).await, id);
        }
    });
}

pub fn changes_are_a_stream_and_become_values<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let mut values = watch(&client, rawdoc! {}).await.with_type::<Change>();
        let mut documents = watch(&client, rawdoc! {}).await;
        insert(&client, 1).await;

        let value = values.try_next().await.unwrap();
        let document = poll_fn(|cx| Pin::new(&mut documents).poll_next(cx)).await.unwrap().unwrap();

        assert_eq!(value, Some(Change { operation_type: "insert".into() }));
        assert_eq!(id(&document), 1);
        assert_eq!(values.resume_token(), documents.resume_token());
    });
}

pub fn a_command_that_is_no_change_stream_is_said_so<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;

        for command in [rawdoc! { "aggregate": "c", "pipeline": [{ "$match": {} }] }, rawdoc! { "find": "c" }] {
            let error = client.operation(("db", command)).watch().await.unwrap_err();

            assert_eq!(of_cursor(&error), Some(&CursorError::NoChangeStream));
        }
    });
}

pub fn a_step_of_a_change_stream_that_is_dropped_loses_no_change<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let mut stream = watch(&client, rawdoc! {}).await;
        for id in 0..8 {
            insert(&client, id).await;
        }

        let mut read = Vec::new();
        while read.len() < 8 {
            if read.len() % 3 == 0 {
                break_next_get_more(&client).await;
            }
            let next = loop {
                let polled = poll_once(&mut Box::pin(stream.try_next())).await;
                match polled.map(|next| id(next.unwrap().unwrap())) {
                    Some(next) => break next,
                    None => yield_now().await,
                }
            };
            read.push(next);
        }

        assert_eq!(read, (0..8).collect::<Vec<_>>());
    });
}

pub fn a_step_in_a_session_that_is_dropped_loses_no_change<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let mut session = client.start_session().unwrap();
        let mut events = client.subscribe(10_000);
        let operation = client.operation(("db", command(rawdoc! {}))).in_session(&mut session);
        let mut stream = operation.watch_with(short()).await.unwrap();
        insert(&client, 1).await;
        assert_eq!(id(stream.try_next(&mut session).await.unwrap().unwrap()), 1);
        let slow = rawdoc! { "failCommands": ["getMore"], "blockConnection": true, "blockTimeMS": 200 };
        fail(&client, rawdoc! { "times": 1 }, slow).await;

        assert!(poll_once(&mut Box::pin(stream.try_next(&mut session))).await.is_none());
        assert!(!stream.is_exhausted());
        insert(&client, 2).await;

        assert_eq!(id(stream.try_next(&mut session).await.unwrap().unwrap()), 2);
        let sent = sent(&client, &mut events).await;
        let lsids: Vec<_> = named(&sent, "aggregate").into_iter().map(lsid).collect();
        assert_eq!((lsids.len(), &lsids[0]), (2, &lsids[1]));
        stream.close(&mut session).await;
        no_cursor_is_open(&client).await;
    });
}

pub fn a_stream_goes_on_in_its_session_and_leaves_no_cursor_behind_cs_14_cs_15<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let mut events = client.subscribe(10_000);
        let mut stream = watch(&client, rawdoc! {}).await;
        let labels: RawArrayBuf = [LABEL].into_iter().collect();
        // The cursor stays open on the server, whose pool is not cleared.
        let refusal = rawdoc! { "failCommands": ["getMore"], "errorCode": 8, "errorLabels": labels };
        fail(&client, rawdoc! { "times": 1 }, refusal).await;
        insert(&client, 1).await;

        assert_eq!(next(&mut stream).await, 1);

        while open_cursors(&client).await > 1 {
            yield_now().await;
        }
        let sent = sent(&client, &mut events).await;
        let lsids: Vec<_> = named(&sent, "aggregate").into_iter().map(lsid).collect();
        assert_eq!((lsids.len(), &lsids[0]), (2, &lsids[1]));
        assert_ne!(lsid(named(&sent, "killCursors")[0]), lsids[0]);
        stream.close().await;
        assert_eq!(open_cursors(&client).await, 0);
        assert_nothing_lost(&client);
    });
}

pub fn a_stream_outlives_a_step_whose_time_is_up_csot_25<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let mut events = client.subscribe(10_000);
        let limit = roomy::<H>(Duration::from_millis(300));
        let mut stream = client.operation(("db", command(rawdoc! {}))).within(limit).watch_with(short()).await.unwrap();
        let slow_millis = i64::try_from(4 * limit.as_millis()).unwrap();
        let slow = rawdoc! { "failCommands": ["getMore"], "blockConnection": true, "blockTimeMS": slow_millis };
        fail(&client, rawdoc! { "times": 1 }, slow).await;

        let error = stream.try_next().await.unwrap_err();
        insert(&client, 1).await;
        sent(&client, &mut events).await;

        assert!(error.is_timeout() && !stream.is_exhausted(), "{error}");
        assert_eq!(next(&mut stream).await, 1);
        // The end of the old cursor is sent, too, sooner or later.
        assert_eq!(named(&sent(&client, &mut events).await, "aggregate").len(), 1);
    });
}

pub fn a_stream_outlives_a_step_that_was_dropped_before_its_time_was_up_csot_25<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let watch = client.operation(("db", command(rawdoc! {}))).within(Duration::from_secs(60));
        let mut stream = watch.watch_with(short()).await.unwrap();
        // The server says that maxTimeMS has expired, first to the getMore and then to the aggregate.
        let late = rawdoc! {
            "failCommands": ["getMore", "aggregate"], "blockConnection": true, "blockTimeMS": 100, "errorCode": 50,
        };
        fail(&client, rawdoc! { "times": 2 }, late).await;
        assert!(stream.try_next().await.unwrap_err().is_timeout());

        assert!(poll_once(&mut Box::pin(stream.try_next())).await.is_none());
        let error = stream.try_next().await.unwrap_err();
        insert(&client, 1).await;

        assert!(error.is_timeout() && !stream.is_exhausted(), "{error}");
        assert_eq!(next(&mut stream).await, 1);
    });
}

pub fn a_stream_does_not_wait_for_a_server_that_recovers_x_160<H: Harness>() {
    run::<H>(async {
        // Two secondaries. The one that opens the stream recovers from then on.
        let (places, opened_at) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<Vec<usize>>>::default());
        let member = |own| {
            let (places, opened_at) = (Arc::clone(&places), Arc::clone(&opened_at));
            Rogue::start(move || {
                let (places, opened_at) = (Arc::clone(&places), Arc::clone(&opened_at));
                move |name, _| {
                    let mut opened_at = opened_at.lock().unwrap();
                    if name == "aggregate" {
                        opened_at.push(own);
                        let changes: RawArrayBuf = match opened_at.len() {
                            1 => RawArrayBuf::new(),
                            _ => [rawdoc! { "_id": { "_data": "1" }, "operationType": "insert" }].into_iter().collect(),
                        };
                        return rawdoc! { "ok": 1, "cursor": { "id": 7_i64, "ns": "db.c", "firstBatch": changes } };
                    }
                    let hosts: RawArrayBuf = places.lock().unwrap().iter().map(String::as_str).collect();
                    let is_secondary = opened_at.first() != Some(&own);
                    rawdoc! { "ok": 1, "secondary": is_secondary, "setName": "rs", "hosts": hosts, "maxWireVersion": 25 }
                }
            })
        };
        let members = [member(0), member(1)];
        *places.lock().unwrap() = members.iter().map(Rogue::place).collect();
        let seeds = places.lock().unwrap().join(",");
        let query = "readPreference=secondary&heartbeatFrequencyMS=500&timeoutMS=60000";
        let client = connect::<H>(&format!("mongodb://{seeds}/?replicaSet=rs&{query}")).await.unwrap();
        let mut stream = client.operation(("db", command(rawdoc! {}))).watch().await.unwrap();
        let first = opened_at.lock().unwrap()[0];
        let of_first: ServerAddress = places.lock().unwrap()[first].parse().unwrap();
        until(|| client.description().server(&of_first).unwrap().server_type == ServerType::RsOther).await;

        assert_eq!(kind(&mut stream).await, "insert");

        let opened_at = opened_at.lock().unwrap();
        assert!(opened_at.len() == 2 && opened_at[0] != opened_at[1], "{opened_at:?}");
    });
}

pub fn a_stream_behind_a_load_balancer_goes_on_over_another_connection<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 1, replica_set: true, ..Setup::default() });
        let client = observed::<H>(&server, "loadBalanced=true").await;
        let in_use = || client.stats().counts.in_use;
        let mut stream = watch(&client, rawdoc! {}).await;
        assert_eq!(in_use(), 1, "LB-13");
        insert(&client, 1).await;
        break_next_get_more(&client).await;

        assert_eq!(next(&mut stream).await, 1);

        assert_eq!(in_use(), 1);
        stream.close().await;
        assert_eq!((in_use(), open_cursors(&client).await), (0, 0));
        assert_nothing_lost(&client);
    });
}

pub fn a_stream_ends_with_what_it_watches_and_another_starts_after_it_cs_16<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        insert(&client, 0).await;
        let mut stream = watch(&client, rawdoc! {}).await;
        client.run(("db", doc! { "drop": "c" })).await.unwrap();

        let kinds = [kind(&mut stream).await, kind(&mut stream).await];

        assert_eq!(kinds, ["drop", "invalidate"]);
        assert!(stream.try_next().await.unwrap().is_none() && stream.is_exhausted());
        let mut another = watch(&client, rawdoc! { "startAfter": stream.resume_token().unwrap().to_owned() }).await;
        insert(&client, 1).await;
        assert_eq!(next(&mut another).await, 1);
    });
}

pub fn prose_1_a_stream_tracks_the_token_of_the_last_change<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let mut events = client.subscribe(10_000);
        let mut stream = watch(&client, rawdoc! {}).await;

        for id in 0..3 {
            insert(&client, id).await;
            assert_eq!(next(&mut stream).await, id);
            let token = stream.resume_token().unwrap().to_owned();
            break_next_get_more(&client).await;
            sent(&client, &mut events).await;
            assert_eq!(stream.next_if_any().await.unwrap(), None);

            assert_eq!(stages_sent(&client, &mut events).await, [rawdoc! { "resumeAfter": token }]);
        }
    });
}

pub fn prose_2_a_server_that_misses_the_token_ends_the_stream<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let stages = [rawdoc! { "$changeStream": {} }, rawdoc! { "$project": { "_id": 0 } }];
        let command = rawdoc! { "aggregate": "c", "pipeline": stages.into_iter().collect::<RawArrayBuf>() };
        let mut stream = client.operation(("db", command)).watch_with(short()).await.unwrap();
        insert(&client, 1).await;

        let error = stream.try_next().await.unwrap_err();

        assert_eq!(code(&error), Some(280), "{error}");
        assert!(stream.is_exhausted());
    });
}

pub fn prose_2_a_change_without_a_token_ends_the_stream_cs_8<H: Harness>() {
    run::<H>(async {
        let server = ScriptedServer::start(|_, mut client| async move {
            let hello = client.next_request().await?;
            let service = ObjectId::from_bytes([7; 12]);
            let versions =
                rawdoc! { "ok": 1, "msg": "isdbgrid", "serviceId": service, "minWireVersion": 0, "maxWireVersion": 21 };
            client.answer(hello, &versions).await?;
            loop {
                let request = client.next_request().await?;
                let cursor = rawdoc! { "id": 0_i64, "ns": "db.c", "firstBatch": [{ "operationType": "insert" }] };
                client.answer(request, &rawdoc! { "ok": 1, "cursor": cursor }).await?;
            }
        });
        let client = connect::<H>(&server.uri("loadBalanced=true")).await.unwrap();
        let mut stream = client.operation(("db", command(rawdoc! {}))).watch().await.unwrap();

        let error = stream.try_next().await.unwrap_err();

        assert!(matches!(of_cursor(&error), Some(CursorError::NoResumeToken(_))), "{error}");
        assert!(error.to_string().starts_with("Cannot provide resume functionality when the resume token is missing"));
        assert!(stream.is_exhausted() && stream.try_next().await.unwrap().is_none());
    });
}

pub fn prose_3_a_stream_resumes_once_with_its_command_and_a_token<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let mut events = client.subscribe(10_000);
        let stage = rawdoc! { "$changeStream": { "fullDocument": "updateLookup" } };
        let stages = [stage, rawdoc! { "$match": { "operationType": "insert" } }];
        let pipeline = stages.into_iter().collect::<RawArrayBuf>();
        let watch = rawdoc! { "aggregate": "c", "pipeline": pipeline, "cursor": { "batchSize": 3 }, "comment": "mine" };
        let mut stream = client.operation(("db", watch)).watch_with(short()).await.unwrap();
        insert(&client, 1).await;
        assert_eq!(next(&mut stream).await, 1);
        let token = stream.resume_token().unwrap().to_owned();
        break_next_get_more(&client).await;
        insert(&client, 2).await;

        assert_eq!(next(&mut stream).await, 2);

        let sent = sent(&client, &mut events).await;
        let aggregates = named(&sent, "aggregate");
        assert_eq!(aggregates.len(), 2);
        let stage = rawdoc! { "$changeStream": { "fullDocument": "updateLookup", "resumeAfter": token } };
        let stages = [stage, rawdoc! { "$match": { "operationType": "insert" } }];
        let resumed = aggregates[1].get_array("pipeline").unwrap();
        assert_eq!(resumed, &*stages.into_iter().collect::<RawArrayBuf>());
        for field in ["aggregate", "cursor", "comment"] {
            assert_eq!(aggregates[1].get(field).unwrap(), aggregates[0].get(field).unwrap());
        }
    });
}

pub fn prose_4_an_aggregates_error_is_not_resumed<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("retryReads=false").await;
        let labels: RawArrayBuf = [LABEL].into_iter().collect();
        let refusal = rawdoc! { "failCommands": ["aggregate"], "errorCode": 130, "errorLabels": labels };
        fail(&client, rawdoc! { "times": 1 }, refusal).await;
        let mut events = client.subscribe(10_000);

        let error = client.operation(("db", command(rawdoc! {}))).watch().await.unwrap_err();

        assert_eq!(code(&error), Some(130), "{error}");
        assert_eq!(named(&sent(&client, &mut events).await, "aggregate").len(), 1);
    });
}

pub fn prose_7_an_empty_first_batch_leaves_the_stream_open<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let mut events = client.subscribe(10_000);

        let mut stream = watch(&client, rawdoc! {}).await;
        assert!(!stream.is_exhausted());
        insert(&client, 1).await;

        assert_eq!(next(&mut stream).await, 1);
        let sent = sent(&client, &mut events).await;
        assert_eq!((named(&sent, "aggregate").len(), named(&sent, "killCursors").len()), (1, 0));
    });
}

pub fn prose_8_an_error_of_the_old_cursors_end_is_not_told<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let mut events = client.subscribe(10_000);
        let mut stream = watch(&client, rawdoc! {}).await;
        let labels: RawArrayBuf = [LABEL].into_iter().collect();
        let refusal = rawdoc! { "failCommands": ["getMore", "killCursors"], "errorCode": 8, "errorLabels": labels };
        fail(&client, rawdoc! { "times": 2 }, refusal).await;
        insert(&client, 1).await;

        assert_eq!(next(&mut stream).await, 1);

        let mut all = sent(&client, &mut events).await;
        while named(&all, "killCursors").is_empty() {
            yield_now().await;
            all.extend(sent(&client, &mut events).await);
        }
        insert(&client, 2).await;
        assert_eq!(next(&mut stream).await, 2);
    });
}

pub fn prose_11_behind_a_batch_the_token_is_the_batchs<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let mut events = client.subscribe(10_000);
        let mut stream = watch(&client, rawdoc! {}).await;
        assert_eq!(stream.resume_token(), Some(&*token_replied(&client, &mut events).await), "an empty first batch");

        // Another collection's changes move the token on.
        client.run(("db", doc! { "insert": "other", "documents": [{}] })).await.unwrap();
        assert_eq!(stream.next_if_any().await.unwrap(), None);
        assert_eq!(stream.resume_token(), Some(&*token_replied(&client, &mut events).await), "an empty batch");

        insert(&client, 1).await;
        next(&mut stream).await;
        assert_eq!(stream.resume_token(), Some(&*token_replied(&client, &mut events).await), "a batch that was read");
    });
}

pub fn prose_13_within_a_batch_the_token_is_the_changes<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let time = first_of_three(&client).await;
        let mut stream = watch(&client, rawdoc! { "startAtOperationTime": time }).await;

        for _ in 0..2 {
            let own = stream.try_next().await.unwrap().unwrap().get_document("_id").unwrap().to_owned();
            assert_eq!(stream.resume_token(), Some(&*own));
        }
    });
}

pub fn prose_14_an_unread_batch_leaves_the_token_of_the_command<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let token = watch(&client, rawdoc! {}).await.resume_token().unwrap().to_owned();
        let time = first_of_three(&client).await;

        let after = watch(&client, rawdoc! { "startAfter": token.clone() }).await;
        let resumed = watch(&client, rawdoc! { "resumeAfter": token.clone() }).await;
        let at = watch(&client, rawdoc! { "startAtOperationTime": time }).await;

        assert_eq!(after.resume_token(), Some(&*token));
        assert_eq!(resumed.resume_token(), Some(&*token));
        assert_eq!(at.resume_token(), None);
    });
}

pub fn prose_17_a_stream_that_started_after_a_token_and_found_nothing_starts_after_it_again<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let token = watch(&client, rawdoc! {}).await.resume_token().unwrap().to_owned();
        let mut stream = watch(&client, rawdoc! { "startAfter": token }).await;
        let token = stream.resume_token().unwrap().to_owned();
        let mut events = client.subscribe(10_000);
        break_next_get_more(&client).await;

        assert_eq!(stream.next_if_any().await.unwrap(), None);

        assert_eq!(stages_sent(&client, &mut events).await, [rawdoc! { "startAfter": token }]);
    });
}

pub fn prose_18_a_stream_that_started_after_a_token_and_found_a_change_resumes_after_that<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let token = watch(&client, rawdoc! {}).await.resume_token().unwrap().to_owned();
        let mut stream = watch(&client, rawdoc! { "startAfter": token }).await;
        insert(&client, 1).await;
        assert_eq!(next(&mut stream).await, 1);
        let token = stream.resume_token().unwrap().to_owned();
        let mut events = client.subscribe(10_000);
        break_next_get_more(&client).await;

        assert_eq!(stream.next_if_any().await.unwrap(), None);

        assert_eq!(stages_sent(&client, &mut events).await, [rawdoc! { "resumeAfter": token }]);
    });
}

pub fn prose_19_a_change_that_is_too_large_comes_in_parts_cs_17<H: Harness>() {
    run::<H>(async {
        let (_server, client) = scene::<H>("").await;
        let images = doc! { "create": "c", "changeStreamPreAndPostImages": { "enabled": true } };
        client.run(("db", images)).await.unwrap();
        let text = |letter: &str| letter.repeat(10 << 20);
        let insert = doc! { "insert": "c", "documents": [{ "_id": 1, "value": text("q") }] };
        client.run(("db", insert)).await.unwrap();
        let stage = rawdoc! { "$changeStream": { "fullDocumentBeforeChange": "required" } };
        let stages = [stage, rawdoc! { "$changeStreamSplitLargeEvent": {} }];
        let command = rawdoc! { "aggregate": "c", "pipeline": stages.into_iter().collect::<RawArrayBuf>() };
        let mut stream = client.operation(("db", command)).watch_with(short()).await.unwrap();
        let update = doc! { "q": { "_id": 1 }, "u": { "$set": { "value": text("z") } } };
        client.run(("db", doc! { "update": "c", "updates": [update] })).await.unwrap();

        for fragment in 1..=2 {
            let part = stream.try_next().await.unwrap().unwrap();
            let split = part.get_document("splitEvent").unwrap();
            assert_eq!(split, &*rawdoc! { "fragment": fragment, "of": 2 });
        }
    });
}

/// The only member of a replica set, and a client that tells of its commands.
async fn scene<H: Harness>(query: &str) -> (LocalServer, ClientOf<H>) {
    let server = LocalServer::start_as(Setup { replica_set: true, ..Setup::default() });
    let client = observed::<H>(&server, &format!("directConnection=true&{query}")).await;
    (server, client)
}

async fn observed<H: Harness>(server: &LocalServer, query: &str) -> ClientOf<H> {
    super::builder::<H>(options(server, query)).observe_commands(true).build().await.unwrap()
}

fn stages(options: RawDocumentBuf) -> RawArrayBuf {
    [rawdoc! { "$changeStream": options }].into_iter().collect()
}

fn command(options: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! { "aggregate": "c", "pipeline": stages(options) }
}

fn short() -> CursorOptions {
    let mut options = CursorOptions::default();
    options.max_await_time = Some(SHORT);
    options
}

async fn watch<R: Runtime>(client: &Client<R>, options: RawDocumentBuf) -> Cursor<R> {
    client.operation(("db", command(options))).watch_with(short()).await.unwrap()
}

async fn insert<R: Runtime>(client: &Client<R>, id: i32) {
    client.run(("db", doc! { "insert": "c", "documents": [{ "_id": id }] })).await.unwrap();
}

/// Inserts three documents; returns the time of the first.
async fn first_of_three<R: Runtime>(client: &Client<R>) -> Timestamp {
    let first = client.run(("db", doc! { "insert": "c", "documents": [{ "_id": 1 }] })).await.unwrap();
    insert(client, 2).await;
    insert(client, 3).await;
    first.get_timestamp("operationTime").unwrap()
}

/// The connection of the next getMore breaks.
async fn break_next_get_more<R: Runtime>(client: &Client<R>) {
    fail(client, rawdoc! { "times": 1 }, rawdoc! { "failCommands": ["getMore"], "closeConnection": true }).await;
}

/// The `_id` of the document that the next change is about.
async fn next<R: Runtime>(stream: &mut Cursor<R>) -> i32 {
    id(stream.try_next().await.unwrap().unwrap())
}

fn id(change: &RawDocument) -> i32 {
    change.get_document("documentKey").unwrap().get_i32("_id").unwrap()
}

async fn kind<R: Runtime>(stream: &mut Cursor<R>) -> String {
    stream.try_next().await.unwrap().unwrap().get_str("operationType").unwrap().to_owned()
}

/// The options of the streams that were opened since the events were last read.
async fn stages_sent<R: Runtime>(client: &Client<R>, events: &mut Subscription) -> Vec<RawDocumentBuf> {
    let sent = sent(client, events).await;
    let options = |command: &RawDocumentBuf| {
        let stages = command.get_array("pipeline").unwrap();
        stages.get_document(0).unwrap().get_document("$changeStream").unwrap().to_owned()
    };
    named(&sent, "aggregate").into_iter().map(options).collect()
}

/// `postBatchResumeToken` of the last reply since the events were last read.
async fn token_replied<R: Runtime>(client: &Client<R>, events: &mut Subscription) -> RawDocumentBuf {
    let token = |event: &Arc<CommandEvent>| {
        let CommandEvent::CommandSucceeded { reply, .. } = &**event else { return None };
        let cursor = reply.get_document("cursor").ok()?;
        cursor.get_document("postBatchResumeToken").ok().map(RawDocument::to_owned)
    };
    command_events(client, events).await.iter().rev().find_map(token).unwrap()
}

/// The code of a server's error.
fn code(error: &OperationError) -> Option<i32> {
    let OperationErrorKind::Command(error) = &error.kind else { return None };
    if let CommandErrorKind::Server(refusal) = &error.kind { refusal.code } else { None }
}
