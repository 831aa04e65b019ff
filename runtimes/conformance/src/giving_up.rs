//! What is given up before its end: it is ended on the server all the same, and a client that is closed waits for that.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bson::{Document, RawDocument, doc, rawdoc};
use cmap_core::server::CommandEvent;
use cmap_core::session::TransactionState;
use cmap_core::topology::ServerSelector::Writable;
use cmap_runtime::{Client, Cursor, CursorOptions, OperationError, Runtime, Session, Subscription};

use super::cancellation::cut_short;
use super::lab::Lab;
use super::{
    ClientOf, Harness, LocalServer, Setup, assert_nothing_lost, builder, client, command_events, options, poll_once,
    run, until, yield_now,
};

/// Longer than a case may take: what waits for the end of this patience fails.
const LONG: Duration = Duration::from_secs(300);

pub fn a_transaction_that_is_given_up_is_aborted_before_its_session_goes_on<H: Harness>() {
    run::<H>(async {
        let (_server, client) = member::<H>("").await;
        let mut session = client.start_session().unwrap();
        let has_begun = AtomicBool::new(false);
        let mut transaction = Box::pin(session.with_transaction(async |session| {
            increment(session).await?;
            has_begun.store(true, Ordering::SeqCst);
            pending::<Result<(), OperationError>>().await
        }));
        poll_until(&mut transaction, || has_begun.load(Ordering::SeqCst)).await;

        drop(transaction);
        session.run(("db", doc! { "insert": "c", "documents": [{ "_id": 1 }] })).await.unwrap();

        assert_eq!(session.transaction_state(), TransactionState::None);
        assert_eq!(count(&client, doc! { "_id": 1 }).await, 1, "it is no part of the transaction");
        // It would conflict with an open transaction.
        transact(&client).await.unwrap();
        assert_eq!(count(&client, doc! { "n": 1 }).await, 1);
        assert_nothing_lost(&client);
    });
}

pub fn a_transaction_that_is_given_up_while_it_is_committed_is_committed<H: Harness>() {
    run::<H>(async {
        let (server, client) = member::<H>("").await;
        let other = self::client::<H>(&server, "directConnection=true").await;
        let mut session = client.start_session().unwrap();
        block(&other, "commitTransaction").await;

        let mut transaction = Box::pin(session.with_transaction(async |session| increment(session).await));
        let sent = client.stats().checked_out + 2;
        poll_until(&mut transaction, || client.stats().checked_out == sent).await;
        drop(transaction);
        session.run(("admin", doc! { "ping": 1 })).await.unwrap();

        assert_eq!(count(&other, doc! { "n": 1 }).await, 1);
        assert_nothing_lost(&client);
    });
}

pub fn an_abort_that_is_given_up_before_it_was_sent_goes_on<H: Harness>() {
    run::<H>(async {
        let (server, client) = member::<H>("maxPoolSize=1").await;
        let other = self::client::<H>(&server, "directConnection=true").await;
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();
        increment(&mut session).await.unwrap();
        let held = client.check_out().await.unwrap();

        assert!(poll_once(&mut Box::pin(session.abort_transaction())).await.is_none());
        drop(held);
        session.run(("admin", doc! { "ping": 1 })).await.unwrap();

        transact(&other).await.unwrap();
        assert_eq!(count(&other, doc! { "n": 1 }).await, 1);
        assert_nothing_lost(&client);
    });
}

pub fn an_abort_that_has_no_connection_in_time_goes_on<H: Harness>() {
    run::<H>(async {
        let (server, client) = member::<H>("maxPoolSize=1&timeoutMS=20").await;
        let other = self::client::<H>(&server, "directConnection=true").await;
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();
        within_long(&mut session, increment_command()).await;
        let held = client.check_out_within(LONG).await.unwrap();

        session.abort_transaction().await.unwrap();
        drop(held);
        within_long(&mut session, doc! { "ping": 1 }).await;

        transact(&other).await.unwrap();
        assert_nothing_lost(&client);
    });
}

