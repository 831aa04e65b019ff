//! Limits on cursors: for their lives, for each iteration, and for their close (CSOT-16, CSOT-19, CSOT-23).

use std::time::Duration;

use bson::rawdoc;
use cmap_core::topology::ServerSelector::Writable;
use cmap_runtime::{CursorError, CursorOptions, TimeoutMode};

use super::cursors::{HOUR, fill, named, observed, observed_lab, of_cursor, open_cursors, rest, sent};
use super::{Harness, LocalServer, Setup, client, run};

pub fn a_limit_on_a_cursor_is_for_its_life<H: Harness>() {
    run::<H>(async {
        // Without a monitor, which a step of the clock alarms.
        let server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        let (client, lab) = observed_lab::<H>(&server).await;
        fill(&client, 4).await;
        let mut events = client.subscribe(10_000);
        let find = client.operation(("db", rawdoc! { "find": "numbers", "batchSize": 2 })).on(Writable);
        let mut cursor = find.within(HOUR).cursor().await.unwrap();

        lab.set_ahead(7200);
        let error = rest(&mut cursor).await.unwrap_err();

        assert!(error.is_timeout(), "{error}");
        assert!(cursor.is_exhausted());
        assert!(named(&sent(&client, &mut events).await, "find")[0].get_i64("maxTimeMS").is_ok(), "the server is told");
        cursor.close().await;
        assert_eq!(open_cursors(&client).await, 0, "the limit of killCursors begins anew");
    });
}

pub fn a_limit_may_be_for_each_iteration_of_a_cursor<H: Harness>() {
    run::<H>(async {
        // Without a monitor, which a step of the clock alarms.
        let server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        let (client, lab) = observed_lab::<H>(&server).await;
        fill(&client, 4).await;
        let mut events = client.subscribe(10_000);
        let mut options = CursorOptions::default();
        options.timeout_mode = Some(TimeoutMode::Iteration);
        let find = client.operation(("db", rawdoc! { "find": "numbers", "batchSize": 2 })).on(Writable);
        let mut cursor = find.within(HOUR).cursor_with(options).await.unwrap();

        lab.set_ahead(7200);

        assert_eq!(rest(&mut cursor).await.unwrap(), [0, 1, 2, 3]);
        assert!(
            named(&sent(&client, &mut events).await, "find")[0].get("maxTimeMS").unwrap().is_none(),
            "the server would end the cursor"
        );
    });
}

pub fn options_of_a_cursor_that_do_not_go_together_are_refused<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "timeoutMS=60000").await;
        let tail =
            || client.operation(("db", rawdoc! { "find": "c", "tailable": true, "awaitData": true })).on(Writable);
        let mut of_life = CursorOptions::default();
        of_life.timeout_mode = Some(TimeoutMode::CursorLifetime);
        let mut too_long = CursorOptions::default();
        too_long.max_await_time = Some(HOUR);

        let of_life = tail().cursor_with(of_life).await.unwrap_err();
        let too_long = tail().cursor_with(too_long).await.unwrap_err();

        assert_eq!(of_cursor(&of_life), Some(&CursorError::LifetimeOfTailable));
        let limit = Duration::from_secs(60);
        assert_eq!(of_cursor(&too_long), Some(&CursorError::WaitTooLong { wait: HOUR, limit }));
    });
}

pub fn a_mode_needs_a_limit_and_documents_to_read_csot_16_csot_19<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut options = CursorOptions::default();
        options.timeout_mode = Some(TimeoutMode::Iteration);
        let find = client.operation(("db", rawdoc! { "find": "c" })).on(Writable);
        let out = rawdoc! { "aggregate": "c", "pipeline": [{ "$out": "d" }], "cursor": {} };
        let out = client.operation(("db", out)).on(Writable).within(HOUR);

        let without_limit = find.cursor_with(options.clone()).await.unwrap_err();
        let of_writing = out.cursor_with(options).await.unwrap_err();

        assert_eq!(of_cursor(&without_limit), Some(&CursorError::ModeWithoutLimit));
        assert_eq!(of_cursor(&of_writing), Some(&CursorError::IterationOfWriting));
    });
}

pub fn a_close_may_have_a_limit_of_its_own_csot_23<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = observed::<H>(&server, "").await;
        fill(&client, 3).await;
        let mut events = client.subscribe(10_000);
        let find = || client.operation(("db", rawdoc! { "find": "numbers", "batchSize": 1 })).on(Writable);

        find().cursor().await.unwrap().close().await;
        find().cursor().await.unwrap().close_within(Duration::from_secs(5)).await;
        find().cursor().await.unwrap().close_within(client.deadline(Duration::from_secs(5))).await;

        let all = sent(&client, &mut events).await;
        let ends = named(&all, "killCursors");
        assert!(ends[0].get("maxTimeMS").unwrap().is_none(), "{:?}", ends[0]);
        for end in &ends[1..] {
            assert!(end.get_i64("maxTimeMS").unwrap() <= 5000, "{end:?}");
        }
        assert_eq!(ends.len(), 3);
    });
}
