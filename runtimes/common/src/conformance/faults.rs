//! Servers and networks that misbehave, on real sockets. The pool recovers by itself.

use std::time::Duration;

use bson::rawdoc;

use super::recovery::recovered;
use super::{Harness, TestServer, client, is_reset, run, until, wait_for};
use crate::{Client, CommandErrorKind};

pub fn a_restarted_server_costs_no_user_an_error<H: Harness>() {
    run::<H>(async {
        let mut server = TestServer::start();
        // The monitor asks too seldom to notice.
        let mut options = super::options(&server, "serverMonitoringMode=poll");
        options.pool.check_after_idle = Some(Duration::ZERO);
        let client = Client::<H::Runtime>::with_options(options).await.unwrap();
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
        let mut server = TestServer::start();
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
        let mut server = TestServer::start();
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
        let server = TestServer::start();
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
        let server = TestServer::start();
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
        let server = TestServer::start();
        let client = client::<H>(&server, "socketTimeoutMS=200").await;
        let mut connection = client.check_out().await.unwrap();

        let error = connection.run_command("admin", rawdoc! { "halfThenSilence": 1 }).await.unwrap_err();
        drop(connection);

        assert!(matches!(&error.kind, CommandErrorKind::Timeout(_)), "{error}");
        assert_eq!(client.stats().closed.error, 1);
        recovered("half a message and silence", &client).await;
    });
}

pub fn a_hanging_server_interrupts_its_commands<H: Harness>() {
    run::<H>(async {
        let server = TestServer::start();
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
