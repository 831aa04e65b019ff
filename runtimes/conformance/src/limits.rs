//! Many waiters, and limits on waiting.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::rawdoc;
use cmap_core::connection::Command;
use cmap_core::pool::{CheckOutErrorKind, WaitLimit};
use cmap_runtime::runtime::Runtime;
use cmap_runtime::{CheckOutError, CommandErrorKind, TimeLimit, internals};

use super::{Harness, LocalServer, assert_nothing_lost, client, poll_once, roomy, run, until, yield_now};

pub fn ten_thousand_waiters_are_all_served<H: Harness>() {
    const WAITERS: u32 = 10_000;
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=8&maxConnecting=8").await;
        let served = Arc::new(AtomicU32::new(0));
        let runtime = H::Runtime::current().unwrap();
        let mut in_use = Vec::new();
        for _ in 0..8 {
            in_use.push(client.check_out().await.unwrap());
        }

        for _ in 0..WAITERS {
            let (client, served) = (client.clone(), Arc::clone(&served));
            runtime.spawn(async move {
                let connection = client.check_out().await.unwrap();
                yield_now().await;
                drop(connection);
                served.fetch_add(1, Ordering::SeqCst);
            });
        }
        until(|| client.stats().counts.waiting == WAITERS).await;
        drop(in_use);
        until(|| served.load(Ordering::SeqCst) == WAITERS).await;

        assert_nothing_lost(&client);
        assert!(client.stats().high_water_total <= 8);
    });
}

pub fn waiters_are_served_in_their_order<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=1").await;
        let first = client.check_out().await.unwrap();
        let mut waiters: Vec<_> = (0..100).map(|_| Box::pin(client.check_out())).collect();
        for waiter in &mut waiters {
            assert!(poll_once(waiter).await.is_none());
        }

        drop(first);

        for mut waiter in waiters {
            assert!(poll_once(&mut waiter).await.is_some_and(|answer| answer.is_ok()), "it was not its turn");
        }
    });
}

pub fn a_wait_queue_timeout_says_how_the_pool_looked<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=1&waitQueueTimeoutMS=1000").await;
        // The limit is none of the establishment's.
        client.warm_up(1, Duration::from_secs(60)).await.unwrap();
        let _in_use = client.check_out().await.unwrap();

        let error = client.check_out().await.unwrap_err();

        let CheckOutError::Pool(error) = error else { panic!("{error}") };
        assert_eq!(error.kind, CheckOutErrorKind::Timeout(WaitLimit::WaitQueueTimeout));
        assert!(error.waited >= Duration::from_millis(1000), "{error}");
        assert!(error.to_string().contains("1 in use, 0 available, 0 pending, 1 waiting, maxPoolSize 1"), "{error}");
    });
}

pub fn timeout_ms_cuts_off_a_command<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "timeoutMS=10000").await;
        let mut connection = client.check_out().await.unwrap();
        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        drop(connection);
        let client = super::client::<H>(&server, "timeoutMS=100").await;
        let mut connection = client.check_out_within(None).await.unwrap();

        let error = connection.run_command("admin", rawdoc! { "neverAnswer": 1 }).await.unwrap_err();
        drop(connection);

        assert!(matches!(error.kind, CommandErrorKind::Timeout(_)), "{error}");
        // SDAM-9: a slow operation says nothing about the others; CSOT-12: its connection is closed.
        assert_eq!((client.stats().cleared, client.stats().closed.error), (0, 1));
    });
}

pub fn a_limit_cuts_off_the_wait_for_a_further_reply<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        // The monitor checks too seldom to interrupt it.
        let query = "socketTimeoutMS=1000&serverMonitoringMode=poll&heartbeatFrequencyMS=3600000";
        let client = client::<H>(&server, query).await;
        let mut connection = client.check_out().await.unwrap();
        let hello = connection.run_command("admin", rawdoc! { "hello": 1 }).await.unwrap();
        let version = hello.get_document("topologyVersion").unwrap().to_owned();
        let streaming = rawdoc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 10 };
        let mut command = Command::new("admin", &streaming);
        command.exhaust_allowed = true;
        connection.exchange(&command).await.unwrap();

        server.hang(true);
        // Some replies may be on their way.
        let error = loop {
            if let Err(error) = connection.next_reply().await {
                break error;
            }
        };
        server.hang(false);

        assert!(matches!(error.kind, CommandErrorKind::Timeout(_)), "{error}");
    });
}

pub fn timeout_ms_is_told_to_the_server_csot_9<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "timeoutMS=60000").await;
        let mut connection = client.check_out().await.unwrap();
        let always = rawdoc! { "configureFailPoint": "maxTimeAlwaysTimeOut", "mode": "alwaysOn" };
        connection.run_command("admin", always).await.unwrap();

        // The fail point hits commands that come with a limit.
        let find = rawdoc! { "find": "things" };
        let error = connection.run_command("db", &find).await.unwrap_err();

        assert!(error.is_timeout() && matches!(error.kind, CommandErrorKind::Server(_)), "{error}");
        connection.exchange_within(&Command::new("db", &find), None).await.unwrap();
    });
}

pub fn a_get_more_is_told_no_limit_csot_9<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "timeoutMS=60000").await;
        let mut connection = client.check_out().await.unwrap();
        let insert = rawdoc! { "insert": "things", "documents": [{ "_id": 1 }, { "_id": 2 }] };
        connection.run_command("db", insert).await.unwrap();
        // A cursor keeps the limit of the command that opened it: this one has none.
        let find = ("db", rawdoc! { "find": "things", "batchSize": 1 });
        let found = connection.exchange_within(find, None).await.unwrap();
        let cursor = found.get_document("cursor").unwrap().get_i64("id").unwrap();
        let always = rawdoc! { "configureFailPoint": "maxTimeAlwaysTimeOut", "mode": "alwaysOn" };
        connection.run_command("admin", always).await.unwrap();

        // The fail point hits commands that come with a limit, which getMore takes only if its cursor waits for data.
        connection.run_command("db", rawdoc! { "getMore": cursor, "collection": "things" }).await.unwrap();
    });
}

