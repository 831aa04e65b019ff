//! Servers and networks that misbehave, on real sockets. The pool recovers without help.

use std::time::Duration;

use bson::rawdoc;
use cmap_runtime::{CommandErrorKind, Notice};

use super::recovery::recovered;
use super::{Harness, LocalServer, client, is_reset, run, until, wait_for};

pub fn a_restarted_server_costs_no_user_an_error<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        // The monitor checks too seldom to notice.
        let mut options = super::options(&server, "serverMonitoringMode=poll");
        options.pool.check_after_idle = Some(Duration::ZERO);
        let client = super::builder::<H>(options).build().await.unwrap();
        let mut connection = client.check_out().await.unwrap();

        server.restart();
        until(|| !connection.is_alive()).await;
        drop(connection);

        let mut connection = client.check_out().await.unwrap();
        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
    });
}

pub fn a_restart_that_the_monitor_has_seen_costs_no_user_an_error<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        let client = client::<H>(&server, "serverMonitoringMode=stream").await;
        let mut events = client.subscribe(100);
        drop(client.check_out().await.unwrap());

        server.restart();
        wait_for(&mut events, "ConnectionPoolCleared").await;

        let mut connection = client.check_out().await.unwrap();
        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
    });
}

pub fn a_killed_server_is_found_again<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();

        server.kill();
        let error = connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap_err();
        drop(connection);
        assert!(matches!(error.kind, CommandErrorKind::Network(_)), "{error}");
        let error = client.check_out_within(Some(Duration::from_millis(100))).await.unwrap_err();
        assert!(error.to_string().contains(&client.address().to_string()), "{error}");
        server.restart();

        recovered("the death of the server", &client).await;
    });
}

pub fn a_reset_connection_is_an_error_that_clears_the_pool<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut events = client.subscribe(100);
        let mut connection = client.check_out().await.unwrap();

        let error = connection.run_command("admin", rawdoc! { "reset": 1 }).await.unwrap_err();
        drop(connection);

        assert!(matches!(&error.kind, CommandErrorKind::Network(_)) && error.is_retryable(), "{error}");
        assert!(is_reset(&error), "{error:?}");
        wait_for(&mut events, "ConnectionPoolCleared").await;
        wait_for(&mut events, "ConnectionCheckedIn").await;
        wait_for(&mut events, "ConnectionClosed").await;
        recovered("a reset", &client).await;
    });
}

pub fn half_a_message_then_the_end_is_an_error<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();

        let error = connection.run_command("admin", rawdoc! { "halfThenEnd": 1 }).await.unwrap_err();
        drop(connection);

        assert!(matches!(&error.kind, CommandErrorKind::Network(_)), "{error}");
        recovered("half a message", &client).await;
    });
}

pub fn half_a_message_then_silence_is_a_timeout<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "socketTimeoutMS=200").await;
        let mut connection = client.check_out().await.unwrap();

        let error = connection.run_command("admin", rawdoc! { "halfThenSilence": 1 }).await.unwrap_err();
        drop(connection);

        assert!(matches!(&error.kind, CommandErrorKind::Timeout(_)), "{error}");
        assert_eq!(client.stats().closed.error, 1);
        recovered("half a message and silence", &client).await;
    });
}

pub fn a_server_that_is_no_primary_any_more_is_checked_at_once<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        // Nothing else has it checked, and no other time limit has the client look what there is to do.
        let query = "serverMonitoringMode=poll&heartbeatFrequencyMS=3600000&connectTimeoutMS=3600000\
                     &serverSelectionTimeoutMS=3600000";
        let client = client::<H>(&server, query).await;
        let mut connection = client.check_out().await.unwrap();
        // The server says that it is not the primary any more.
        let data = rawdoc! { "failCommands": ["ping"], "errorCode": 10107 };
        let once = rawdoc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
        connection.run_command("admin", once).await.unwrap();
        let mut events = client.subscribe(100);

        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap_err();

        // SDAM-14.
        wait_for(&mut events, "ServerHeartbeatStarted").await;
        wait_for(&mut events, "ServerHeartbeatSucceeded").await;
    });
}

pub fn a_server_is_checked_again_and_again_on_one_socket<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        // No other time limit has the client look what there is to do.
        let query = "serverMonitoringMode=poll&heartbeatFrequencyMS=500&connectTimeoutMS=3600000";
        let client = client::<H>(&server, query).await;
        let mut events = client.subscribe(100);

        let mut succeeded = 0;
        while succeeded < 3 {
            match events.next().await {
                Some(Notice::Event { event, .. }) if event.name() == "ServerHeartbeatSucceeded" => succeeded += 1,
                Some(Notice::Event { event, .. }) => assert_ne!(event.name(), "ServerHeartbeatFailed", "{event:?}"),
                other => panic!("{other:?}"),
            }
        }

        assert_eq!(server.accepted(), 1);
    });
}

pub fn a_monitor_whose_socket_ends_notices_at_once<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        let client = client::<H>(&server, "serverMonitoringMode=stream&connectTimeoutMS=3600000").await;
        drop(client.check_out().await.unwrap());
        let mut events = client.subscribe(100);

        // No time limit ends the check.
        server.kill();

        wait_for(&mut events, "ServerHeartbeatFailed").await;
        server.restart();
        recovered("the end of the monitor's socket", &client).await;
    });
}

pub fn a_hanging_server_interrupts_its_commands<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "heartbeatFrequencyMS=500&connectTimeoutMS=1000").await;
        let mut connection = client.check_out().await.unwrap();
        server.hang(true);

        let error = connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap_err();
        drop(connection);

        // CMAP-41, MON-9.
        assert!(matches!(error.kind, CommandErrorKind::Interrupted(_)) && error.is_retryable(), "{error}");
        assert!(error.to_string().contains("interrupted due to server monitor timeout"), "{error}");
        server.hang(false);
        recovered("a server that hung", &client).await;
    });
}
