//! Uses of connections that take long, and how long uses and waits take: what an operator learns without asking.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::rawdoc;
use cmap_core::options::ClientOptions;
use cmap_core::statistics::Histogram;
use cmap_runtime::runtime::Runtime;
use cmap_runtime::{Client, ClientError, Event, PossibleLeak};

use super::{Harness, LocalServer, Setup, is_virtual, options, poll_once, run, until};

const LIMIT: Duration = Duration::from_millis(50);

/// The client's events of possible leaks.
type Told = Arc<Mutex<Vec<Arc<PossibleLeak>>>>;

pub fn each_possible_leak_is_told_once_with_its_holder<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let (client, told) = watched::<H>(&server, "maxPoolSize=4").await;

        // One of 50 tasks leaks its connection, one runs a slow command, one keeps its connection between two commands.
        let (leak_line, leaked) = (line!(), client.check_out().label("leak").await.unwrap());
        let mut slow = client.check_out().label("slow report").await.unwrap();
        let mut report = Box::pin(async move { slow.run_command("admin", rawdoc! { "neverAnswer": 1 }).await });
        assert!(poll_once(&mut report).await.is_none());
        let mut idle = client.check_out().label("checkout page").await.unwrap();
        idle.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        for _ in 0..47 {
            drop(client.check_out().label("web").await.unwrap());
        }
        until(|| told.lock().unwrap().len() >= 3).await;
        sleep::<H>(3 * LIMIT).await;

        let slow: Vec<_> = told.lock().unwrap().clone();
        let mut labels: Vec<_> = slow.iter().filter_map(|slow| slow.holder.label.as_deref()).collect();
        labels.sort_unstable();
        assert_eq!(labels, ["checkout page", "leak", "slow report"]);
        let leak = &slow.iter().find(|slow| slow.holder.label.as_deref() == Some("leak")).unwrap();
        let holder = &leak.holder;
        assert_eq!(holder.place.map(|place| (place.file, place.line)), Some((file!(), leak_line)));
        assert!(holder.held_for >= LIMIT && leak.limit == LIMIT && holder.command.is_none(), "{leak}");
        assert_eq!(holder.connection_id, leaked.id());

        let uses = client.uses();
        let web = uses.labels.iter().find(|uses| uses.label.as_deref() == Some("web")).unwrap();
        assert!(web.count == 47 && web.longest >= web.mean, "{uses}");
        assert_eq!(uses.in_use.len(), 3, "{uses}");
        assert!(uses.to_string().contains(&format!("\"leak\" at {}:{leak_line}:", file!())), "{uses}");
        drop((leaked, idle, report));
        until(|| client.stats().counts.in_use == 0).await;
        let uses = client.uses();
        assert!(uses.in_use.is_empty() && uses.slowest[0].took >= LIMIT, "{uses}");
        assert_eq!(uses.labels.iter().map(|uses| uses.count).sum::<u64>(), 50, "{uses}");
    });
}

pub fn a_reply_begins_the_time_of_a_possible_leak_anew<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let (client, told) = watched::<H>(&server, "").await;
        let mut busy = client.check_out().label("many commands").await.unwrap();
        let began = now::<H>();
        let (mut replied, mut longest) = (began, Duration::ZERO);

        while replied < began + 4 * LIMIT {
            busy.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
            sleep::<H>(LIMIT / 10).await;
            longest = longest.max(now::<H>() - replied);
            replied = now::<H>();
        }

        // On a busy machine a reply may come late.
        assert!(told.lock().unwrap().is_empty() || !is_virtual::<H>() && longest > LIMIT / 2, "{longest:?}");
        drop(busy);
        assert!(client.uses().slowest[0].took >= 4 * LIMIT);
    });
}

