//! The figures of a client's pools as metrics, by OpenTelemetry's names.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use cmap_conformance::{LocalServer, Setup};
use cmap_runtime::Metrics;
use cmap_tokio::Client;
use cmap_tokio::ClientOptions;
use cmap_tokio::cmap_core::options::{Credential, Secret};
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};

#[tokio::test]
async fn a_clients_pool_is_shown_with_the_names_of_opentelemetry() {
    let server = LocalServer::start();
    let options = ClientOptions::parse(&server.uri("maxPoolSize=2")).unwrap().0;
    let client = Client::builder(options).watch_holders(true).build().await.unwrap();
    let recorder = Recorded::default();
    let mut metrics = metrics::with_local_recorder(&recorder, Metrics::new);
    let first = client.check_out().await.unwrap();
    let second = client.check_out().await.unwrap();
    client.check_out_within(Duration::from_millis(20)).await.unwrap_err();
    drop(second);

    metrics::with_local_recorder(&recorder, || metrics.record(&client));

    let one = |name| recorder.value(name, None);
    assert_eq!(recorder.value("count", Some("used")), 1.0);
    assert_eq!(recorder.value("count", Some("idle")), 1.0);
    assert_eq!([one("max"), one("idle.max"), one("idle.min")], [2.0, 2.0, 0.0]);
    assert_eq!([one("pending_requests"), one("timeouts")], [0.0, 1.0]);
    assert_eq!(["create_time", "wait_time", "use_time"].map(|name| recorder.times(name).len()), [2, 2, 1]);
    assert!(recorder.times("create_time").iter().all(|&time| time > 0.0 && time < 60.0));
    assert_eq!(recorder.pool_of("max"), client.address().to_string());

    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(first);
    metrics::with_local_recorder(&recorder, || metrics.record(&client));

    let times = recorder.times("use_time");
    assert!(times.len() == 2 && times[1] >= 0.02, "what was recorded before is not recorded again: {times:?}");
    assert_eq!(recorder.value("count", Some("used")), 0.0);
}

#[tokio::test]
async fn each_holder_of_connections_is_shown_with_its_label_its_place_and_its_age() {
    const HELD: Duration = Duration::from_millis(20);
    let server = LocalServer::start();
    let options = ClientOptions::parse(&server.uri("")).unwrap().0;
    let client = Client::builder(options).watch_holders(true).build().await.unwrap();
    let (line, leaked) = (line!(), client.check_out().label("leak").await.unwrap());
    let page = [client.check_out().label("page").await.unwrap(), client.check_out().label("page").await.unwrap()];
    tokio::time::sleep(HELD).await;
    let recorder = Recorded::default();
    let mut metrics = metrics::with_local_recorder(&recorder, Metrics::new);

    metrics::with_local_recorder(&recorder, || metrics.record(&client));

    let leak = recorder.longest_use("leak").unwrap();
    assert_eq!((leak.file.as_str(), leak.line.as_str()), (file!(), line.to_string().as_str()));
    assert!(leak.seconds() >= HELD.as_secs_f64() && leak.seconds() < 60.0, "{leak:?}");
    assert!(recorder.longest_use("page").unwrap().seconds() >= HELD.as_secs_f64());

    drop(leaked);
    metrics::with_local_recorder(&recorder, || metrics.record(&client));

    assert_eq!(recorder.longest_use("leak").map(|leak| leak.seconds()), Some(0.0));
    assert!(recorder.longest_use("page").is_some_and(|page| page.seconds() > 0.0));
    drop(page);
}

#[tokio::test]
async fn the_gauges_of_a_pool_that_has_gone_are_zero() {
    let server = LocalServer::start_as(Setup { authorization: true, ..Setup::default() });
    let options = ClientOptions::parse(&server.uri("maxPoolSize=2")).unwrap().0;
    let client = Client::builder(options).build().await.unwrap();
    let app = client.add_identity(Credential::new("app", Secret::from("secret"), "admin")).unwrap();
    let recorder = Recorded::default();
    let mut metrics = metrics::with_local_recorder(&recorder, Metrics::new);
    drop(client.check_out().identity(app).await.unwrap());
    metrics::with_local_recorder(&recorder, || metrics.record(&client));
    assert_eq!(recorder.of_user("app", "count", Some("idle")), 1.0);

    client.remove_identity(app);
    metrics::with_local_recorder(&recorder, || metrics.record(&client));

    let values = ["max", "idle.max", "idle.min", "pending_requests"].map(|name| recorder.of_user("app", name, None));
    assert_eq!(values, [0.0; 4]);
    assert_eq!(["idle", "used"].map(|state| recorder.of_user("app", "count", Some(state))), [0.0; 2]);
}