pub fn timeout_ms_bounds_a_check_out<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        // CSOT-3: the older timeout is ignored.
        let client = client::<H>(&server, "maxPoolSize=1&timeoutMS=100&waitQueueTimeoutMS=1").await;
        let _in_use = client.check_out_within(None).await.unwrap();
        let failed = Mutex::new(None);

        *failed.lock().unwrap() = client.check_out().await.err();

        let Some(CheckOutError::Pool(error)) = failed.into_inner().unwrap() else { panic!("it got a connection") };
        assert_eq!(error.kind, CheckOutErrorKind::Timeout(WaitLimit::Deadline));
    });
}

pub fn the_time_of_a_check_out_runs_from_its_first_poll<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "maxPoolSize=1").await;
        let runtime = H::Runtime::current().unwrap();
        drop(client.check_out().await.unwrap());
        let later = client.check_out_within(Some(Duration::from_millis(50)));

        runtime.sleep_until(runtime.now() + Duration::from_millis(100)).await;

        later.await.unwrap();
    });
}

pub fn a_spent_limit_fails_a_check_out_at_once<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        drop(client.check_out().await.unwrap());
        let over = client.deadline(Duration::ZERO);

        let mut check_outs = [client.check_out_within(Duration::ZERO), client.check_out_within(over)];
        for check_out in &mut check_outs {
            let answer = poll_once(check_out).await.expect("it does not wait");
            assert!(answer.is_err_and(|error| error.is_timeout()), "time is up");
        }

        let stats = client.stats();
        assert_eq!((stats.counts.available, stats.checked_out), (1, 1), "no connection was touched");
    });
}

pub fn a_spent_limit_sends_nothing_and_spares_the_connection<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();
        let insert = rawdoc! { "insert": "things", "documents": [{ "_id": 1 }] };
        let insert = Command::new("db", &insert);

        let error = connection.exchange_within(&insert, Duration::ZERO).await.unwrap_err();

        let CommandErrorKind::NoTimeLeft { left: TimeLimit::Caller(Duration::ZERO), .. } = error.kind else {
            panic!("{error}")
        };
        let reply = connection.exchange_within(&insert, None).await.unwrap();
        assert_eq!(reply.get_i32("n").ok(), Some(1), "the first was not carried out");
    });
}

pub fn a_spent_limit_sends_no_command_and_no_write<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;
        let mut connection = client.check_out().await.unwrap();
        let insert = rawdoc! { "insert": "things", "documents": [{ "_id": 1 }] };

        let command = connection.run_command_within("db", &insert, Duration::ZERO).await.unwrap_err();
        let write = connection.run_command_within("db", &insert, Duration::ZERO).await.unwrap_err();

        for error in [command, write] {
            assert!(matches!(error.kind, CommandErrorKind::NoTimeLeft { left: TimeLimit::Caller(_), .. }), "{error}");
        }
        let reply = connection.run_command_within("db", &insert, None).await.unwrap();
        assert_eq!(reply.get_i32("n").ok(), Some(1), "the others were not carried out");
        let twice = connection.run_command_within("db", &insert, None).await.unwrap_err();
        assert!(matches!(twice.kind, CommandErrorKind::Writes(_)), "a write that failed is an error: {twice}");
    });
}

pub fn a_limit_of_the_callers_replaces_that_of_the_options<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "timeoutMS=60000").await;
        let silence = rawdoc! { "neverAnswer": 1 };
        let limit = Duration::from_millis(100);

        let mut connection = client.check_out().await.unwrap();
        let command = connection.run_command_within("db", &silence, limit).await.unwrap_err();
        let mut connection = client.check_out().await.unwrap();
        let write = connection.run_command_within("db", &silence, limit).await.unwrap_err();

        for error in [command, write] {
            assert!(
                matches!(error.kind, CommandErrorKind::Timeout(TimeLimit::Caller(time)) if time == limit),
                "{error}"
            );
        }
    });
}

pub fn a_deadline_bounds_a_check_out_and_its_commands<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "timeoutMS=60000").await;
        let limit = roomy::<H>(Duration::from_millis(500));
        let deadline = client.deadline(limit);
        let mut connection = client.check_out_within(deadline).await.unwrap();
        let (ping, silence) = (rawdoc! { "ping": 1 }, rawdoc! { "neverAnswer": 1 });

        connection.exchange_within(&Command::new("admin", &ping), deadline).await.unwrap();
        let error = connection.exchange_within(&Command::new("admin", &silence), deadline).await.unwrap_err();

        let CommandErrorKind::Timeout(TimeLimit::Caller(left)) = error.kind else { panic!("{error}") };
        assert!(left <= limit, "{left:?}");
        assert!(error.to_string().contains("the caller's limit"), "{error}");
        assert_eq!(client.time_left(deadline), Duration::ZERO);
        let error = client.check_out_within(deadline).await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
    });
}

pub fn a_limit_that_passes_too_late_cuts_off_nothing<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = client::<H>(&server, "").await;

        let (cuts, cuts_the_next) = internals::end_as_the_limit_passes(&client, Duration::from_millis(1)).await;

        assert!(cuts && !cuts_the_next, "the next command has all its time");
    });
}
