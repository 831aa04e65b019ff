//! Cursors: batches, sessions, connections that are kept, time, and that the server keeps none that nobody reads.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, doc, rawdoc};
use cmap_core::server::CommandEvent;
use cmap_core::topology::ServerSelector::Writable;
use cmap_runtime::{
    Client, Cursor, CursorError, CursorOptions, Error, OperationError, OperationErrorKind, Runtime, Subscription,
};
use futures_core::Stream;
use serde::Deserialize;

use super::lab::Lab;
use super::{
    ClientOf, Harness, LocalServer, Setup, assert_nothing_lost, client, command_events, options, poll_once, run, until,
    yield_now,
};

pub(super) const HOUR: Duration = Duration::from_secs(3600);

pub fn a_cursor_gives_all_documents_in_batches<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = observed::<H>(&server, "").await;
        fill(&client, 9).await;
        let mut events = client.subscribe(10_000);

        let mut cursor = find(&client, rawdoc! { "find": "numbers", "batchSize": 3, "comment": "mine" }).await;
        let read = rest(&mut cursor).await.unwrap();

        assert_eq!(read, (0..9).collect::<Vec<_>>());
        assert!(cursor.is_exhausted());
        let sent = sent(&client, &mut events).await;
        let get_mores = named(&sent, "getMore");
        // SRV-5: the last batch is empty.
        assert_eq!(get_mores.len(), 3);
        for command in get_mores {
            assert_eq!(command.get_i64("batchSize").unwrap(), 3);
            assert_eq!(command.get_str("comment").unwrap(), "mine");
        }
        assert_eq!(named(&sent, "killCursors").len(), 0);
        assert_nothing_lost(&client);
    });
}

pub fn a_cursor_is_a_stream<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        fill(&client, 5).await;
        let mut cursor = find(&client, rawdoc! { "find": "numbers", "batchSize": 2 }).await;

        let mut read = Vec::new();
        while let Some(document) = poll_fn(|cx| Pin::new(&mut cursor).poll_next(cx)).await {
            read.push(number(&document.unwrap()));
        }

        assert_eq!(read, [0, 1, 2, 3, 4]);
    });
}

pub fn other_commands_make_cursors_too<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = observed::<H>(&server, "").await;
        fill(&client, 5).await;
        let mut events = client.subscribe(10_000);
        let aggregate = rawdoc! { "aggregate": "numbers", "pipeline": [], "cursor": { "batchSize": 2 } };

        let mut aggregated = find(&client, aggregate).await;
        let mut listed = find(&client, rawdoc! { "listCollections": 1 }).await;

        assert_eq!(rest(&mut aggregated).await.unwrap().len(), 5);
        assert_eq!(named(&sent(&client, &mut events).await, "getMore")[0].get_i64("batchSize").unwrap(), 2);
        assert_eq!(listed.try_next().await.unwrap().unwrap().get_str("name").unwrap(), "numbers");
    });
}

pub fn options_replace_what_the_command_says<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = observed::<H>(&server, "").await;
        fill(&client, 6).await;
        let mut events = client.subscribe(10_000);
        let mut options = CursorOptions::default();
        options.batch_size = Some(4);

        let command = rawdoc! { "find": "numbers", "batchSize": 1, "comment": "of find" };
        let mut cursor = client.operation(("db", command)).on(Writable).cursor_with(options).await.unwrap();
        rest(&mut cursor).await.unwrap();

        let sent = sent(&client, &mut events).await;
        let get_more = named(&sent, "getMore")[0];
        assert_eq!(get_more.get_i64("batchSize").unwrap(), 4);
        assert!(get_more.get("comment").unwrap().is_none(), "{get_more:?}");
    });
}

pub fn documents_become_values_and_one_that_does_not_fit_is_an_error_of_its_own<H: Harness>() {
    #[derive(Debug, Deserialize, PartialEq)]
    struct Named {
        name: String,
    }

    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let documents = [doc! { "name": "a" }, doc! { "name": 5 }, doc! { "name": "c" }];
        client.run(("db", doc! { "insert": "names", "documents": documents.to_vec() })).await.unwrap();

        let mut names = find(&client, rawdoc! { "find": "names", "batchSize": 1 }).await.with_type::<Named>();

        assert_eq!(names.try_next().await.unwrap(), Some(Named { name: "a".into() }));
        assert!(
            matches!(names.try_next().await.unwrap_err(), Error::Parse(error) if error.expected.ends_with("Named"))
        );
        assert_eq!(names.try_next().await.unwrap(), Some(Named { name: "c".into() }));
        assert_eq!(names.try_next().await.unwrap(), None);
    });
}

