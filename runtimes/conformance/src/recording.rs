//! What a client does is recorded: the file alone repeats it, and explains why its callers waited.

use std::path::PathBuf;
use std::time::Duration;

use bson::rawdoc;
use cmap_core::trace::{Limit, Question, Replay, Trace, Wait, WaitEnd, explain};
use cmap_runtime::runtime::Runtime;
use cmap_runtime::{Client, ClientBuilder, Recorder};

use super::{ClientOf, Harness, LocalServer, Setup, options, poll_once, run, until};

const WHILE: Duration = Duration::from_millis(60);

const HOUR: Duration = Duration::from_secs(3600);

pub fn the_file_of_a_client_under_load_replays_bit_for_bit<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start_as(Setup { replica_set: true, ..Setup::default() });
        let client = recorded::<H>(&server, "maxPoolSize=2&directConnection=true").await;
        for round in 0..20 {
            let mut first = client.check_out().label("web").await.unwrap();
            let second = client.check_out().await.unwrap();
            let mut third = Box::pin(client.check_out());
            assert!(poll_once(&mut third).await.is_none());
            // Its server may just have been killed.
            let _ = first.run_command("admin", rawdoc! { "ping": 1 }).await;
            drop(first);
            drop((second, third.await.unwrap()));
            if round == 10 {
                server.kill();
                server.restart();
            }
        }
        until(|| client.stats().counts.in_use == 0).await;

        let trace = traced(&client);
        let mut replay = Replay::new(&trace).unwrap();
        while replay.step().unwrap().is_some() {}

        assert!(trace.calls() > 100, "{}", trace.calls());
        let (stats, replayed) = (client.stats(), replay.machine().stats());
        assert_eq!((replayed.checked_out, replayed.checked_in), (stats.checked_out, stats.checked_in));
        assert!(trace.header.unix_millis.is_some() && trace.header.trigger == "asked for", "{:?}", trace.header);
    });
}

pub fn a_wait_names_the_leak_by_label_and_place<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = recorded::<H>(&server, "maxPoolSize=2").await;
        let (line, leaked) = (line!(), client.check_out().label("leak").await.unwrap());
        let web = client.check_out().label("web").await.unwrap();

        client.check_out_within(WHILE).label("victim").await.unwrap_err();

        let failed = only(&client, Question::Failures(10));
        assert!(failed.holder.as_deref().is_some_and(|holder| holder.starts_with("victim at ")), "{failed:?}");
        let Some(Limit::MaxPoolSize { uses, in_use: 2, .. }) = failed.cause().map(|cause| &cause.limit) else {
            panic!("{failed:?}")
        };
        assert!(uses[0].holder.as_deref().unwrap().starts_with(&format!("leak at {}:{line}:", file!())), "{uses:?}");
        assert!(uses[0].held_for >= WHILE, "{uses:?}");
        drop((leaked, web));
    });
}

pub fn a_pool_that_is_too_small_has_many_short_uses<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = recorded::<H>(&server, "maxPoolSize=1").await;
        let mut held = client.check_out().label("web").await.unwrap();
        let mut last = Box::pin(client.check_out());
        assert!(poll_once(&mut last).await.is_none());
        sleep::<H>(WHILE).await;
        held.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        drop(held);

        drop(last.await.unwrap());

        let waited = last_wait(&client);
        assert!(waited.duration() >= WHILE, "{waited:?}");
        let Some(Limit::MaxPoolSize { uses, in_use: 1, .. }) = waited.cause().map(|cause| &cause.limit) else {
            panic!("{waited:?}")
        };
        assert!(uses[0].held_for >= WHILE && uses[0].connection == 1, "{uses:?}");
    });
}

pub fn a_server_that_establishes_slowly_binds_by_establishment_and_max_connecting<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { services: 1, ..Setup::default() });
        let query = "maxConnecting=1&loadBalanced=true&connectTimeoutMS=200";
        let client = recorded::<H>(&server, query).await;
        server.hang(true);
        let mut first = Box::pin(client.check_out());
        assert!(poll_once(&mut first).await.is_none());
        let mut second = Box::pin(client.check_out());
        assert!(poll_once(&mut second).await.is_none());
        sleep::<H>(WHILE).await;

        let explained = explain(&traced(&client), Question::Slowest(2)).unwrap();

        let [first_wait, second_wait] = &explained[..] else { panic!("{explained:?}") };
        assert!(explained.iter().all(|wait| wait.end == WaitEnd::Open), "{explained:?}");
        assert!(matches!(first_wait.cause().unwrap().limit, Limit::Establishment(_)), "{first_wait:?}");
        assert!(
            matches!(second_wait.cause().unwrap().limit, Limit::MaxConnecting { establishing: 1, .. }),
            "{second_wait:?}"
        );
        drop((first, second));
        server.hang(false);
    });
}

