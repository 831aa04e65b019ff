//! A warm client allocates nothing for a check-out and check-in, and next to nothing for a ping.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cmap_conformance::LocalServer;
use cmap_tokio::bson::rawdoc;
use cmap_tokio::core::options::ClientOptions;
use cmap_tokio::{CheckOut, Client};

#[test]
fn an_uncontended_pair_allocates_nothing() {
    let server = LocalServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(async {
        let client = Client::connect(&server.uri("waitQueueTimeoutMS=30000")).await.unwrap();
        // Former subscriptions must not cost anything either.
        let subscription = client.subscribe(10);
        drop(client.check_out().await.unwrap());
        drop(subscription);
        drop(client.check_out().await.unwrap());
        client
    });

    let allocated = allocation_counter::measure(|| {
        for _ in 0..100 {
            let mut nobody = Context::from_waker(Waker::noop());
            match pin!(client.check_out()).poll(&mut nobody) {
                Poll::Ready(connection) => drop(connection.unwrap()),
                Poll::Pending => panic!("the connection is available"),
            }
        }
    });

    assert_eq!(allocated.count_total, 0);
}

#[test]
fn labels_histograms_and_watch_allocate_nothing_once_warm() {
    let server = LocalServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (client, made) = runtime.block_on(async {
        let (options, _) = ClientOptions::parse(&server.uri("")).unwrap();
        let builder = Client::builder(options).watch_holders(true).slow_use_limit(Duration::from_secs(60));
        let client = builder.build().await.unwrap();
        let made = client.label("made before");
        // The driver comes back for the first look at slow uses.
        for _ in 0..3 {
            drop(client.check_out().label("as text").await.unwrap());
        }
        (client, made)
    });
    let pair = |check_out: CheckOut<'_>| match pin!(check_out).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(connection) => drop(connection.unwrap()),
        Poll::Pending => panic!("the connection is available"),
    };

    let allocated = allocation_counter::measure(|| {
        for _ in 0..100 {
            pair(client.check_out().label("as text"));
            pair(client.check_out().labelled(made));
        }
    });

    assert_eq!(allocated.count_total, 0);
    let uses = client.uses().labels.into_iter().map(|of| (of.label.map(|label| label.to_string()), of.count));
    let mut uses: Vec<_> = uses.collect();
    uses.sort();
    assert_eq!(uses, [(Some("as text".to_owned()), 103), (Some("made before".to_owned()), 100)]);
}

#[test]
fn a_ping_allocates_its_reply_only() {
    const PINGS: u64 = 100;
    let server = LocalServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (client, ping) = runtime.block_on(async {
        let client = Client::connect(&server.uri("")).await.unwrap();
        let mut connection = client.check_out().await.unwrap();
        let ping = rawdoc! { "ping": 1 };
        connection.run_command("admin", &ping).await.unwrap();
        drop(connection);
        (client, ping)
    });

    let allocated = allocation_counter::measure(|| {
        runtime.block_on(async {
            for _ in 0..PINGS {
                let mut connection = client.check_out().await.unwrap();
                connection.run_command("admin", ping.as_ref()).await.unwrap();
            }
        });
    });

    // The reply, which the caller owns, and now and then an allocation of the runtime or the monitor.
    assert!(allocated.count_total <= 2 * PINGS, "{allocated:?}");
    assert!(allocated.bytes_total <= 100 * PINGS, "{allocated:?}");
}
