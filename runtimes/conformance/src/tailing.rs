//! Tailable cursors that find nothing for as long as an iteration may take.

use std::time::Duration;

use bson::rawdoc;
use cmap_core::topology::ServerSelector::Writable;
use cmap_runtime::{Client, Cursor, CursorError, CursorOptions, OperationErrorKind, Runtime};

use super::{Harness, LocalServer, assert_nothing_lost, client, run};

pub fn a_tailable_cursor_outlives_iterations_that_find_nothing_x_152<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        // The server waits for a second by itself: for a second one there is no time.
        let mut cursor = tail(&client, CursorOptions::default(), Duration::from_millis(1500)).await;

        finds_nothing(&mut cursor).await;

        insert(&client, 1).await;
        assert_eq!(cursor.try_next().await.unwrap().unwrap().get_i32("_id").unwrap(), 1);
        assert_eq!(client.stats().closed.error, 0);
        assert_nothing_lost(&client);
    });
}

pub fn a_tailable_cursor_with_a_wait_of_its_own_outlives_iterations_that_find_nothing_x_152<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut options = CursorOptions::default();
        options.max_await_time = Some(Duration::from_millis(200));
        let mut cursor = tail(&client, options, Duration::from_millis(700)).await;

        for _ in 0..2 {
            finds_nothing(&mut cursor).await;
        }

        insert(&client, 1).await;
        assert_eq!(cursor.try_next().await.unwrap().unwrap().get_i32("_id").unwrap(), 1);
        assert_eq!(client.stats().closed.error, 0);
        assert_nothing_lost(&client);
    });
}

/// A cursor at the end of a capped collection with one document.
async fn tail<R: Runtime>(client: &Client<R>, options: CursorOptions, limit: Duration) -> Cursor<R> {
    let create = rawdoc! { "create": "events", "capped": true, "size": 10_000 };
    client.operation(("db", create)).on(Writable).run().await.unwrap();
    insert(client, 0).await;
    let tail = rawdoc! { "find": "events", "tailable": true, "awaitData": true };
    let mut cursor = client.operation(("db", tail)).on(Writable).within(limit).cursor_with(options).await.unwrap();
    assert!(cursor.try_next().await.unwrap().is_some());
    cursor
}

async fn insert<R: Runtime>(client: &Client<R>, id: i32) {
    let insert = rawdoc! { "insert": "events", "documents": [{ "_id": id }] };
    client.operation(("db", insert)).on(Writable).run().await.unwrap();
}

/// An iteration whose time is up.
async fn finds_nothing<R: Runtime>(cursor: &mut Cursor<R>) {
    let error = match cursor.try_next().await {
        Err(error) => error,
        Ok(found) => panic!("{found:?}"),
    };
    let kind = &error.kind;
    assert!(matches!(kind, OperationErrorKind::Cursor(CursorError::NothingCame { .. })), "{error}");
    assert!(error.is_timeout() && !cursor.is_exhausted(), "{error}");
}
