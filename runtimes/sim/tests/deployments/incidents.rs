//! Incidents whose causes are known, each recorded by a client as in production: the trace alone repeats the incident, and its
//! explanation names the cause.
//!
//! With `CMAP_INCIDENTS` each trace is also written into that directory, under the incident's name. That is how those in
//! `spec-runner/traces` are made when the behaviour has a new version.

use std::sync::Arc;
use std::time::Duration;

use cmap_runtime::Recorder;
use cmap_sim::bson::{RawDocumentBuf, doc, rawdoc};
use cmap_sim::cmap_core::options::{ClientOptions, Credential, Secret};
use cmap_sim::cmap_core::topology::seed_list::SrvRecord;
use cmap_sim::cmap_core::trace::{Demand, Happening, Limit, Question, Replay, Trace, Wait, WaitEnd, explain, waits};
use cmap_sim::{Client, Server, Servers, Sim, User};

const MILLI: Duration = Duration::from_millis(1);

/// The longest wait of an incident that a client of `uri` meets, as the trace alone explains it.
fn slowest(name: &str, sim: &Sim, uri: &str, incident: impl AsyncFnOnce(Client)) -> Wait {
    explained(name, sim, uri, Question::Slowest(1), incident)
}

/// The longest wait that ended with an error.
fn failed(name: &str, sim: &Sim, uri: &str, incident: impl AsyncFnOnce(Client)) -> Wait {
    explained(name, sim, uri, Question::Failures(1), incident)
}

fn explained(name: &str, sim: &Sim, uri: &str, question: Question, incident: impl AsyncFnOnce(Client)) -> Wait {
    let file = sim.run(async {
        let (options, _) = ClientOptions::parse(uri).unwrap();
        let client = Client::builder(options).recorder(Recorder::new()).watch_holders(true).build().await.unwrap();
        incident(client.clone()).await;
        client.trace().unwrap()
    });
    if let Some(directory) = std::env::var_os("CMAP_INCIDENTS") {
        std::fs::write(std::path::Path::new(&directory).join(format!("{name}.trace")), &file).unwrap();
    }
    let trace = Trace::read(&file).unwrap();
    let mut replay = Replay::new(&trace).unwrap();
    while replay.step().unwrap().is_some() {}
    for number in waits(&trace).unwrap().iter().filter_map(|wait| wait.call) {
        for wait in explain(&trace, Question::Call(number)).unwrap() {
            let sum: Duration = wait.intervals.iter().map(|interval| interval.duration()).sum();
            assert_eq!(sum, wait.duration(), "{wait:?}");
        }
    }
    explain(&trace, question).unwrap().remove(0)
}

fn limit(wait: &Wait) -> &Limit {
    &wait.cause().unwrap_or_else(|| panic!("{wait:?}")).limit
}

fn happened(wait: &Wait, is_meant: impl Fn(&Happening) -> bool) -> bool {
    wait.occurrences.iter().any(|occurrence| is_meant(&occurrence.what))
}

fn assert_waited_for_a_server(wait: &Wait) {
    assert!(matches!(limit(wait), Limit::Selection { .. }), "{wait:?}");
}

fn ping() -> RawDocumentBuf {
    rawdoc! { "ping": 1 }
}

/// The server does this with the next commands of these names.
fn fail(server: &Server, commands: &[&str], mode: cmap_sim::bson::Document, mut what: cmap_sim::bson::Document) {
    what.insert("failCommands", commands.to_vec());
    let command = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": what };
    let _ = server.run_command("admin", RawDocumentBuf::try_from(&command).unwrap());
}

fn set(sim: &Sim) -> Servers {
    sim.replica_set("rs", &["a.example", "b.example", "c.example"])
}

/// Many callers at once, each with a command.
async fn callers(sim: &Sim, client: &Client, number: usize, label: &'static str) {
    let done = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    for _ in 0..number {
        let (client, done) = (client.clone(), Arc::clone(&done));
        sim.spawn(async move {
            if let Ok(mut connection) = client.check_out().label(label).await {
                let _ = connection.run_command("admin", ping()).await;
            }
            done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        });
    }
    while done.load(std::sync::atomic::Ordering::SeqCst) < number {
        sim.sleep(MILLI).await;
    }
}

#[test]
fn a_pool_that_is_too_small_has_many_short_uses() {
    let sim = Sim::new(1);
    let _server = sim.server("db.example");

    let wait = slowest("pool-too-small", &sim, "mongodb://db.example/?maxPoolSize=2", async |client| {
        callers(&sim, &client, 100, "web").await;
    });

    let Limit::MaxPoolSize { uses, in_use: 2, ended } = limit(&wait) else { panic!("{wait:?}") };
    assert!(*ended > 50, "{wait:?}");
    assert!(uses.iter().all(|held| held.held_for < wait.duration() / 4), "{wait:?}");
}

