//! A warm client allocates nothing for a check-out and check-in, and next to nothing for a ping.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cmap_conformance::LocalServer;
use cmap_tokio::ClientOptions;
use cmap_tokio::bson::{doc, rawdoc};
use cmap_tokio::{CheckOut, Client, ClientBuilder};

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
        let builder = Client::builder(options).watch_holders(true).leak_detection_threshold(Duration::from_secs(60));
        let client = builder.build().await.unwrap();
        let made = client.label("made before");
        // The driver comes back for the first look at possible leaks.
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
fn a_watch_keeps_64_kib_at_most() {
    let (without, with) =
        (kept_by(|builder| builder), kept_by(|builder| builder.leak_detection_threshold(Duration::from_secs(60))));

    let bytes = with - without;

    println!("a watch keeps {bytes} bytes");
    assert!((1..=64 * 1024).contains(&bytes), "{bytes} bytes");
}

/// Bytes that a client keeps which has met more labels, commands, and check-outs at a time than a watch has room for.
fn kept_by(watch: impl Fn(ClientBuilder) -> ClientBuilder) -> i64 {
    let server = LocalServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut client = None;
    let allocated = allocation_counter::measure(|| {
        client = Some(runtime.block_on(async {
            let (options, _) = ClientOptions::parse(&server.uri("maxPoolSize=1")).unwrap();
            let client = watch(Client::builder(options)).build().await.unwrap();
            for number in 0..200 {
                let mut connection = client.check_out().label(format!("{number:064}")).await.unwrap();
                let unknown = doc! { format!("{number:064}"): 1 };
                connection.run_command("admin", unknown).await.unwrap_err();
            }
            let in_use = client.check_out().await.unwrap();
            let mut waiting: Vec<_> = (0..500).map(|_| Box::pin(client.check_out().label("web"))).collect();
            for check_out in &mut waiting {
                assert!(check_out.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            drop((waiting, in_use));
            client
        }));
    });
    drop(client);
    allocated.bytes_current
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
