//! Checking out, running commands, checking in.

use std::error::Error;

use bson::{doc, rawdoc};
use cmap_core::connection::Command;
use cmap_core::pool::{PoolState, Purpose};
use serde::{Deserialize, Serialize};

#[cfg(unix)]
use super::Setup;
#[cfg(unix)]
use super::recovery::recovered;
use super::{Harness, LocalServer, client, options, poll_once, run, until, yield_now};
use cmap_runtime::CommandErrorKind;

pub fn a_command_runs_on_a_checked_out_connection<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;

        let mut connection = client.check_out().await.unwrap();
        let reply = connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();

        assert_eq!(reply, rawdoc! { "ok": 1.0 });
        assert_eq!(client.stats().counts.in_use, 1);
    });
}

pub fn a_returned_connection_is_used_again<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;

        for _ in 0..10 {
            let mut connection = client.check_out().await.unwrap();
            assert_eq!(connection.id().get(), 1);
            connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        }

        assert_eq!((client.stats().created, client.stats().counts.available), (1, 1));
    });
}

pub fn a_refused_command_leaves_the_connection_usable<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();

        let error = connection.run_command("admin", rawdoc! { "refuse": 1 }).await.unwrap_err();

        assert!(matches!(&error.kind, CommandErrorKind::Server(error) if error.code == Some(59)), "{error}");
        assert!(
            error.source().is_none() && format!("{error:?}") == error.to_string(),
            "what `main` prints is readable"
        );
        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        drop(connection);
        assert_eq!(client.stats().counts.available, 1);
    });
}

pub fn a_write_that_failed_is_an_error_with_its_place_and_code<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();
        let insert = rawdoc! { "insert": "things", "documents": [{ "_id": 1 }, { "_id": 1 }] };

        let error = connection.run_command("db", insert).await.unwrap_err();

        let CommandErrorKind::Writes(failure) = &error.kind else { panic!("{error}") };
        let writes: Vec<_> = failure.writes.iter().map(|write| (write.index, write.code)).collect();
        assert_eq!((writes.as_slice(), failure.n), ([(Some(1), Some(11000))].as_slice(), Some(1)));
        assert!(error.to_string().contains("E11000"), "{error}");
        connection.run_command("db", rawdoc! { "insert": "things", "documents": [{ "_id": 2 }] }).await.unwrap();
    });
}

pub fn a_write_concern_that_was_not_satisfied_is_an_error_of_a_kept_connection_too<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap().pin(Purpose::Transaction);
        let concern = rawdoc! { "code": 64, "errmsg": "waiting for replication timed out", "errorLabels": ["Mine"] };
        let data = rawdoc! { "failCommands": ["insert"], "writeConcernError": concern };
        let once = rawdoc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
        connection.run_command("admin", once).await.unwrap();
        let insert = rawdoc! { "insert": "things", "documents": [{ "_id": 1 }] };

        let error = connection.run_command("db", insert).await.unwrap_err();

        let CommandErrorKind::Writes(failure) = &error.kind else { panic!("{error}") };
        let concern = failure.write_concern.as_ref().unwrap();
        assert_eq!((failure.writes.len(), concern.code), (0, Some(64)));
        assert!(error.has_label("Mine"), "{error:?}");
    });
}

pub fn documents_and_values_of_ones_own_are_commands_and_replies<H: Harness>() {
    #[derive(Serialize)]
    struct Insert<'a> {
        insert: &'a str,
        documents: Vec<Task<'a>>,
    }

    #[derive(Debug, Deserialize, PartialEq, Serialize)]
    struct Task<'a> {
        title: &'a str,
        done: bool,
    }

    #[derive(Deserialize)]
    struct Found<'a> {
        #[serde(borrow)]
        cursor: Batch<'a>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Batch<'a> {
        #[serde(borrow)]
        first_batch: Vec<Task<'a>>,
    }

    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();
        let insert = Insert { insert: "tasks", documents: vec![Task { title: "write", done: false }] };

        connection.run_command("db", &insert).await.unwrap();
        let reply = connection.run_command("db", doc! { "find": "tasks", "projection": { "_id": 0 } }).await.unwrap();

        let found: Found<'_> = reply.parse().unwrap();
        assert_eq!(found.cursor.first_batch, insert.documents);
        let borrowed = connection.exchange(("db", doc! { "count": "tasks" })).await.unwrap();
        assert_eq!(borrowed.get_i32("n").ok(), Some(1), "{borrowed:?}");
        assert!(format!("{reply:?}").contains(r#""firstBatch":[{"title":"write","done":false}]"#), "{reply:?}");
    });
}

pub fn a_command_that_is_no_document_is_refused_and_the_connection_stays_usable<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();

        let error = connection.run_command("db", &"ping").await.unwrap_err();

        assert!(matches!(error.kind, CommandErrorKind::Unwritable(_)), "{error}");
        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
    });
}

pub fn a_client_tells_its_options_and_its_state<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=7").await;
        drop(client.check_out().await.unwrap());

        assert_eq!((client.options().pool.max_pool_size, client.state()), (Some(7), PoolState::Ready));
    });
}

pub fn an_unacknowledged_command_has_no_reply<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();
        let insert = rawdoc! { "insert": "things" };
        let mut command = Command::new("test", &insert);
        command.acknowledged = false;

        assert_eq!(connection.exchange(&command).await.unwrap().as_bytes().len(), 5);
        assert!(!connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap().is_empty());
    });
}