#[test]
fn a_leak_is_named_by_its_label() {
    let sim = Sim::new(2);
    let _server = sim.server("db.example");

    let uri = "mongodb://db.example/?maxPoolSize=2&waitQueueTimeoutMS=500";
    let wait = failed("leak", &sim, uri, async |client| {
        let leaked = client.check_out().label("export").await.unwrap();
        sim.sleep(Duration::from_secs(20)).await;
        let other = client.check_out().label("web").await.unwrap();
        assert!(client.check_out().label("victim").await.is_err());
        drop((leaked, other));
    });

    let Limit::MaxPoolSize { uses, .. } = limit(&wait) else { panic!("{wait:?}") };
    assert!(uses[0].holder.as_deref().unwrap().starts_with("export at "), "{wait:?}");
    assert!(uses[0].held_for > Duration::from_secs(20) && uses[1].held_for < Duration::from_secs(1), "{wait:?}");
}

#[test]
fn a_slow_server_shows_in_all_uses() {
    let sim = Sim::new(3);
    let server = sim.server("db.example");

    let wait = slowest("slow-server", &sim, "mongodb://db.example/?maxPoolSize=4", async |client| {
        callers(&sim, &client, 4, "web").await;
        fail(&server, &["ping"], doc! { "times": 4 }, doc! { "blockConnection": true, "blockTimeMS": 800 });
        callers(&sim, &client, 5, "web").await;
    });

    let Limit::MaxPoolSize { uses, in_use: 4, .. } = limit(&wait) else { panic!("{wait:?}") };
    assert!(uses.iter().all(|held| held.held_for > Duration::from_millis(700)), "{wait:?}");
}

#[test]
fn a_storm_of_establishments_waits_for_max_connecting() {
    let sim = Sim::new(4);
    let _server = sim.server("db.example");
    sim.set_pace(Duration::from_millis(100)..=Duration::from_millis(100), None);

    let uri = "mongodb://db.example/?maxPoolSize=50&maxConnecting=1&connectTimeoutMS=5000";
    let wait = slowest("storm", &sim, uri, async |client| {
        let held = client.check_out().label("export").await.unwrap();
        callers(&sim, &client, 8, "web").await;
        drop(held);
    });

    assert!(matches!(limit(&wait), Limit::MaxConnecting { .. } | Limit::Establishment(_)), "{wait:?}");
    assert!(wait.by_limit().iter().any(|(name, _)| *name == "maxConnecting"), "{wait:?}");
}

#[test]
fn a_broken_login_is_the_error_of_an_establishment() {
    let sim = Sim::new(5);
    let _server = sim.server_with("db.example", |config| {
        config.authorization = true;
        config.users = vec![User::with_password("app", "right")];
    });

    let wait = failed("login", &sim, "mongodb://app:wrong@db.example/?authSource=admin", async |client| {
        assert!(client.check_out().label("web").await.is_err());
    });

    let cleared = |what: &Happening| matches!(what, Happening::ConnectionFailed { error, .. } if error.contains("login of \"app\""));
    assert!(happened(&wait, cleared), "{wait:?}");
}

#[test]
fn a_failover_is_a_wait_for_the_next_primary() {
    let sim = Sim::new(6);
    let set = set(&sim);

    let wait = slowest("failover", &sim, &set.uri("heartbeatFrequencyMS=500&connectTimeoutMS=500"), async |client| {
        drop(client.check_out().await.unwrap());
        let mut connection = client.check_out().await.unwrap();
        set.kill(set.primary().unwrap());
        connection.run_command("admin", ping()).await.unwrap_err();
        drop(client.check_out().label("web").await.unwrap());
    });

    assert_waited_for_a_server(&wait);
    let is_over = |what: &Happening| matches!(what, Happening::ServerChanged { to, .. } if to == "RsPrimary");
    assert!(happened(&wait, is_over), "{wait:?}");
}

#[test]
fn a_pause_names_the_one_connection_that_failed() {
    let sim = Sim::new(7);
    let server = sim.server("db.example");
    let mut bad = 0;

    let uri = "mongodb://db.example/?maxPoolSize=3&heartbeatFrequencyMS=500";
    let wait = slowest("one-bad-connection", &sim, uri, async |client| {
        drop(client.check_out().await.unwrap());
        let mut connection = client.check_out().label("export").await.unwrap();
        bad = connection.id().get();
        fail(&server, &["ping"], doc! { "times": 1 }, doc! { "closeConnection": true });
        connection.run_command("admin", ping()).await.unwrap_err();
        drop(client.check_out().label("web").await.unwrap());
    });

    assert_waited_for_a_server(&wait);
    let cleared = |what: &Happening| matches!(what, Happening::ConnectionFailed { connection, clears: true, .. } if *connection == bad);
    assert!(happened(&wait, cleared), "{wait:?}");
}

