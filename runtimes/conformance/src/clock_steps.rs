//! A clock that steps: forward by an hour, as after a suspended machine goes on, and back again, which no clock should.
//! Inside, time never runs backwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bson::rawdoc;
use cmap_core::pool::{CheckOutErrorKind, WaitLimit};
use cmap_runtime::{CheckOutError, Client, CommandErrorKind, Event};

use super::lab::Lab;
use super::recovery::recovered;
use super::{Harness, LocalServer, Setup, assert_nothing_lost, options, poll_once, run, until, wait_for};

const HOUR: u64 = 3600;

pub fn a_step_forward_fails_those_whose_time_is_up<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        let (client, lab) = Lab::<H::Runtime>::client(
            &server,
            "loadBalanced=true&maxPoolSize=1&waitQueueTimeoutMS=60000&socketTimeoutMS=60000",
        )
        .await;
        let mut connection = client.check_out().await.unwrap();
        let mut waiting = Box::pin(client.check_out());
        let mut command = Box::pin(connection.run_command("admin", rawdoc! { "neverAnswer": 1 }));
        assert!(poll_once(&mut waiting).await.is_none() && poll_once(&mut command).await.is_none());

        lab.set_ahead(HOUR);

        let Err(CheckOutError::Pool(error)) = waiting.await else { panic!("the connection is in use") };
        assert_eq!(error.kind, CheckOutErrorKind::Timeout(WaitLimit::WaitQueueTimeout));
        assert!(error.waited >= Duration::from_secs(HOUR), "{error}");
        let error = command.await.unwrap_err();
        assert!(matches!(error.kind, CommandErrorKind::Timeout(_)), "{error}");
        drop(connection);
        recovered("a step of the clock", &client).await;
    });
}

pub fn a_step_forward_replaces_idle_connections<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        let (client, lab) = Lab::<H::Runtime>::client(&server, "loadBalanced=true&maxIdleTimeMS=60000").await;
        drop(client.check_out().await.unwrap());

        lab.set_ahead(HOUR);

        assert_eq!(client.check_out().await.unwrap().id().get(), 2);
        assert_eq!(client.stats().closed.idle, 1);
    });
}

pub fn a_step_forward_has_the_server_checked_again<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let (client, lab) = Lab::<H::Runtime>::client(&server, "").await;
        let mut events = client.subscribe(1000);
        drop(client.check_out().await.unwrap());
        wait_for(&mut events, "ServerHeartbeatSucceeded").await;
        wait_for(&mut events, "ServerHeartbeatStarted").await;
        let before = lab.sleeps();

        lab.set_ahead(HOUR);

        // The answer that the monitor waited for is an hour late (MON-8, MON-9).
        wait_for(&mut events, "ServerHeartbeatFailed").await;
        recovered("a step of the clock with a monitor", &client).await;
        wait_for(&mut events, "ServerHeartbeatSucceeded").await;
        assert!(lab.sleeps() - before < 100, "it spins: {} sleeps", lab.sleeps() - before);
    });
}

pub fn a_clock_that_steps_tells_of_a_possible_leak_once<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        let lab = Lab::<H::Runtime>::new();
        let told = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&told);
        let client = Client::builder(options(&server, "loadBalanced=true"))
            .runtime(lab.clone())
            .leak_detection_threshold(Duration::from_secs(60))
            .on_event(move |_, event| {
                if let Event::PossibleLeak(_) = event {
                    count.fetch_add(1, Ordering::SeqCst);
                }
            })
            .build()
            .await
            .unwrap();
        let held = client.check_out().await.unwrap();

        lab.set_ahead(HOUR);
        until(|| told.load(Ordering::SeqCst) == 1).await;
        lab.set_ahead(0);
        drop(held);
        drop(client.check_out().await.unwrap());

        assert_eq!(told.load(Ordering::SeqCst), 1);
        let used = client.statistics().durations.unwrap().in_use;
        assert!(used.count() == 2 && used.longest() < Duration::from_secs(2 * HOUR), "{used}");
        assert!(client.uses().slowest.iter().all(|past| past.took < Duration::from_secs(2 * HOUR)));
        assert_nothing_lost(&client);
    });
}

pub fn a_step_back_stops_limits_and_nothing_else<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        let (client, lab) = Lab::<H::Runtime>::client(
            &server,
            "loadBalanced=true&maxPoolSize=1&waitQueueTimeoutMS=60000&socketTimeoutMS=60000",
        )
        .await;
        lab.set_ahead(HOUR);
        let mut connection = client.check_out().await.unwrap();
        let mut waiting = Box::pin(client.check_out());
        assert!(poll_once(&mut waiting).await.is_none());
        let before = lab.sleeps();

        lab.set_ahead(0);

        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        drop(connection);
        let mut connection = waiting.await.unwrap();
        let mut waiting = Box::pin(client.check_out());
        assert!(poll_once(&mut waiting).await.is_none());
        lab.set_ahead(2 * HOUR);
        let Err(CheckOutError::Pool(error)) = waiting.await else { panic!("the connection is in use") };
        assert_eq!(error.kind, CheckOutErrorKind::Timeout(WaitLimit::WaitQueueTimeout));
        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        drop(connection);
        assert!(lab.sleeps() - before < 100, "it spins: {} sleeps", lab.sleeps() - before);
        assert_nothing_lost(&client);
    });
}