pub fn a_broken_login_is_the_end_of_its_waits<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { authorization: true, services: 1, ..Setup::default() });
        let uri = server.uri_as("app:wrong", "loadBalanced=true");
        let client = recorded_at::<H>(
            super::builder::<H>(cmap_core::options::ClientOptions::parse(&uri).unwrap().0).reselect(false),
        )
        .await;

        client.check_out().await.unwrap_err();

        let failed = only(&client, Question::Failures(10));
        assert!(matches!(failed.cause().unwrap().limit, Limit::Establishment(_)), "{failed:?}");
        let WaitEnd::Failed { error } = &failed.end else { panic!("{failed:?}") };
        assert!(error.contains("refused the login of \"app\""), "{error}");
    });
}

pub fn a_server_that_is_gone_binds_by_selection<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        server.kill();
        let client = recorded::<H>(&server, "serverSelectionTimeoutMS=100").await;

        client.check_out().await.unwrap_err();

        let failed = only(&client, Question::Failures(10));
        let Some(Limit::Selection { servers }) = failed.cause().map(|cause| &cause.limit) else { panic!("{failed:?}") };
        assert!(servers.len() == 1 && servers[0].contains("Unknown"), "{servers:?}");
        assert!(failed.duration() >= Duration::from_millis(100), "{failed:?}");
    });
}

pub fn a_starved_task_is_told_from_a_busy_pool<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = recorded::<H>(&server, "maxPoolSize=1").await;
        let held = client.check_out().await.unwrap();
        let mut late = Box::pin(client.check_out());
        assert!(poll_once(&mut late).await.is_none());
        drop(held);

        // The connection is there, and nobody runs the task.
        sleep::<H>(WHILE).await;
        drop(late.await.unwrap());

        let waited = last_wait(&client);
        let cause = waited.cause().unwrap();
        assert_eq!(cause.limit, Limit::LateWakeUp, "{waited:?}");
        assert!(cause.duration() >= WHILE, "{waited:?}");
    });
}

pub fn a_caller_that_gives_up_is_told_from_a_failure<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = recorded::<H>(&server, "maxPoolSize=1").await;
        let held = client.check_out().await.unwrap();
        let mut impatient = Box::pin(client.check_out());
        assert!(poll_once(&mut impatient).await.is_none());
        sleep::<H>(WHILE).await;
        drop(impatient);
        drop(held);

        let waited = last_wait(&client);

        assert_eq!(waited.end, WaitEnd::Cancelled, "{waited:?}");
        assert!(explain(&traced(&client), Question::Failures(10)).unwrap().is_empty());
    });
}

pub fn a_long_wait_writes_one_file<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let directory = Directory::new();
        let recorder = Recorder::new().directory(&directory.0).when_wait_exceeds(WHILE / 2).linger(Duration::ZERO);
        let builder = super::builder::<H>(options(&server, "maxPoolSize=1")).recorder(recorder);
        let client: ClientOf<H> = builder.build().await.unwrap();
        for _ in 0..2 {
            let held = client.check_out().await.unwrap();
            let mut second = Box::pin(client.check_out());
            assert!(poll_once(&mut second).await.is_none());
            sleep::<H>(WHILE).await;
            drop(held);
            drop(second.await.unwrap());
        }

        until(|| !directory.traces().is_empty()).await;
        sleep::<H>(WHILE).await;

        let [file] = &directory.traces()[..] else { panic!("{:?}", directory.traces()) };
        let trace = Trace::read(&std::fs::read(file).unwrap()).unwrap();
        assert_eq!(trace.header.trigger, "ConnectionCheckedOut");
        assert!(explain(&trace, Question::Slowest(1)).unwrap()[0].duration() >= WHILE / 2);
    });
}

pub fn a_caller_that_fails_before_the_long_wait_writes_a_file<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let directory = Directory::new();
        let client = writing::<H>(&server, "maxPoolSize=1", &directory, HOUR).await;
        let held = client.check_out().await.unwrap();

        client.check_out_within(WHILE / 2).await.unwrap_err();

        assert_eq!(written(&directory).await.header.trigger, "ConnectionCheckOutFailed");
        drop(held);
    });
}

pub fn a_caller_that_fails_in_an_outage_writes_a_file<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        server.kill();
        let directory = Directory::new();
        let client = writing::<H>(&server, "serverSelectionTimeoutMS=100", &directory, HOUR).await;

        client.check_out().await.unwrap_err();

        assert_eq!(written(&directory).await.header.trigger, "ServerSelectionFailed");
    });
}