#[tokio::test]
async fn check_outs_that_wait_for_a_server_are_shown_beside_those_that_wait_for_a_connection() {
    // Nothing listens at port 1.
    let client = Client::connect("mongodb://127.0.0.1:1/").await.unwrap();
    let recorder = Recorded::default();
    let mut metrics = metrics::with_local_recorder(&recorder, Metrics::new);
    let mut check_out = Box::pin(client.check_out());
    assert!(poll_fn(|cx| Poll::Ready(check_out.as_mut().poll(cx).is_pending())).await);

    metrics::with_local_recorder(&recorder, || metrics.record(&client));

    let waiting = || ["cmap.selection.pending_requests", "pending_requests"].map(|name| recorder.value(name, None));
    assert_eq!(waiting(), [1.0, 0.0]);
    assert_eq!(recorder.pool_of("cmap.selection.pending_requests"), "127.0.0.1:1");

    drop(check_out);
    metrics::with_local_recorder(&recorder, || metrics.record(&client));

    assert_eq!(waiting(), [0.0, 0.0]);
}

/// A metric's name without the common beginning, its pool, and its state.
type Name = (String, String, Option<String>);

/// Keeps all metrics.
#[derive(Default)]
struct Recorded {
    values: Mutex<BTreeMap<Name, Arc<AtomicU64>>>,
    counters: Mutex<BTreeMap<Name, Arc<AtomicU64>>>,
    histograms: Mutex<BTreeMap<Name, Arc<Times>>>,
    /// By the label.
    longest_uses: Mutex<BTreeMap<String, LongestUse>>,
}

#[derive(Clone, Debug)]
struct LongestUse {
    file: String,
    line: String,
    gauge: Arc<AtomicU64>,
}

impl LongestUse {
    fn seconds(&self) -> f64 {
        f64::from_bits(self.gauge.load(Ordering::Relaxed))
    }
}

#[derive(Default)]
struct Times(Mutex<Vec<f64>>);

impl HistogramFn for Times {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }
}

impl Recorded {
    fn value(&self, name: &str, state: Option<&str>) -> f64 {
        let is_it = |(own, _, of): &&Name| own == name && of.as_deref() == state;
        let (gauges, counters) = (self.values.lock().unwrap(), self.counters.lock().unwrap());
        if let Some(key) = gauges.keys().find(is_it) {
            return f64::from_bits(gauges[key].load(Ordering::Relaxed));
        }
        let key = counters.keys().find(is_it).unwrap();
        f64::from(u32::try_from(counters[key].load(Ordering::Relaxed)).unwrap())
    }

    /// A gauge of the pool of this user.
    fn of_user(&self, user: &str, name: &str, state: Option<&str>) -> f64 {
        let is_it =
            |(own, pool, of): &&Name| own == name && of.as_deref() == state && pool.ends_with(&format!(" as {user}"));
        let gauges = self.values.lock().unwrap();
        f64::from_bits(gauges[gauges.keys().find(is_it).unwrap()].load(Ordering::Relaxed))
    }

    fn times(&self, name: &str) -> Vec<f64> {
        let histograms = self.histograms.lock().unwrap();
        let found = histograms.iter().find(|((own, ..), _)| own == name);
        found.map(|(_, times)| times.0.lock().unwrap().clone()).unwrap_or_default()
    }

    fn longest_use(&self, label: &str) -> Option<LongestUse> {
        self.longest_uses.lock().unwrap().get(label).cloned()
    }

    fn pool_of(&self, name: &str) -> String {
        self.values.lock().unwrap().keys().find(|(own, ..)| own == name).unwrap().1.clone()
    }
}

fn name(key: &Key) -> Name {
    let own = key.name().strip_prefix("db.client.connection.").unwrap_or(key.name()).to_owned();
    (own, attribute(key, "db.client.connection.pool.name").unwrap(), attribute(key, "db.client.connection.state"))
}

fn attribute(key: &Key, wanted: &str) -> Option<String> {
    let mut labels = key.labels();
    labels.find(|label| label.key() == wanted).map(|label| label.value().to_owned())
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::clone(self.counters.lock().unwrap().entry(name(key)).or_default()))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        if key.name() == "cmap.connection.longest_use" {
            let [label, file, line] =
                ["cmap.label", "code.file.path", "code.line.number"].map(|name| attribute(key, name).unwrap());
            let mut longest_uses = self.longest_uses.lock().unwrap();
            let held = longest_uses.entry(label).or_insert_with(|| LongestUse { file, line, gauge: Arc::default() });
            return Gauge::from_arc(Arc::clone(&held.gauge));
        }
        Gauge::from_arc(Arc::clone(self.values.lock().unwrap().entry(name(key)).or_default()))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::clone(self.histograms.lock().unwrap().entry(name(key)).or_default()))
    }
}