pub fn a_command_without_a_cursor_is_said_so<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;

        let error = client.operation(("admin", rawdoc! { "ping": 1 })).cursor().await.unwrap_err();

        assert_eq!(of_cursor(&error), Some(&CursorError::NoCursor));
    });
}

pub fn an_exhausted_cursor_returns_its_session_before_its_documents_are_read_ses_3<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        fill(&client, 4).await;
        let before = client.start_session().unwrap().id();
        let mut cursor = find(&client, rawdoc! { "find": "numbers", "batchSize": 2 }).await;
        let meanwhile = client.start_session().unwrap().id();

        for _ in 0..2 {
            cursor.try_next().await.unwrap();
        }
        assert_eq!(client.start_session().unwrap().id(), meanwhile, "SES-2");
        cursor.try_next().await.unwrap();
        cursor.try_next().await.unwrap();
        assert_eq!(cursor.try_next().await.unwrap(), None);

        assert_ne!(before, meanwhile);
        assert_eq!(client.start_session().unwrap().id(), before);
        drop(cursor);
    });
}

pub fn a_cursor_dropped_half_way_is_ended_on_the_server<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = observed::<H>(&server, "").await;
        fill(&client, 10).await;
        let mut events = client.subscribe(10_000);
        let mut cursor = find(&client, rawdoc! { "find": "numbers", "batchSize": 2 }).await;
        for _ in 0..3 {
            cursor.try_next().await.unwrap();
        }
        assert_eq!(open_cursors(&client).await, 1);

        drop(cursor);

        no_cursor_is_open(&client).await;
        let sent = sent(&client, &mut events).await;
        let (get_mores, kills) = (named(&sent, "getMore"), named(&sent, "killCursors"));
        assert_eq!((get_mores.len(), kills.len()), (1, 1));
        assert_eq!(lsid(kills[0]), lsid(get_mores[0]), "PIN-1");
    });
}

pub fn a_cursor_that_is_closed_is_ended_on_the_server_when_the_call_returns<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        fill(&client, 10).await;
        let cursor = find(&client, rawdoc! { "find": "numbers", "batchSize": 2 }).await;

        cursor.close().await;

        assert_eq!(open_cursors(&client).await, 0);
        assert_nothing_lost(&client);
    });
}

pub fn a_cursor_dropped_with_its_client_is_ended_on_the_server<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let (client, other) = (client::<H>(&server, "").await, client::<H>(&server, "").await);
        fill(&client, 10).await;
        let cursor = find(&client, rawdoc! { "find": "numbers", "batchSize": 2 }).await;

        drop(cursor);
        drop(client);

        no_cursor_is_open(&other).await;
    });
}

pub fn a_cursor_keeps_no_client_open<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let (client, lab) = Lab::<H::Runtime>::client(&server, "").await;
        fill(&client, 10).await;
        let mut cursor = find(&client, rawdoc! { "find": "numbers", "batchSize": 2 }).await;

        assert_eq!(client.close(HOUR).await, Ok(0));
        drop(client);

        assert_eq!(cursor.try_next().await.unwrap().map(number), Some(0), "it is in memory");
        cursor.try_next().await.unwrap();
        assert!(matches!(cursor.try_next().await.unwrap_err().kind, OperationErrorKind::CheckOut(_)));
        drop(cursor);
        lab.all_tasks_ended().await;
    });
}

pub fn a_step_of_a_cursor_that_is_dropped_loses_no_document<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        fill(&client, 20).await;
        let mut cursor = find(&client, rawdoc! { "find": "numbers", "batchSize": 2 }).await;

        let mut read = Vec::new();
        loop {
            let next = poll_once(&mut Box::pin(cursor.try_next())).await;
            match next.map(|next| next.unwrap().map(number)) {
                None => yield_now().await,
                Some(None) => break,
                Some(Some(number)) => read.push(number),
            }
        }

        assert_eq!(read, (0..20).collect::<Vec<_>>());
    });
}

