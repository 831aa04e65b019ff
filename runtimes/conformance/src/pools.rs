//! Pools without a monitor: paused until their owner says that the server answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::rawdoc;
use cmap_core::connection::Command;
use cmap_core::pool::{ApiMisuse, Cause, CheckOutErrorKind, Clear, ServiceId};
use cmap_runtime::runtime::Runtime;
use cmap_runtime::{CheckOutError, CommandErrorKind, Pool};

use super::lab::Lab;
use super::{Deed, Harness, LocalServer, Manners, options, poll_once, run, until};

type PoolOf<H> = Pool<<H as Harness>::Runtime>;

async fn pool<H: Harness>(server: &LocalServer, query: &str) -> PoolOf<H> {
    super::pool_builder::<H>(options(server, query)).build().await.unwrap()
}

/// Why the pool gives no connection.
async fn refusal<H: Harness>(pool: &PoolOf<H>) -> CheckOutErrorKind {
    let error = pool.check_out().await.unwrap_err();
    let CheckOutError::Pool(error) = error else { panic!("{error}") };
    error.kind.clone()
}

pub fn a_paused_pool_gives_no_connection_cmap_28<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let pool = pool::<H>(&server, "").await;

        let error = pool.check_out().await.unwrap_err();

        assert!(error.is_retryable(), "{error}");
        assert!(matches!(refusal::<H>(&pool).await, CheckOutErrorKind::PoolCleared { .. }));
        assert_eq!(pool.stats().created, 0);
    });
}

pub fn a_ready_pool_gives_connections<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let pool = pool::<H>(&server, "").await;

        pool.ready();
        let mut connection = pool.check_out().await.unwrap();

        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        drop(connection);
        assert_eq!(pool.stats().counts.available, 1);
    });
}

pub fn a_cleared_pool_waits_for_its_owner_and_says_why<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let pool = pool::<H>(&server, "").await;
        pool.ready();
        let connection = pool.check_out().await.unwrap();

        pool.clear(Clear::pool(Cause::new("the monitor saw smoke"))).unwrap();
        drop(connection);

        let error = pool.check_out().await.unwrap_err();
        assert!(error.to_string().contains("the monitor saw smoke"), "{error}");
        assert_eq!(pool.stats().closed.stale, 1);
        pool.ready();
        assert_eq!(pool.check_out().await.unwrap().id().get(), 2);
    });
}

pub fn a_clear_fails_those_who_wait<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let pool = pool::<H>(&server, "maxPoolSize=1").await;
        pool.ready();
        let _only = pool.check_out().await.unwrap();
        let mut waiter = pool.check_out();
        assert!(poll_once(&mut waiter).await.is_none());

        pool.clear(Clear::pool(Cause::new("gone"))).unwrap();

        assert!(waiter.await.unwrap_err().is_retryable());
    });
}

pub fn an_interrupting_clear_cuts_off_a_command_cmap_40<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let pool = pool::<H>(&server, "").await;
        pool.ready();
        let mut connection = pool.check_out().await.unwrap();
        let (begun, outcome) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (begins, ended) = (Arc::clone(&begun), Arc::clone(&outcome));
        // In a task of its own, which nothing but the interruption wakes.
        H::Runtime::current().unwrap().spawn(async move {
            let mut command = Box::pin(connection.run_command("admin", rawdoc! { "neverAnswer": 1 }));
            assert!(poll_once(&mut command).await.is_none());
            begins.store(true, Ordering::SeqCst);
            let error = command.await.unwrap_err();
            *ended.lock().unwrap() = Some(error.kind);
        });
        until(|| begun.load(Ordering::SeqCst)).await;

        pool.clear(Clear::pool(Cause::new("gone")).interrupting()).unwrap();

        until(|| outcome.lock().unwrap().is_some()).await;
        let kind = outcome.lock().unwrap().take();
        assert!(matches!(kind, Some(CommandErrorKind::Interrupted(_))), "{kind:?}");
    });
}

pub fn a_limit_that_passes_after_an_interruption_does_not_hide_it<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let (runtime, pool) = (H::Runtime::current().unwrap(), pool::<H>(&server, "").await);
        pool.ready();
        let mut connection = pool.check_out().await.unwrap();
        let (body, limit) = (rawdoc! { "neverAnswer": 1 }, Duration::from_millis(50));
        let command = Command::new("admin", &body);
        let mut command = Box::pin(connection.exchange_within(&command, Some(limit)));
        assert!(poll_once(&mut command).await.is_none());

        pool.clear(Clear::pool(Cause::new("gone")).interrupting()).unwrap();
        // Its task has no turn until the limit has passed as well.
        runtime.sleep_until(runtime.now() + 4 * limit).await;

        let error = command.await.unwrap_err();
        assert!(matches!(error.kind, CommandErrorKind::Interrupted(_)), "{error}");
    });
}

pub fn a_connection_that_was_interrupted_sends_no_further_command<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let pool = pool::<H>(&server, "").await;
        pool.ready();
        let mut interrupted = pool.check_out().await.unwrap();
        pool.clear(Clear::pool(Cause::new("gone")).interrupting()).unwrap();
        pool.ready();
        let mut other = pool.check_out().await.unwrap();

        let insert = rawdoc! { "insert": "things", "documents": [{ "_id": 1 }] };
        let error = interrupted.run_command("test", insert).await.unwrap_err();
        drop(interrupted);

        assert!(matches!(error.kind, CommandErrorKind::Interrupted(_)), "{error}");
        // The server has read all that came on it.
        until(|| server.open() == 1).await;
        let count = other.run_command("test", rawdoc! { "count": "things" }).await.unwrap();
        assert_eq!(count.get_i32("n").unwrap(), 0);
    });
}