#[test]
fn a_starved_executor_is_a_late_wake_up() {
    let sim = Sim::new(8);
    let _server = sim.server("db.example");

    let wait = slowest("starved-executor", &sim, "mongodb://db.example/?maxPoolSize=1", async |client| {
        let held = client.check_out().await.unwrap();
        let mut late = Box::pin(client.check_out().label("web").into_future());
        assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(late.as_mut().poll(cx))).await.is_pending());
        drop(held);
        sim.sleep(Duration::from_millis(900)).await;
        drop(late.await.unwrap());
    });

    assert_eq!(limit(&wait), &Limit::LateWakeUp, "{wait:?}");
}

#[test]
fn callers_that_give_up_are_told_from_failures() {
    let sim = Sim::new(9);
    let _server = sim.server("db.example");

    let wait = slowest("callers-give-up", &sim, "mongodb://db.example/?maxPoolSize=1", async |client| {
        let held = client.check_out().label("export").await.unwrap();
        let mut impatient = Box::pin(client.check_out().label("web").into_future());
        assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(impatient.as_mut().poll(cx))).await.is_pending());
        sim.sleep(Duration::from_millis(300)).await;
        drop(impatient);
        drop(held);
    });

    assert_eq!(wait.end, WaitEnd::Cancelled, "{wait:?}");
    assert!(matches!(limit(&wait), Limit::MaxPoolSize { .. }), "{wait:?}");
}

#[test]
fn a_rotation_is_why_connections_are_established_anew() {
    let sim = Sim::new(10);
    let _server = sim.server_with("db.example", |config| {
        config.authorization = true;
        config.users = vec![User::with_password("app", "old"), User::with_password("next", "new")];
    });

    let uri = "mongodb://app:old@db.example/?authSource=admin&maxPoolSize=4&maxConnecting=1";
    let wait = slowest("rotation", &sim, uri, async |client| {
        client.warm_up(Some(4), Duration::from_secs(5)).await.unwrap();
        let next = Credential::new("next", Secret::from("new"), "admin");
        client.set_credential(Some(next)).await.unwrap();
        callers(&sim, &client, 8, "web").await;
    });

    assert!(matches!(limit(&wait), Limit::MaxConnecting { .. } | Limit::Establishment(_)), "{wait:?}");
    assert!(happened(&wait, |what| *what == Happening::Asked(Demand::NewCredential)), "{wait:?}");
}

#[test]
fn a_seed_list_that_cannot_be_read_is_told_beside_the_wait() {
    let sim = Sim::new(11);
    let hosts = ["router0.example.com:27017".to_owned()];
    let cluster = sim.deployment(|server| cmap_sim::DeploymentConfig::sharded(server, hosts));
    let record = SrvRecord::new("router0.example.com", 27017, Duration::from_secs(60));
    sim.set_dns("cluster.example.com", vec![record], Vec::new());

    let uri = "mongodb+srv://cluster.example.com/?tls=false&heartbeatFrequencyMS=10000&serverSelectionTimeoutMS=90000";
    let wait = failed("dns", &sim, uri, async |client| {
        drop(client.check_out().await.unwrap());
        sim.fail_dns("cluster.example.com");
        let (router, _) = cluster.members().remove(0);
        cluster.kill(router);
        sim.sleep(Duration::from_secs(2)).await;
        assert!(client.check_out().label("web").await.is_err());
    });

    assert_waited_for_a_server(&wait);
    assert!(happened(&wait, |what| matches!(what, Happening::SeedListUnknown(_))), "{wait:?}");
}

#[test]
fn a_partition_is_a_server_that_answers_no_more() {
    let sim = Sim::new(12);
    let server = sim.server("db.example");

    let uri = "mongodb://db.example/?heartbeatFrequencyMS=500&connectTimeoutMS=500&serverSelectionTimeoutMS=3000";
    let wait = failed("partition", &sim, uri, async |client| {
        drop(client.check_out().await.unwrap());
        server.partition();
        sim.sleep(Duration::from_secs(2)).await;
        assert!(client.check_out().label("web").await.is_err());
    });

    let Limit::Selection { servers } = limit(&wait) else { panic!("{wait:?}") };
    assert!(servers[0].contains("Unknown") && servers[0].contains("connectTimeoutMS"), "{wait:?}");
    let silent = |what: &Happening| matches!(what, Happening::ServerChanged { error: Some(error), .. } if error.contains("did not answer"));
    assert!(happened(&wait, silent), "{wait:?}");
}