pub fn a_refused_get_more_ends_its_cursor<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = observed::<H>(&server, "").await;
        fill(&client, 10).await;
        fail(&client, rawdoc! { "times": 1 }, rawdoc! { "failCommands": ["getMore"], "errorCode": 96 }).await;
        let mut events = client.subscribe(10_000);
        let mut cursor = find(&client, rawdoc! { "find": "numbers", "batchSize": 2 }).await;

        let error = rest(&mut cursor).await.unwrap_err();

        assert_eq!(error.retries, 0, "{error}");
        assert!(cursor.is_exhausted() && cursor.try_next().await.unwrap().is_none());
        assert_eq!(named(&sent(&client, &mut events).await, "getMore").len(), 1, "RTY-2");
        drop(cursor);
        no_cursor_is_open(&client).await;
    });
}

pub fn a_get_more_that_an_overloaded_server_refuses_three_times_is_an_error_bp_10<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = observed::<H>(&server, "").await;
        fill(&client, 10).await;
        let labels = ["SystemOverloadedError", "RetryableError"].into_iter().collect::<RawArrayBuf>();
        let data = rawdoc! { "failCommands": ["getMore"], "errorCode": 462, "errorLabels": labels };
        fail(&client, rawdoc! { "times": 3 }, data).await;
        let mut events = client.subscribe(10_000);
        let mut cursor = find(&client, rawdoc! { "find": "numbers", "batchSize": 2 }).await;

        let error = rest(&mut cursor).await.unwrap_err();
        cursor.close().await;

        assert_eq!(error.retries, 2, "{error}");
        let sent = sent(&client, &mut events).await;
        assert_eq!((named(&sent, "getMore").len(), named(&sent, "killCursors").len()), (3, 1));
        assert_eq!(open_cursors(&client).await, 0);
    });
}

pub fn after_a_network_error_nothing_more_is_sent_for_a_cursor<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = observed::<H>(&server, "").await;
        fill(&client, 10).await;
        fail(&client, rawdoc! { "times": 1 }, rawdoc! { "failCommands": ["getMore"], "closeConnection": true }).await;
        let mut events = client.subscribe(10_000);
        let mut cursor = find(&client, rawdoc! { "find": "numbers", "batchSize": 2 }).await;

        rest(&mut cursor).await.unwrap_err();
        drop(cursor);

        open_cursors(&client).await;
        let sent = sent(&client, &mut events).await;
        assert_eq!((named(&sent, "getMore").len(), named(&sent, "killCursors").len()), (1, 0));
    });
}

pub fn a_cursor_keeps_its_connection_behind_a_load_balancer_lb_13<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        let client = client::<H>(&server, "loadBalanced=true").await;
        fill(&client, 10).await;
        let in_use = || client.stats().counts.in_use;

        let mut read_to_its_end = find(&client, rawdoc! { "find": "numbers", "batchSize": 4 }).await;
        let closed = find(&client, rawdoc! { "find": "numbers", "batchSize": 4 }).await;
        let dropped = find(&client, rawdoc! { "find": "numbers", "batchSize": 4 }).await;
        let at_once = find(&client, rawdoc! { "find": "numbers" }).await;
        assert_eq!((in_use(), at_once.is_exhausted()), (3, false));

        assert_eq!(rest(&mut read_to_its_end).await.unwrap().len(), 10);
        assert_eq!(in_use(), 2);
        closed.close().await;
        assert_eq!(in_use(), 1);
        drop(dropped);
        until(|| in_use() == 0).await;
        assert_eq!(open_cursors(&client).await, 0);
        assert_nothing_lost(&client);
    });
}

pub fn a_failed_cursor_keeps_its_connection_behind_a_load_balancer_lb_14<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        let client = observed::<H>(&server, "loadBalanced=true").await;
        fill(&client, 10).await;
        fail(&client, rawdoc! { "times": 1 }, rawdoc! { "failCommands": ["getMore"], "closeConnection": true }).await;
        let mut events = client.subscribe(10_000);
        let mut cursor = find(&client, rawdoc! { "find": "numbers", "batchSize": 2 }).await;

        rest(&mut cursor).await.unwrap_err();
        assert_eq!(client.stats().counts.in_use, 1);
        cursor.close().await;

        assert_eq!(client.stats().counts.in_use, 0);
        assert_eq!(named(&sent(&client, &mut events).await, "killCursors").len(), 0);
    });
}