pub fn a_lost_connection_clears_a_pool_without_a_monitor_sdam_10<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let pool = pool::<H>(&server, "").await;
        pool.ready();
        let mut connection = pool.check_out().await.unwrap();

        connection.run_command("admin", rawdoc! { "hangUp": 1 }).await.unwrap_err();

        assert!(matches!(refusal::<H>(&pool).await, CheckOutErrorKind::PoolCleared { .. }));
        pool.ready();
        pool.check_out().await.unwrap();
    });
}

pub fn a_failed_handshake_is_the_check_outs_error_and_not_the_owners<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let pool = pool::<H>(&server, "").await;
        pool.ready();

        // A server that hangs up at the hello is overloaded: the pool stays as it is (SDAM-7).
        server.set_manners(Manners::To("hello", Deed::HangUp));
        assert!(matches!(refusal::<H>(&pool).await, CheckOutErrorKind::Establish { .. }));
        server.set_manners(Manners::Serve);

        pool.check_out().await.unwrap();
        assert_eq!(pool.stats().cleared, 0);
    });
}

pub fn a_closed_pool_stays_closed_cmap_21<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let pool = pool::<H>(&server, "").await;
        pool.ready();
        let connection = pool.check_out().await.unwrap();

        pool.close();
        pool.ready();

        assert_eq!(refusal::<H>(&pool).await, CheckOutErrorKind::PoolClosed);
        let mut closed = Box::pin(pool.closed(Duration::from_secs(60)));
        assert!(poll_once(&mut closed).await.is_none());
        drop(connection);
        assert_eq!(closed.await, Ok(0));
    });
}

pub fn a_pool_has_no_events_of_servers_and_monitors<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let names = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&names);
        let builder = super::pool_builder::<H>(options(&server, ""));
        let builder = builder.on_event(move |_, event| told.lock().unwrap().push(event.name().to_owned()));
        let pool = builder.build().await.unwrap();

        pool.ready();
        drop(pool.check_out().await.unwrap());
        pool.close();
        pool.closed(Duration::from_secs(60)).await.unwrap();

        let expected = [
            "ConnectionPoolCreated",
            "ConnectionPoolReady",
            "ConnectionCheckOutStarted",
            "ConnectionCreated",
            "ConnectionReady",
            "ConnectionCheckedOut",
            "ConnectionCheckedIn",
            "ConnectionClosed",
            "ConnectionPoolClosed",
        ];
        // Another thread may still be delivering events.
        until(|| names.lock().unwrap().len() >= expected.len()).await;
        assert_eq!(*names.lock().unwrap(), expected);
    });
}

pub fn limits_pass_though_nothing_else_is_due<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let pool = pool::<H>(&server, "maxPoolSize=1").await;
        pool.ready();
        let mut connection = pool.check_out().await.unwrap();
        let limit = Some(Duration::from_millis(50));

        let body = rawdoc! { "neverAnswer": 1 };
        let command = connection.exchange_within(&Command::new("admin", &body), limit).await.unwrap_err();
        let check_out = pool.check_out_within(limit).await.unwrap_err();

        assert!(command.is_timeout() && check_out.is_timeout(), "{command}; {check_out}");
    });
}

pub fn idle_connections_are_closed_though_nothing_else_is_due<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let pool = pool::<H>(&server, "maxIdleTimeMS=50").await;
        pool.ready();

        drop(pool.check_out().await.unwrap());

        until(|| pool.stats().closed.idle == 1).await;
    });
}

pub fn an_idle_pool_sleeps_until_something_is_due<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let (runtime, lab) = (H::Runtime::current().unwrap(), Lab::<H::Runtime>::new());
        let builder = Pool::builder(options(&server, "maxIdleTimeMS=3600000")).runtime(lab.clone());
        let pool = builder.build().await.unwrap();
        pool.ready();
        drop(pool.check_out().await.unwrap());
        let before = lab.sleeps();

        runtime.sleep_until(runtime.now() + Duration::from_millis(200)).await;

        assert!(lab.sleeps() - before < 10, "it has woken {} times for nothing", lab.sleeps() - before);
        assert_eq!(pool.stats().counts.available, 1);
    });
}

pub fn a_dropped_pool_leaves_no_task_behind<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let lab = Lab::<H::Runtime>::new();
        let pool = Pool::builder(options(&server, "")).runtime(lab.clone()).build().await.unwrap();
        pool.ready();
        drop(pool.check_out().await.unwrap());

        drop(pool);

        lab.all_tasks_ended().await;
    });
}

pub fn a_service_is_cleared_only_behind_a_load_balancer_lb_8<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let pool = pool::<H>(&server, "").await;

        let misuse = pool.clear(Clear::service(ServiceId([7; 12]), Cause::new("gone")));

        assert_eq!(misuse, Err(ApiMisuse::ClearWithService));
    });
}

pub fn the_last_pool_dropped_closes_it<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let pool = pool::<H>(&server, "").await;
        pool.ready();
        let mut events = pool.subscribe(100);
        let other = pool.clone();

        drop(pool);
        drop(other.check_out().await.unwrap());
        drop(other);

        super::wait_for(&mut events, "ConnectionPoolClosed").await;
    });
}
