//! Before a server upstream is known.

use std::time::Duration;

use cmap_tokio::Client;
use cmap_tokio::cmap_core::server::MIN_WIRE_VERSION;
use tokio::net::TcpListener;

use super::house::Plan;
use super::servers::Servers;

async fn newest_protocol(client: &Client) -> i32 {
    client.check_out().await.unwrap().description().unwrap().wire_versions.1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_greeting_waits_for_the_first_news_of_a_server_x_144() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").start().await;
    let begun = tokio::time::Instant::now();

    let newest = newest_protocol(&house.client().await).await;

    // It waits three seconds at most, also on a machine that has much else to do.
    assert!(newest > MIN_WIRE_VERSION || begun.elapsed() >= Duration::from_secs(3), "{newest}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_any_the_hub_promises_what_every_server_speaks_x_144() {
    // It accepts, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let house = Plan::at(&format!("mongodb://{}/", silent.local_addr().unwrap())).start().await;
    let begun = tokio::time::Instant::now();

    assert_eq!(newest_protocol(&house.client().await).await, MIN_WIRE_VERSION);
    assert!(begun.elapsed() < Duration::from_secs(20), "after {:?}", begun.elapsed());
}