pub fn the_first_byte_of_a_slow_reply_begins_the_time_of_a_possible_leak_anew<H: Harness>() {
    run::<H>(async {
        let mut server = LocalServer::start();
        let (client, told) = watched::<H>(&server, "").await;
        let mut report = client.check_out().label("long report").await.unwrap();
        let began = now::<H>();
        sleep::<H>(LIMIT / 2).await;

        // Half of the reply comes at once, and the rest never.
        H::Runtime::current().unwrap().spawn(async move {
            let cut_off = report.run_command("admin", rawdoc! { "halfThenSilence": 1 }).await;
            assert!(cut_off.is_err());
        });
        until(|| told.lock().unwrap().len() == 1).await;

        let slow = Arc::clone(&told.lock().unwrap()[0]);
        assert!(slow.holder.held_for >= LIMIT + LIMIT / 2, "{slow}");
        assert!(now::<H>() >= began + LIMIT + LIMIT / 2);
        assert_eq!(slow.holder.command.as_ref().map(|command| &*command.name), Some("halfThenSilence"));
        server.kill();
        until(|| client.stats().counts.in_use == 0).await;
    });
}

pub fn a_leak_detection_threshold_of_zero_is_refused<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let builder = super::builder::<H>(options(&server, "")).leak_detection_threshold(Duration::ZERO);

        let error = builder.build().await.unwrap_err();

        assert!(matches!(error, ClientError::Unsupported { .. }), "{error:?}");
        assert!(error.to_string().contains("leak_detection_threshold of zero"), "{error}");
    });
}

pub fn an_idle_client_is_not_looked_at_for_leaks<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let (client, told) = watched::<H>(&server, "").await;
        drop(client.check_out().await.unwrap());
        sleep::<H>(3 * LIMIT).await;

        let leaked = client.check_out().label("late").await.unwrap();
        until(|| told.lock().unwrap().len() == 1).await;

        assert!(told.lock().unwrap()[0].holder.held_for >= LIMIT);
        drop(leaked);
    });
}

pub fn statistics_say_how_long_waits_and_uses_took<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let (client, _) = watched::<H>(&server, "maxPoolSize=1").await;
        let first = client.check_out().await.unwrap();
        let before = client.statistics();
        let mut second = Box::pin(client.check_out());
        assert!(poll_once(&mut second).await.is_none());
        sleep::<H>(LIMIT).await;
        drop(first);
        drop(second.await.unwrap());

        let between = client.statistics().since(&before);

        let took = between.durations.unwrap();
        assert_eq!((took.wait.count(), took.in_use.count(), took.establishment.count()), (1, 2, 0));
        assert!(took.wait.longest() >= LIMIT && took.in_use.sum() >= LIMIT, "{took}");
        assert_eq!(client.status().durations.map(|took| took.establishment.count()), Some(1));
    });
}

pub fn statistics_say_how_long_the_phases_of_establishing_took<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start_as(Setup { authorization: true, ..Setup::default() });
        let (options, _) = ClientOptions::parse(&server.uri_as("app:secret", "")).unwrap();
        let client: Client<H::Runtime> = super::builder::<H>(options).watch_holders(true).build().await.unwrap();
        drop(client.check_out().await.unwrap());

        let took = client.statistics().durations.unwrap();

        let phases = took.phases.as_deref().unwrap();
        let counts = [&phases.connect, &phases.tls, &phases.hello, &phases.authenticate].map(Histogram::count);
        assert_eq!((counts, took.establishment.count()), ([1, 0, 1, 1], 1), "{took}");
        let together = phases.connect.sum() + phases.hello.sum() + phases.authenticate.sum();
        assert!(together <= took.establishment.sum(), "{took}");
        assert!(client.status().to_string().contains("\n  authenticate "), "{}", client.status());
    });
}

async fn watched<H: Harness>(server: &LocalServer, query: &str) -> (Client<H::Runtime>, Told) {
    let told = Told::default();
    let teller = Arc::clone(&told);
    let builder =
        super::builder::<H>(options(server, query)).leak_detection_threshold(LIMIT).on_event(move |_, event| {
            if let Event::PossibleLeak(slow) = event {
                teller.lock().unwrap().push(Arc::clone(slow));
            }
        });
    (builder.build().await.unwrap(), told)
}

fn now<H: Harness>() -> std::time::Instant {
    H::Runtime::current().unwrap().now()
}

async fn sleep<H: Harness>(time: Duration) {
    let runtime = H::Runtime::current().unwrap();
    runtime.sleep_until(runtime.now() + time).await;
}