pub fn a_commit_that_is_given_up_before_it_was_sent_goes_on<H: Harness>() {
    run::<H>(async {
        let (server, client) = member::<H>("maxPoolSize=1").await;
        let other = self::client::<H>(&server, "directConnection=true").await;
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();
        increment(&mut session).await.unwrap();
        let held = client.check_out().await.unwrap();

        assert!(poll_once(&mut Box::pin(session.commit_transaction())).await.is_none());
        drop(held);
        session.commit_transaction().await.unwrap();

        assert_eq!(count(&other, doc! { "n": 1 }).await, 1);
        assert_nothing_lost(&client);
    });
}

pub fn a_commit_that_could_not_be_sent_is_no_open_transaction_once_its_session_is_dropped<H: Harness>() {
    run::<H>(async {
        let (server, client) = member::<H>("maxPoolSize=1&timeoutMS=20").await;
        let other = self::client::<H>(&server, "directConnection=true").await;
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();
        within_long(&mut session, increment_command()).await;
        let held = client.check_out_within(LONG).await.unwrap();

        let error = session.commit_transaction().await.unwrap_err();
        drop(session);
        drop(held);

        assert!(error.is_timeout(), "{error}");
        assert_eq!(client.close(LONG).await, Ok(0));
        transact(&other).await.unwrap();
    });
}

pub fn a_commit_that_could_not_be_sent_is_not_aborted_behind_a_later_write<H: Harness>() {
    run::<H>(async {
        let (server, other) = member::<H>("").await;
        let client = client::<H>(&server, "directConnection=true&maxPoolSize=1&timeoutMS=20").await;
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();
        within_long(&mut session, increment_command()).await;
        let held = client.check_out_within(LONG).await.unwrap();
        assert!(session.commit_transaction().await.is_err());
        drop(held);
        // The server aborts the transaction by the number of this write.
        within_long(&mut session, doc! { "insert": "c", "documents": [{ "_id": 1 }] }).await;
        let data = doc! { "failCommands": ["abortTransaction"], "closeConnection": true };
        let cut_off = doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data };
        other.operation(("admin", cut_off)).on(Writable).run().await.unwrap();

        drop(session);
        assert_eq!(client.close(LONG).await, Ok(0));

        assert_eq!(client.stats().closed.error, 0, "an abort was sent");
        transact(&other).await.unwrap();
    });
}

pub fn a_cursor_whose_close_is_given_up_is_ended_on_the_server<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let (client, other) = (client::<H>(&server, "maxPoolSize=1").await, client::<H>(&server, "").await);
        fill(&client).await;
        let cursor = find(&client).await;
        let mut session = client.start_session().unwrap();
        let in_session = client.operation(("db", find_command())).on(Writable).in_session(&mut session);
        let in_session = in_session.cursor().await.unwrap();
        let held = client.check_out().await.unwrap();

        assert!(poll_once(&mut Box::pin(cursor.close())).await.is_none());
        assert!(poll_once(&mut Box::pin(in_session.close(&mut session))).await.is_none());
        drop(held);

        no_cursor_is_open(&other).await;
        until(|| client.stats().counts.in_use == 0).await;
        assert_nothing_lost(&client);
    });
}

pub fn a_cursor_that_is_given_up_while_its_command_runs_is_ended_on_the_server<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let other = client::<H>(&server, "").await;
        fill(&other).await;
        let (client, lab) = Lab::<H::Runtime>::client(&server, "").await;
        let mut polls = 0;
        loop {
            drop(client.check_out().await.unwrap());
            lab.stutter(true);
            let opened = cut_short(client.operation(("db", find_command())).on(Writable).cursor(), polls).await;
            let is_done = opened.is_some();
            drop(opened);
            lab.stutter(false);
            until(|| client.stats().counts.in_use == 0).await;
            if is_done {
                break;
            }
            polls += 1;
        }

        // Each byte is an await point, in both directions.
        assert!(polls > 50, "{polls}");
        no_cursor_is_open(&other).await;
        assert_nothing_lost(&client);
    });
}