pub fn a_connection_without_a_reply_has_no_last_one<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();
        assert!(connection.last_reply().is_none(), "nothing was asked");
        connection.run_command("admin", rawdoc! { "noSuchCommand": 1 }).await.unwrap_err();
        assert!(connection.last_reply().is_some(), "a refusal is a reply");

        let insert = rawdoc! { "insert": "things" };
        let mut command = Command::new("test", &insert);
        command.acknowledged = false;
        connection.exchange(&command).await.unwrap();
        assert!(connection.last_reply().is_none(), "none was wanted");

        connection.run_command("admin", rawdoc! { "hangUp": 1 }).await.unwrap_err();
        assert!(connection.last_reply().is_none(), "none came");
    });
}

pub fn an_unacknowledged_command_does_not_repeat_an_earlier_reply<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();
        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        let insert = rawdoc! { "insert": "things" };
        let mut command = Command::new("test", &insert);
        command.acknowledged = false;

        assert!(connection.exchange(&command).await.unwrap().is_empty());
    });
}

pub fn a_pinned_connection_is_checked_out_and_in_once<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;

        let mut pinned = client.check_out().await.unwrap().pin(Purpose::Cursor);
        for _ in 0..3 {
            pinned.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        }
        let connection = pinned.unpin();
        drop(connection.pin(Purpose::Transaction));

        // LB-12.
        assert_eq!((client.stats().checked_out, client.stats().checked_in), (1, 1));
    });
}

pub fn a_large_document_goes_and_comes_in_one_piece<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();
        let insert = rawdoc! { "insert": "things", "documents": [{ "large": "x".repeat(5_000_000) }] };
        connection.run_command("test", insert).await.unwrap();
        let find = rawdoc! { "find": "things" };

        let reply = connection.exchange(&Command::new("test", &find)).await.unwrap();

        let found = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().get_document(0).unwrap();
        assert_eq!(found.get_str("large").unwrap().len(), 5_000_000);
    });
}

pub fn a_connection_is_looked_at_before_it_is_used_after_idleness<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let mut options = options(&server, "");
        options.pool.check_after_idle = Some(std::time::Duration::ZERO);
        let client = super::builder::<H>(options).build().await.unwrap();
        let mut connection = client.check_out().await.unwrap();
        connection.run_command("admin", rawdoc! { "answerThenEnd": 1 }).await.unwrap();
        drop(connection);

        // The server has closed its end of the connection after its answer; give the news time to arrive. Nobody but the
        // pool looks at the connection meanwhile.
        let mut connection = client.check_out().await.unwrap();
        while connection.id().get() == 1 {
            drop(connection);
            yield_now().await;
            connection = client.check_out().await.unwrap();
        }

        assert_eq!((connection.id().get(), client.stats().closed.error), (2, 1));
        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
    });
}

#[cfg(unix)]
pub fn a_unix_socket_is_an_address_like_others<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start_as(Setup { unix_socket: true, ..Setup::default() });
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();

        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        server.restart();

        assert!(connection.run_command("admin", rawdoc! { "ping": 1 }).await.is_err());
        assert!(client.address().to_string().ends_with(".sock"));
        drop(connection);
        recovered("the restart of a server on a Unix socket", &client).await;
    });
}

pub fn a_connection_that_was_seen_dead_is_not_given_back<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        let client = client::<H>(&server, "serverMonitoringMode=poll").await;
        let mut connection = client.check_out().await.unwrap();
        server.restart();
        until(|| !connection.is_alive()).await;

        let error = connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap_err();
        drop(connection);

        assert!(matches!(error.kind, CommandErrorKind::NotSent(_)), "{error}");
        assert_eq!(client.stats().closed.error, 1);
        let mut connection = client.check_out().await.unwrap();
        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
    });
}

pub fn a_command_may_have_several_replies_msg_8<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();
        let hello = connection.run_command("admin", rawdoc! { "hello": 1 }).await.unwrap();
        let version = hello.get_document("topologyVersion").unwrap();
        let streaming = rawdoc! { "hello": 1, "topologyVersion": version.to_owned(), "maxAwaitTimeMS": 10 };
        let mut command = Command::new("admin", &streaming);
        command.exhaust_allowed = true;

        connection.exchange(&command).await.unwrap();
        for _ in 0..3 {
            let reply = connection.next_reply().await.unwrap().unwrap();
            assert!(reply.get("topologyVersion").unwrap().is_some(), "{reply:?}");
        }
        let busy = connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap_err();
        drop(connection);

        assert!(busy.to_string().contains("read it to the end first"), "{busy}");
        assert_eq!(client.stats().closed.error, 1, "replies are still to come on it");
    });
}

pub fn replies_that_were_cut_off_have_not_ended<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();
        let hello = connection.run_command("admin", rawdoc! { "hello": 1 }).await.unwrap();
        let version = hello.get_document("topologyVersion").unwrap();
        let streaming = rawdoc! { "hello": 1, "topologyVersion": version.to_owned(), "maxAwaitTimeMS": 3_600_000 };
        let mut command = Command::new("admin", &streaming);
        command.exhaust_allowed = true;
        let mut exchange = Box::pin(connection.exchange(&command));
        assert!(poll_once(&mut exchange).await.is_none());

        drop(exchange);

        let error = connection.next_reply().await.unwrap_err();
        assert!(error.to_string().contains("broken"), "{error}");
        let again = connection.next_reply().await.unwrap_err();
        assert!(again.to_string().contains("broken"), "{again}");
    });
}
