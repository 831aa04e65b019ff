//! The end of a client: with and without patience, under load and alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bson::rawdoc;
use cmap_core::pool::CheckOutErrorKind;
use cmap_core::server::CommandEvent;
use cmap_core::topology::{SelectionErrorKind, ServerSelector};
use cmap_runtime::runtime::Runtime;
use cmap_runtime::{CheckOutError, CommandErrorKind, Event, Notice, Pool, internals};

use super::{
    Harness, Hosts, LocalServer, Manners, Setup, assert_nothing_lost, builder, client, options, poll_once, run, until,
    wait_for,
};

/// Longer than a case may take: what waits for the end of this patience fails.
const LONG: Duration = Duration::from_secs(300);

pub fn closing_fails_those_who_wait<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=1").await;
        let connection = client.check_out().await.unwrap();
        let mut waiting = Box::pin(client.check_out());
        assert!(poll_once(&mut waiting).await.is_none());

        let mut closing = Box::pin(client.close(LONG));
        assert!(poll_once(&mut closing).await.is_none());

        let Err(CheckOutError::Pool(error)) = waiting.await else { panic!("it waited in the pool") };
        assert_eq!(error.kind, CheckOutErrorKind::PoolClosed);
        let Err(CheckOutError::Selection(error)) = client.check_out().await else { panic!("no server is left") };
        assert_eq!(error.kind, SelectionErrorKind::Closed);
        drop(connection);
        assert_eq!(closing.await, Ok(0));
    });
}

pub fn closing_waits_for_connections_in_use<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();
        let mut closing = Box::pin(client.close(LONG));
        assert!(poll_once(&mut closing).await.is_none());

        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        assert!(poll_once(&mut closing).await.is_none());
        drop(connection);

        assert_eq!(closing.await, Ok(0));
        assert_eq!(client.stats().closed.pool_closed, 1);
    });
}

pub fn closing_cuts_off_what_does_not_come_back<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();
        let mut command = Box::pin(connection.run_command("admin", rawdoc! { "neverAnswer": 1 }));
        assert!(poll_once(&mut command).await.is_none());

        assert_eq!(client.close(Duration::from_millis(20)).await, Ok(1));

        let error = command.await.unwrap_err();
        assert!(matches!(error.kind, CommandErrorKind::Closed), "{error}");
        drop(connection);
        assert_nothing_lost(&client);
    });
}

pub fn closing_gives_up_establishments<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        // Nothing but the close ends the establishment.
        let client = client::<H>(&server, "connectTimeoutMS=0").await;
        let first = client.check_out().await.unwrap();
        server.set_manners(Manners::NeverAnswer);
        let mut waiting = Box::pin(client.check_out());
        assert!(poll_once(&mut waiting).await.is_none());
        assert_eq!(client.stats().counts.pending, 1);

        let mut closing = Box::pin(client.close(LONG));
        assert!(poll_once(&mut closing).await.is_none());
        drop(first);

        assert_eq!(closing.await, Ok(0));
        assert!(waiting.await.is_err());
        assert_eq!(client.stats().counts.total(), 0);
        // The client is still there, and keeps no socket of them.
        until(|| server.open() == 0).await;
    });
}

pub fn closing_ends_every_socket<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "serverMonitoringMode=stream").await;
        let connections = [client.check_out().await.unwrap(), client.check_out().await.unwrap()];
        // Those, the monitor's, and the one that measures round trips.
        until(|| server.open() == 4).await;
        drop(connections);

        assert_eq!(client.close(LONG).await, Ok(0));

        // The client is still there, and keeps none of them.
        until(|| server.open() == 0).await;
        assert_eq!(client.stats().counts.total(), 0);
    });
}

pub fn a_connection_under_tls_is_closed_with_a_goodbye<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { tls: Some(Hosts::Local), ..Setup::default() });
        let options = options(&server, &format!("tls=true&tlsCAFile={}", server.authority().display()));
        // Without a monitor, whose sockets would be counted as well.
        let pool = Pool::<H::Runtime>::with_options(options).await.unwrap();
        pool.ready();
        drop(pool.check_out().await.unwrap());

        assert_eq!(pool.closed(LONG).await, Ok(0));

        // The server can tell the end from a connection that was cut off.
        until(|| server.goodbyes() == 1).await;
    });
}