pub fn a_closing_client_ends_the_cursors_that_were_dropped_before<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let (client, other) = (client::<H>(&server, "").await, client::<H>(&server, "").await);
        fill(&client).await;
        let mut cursors = Vec::new();
        for _ in 0..5 {
            cursors.push(find(&client).await);
        }

        drop(cursors);
        assert_eq!(client.close(LONG).await, Ok(0));

        assert_eq!(open_cursors(&other).await, 0);
        assert_nothing_lost(&client);
    });
}

pub fn a_closing_client_ends_the_transactions_that_were_dropped_before<H: Harness>() {
    run::<H>(async {
        let (server, client) = member::<H>("").await;
        let other = self::client::<H>(&server, "directConnection=true").await;
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();
        increment(&mut session).await.unwrap();

        drop(session);
        assert_eq!(client.close(LONG).await, Ok(0));

        transact(&other).await.unwrap();
        assert_nothing_lost(&client);
    });
}

pub fn a_closing_client_repeats_an_abort_that_an_overloaded_server_refused<H: Harness>() {
    run::<H>(async {
        let (server, client) = member::<H>("").await;
        let other = self::client::<H>(&server, "directConnection=true").await;
        let mut session = client.start_session().unwrap();
        session.start_transaction().unwrap();
        increment(&mut session).await.unwrap();
        let labels = vec!["SystemOverloadedError", "RetryableError"];
        let data = doc! { "failCommands": ["abortTransaction"], "errorCode": 462, "errorLabels": labels };
        let refuse = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
        other.operation(("admin", refuse)).on(Writable).run().await.unwrap();

        drop(session);
        assert_eq!(client.close(LONG).await, Ok(0));

        transact(&other).await.unwrap();
        assert_nothing_lost(&client);
    });
}

pub fn a_close_without_patience_waits_for_no_cursor<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        fill(&client).await;
        let cursor = find(&client).await;
        block(&client, "killCursors").await;

        drop(cursor);
        // The connection of its killCursors is in use.
        assert_eq!(client.close(Duration::ZERO).await, Ok(1));
    });
}

pub fn cursors_dropped_with_their_client_are_ended_on_the_server<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let (client, other) = (client::<H>(&server, "").await, client::<H>(&server, "").await);
        fill(&client).await;
        let mut cursors = Vec::new();
        for _ in 0..5 {
            cursors.push(find(&client).await);
        }

        drop(cursors);
        drop(client);

        no_cursor_is_open(&other).await;
    });
}

pub fn cursors_dropped_while_no_connection_is_free_wait_in_one_place_and_end_by_one_command<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = builder::<H>(options(&server, "maxPoolSize=1")).observe_commands(true).build().await.unwrap();
        let other = self::client::<H>(&server, "").await;
        fill(&client).await;
        let mut cursors = Vec::new();
        for _ in 0..100 {
            cursors.push(find(&client).await);
        }
        let held = client.check_out().await.unwrap();
        let mut events = client.subscribe(1000);

        drop(cursors);
        assert_eq!(client.stats().counts.waiting, 1);
        drop(held);

        no_cursor_is_open(&other).await;
        until(|| client.stats().counts.in_use == 0).await;
        assert_eq!(started(&client, &mut events, "killCursors").await, 1);
        assert_nothing_lost(&client);
    });
}

