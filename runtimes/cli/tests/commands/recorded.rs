//! A client under load on each runtime and over real sockets, recorded: its primary is killed, then answers slowly, then one
//! caller leaks connections. Each time the file repeats in another process, which also names the cause of the longest wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::members::{Members, order, tell};
use crate::program::{cmap, stderr, stdout};
use cmap_core::options::ClientOptions;
use cmap_runtime::bson::rawdoc;
use cmap_runtime::{Client, Connection, Recorder, Runtime};
use serde_json::Value;

const TASKS: usize = 50;

const OPTIONS: &str = "maxPoolSize=4&heartbeatFrequencyMS=500&timeoutMS=10000";

#[test]
fn incidents_are_repeated_and_explained_elsewhere_on_tokio() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(incidents::<cmap_tokio::Tokio>());
}

#[test]
fn incidents_are_repeated_and_explained_elsewhere_on_smol() {
    smol::block_on(incidents::<cmap_smol::Smol>());
}

#[test]
fn incidents_are_repeated_and_explained_elsewhere_on_async_std() {
    // async-std has threads of its own.
    smol::block_on(incidents::<cmap_async_std::AsyncStd>());
}

async fn incidents<R: Runtime>() {
    let members = Members::start(env!("CARGO_BIN_EXE_cmap"));
    the_primary_is_killed::<R>(&members).await;
    it_answers_slowly::<R>(&members).await;
    a_caller_leaks_connections::<R>(&members).await;
}

async fn the_primary_is_killed<R: Runtime>(members: &Members) {
    let load = Load::<R>::begin(members).await;
    let (primary, other) = members.primary::<R>().await;

    tell::<R>(&other, order("kill", &primary)).await;
    pause::<R>(Duration::from_millis(1500)).await;
    tell::<R>(&other, order("restart", &primary)).await;
    load.is_served_again().await;

    let wait = explained(&load.end().await);
    assert_eq!(wait["cause"], "server selection", "{wait:#}");
    let occurrences = wait["wait"]["occurrences"].as_array().unwrap();
    assert!(occurrences.iter().any(|it| it["what"]["ServerChanged"]["server"] == primary.as_str()), "{wait:#}");
}

async fn it_answers_slowly<R: Runtime>(members: &Members) {
    let load = Load::<R>::begin(members).await;
    let (primary, _) = members.primary::<R>().await;

    let data = rawdoc! { "failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 300 };
    tell::<R>(&primary, rawdoc! { "configureFailPoint": "failCommand", "mode": { "times": 20 }, "data": data }).await;
    load.is_served_again().await;

    let wait = explained(&load.end().await);
    assert_eq!(wait["cause"], "maxPoolSize", "{wait:#}");
    let uses = longest_uses(&wait);
    assert!(uses.iter().filter(|(_, held_for)| *held_for >= Duration::from_millis(250)).count() >= 4, "{wait:#}");
}

async fn a_caller_leaks_connections<R: Runtime>(members: &Members) {
    let load = Load::<R>::begin(members).await;

    let mut leaked: Vec<Connection<R>> = Vec::new();
    for _ in 0..4 {
        leaked.push(load.client.check_out().label("nightly export").await.unwrap());
    }
    pause::<R>(Duration::from_millis(800)).await;
    drop(leaked);
    load.is_served_again().await;

    let wait = explained(&load.end().await);
    assert_eq!(wait["cause"], "maxPoolSize", "{wait:#}");
    let uses = longest_uses(&wait);
    assert!(uses.iter().take(4).all(|(holder, _)| holder.starts_with("nightly export at ")), "{wait:#}");
}

/// Who used connections in the longest interval that was bound by maxPoolSize, and for how long.
fn longest_uses(wait: &Value) -> Vec<(String, Duration)> {
    let length = |it: &&Value| it["to"].as_u64().unwrap() - it["from"].as_u64().unwrap();
    let intervals = wait["wait"]["intervals"].as_array().unwrap().iter();
    let longest = intervals.filter(|it| it["limit"]["MaxPoolSize"].is_object()).max_by_key(length).unwrap();
    let uses = longest["limit"]["MaxPoolSize"]["uses"].as_array().unwrap();
    let time =
        |of: &Value| Duration::new(of["secs"].as_u64().unwrap(), of["nanos"].as_u64().unwrap().try_into().unwrap());
    uses.iter().map(|it| (it["holder"].as_str().unwrap().to_owned(), time(&it["held_for"]))).collect()
}

/// The longest wait, as another process explains it from the file alone, after it has repeated all of it.
fn explained(file: &[u8]) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("incident.trace");
    std::fs::write(&path, file).unwrap();

    let repeated = cmap(&["replay", "--verify"], &[&path]);
    assert_eq!(repeated.status.code(), Some(0), "{}", stderr(&repeated));
    assert!(stdout(&repeated).contains("all as recorded\n"), "{}", stdout(&repeated));

    let output = cmap(&["replay", "--explain", "slowest:1", "--json"], &[&path]);
    let told: Value = serde_json::from_str(stdout(&output)).unwrap();
    let intervals = told[0]["wait"]["intervals"].as_array().unwrap();
    let sum: u64 = intervals.iter().map(|it| it["to"].as_u64().unwrap() - it["from"].as_u64().unwrap()).sum();
    assert_eq!(told[0]["nanoseconds"], sum, "{told:#}");
    told[0].clone()
}

/// Many tasks that use one recorded client.
struct Load<R: Runtime> {
    client: Client<R>,
    served: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    running: Arc<AtomicUsize>,
}

impl<R: Runtime> Load<R> {
    async fn begin(members: &Members) -> Self {
        let (options, _) = ClientOptions::parse(&members.uri(OPTIONS)).unwrap();
        let recorder = Recorder::new().bytes(16 << 20);
        let client = Client::<R>::builder(options).recorder(recorder).watch_holders(true).build().await.unwrap();
        let load = Self { client, served: Arc::default(), is_over: Arc::default(), running: Arc::default() };
        for _ in 0..TASKS {
            load.running.fetch_add(1, Ordering::SeqCst);
            R::current().unwrap().spawn(load.task());
        }
        load.is_served_again().await;
        load
    }

    fn task(&self) -> impl Future<Output = ()> + Send + 'static {
        let client = self.client.clone();
        let (served, is_over, running) = (self.served.clone(), self.is_over.clone(), self.running.clone());
        async move {
            while !is_over.load(Ordering::SeqCst) {
                if let Ok(mut connection) = client.check_out().label("web").await {
                    let is_answered = connection.run_command("admin", rawdoc! { "ping": 1 }).await.is_ok();
                    served.fetch_add(usize::from(is_answered), Ordering::SeqCst);
                }
                pause::<R>(Duration::from_millis(10)).await;
            }
            running.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Waits until the tasks were served as often as there are tasks.
    async fn is_served_again(&self) {
        let served = self.served.load(Ordering::SeqCst);
        while self.served.load(Ordering::SeqCst) < served + TASKS {
            pause::<R>(Duration::from_millis(5)).await;
        }
    }

    /// The file, after the load has ended.
    async fn end(self) -> Vec<u8> {
        let file = self.client.trace().unwrap();
        self.is_over.store(true, Ordering::SeqCst);
        while self.running.load(Ordering::SeqCst) > 0 {
            pause::<R>(Duration::from_millis(5)).await;
        }
        self.client.close(Duration::from_secs(20)).await.unwrap();
        file
    }
}

async fn pause<R: Runtime>(pause: Duration) {
    let runtime = R::current().unwrap();
    runtime.sleep_until(runtime.now() + pause).await;
}
