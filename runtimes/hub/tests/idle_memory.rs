//! What an idle client costs the hub in memory: 16 KiB at most, whatever it has done before.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "hub/program.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod program;
#[path = "hub/servers.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod servers;

use std::time::Duration;

use cmap_tokio::ServerSelector::Writable;
use cmap_tokio::bson::rawdoc;
use cmap_tokio::{Client, Connection};

use crate::program::HubProgram;
use crate::servers::Servers;

/// Clients before memory is looked at for the first time: the hub's connections upstream, and its threads' room, are there then.
const BEFORE: u64 = 100;
const CLIENTS: u64 = 2_000;
const PINGS: usize = 5;
const LARGE: usize = 1 << 20;
const BAR: u64 = 16 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_client_that_has_logged_in_and_had_a_large_reply_costs_the_hub_16_kib_at_most() {
    let servers = Servers::single().await;
    let directly = Client::connect(&servers.uri("")).await.unwrap();
    let large = rawdoc! { "insert": "c", "documents": [{ "_id": 1, "text": "x".repeat(LARGE) }] };
    directly.operation(("test", large)).on(Writable).run().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let hub = HubProgram::start(folder.path(), &servers.uri("maxPoolSize=20"), &["app".into()], "");
    let most = BEFORE + CLIENTS;
    let uri = format!("mongodb://app:secret@{}/?loadBalanced=true&maxPoolSize={most}", hub.address);
    let client = Client::connect(&uri).await.unwrap();

    let mut idle = Vec::new();
    for _ in 0..BEFORE {
        idle.push(use_once(&client).await);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = hub.process.resident();
    for _ in 0..CLIENTS {
        idle.push(use_once(&client).await);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let each = hub.process.resident().saturating_sub(before) / CLIENTS;

    println!(
        "an idle client costs the hub {each} bytes (at most {BAR}); {} MiB with {most}",
        hub.process.resident() >> 20
    );
    assert!(each <= BAR, "{each} bytes");
}

/// A connection that has done something, and is not given back.
async fn use_once(client: &Client) -> Connection {
    let mut connection = client.check_out().await.unwrap();
    for _ in 0..PINGS {
        connection.run_command("admin", rawdoc! { "ping": 1 }).await.unwrap();
    }
    let reply = connection.run_command("test", rawdoc! { "find": "c" }).await.unwrap();
    assert!(reply.as_bytes().len() > LARGE);
    drop(reply);
    connection
}