pub fn a_get_more_that_nobody_waits_for_gives_its_connection_back<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=1").await;
        fill(&client).await;
        let mut cursor = find(&client).await;
        let mut read = vec![next(&mut cursor).await, next(&mut cursor).await];
        block(&client, "getMore").await;

        assert!(poll_once(&mut Box::pin(cursor.try_next())).await.is_none());
        // The only connection is free again.
        client.run(("admin", rawdoc! { "ping": 1 })).await.unwrap();

        while let Some(document) = cursor.try_next().await.unwrap() {
            read.push(number(document));
        }
        assert_eq!(read, (0..10).collect::<Vec<_>>());
        assert_nothing_lost(&client);
    });
}

pub fn a_tailable_cursor_outlives_a_reader_that_is_busy_for_longer_than_its_limit<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let create = rawdoc! { "create": "events", "capped": true, "size": 10_000 };
        client.operation(("db", create)).on(Writable).run().await.unwrap();
        insert(&client, "events", 0).await;
        let limit = Duration::from_millis(700);
        let mut options = CursorOptions::default();
        options.max_await_time = Some(Duration::from_millis(200));
        let tail = rawdoc! { "find": "events", "tailable": true, "awaitData": true };
        let tail = client.operation(("db", tail)).on(Writable).within(limit);
        let mut cursor = tail.cursor_with(options).await.unwrap();
        assert_eq!(next(&mut cursor).await, 0);

        // As in `select!`, whose other branch is ready, and takes longer than the limit. The server's reply comes in time.
        assert!(poll_once(&mut Box::pin(cursor.try_next())).await.is_none());
        let runtime = H::Runtime::current().unwrap();
        runtime.sleep_until(runtime.now() + 2 * limit).await;
        insert(&client, "events", 1).await;

        assert_eq!(next(&mut cursor).await, 1);
        assert_eq!(client.stats().closed.error, 0);
        assert_nothing_lost(&client);
    });
}

pub fn a_cursor_dropped_during_its_get_more_is_ended_on_the_server<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let (client, lab) = Lab::<H::Runtime>::client(&server, "").await;
        let other = self::client::<H>(&server, "").await;
        fill(&client).await;
        let mut cursor = client.operation(("db", find_command())).on(Writable).cursor().await.unwrap();
        block(&other, "getMore").await;
        for _ in 0..2 {
            cursor.try_next().await.unwrap();
        }
        assert!(poll_once(&mut Box::pin(cursor.try_next())).await.is_none());

        drop(cursor);

        no_cursor_is_open(&other).await;
        assert_eq!(client.close(LONG).await, Ok(0));
        drop(client);
        lab.all_tasks_ended().await;
    });
}

pub fn a_cursor_closed_during_its_get_more_is_ended_on_the_server_when_the_call_returns<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let (client, other) = (client::<H>(&server, "").await, client::<H>(&server, "").await);
        fill(&client).await;
        let mut cursor = find(&client).await;
        block(&other, "getMore").await;
        for _ in 0..2 {
            cursor.try_next().await.unwrap();
        }
        assert!(poll_once(&mut Box::pin(cursor.try_next())).await.is_none());

        cursor.close().await;

        assert_eq!(open_cursors(&other).await, 0);
    });
}

pub fn a_cursor_dropped_during_its_get_more_behind_a_load_balancer_ends_with_its_connection<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        let client = client::<H>(&server, "loadBalanced=true").await;
        fill(&client).await;
        let mut cursor = find(&client).await;
        block(&client, "getMore").await;
        for _ in 0..2 {
            cursor.try_next().await.unwrap();
        }
        assert!(poll_once(&mut Box::pin(cursor.try_next())).await.is_none());

        drop(cursor);

        no_cursor_is_open(&client).await;
        assert_nothing_lost(&client);
    });
}

/// A member of a replica set, and a client of it alone; there is one document.
async fn member<H: Harness>(query: &str) -> (LocalServer, ClientOf<H>) {
    let server = LocalServer::start_as(Setup { replica_set: true, ..Setup::default() });
    let client = client::<H>(&server, &format!("directConnection=true&{query}")).await;
    let insert = doc! { "insert": "c", "documents": [{ "_id": 0, "n": 0 }] };
    client.operation(("db", insert)).on(Writable).within(LONG).run().await.unwrap();
    (server, client)
}

