//! A warm client allocates nothing for a check-out and check-in, and next to nothing for a ping.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use cmap_conformance::LocalServer;
use cmap_tokio::Client;
use cmap_tokio::bson::rawdoc;

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