pub fn a_tailable_cursor_waits_for_documents<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let create = rawdoc! { "create": "numbers", "capped": true, "size": 10_000 };
        client.operation(("db", create)).on(Writable).run().await.unwrap();
        fill(&client, 1).await;
        let tail = rawdoc! { "find": "numbers", "tailable": true, "awaitData": true };
        let mut cursor = find(&client, tail).await;
        assert_eq!(cursor.try_next().await.unwrap().map(number), Some(0));

        let mut next = Box::pin(cursor.try_next());
        assert!(poll_once(&mut next).await.is_none());
        insert(&client, 1).await;

        assert_eq!(next.await.unwrap().map(number), Some(1));
        cursor.close().await;
        assert_eq!(open_cursors(&client).await, 0);
    });
}

pub fn an_empty_batch_is_no_end_of_a_tailable_cursor<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = observed::<H>(&server, "").await;
        let create = rawdoc! { "create": "numbers", "capped": true, "size": 10_000 };
        client.operation(("db", create)).on(Writable).run().await.unwrap();
        fill(&client, 1).await;
        let mut events = client.subscribe(10_000);
        let mut options = CursorOptions::default();
        options.max_await_time = Some(Duration::from_millis(1));
        let tail = rawdoc! { "find": "numbers", "tailable": true, "awaitData": true };
        let tail = client.operation(("db", tail)).on(Writable);
        let mut cursor = tail.cursor_with(options).await.unwrap();
        assert_eq!(cursor.next_if_any().await.unwrap().map(number), Some(0));

        assert_eq!(cursor.next_if_any().await.unwrap(), None);
        assert!(!cursor.is_exhausted());
        assert_eq!(named(&sent(&client, &mut events).await, "getMore")[0].get_i64("maxTimeMS").unwrap(), 1);
        insert(&client, 1).await;
        assert_eq!(cursor.next_if_any().await.unwrap().map(number), Some(1));
    });
}

pub fn a_session_is_free_between_the_steps_of_its_cursor<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = observed::<H>(&server, "").await;
        fill(&client, 3).await;
        let mut events = client.subscribe(10_000);
        let mut session = client.start_session().unwrap();
        let find = client.operation(("db", rawdoc! { "find": "numbers", "batchSize": 1 })).on(Writable);
        let mut cursor = find.in_session(&mut session).cursor().await.unwrap();

        let mut copied = 0;
        while let Some(document) = cursor.try_next(&mut session).await.unwrap() {
            let copy = rawdoc! { "insert": "copies", "documents": [document.to_owned()] };
            client.operation(("db", copy)).on(Writable).in_session(&mut session).run().await.unwrap();
            copied += 1;
        }

        assert_eq!((copied, cursor.is_exhausted()), (3, true));
        let lsids: Vec<_> = sent(&client, &mut events).await.iter().map(lsid).collect();
        assert_eq!((lsids.len(), lsids.windows(2).all(|pair| pair[0] == pair[1])), (1 + 3 + 3, true));
    });
}

pub fn another_session_is_refused_by_a_cursor_which_goes_on<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        fill(&client, 2).await;
        let (mut session, mut other) = (client.start_session().unwrap(), client.start_session().unwrap());
        let find = client.operation(("db", rawdoc! { "find": "numbers", "batchSize": 1 })).on(Writable);
        let mut cursor = find.in_session(&mut session).cursor().await.unwrap();
        cursor.try_next(&mut session).await.unwrap();

        let error = cursor.try_next(&mut other).await.unwrap_err();

        assert_eq!(of_cursor(&error), Some(&CursorError::OtherSession));
        assert_eq!(cursor.try_next(&mut session).await.unwrap().map(number), Some(1));
        drop(cursor);
        no_cursor_is_open(&client).await;
    });
}