fn increment_command() -> Document {
    doc! { "update": "c", "updates": [{ "q": { "_id": 0 }, "u": { "$inc": { "n": 1 } } }] }
}

async fn increment<R: Runtime>(session: &mut Session<R>) -> Result<(), OperationError> {
    session.operation(("db", increment_command())).on(Writable).run().await.map(drop)
}

/// Runs a command in a session, whatever the client's timeoutMS.
async fn within_long<R: Runtime>(session: &mut Session<R>, command: Document) {
    session.operation(("db", command)).on(Writable).within(LONG).run().await.unwrap();
}

/// Changes the document in a transaction, which would conflict with another one that has changed it and is open.
async fn transact<R: Runtime>(client: &Client<R>) -> Result<(), OperationError> {
    let mut session = client.start_session().unwrap();
    session.start_transaction()?;
    increment(&mut session).await?;
    session.commit_transaction().await
}

/// The documents that match `filter`.
async fn count<R: Runtime>(client: &Client<R>, filter: Document) -> i32 {
    let reply = client.operation(("db", doc! { "count": "c", "query": filter })).on(Writable).run().await.unwrap();
    reply.get_i32("n").unwrap()
}

/// The next command of this name takes a while.
async fn block<R: Runtime>(client: &Client<R>, command: &str) {
    let data = doc! { "failCommands": [command], "blockConnection": true, "blockTimeMS": 200 };
    let slow = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
    client.operation(("admin", slow)).on(Writable).run().await.unwrap();
}

/// Puts the numbers from 0 to 9 into a collection.
async fn fill<R: Runtime>(client: &Client<R>) {
    let documents: Vec<_> = (0..10).map(|n| doc! { "_id": n }).collect();
    client.run(("db", doc! { "insert": "numbers", "documents": documents })).await.unwrap();
}

async fn insert<R: Runtime>(client: &Client<R>, collection: &str, number: i32) {
    client.run(("db", doc! { "insert": collection, "documents": [{ "_id": number }] })).await.unwrap();
}

fn find_command() -> Document {
    doc! { "find": "numbers", "batchSize": 2 }
}

async fn find<R: Runtime>(client: &Client<R>) -> Cursor<R> {
    client.operation(("db", find_command())).on(Writable).cursor().await.unwrap()
}

async fn next<R: Runtime>(cursor: &mut Cursor<R>) -> i32 {
    number(cursor.try_next().await.unwrap().unwrap())
}

fn number(document: &RawDocument) -> i32 {
    document.get_i32("_id").unwrap()
}

/// How many cursors are open on the server.
async fn open_cursors<R: Runtime>(client: &Client<R>) -> i32 {
    let reply = client.operation(("db", rawdoc! { "dbStats": 1 })).on(Writable).run().await.unwrap();
    reply.get_i32("openCursors").unwrap()
}

async fn no_cursor_is_open<R: Runtime>(client: &Client<R>) {
    while open_cursors(client).await > 0 {
        yield_now().await;
    }
}

/// How many commands of this name were sent since the events were last read.
async fn started<R: Runtime>(client: &Client<R>, events: &mut Subscription, name: &str) -> usize {
    let is_start = |event: &&Arc<CommandEvent>| matches!(&***event, CommandEvent::CommandStarted { sent, .. } if sent.name == name);
    command_events(client, events).await.iter().filter(is_start).count()
}

/// Polls `work`, which must not end, until the awaited state is reached.
async fn poll_until<F: Future<Output: std::fmt::Debug>>(work: &mut Pin<Box<F>>, mut has_come: impl FnMut() -> bool) {
    while !has_come() {
        let ended = poll_once(work).await;
        assert!(ended.is_none(), "{ended:?}");
        yield_now().await;
    }
}