pub fn a_caller_that_gives_up_in_an_outage_writes_a_file<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        server.kill();
        let directory = Directory::new();
        let client = writing::<H>(&server, "", &directory, HOUR).await;
        let mut impatient = Box::pin(client.check_out());
        assert!(poll_once(&mut impatient).await.is_none());

        drop(impatient);

        assert_eq!(written(&directory).await.header.trigger, "given up without a server");
    });
}

pub fn a_long_wait_for_a_server_writes_a_file<H: Harness>() {
    // The connection itself comes sooner.
    const LONG: Duration = Duration::from_millis(400);
    run::<H>(async {
        let mut server = LocalServer::start();
        server.kill();
        let directory = Directory::new();
        let client = writing::<H>(&server, "", &directory, LONG).await;
        let mut check_out = Box::pin(client.check_out());
        assert!(poll_once(&mut check_out).await.is_none());
        sleep::<H>(LONG + WHILE).await;
        server.restart();

        drop(check_out.await.unwrap());

        assert_eq!(written(&directory).await.header.trigger, "ConnectionCheckedOut");
    });
}

pub fn a_sparse_recorder_explains_a_wait_and_keeps_no_calls<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let builder: ClientBuilder<H::Runtime> = super::builder::<H>(options(&server, "maxPoolSize=2"));
        let client = builder.recorder(Recorder::sparse()).watch_holders(true).build().await.unwrap();
        let leaked = client.check_out().label("leak").await.unwrap();
        let web = client.check_out().label("web").await.unwrap();

        client.check_out_within(WHILE).label("victim").await.unwrap_err();

        let failed = only(&client, Question::Failures(10));
        assert!(failed.holder.as_deref().is_some_and(|holder| holder.starts_with("victim at ")), "{failed:?}");
        let Some(Limit::MaxPoolSize { uses, in_use: 2, .. }) = failed.cause().map(|cause| &cause.limit) else {
            panic!("{failed:?}")
        };
        assert!(uses[0].holder.as_deref().is_some_and(|holder| holder.starts_with("leak at ")), "{uses:?}");
        assert!(Replay::new(&traced(&client)).is_none());
        drop((leaked, web));
    });
}

pub fn a_client_without_a_recorder_has_no_trace<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = super::client::<H>(&server, "").await;

        drop(client.check_out().await.unwrap());

        assert_eq!(client.trace(), None);
    });
}

async fn recorded<H: Harness>(server: &LocalServer, query: &str) -> ClientOf<H> {
    recorded_at::<H>(super::builder::<H>(options(server, query))).await
}

async fn recorded_at<H: Harness>(builder: ClientBuilder<H::Runtime>) -> ClientOf<H> {
    builder.recorder(Recorder::new()).watch_holders(true).build().await.unwrap()
}

/// A client whose recorder writes files when a check-out fails, or waits for longer than `limit`.
async fn writing<H: Harness>(server: &LocalServer, query: &str, directory: &Directory, limit: Duration) -> ClientOf<H> {
    let recorder = Recorder::new().directory(&directory.0).when_wait_exceeds(limit).linger(Duration::ZERO);
    super::builder::<H>(options(server, query)).recorder(recorder).build().await.unwrap()
}

/// The trace that is written.
async fn written(directory: &Directory) -> Trace {
    until(|| !directory.traces().is_empty()).await;
    Trace::read(&std::fs::read(&directory.traces()[0]).unwrap()).unwrap()
}

fn traced<R: Runtime>(client: &Client<R>) -> Trace {
    Trace::read(&client.trace().unwrap()).unwrap()
}

/// The wait of the last call. Under load an establishment before it may have taken longer.
fn last_wait<R: Runtime>(client: &Client<R>) -> Wait {
    let waits = explain(&traced(client), Question::Slowest(usize::MAX)).unwrap();
    checked(waits.into_iter().max_by_key(|wait| wait.call).unwrap())
}

fn only<R: Runtime>(client: &Client<R>, question: Question) -> Wait {
    let mut explained = explain(&traced(client), question).unwrap();
    assert_eq!(explained.len(), 1, "{explained:?}");
    checked(explained.remove(0))
}

/// The wait, whose intervals add up to it.
fn checked(wait: Wait) -> Wait {
    let sum: Duration = wait.intervals.iter().map(|interval| interval.duration()).sum();
    assert_eq!(sum, wait.duration(), "{wait:?}");
    wait
}

async fn sleep<H: Harness>(time: Duration) {
    let runtime = H::Runtime::current().unwrap();
    runtime.sleep_until(runtime.now() + time).await;
}

/// An empty directory of this case's own.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cmap-recording-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn traces(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "trace")).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What is left lies among temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