pub fn a_closed_client_keeps_nothing_of_what_it_did<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=1&timeoutMS=3600000").await;
        let mut early = Box::pin(client.check_out());
        let _ = poll_once(&mut early).await;
        drop(early);
        for command in [rawdoc! { "ping": 1 }, rawdoc! { "hangUp": 1 }, rawdoc! { "ping": 1 }] {
            let mut connection = client.check_out().await.unwrap();
            let mut waiting = Box::pin(client.check_out());
            assert!(poll_once(&mut waiting).await.is_none());
            let _ = connection.run_command("admin", command).await;
        }

        assert_eq!(client.close(LONG).await, Ok(0));

        assert_eq!(internals::entries(&client), 0);
    });
}

pub fn closing_under_load_ends_every_operation<H: Harness>() {
    const TASKS: u32 = 50;
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=5").await;
        let (worked, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let runtime = H::Runtime::current().unwrap();
        for _ in 0..TASKS {
            let (client, worked, ended) = (client.clone(), Arc::clone(&worked), Arc::clone(&ended));
            runtime.spawn(async move {
                while let Ok(mut connection) = client.check_out().await {
                    connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
                    worked.fetch_add(1, Ordering::SeqCst);
                }
                ended.fetch_add(1, Ordering::SeqCst);
            });
        }
        until(|| worked.load(Ordering::SeqCst) >= 500).await;

        assert_eq!(client.close(LONG).await, Ok(0));

        until(|| ended.load(Ordering::SeqCst) == TASKS).await;
        assert_nothing_lost(&client);
        assert_eq!(client.stats().counts.total(), 0);
    });
}

pub fn a_closing_client_ends_the_sessions_that_are_free_and_no_later_ones_x_61<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = builder::<H>(options(&server, "")).observe_commands(true).build().await.unwrap();
        let data = rawdoc! { "failCommands": ["endSessions"], "blockConnection": true, "blockTimeMS": 100 };
        let slow = rawdoc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
        // Its session and its connection are free afterwards.
        client.operation(("admin", slow)).on(ServerSelector::Writable).run().await.unwrap();
        let mut events = client.subscribe(100);

        let mut closing = Box::pin(client.close(LONG));
        assert!(poll_once(&mut closing).await.is_none());
        // Another session comes back before the server answers.
        client.run(("admin", rawdoc! { "ping": 1 })).await.unwrap();
        assert_eq!(closing.await, Ok(0));

        assert_nothing_lost(&client);
        drop(client);
        let mut told = Vec::new();
        while let Some(notice) = events.next().await {
            told.push(notice);
        }
        let has_ended_sessions = |notice: &&Notice| {
            let Notice::Event { event: Event::Command(event), .. } = notice else { return false };
            matches!(&**event, CommandEvent::CommandSucceeded { sent, .. } if sent.name == "endSessions")
        };
        assert_eq!(told.iter().filter(has_ended_sessions).count(), 1, "{told:?}");
    });
}

pub fn the_last_client_dropped_closes_the_pool<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut events = client.subscribe(100);
        let mut connection = client.check_out().await.unwrap();

        drop(client.clone());
        wait_for(&mut events, "ConnectionCheckedOut").await;
        let told: Vec<_> = std::iter::from_fn(|| events.try_next()).collect();
        let closes =
            |notice: &Notice| matches!(notice, Notice::Event { event, .. } if event.name() == "ConnectionPoolClosed");
        assert!(!told.iter().any(closes), "{told:?}");
        drop(client.check_out().await.unwrap());
        drop(client);
        wait_for(&mut events, "ConnectionPoolClosed").await;

        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        drop(connection);
        wait_for(&mut events, "ConnectionClosed").await;
        assert_eq!(events.next().await, None);
    });
}

pub fn waits_for_the_end_that_were_dropped_leave_nothing_behind<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let connection = client.check_out().await.unwrap();

        let dropped = Arc::new(AtomicU32::new(0));
        for _ in 0..100 {
            let (mut closing, dropped) = (Box::pin(client.close(LONG)), Arc::clone(&dropped));
            // Each is polled by a task of its own, which has a waker of its own.
            H::Runtime::current().unwrap().spawn(async move {
                assert!(poll_once(&mut closing).await.is_none());
                drop(closing);
                dropped.fetch_add(1, Ordering::SeqCst);
            });
        }
        until(|| dropped.load(Ordering::SeqCst) == 100).await;

        assert_eq!(internals::waits_for_the_end(&client), 0);
        drop(connection);

        assert_eq!(client.close(LONG).await, Ok(0));
    });
}
