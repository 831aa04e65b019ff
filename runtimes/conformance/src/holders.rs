//! Who holds the connections, and why the others wait: what an operator sees.

use std::time::Duration;

use bson::rawdoc;
use cmap_core::options::ClientOptions;
use cmap_core::pool::WaitBound;
use cmap_runtime::runtime::Runtime;
use cmap_runtime::{CheckOutError, Client, Connection, Holder, WaitsFor, internals};

use super::{Deed, Harness, LocalServer, Manners, assert_nothing_lost, options, poll_once, run, until, yield_now};

pub fn a_leak_a_slow_command_and_an_idle_holder_are_each_named<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = watched::<H>(options(&server, "maxPoolSize=3")).await;

        // One of 50 tasks leaks its connection, one runs a slow command, one keeps its connection between two commands.
        let (leak_line, leaked) = (line!(), client.check_out().label("leak").await.unwrap());
        let mut slow = client.check_out().label("slow report").await.unwrap();
        let mut report = Box::pin(async move { slow.run_command("admin", rawdoc! { "neverAnswer": 1 }).await });
        assert!(poll_once(&mut report).await.is_none());
        let mut idle = client.check_out().label("checkout page").await.unwrap();
        idle.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
        let limit = Duration::from_secs(1);
        let mut others: Vec<_> = (0..47).map(|_| Box::pin(client.check_out_within(limit).label("web"))).collect();
        for other in &mut others {
            assert!(poll_once(other).await.is_none());
        }
        H::Runtime::current()
            .unwrap()
            .sleep_until(H::Runtime::current().unwrap().now() + Duration::from_millis(20))
            .await;

        let holders = client.in_use();
        assert_eq!(holders.len(), 3);
        let leak = held_by(&holders, "leak");
        assert_eq!(leak.place.map(|place| (place.file, place.line)), Some((file!(), leak_line)));
        assert!(leak.command.is_none() && leak.connection_id == leaked.id(), "{leak}");
        let report_holder = held_by(&holders, "slow report");
        let command = report_holder.command.as_ref().unwrap();
        assert!(&*command.name == "neverAnswer" && command.ended.is_none(), "{report_holder}");
        let page = held_by(&holders, "checkout page");
        let command = page.command.as_ref().unwrap();
        assert!(
            &*command.name == "ping" && command.ended.is_some_and(|ended| ended >= Duration::from_millis(20)),
            "{page}"
        );
        assert!(holders.iter().all(|holder| holder.held_for >= Duration::from_millis(20)));
        assert_eq!(holders[0].connection_id, leaked.id(), "the longest use comes first");

        let waiting = client.waiting();
        assert_eq!(waiting.len(), 47);
        assert!(waiting.iter().all(|waiter| waiter.label.as_deref() == Some("web") && waiter.place.is_some()));

        let status = client.status().to_string();
        assert!(status.contains("in use by: 3") && status.contains("waiting: 47\n  47 by \"web\" at "), "{status}");
        assert!(status.contains(&format!("\"leak\" at {}:{leak_line}:", file!())), "{status}");
        assert!(status.contains("maxPoolSize=3"), "{status}");

        let error = others.remove(0).await.unwrap_err();
        let text = error.to_string();
        let CheckOutError::Pool(error) = error else { panic!("{text}") };
        assert!(matches!(error.bound_by, Some(WaitBound::MaxPoolSize { .. })), "{text}");
        for label in ["leak", "slow report", "checkout page"] {
            assert!(text.contains(&format!("\"{label}\" at {}", file!())), "{text}");
        }

        drop((leaked, idle, report, others));
        until(|| client.stats().counts.in_use == 0).await;
        assert!(client.in_use().is_empty() && client.waiting().is_empty());
        assert_nothing_lost(&client);
    });
}