pub fn a_step_in_a_session_that_is_dropped_ends_its_cursor<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        fill(&client, 4).await;
        let mut session = client.start_session().unwrap();
        let find = client.operation(("db", rawdoc! { "find": "numbers", "batchSize": 1 })).on(Writable);
        let mut cursor = find.in_session(&mut session).cursor().await.unwrap();
        cursor.try_next(&mut session).await.unwrap();
        // The reply does not come before the step is dropped.
        let slow = rawdoc! { "failCommands": ["getMore"], "blockConnection": true, "blockTimeMS": 200 };
        fail(&client, rawdoc! { "times": 1 }, slow).await;

        assert!(poll_once(&mut Box::pin(cursor.try_next(&mut session))).await.is_none());

        let error = cursor.try_next(&mut session).await.unwrap_err();
        assert_eq!(of_cursor(&error), Some(&CursorError::CutOff));
        no_cursor_is_open(&client).await;
    });
}

/// A client that tells of its commands.
pub(super) async fn observed<H: Harness>(server: &LocalServer, query: &str) -> ClientOf<H> {
    super::builder::<H>(options(server, query)).observe_commands(true).build().await.unwrap()
}

/// A client that tells of its commands, with a clock that can be stepped.
pub(super) async fn observed_lab<H: Harness>(server: &LocalServer) -> (Client<Lab<H::Runtime>>, Lab<H::Runtime>) {
    let lab = Lab::new();
    let client = Client::builder(options(server, "loadBalanced=true")).runtime(lab.clone()).observe_commands(true);
    (client.build().await.unwrap(), lab)
}

/// Puts the numbers from 0 into a collection.
pub(super) async fn fill<R: Runtime>(client: &Client<R>, count: i32) {
    let documents: Vec<_> = (0..count).map(|n| doc! { "_id": n }).collect();
    client.run(("db", doc! { "insert": "numbers", "documents": documents })).await.unwrap();
}

async fn insert<R: Runtime>(client: &Client<R>, number: i32) {
    client.run(("db", doc! { "insert": "numbers", "documents": [{ "_id": number }] })).await.unwrap();
}

async fn find<R: Runtime>(client: &Client<R>, command: RawDocumentBuf) -> Cursor<R> {
    client.operation(("db", command)).on(Writable).cursor().await.unwrap()
}

pub(super) async fn rest<R: Runtime>(cursor: &mut Cursor<R>) -> Result<Vec<i32>, OperationError> {
    let mut read = Vec::new();
    while let Some(document) = cursor.try_next().await? {
        read.push(number(document));
    }
    Ok(read)
}

fn number(document: &RawDocument) -> i32 {
    document.get_i32("_id").unwrap()
}

pub(super) async fn fail<R: Runtime>(client: &Client<R>, mode: RawDocumentBuf, data: RawDocumentBuf) {
    let fail_point = rawdoc! { "configureFailPoint": "failCommand", "mode": mode, "data": data };
    client.operation(("admin", fail_point)).on(Writable).run().await.unwrap();
}

/// How many cursors are open on the server.
pub(super) async fn open_cursors<R: Runtime>(client: &Client<R>) -> i32 {
    let reply = client.operation(("db", rawdoc! { "dbStats": 1 })).on(Writable).run().await.unwrap();
    reply.get_i32("openCursors").unwrap()
}

pub(super) async fn no_cursor_is_open<R: Runtime>(client: &Client<R>) {
    while open_cursors(client).await > 0 {
        yield_now().await;
    }
}

/// Those commands that have this name.
pub(super) fn named<'c>(commands: &'c [RawDocumentBuf], name: &str) -> Vec<&'c RawDocumentBuf> {
    let is_wanted = |command: &&RawDocumentBuf| command.iter().next().unwrap().unwrap().0.as_str() == name;
    commands.iter().filter(is_wanted).collect()
}

/// The commands that were sent since the events were last read.
pub(super) async fn sent<R: Runtime>(client: &Client<R>, events: &mut Subscription) -> Vec<RawDocumentBuf> {
    let started = |event: &Arc<CommandEvent>| {
        let CommandEvent::CommandStarted { document, .. } = &**event else { return None };
        Some(document.clone())
    };
    command_events(client, events).await.iter().filter_map(started).collect()
}

pub(super) fn lsid(command: &RawDocumentBuf) -> RawDocumentBuf {
    command.get_document("lsid").unwrap().to_owned()
}

pub(super) fn of_cursor(error: &OperationError) -> Option<&CursorError> {
    if let OperationErrorKind::Cursor(error) = &error.kind { Some(error) } else { None }
}
