//! Garbage, half-open clients, and clients too many.

use std::time::Duration;

use cmap_tokio::ServerSelector;
use cmap_tokio::bson::rawdoc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::house::{Plan, eventually};
use super::servers::Servers;

/// How soon a client is hung up on at once: after ten seconds it would be because it has said nothing.
const AT_ONCE: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_ends_its_own_connection_and_nothing_else() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").start().await;
    let client = house.client().await;
    client.operation(("test", rawdoc! { "count": "c" })).on(ServerSelector::Writable).run().await.unwrap();

    let mut huge = i32::MAX.to_le_bytes().to_vec();
    huge.extend([0; 12]);
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 16], &[0xff; 100], &huge] {
        let mut socket = house.socket().await;
        socket.write_all(garbage).await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(AT_ONCE, socket.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "it was not hung up on: {garbage:?}");
        assert!(answer.is_empty(), "{answer:?}");
    }

    client.operation(("test", rawdoc! { "count": "c" })).on(ServerSelector::Writable).run().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_clients_have_so_many_places_and_others_are_turned_away_x_136() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").more("[limits]\nconnections-per-address = 50").start().await;

    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(house.socket().await);
    }
    let mut one_too_many = house.socket().await;
    let read = tokio::time::timeout(AT_ONCE, one_too_many.read(&mut [0; 1])).await.unwrap();
    assert!(!read.is_ok_and(|count| count > 0), "it was hung up on");
    assert_eq!(house.hub.connections(), 50);

    silent.truncate(40);
    eventually("there is room again", async || house.hub.connections() <= 40).await;
    let client = house.client().await;
    client.operation(("test", rawdoc! { "count": "c" })).on(ServerSelector::Writable).run().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_says_nothing_is_hung_up_on_in_its_time() {
    let servers = Servers::single().await;
    let house = Plan::before(&servers, "").start().await;
    let begun = tokio::time::Instant::now();
    let mut silent = house.socket().await;

    let read = tokio::time::timeout(Duration::from_secs(60), silent.read(&mut [0; 1])).await.unwrap();

    assert_eq!(read.unwrap(), 0);
    assert!(begun.elapsed() >= Duration::from_secs(9), "after {:?}", begun.elapsed());
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_at_the_path_of_a_unix_socket_is_not_removed() {
    let servers = Servers::single().await;
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (folder.path().join("notes"), folder.path().join("hub.toml"));
    std::fs::write(&file, "mine").unwrap();
    let text = format!("[upstream]\nuri = '{}'\n[[listen]]\nunix = '{}'\n", servers.uri(""), file.display());
    std::fs::write(&path, text).unwrap();

    let started = cmap_hub::hub::Hub::start(cmap_hub::config::read(&path).unwrap()).await;

    assert!(started.is_err());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}