pub fn a_time_out_says_what_an_establishment_is_at<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = watched::<H>(options(&server, "maxConnecting=1")).await;
        drop(client.check_out().await.unwrap());
        let _in_use = client.check_out().await.unwrap();
        server.set_manners(Manners::To("hello", Deed::Silence));
        let mut first = Box::pin(client.check_out());
        assert!(poll_once(&mut first).await.is_none());

        // The establishment may take its time until the hello.
        let error = loop {
            let error = client.check_out_within(Duration::from_millis(100)).await.unwrap_err().to_string();
            if error.contains("(the hello)") {
                break error;
            }
        };

        assert!(error.contains("maxConnecting bound: 1 under way, the longest of them connection 2"), "{error}");
    });
}

pub fn an_operation_is_named_by_label_and_place<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = watched::<H>(options(&server, "")).await;
        let (line, run) = (line!(), client.run(("admin", rawdoc! { "neverAnswer": 1 })));
        let mut run = Box::pin(run);
        let operation = client.operation(("admin", rawdoc! { "neverAnswer": 1 })).label("nightly report");
        let mut report = Box::pin(operation.run());

        while client.in_use().iter().filter(|holder| holder.command.is_some()).count() < 2 {
            assert!(poll_once(&mut run).await.is_none() && poll_once(&mut report).await.is_none());
            yield_now().await;
        }

        let holders = client.in_use();
        assert!(held_by(&holders, "nightly report").place.is_some());
        let without_label = holders.iter().find(|holder| holder.label.is_none()).unwrap();
        assert_eq!(without_label.place.map(|place| (place.file, place.line)), Some((file!(), line)));
    });
}

pub fn labels_without_end_are_folded<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client = watched::<H>(options(&server, "")).await;
        for user in 0..200 {
            drop(client.check_out().label(format!("user {user}")).await.unwrap());
        }

        let _in_use = client.check_out().label("user 1").await.unwrap();
        let _beyond = client.check_out().label("user 199").await.unwrap();

        let mut labels: Vec<_> = client.in_use().into_iter().filter_map(|holder| holder.label).collect();
        labels.sort();
        assert_eq!(labels.iter().map(|label| &**label).collect::<Vec<_>>(), ["(other labels)", "user 1"]);
        assert_eq!(client.folded_labels(), 72 + 1);
        let text = client.status().to_string();
        assert!(text.contains("labels beyond the 128 that are known were given 73 times"), "{text}");
    });
}

pub fn one_that_waits_for_a_server_is_listed_until_it_gives_up<H: Harness>() {
    run::<H>(async {
        let (options, _) = ClientOptions::parse("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=60000").unwrap();
        let client = watched::<H>(options).await;
        let before = internals::entries(&client);
        let mut waiter = Box::pin(client.check_out().label("early bird"));
        assert!(poll_once(&mut waiter).await.is_none());

        let waiting = client.waiting();
        drop(waiter);

        assert_eq!(waiting.len(), 1);
        assert_eq!((&waiting[0].waits_for, waiting[0].label.as_deref()), (&WaitsFor::Server, Some("early bird")));
        assert!(client.waiting().is_empty());
        assert_eq!(internals::entries(&client), before);
    });
}

pub fn without_a_watch_connections_in_use_are_listed_without_who_holds_them<H: Harness>() {
    run::<H>(async {
        let server = LocalServer::start();
        let client: Client<H::Runtime> = super::builder::<H>(options(&server, "")).build().await.unwrap();
        let mut in_use: Connection<H::Runtime> = client.check_out().label("page").await.unwrap();
        in_use.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();

        let holders = client.in_use();

        assert_eq!(holders.iter().map(|holder| holder.connection_id).collect::<Vec<_>>(), [in_use.id()]);
        assert!(holders.iter().all(|it| it.label.is_none() && it.place.is_none() && it.command.is_none()));
    });
}

async fn watched<H: Harness>(options: ClientOptions) -> Client<H::Runtime> {
    super::builder::<H>(options).watch_holders(true).build().await.unwrap()
}

fn held_by<'a>(holders: &'a [Holder], label: &str) -> &'a Holder {
    holders.iter().find(|holder| holder.label.as_deref() == Some(label)).unwrap()
}
