//! Clients that connect and say nothing.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use cmap_tokio::bson::rawdoc;
use cmap_tokio::cmap_core::topology::ServerSelector::Writable;
use cmap_tokio::{Client, Connection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::program::HubProgram;
use crate::servers::Servers;

const STRANGERS: usize = 5_000;
const CLIENTS: usize = 20;

/// How soon the status has to answer: before the strangers go, which they do after ten seconds.
const AT_ONCE: Duration = Duration::from_secs(8);

/// How long a command may fail after the servers' restart.
const UNTIL_ELECTED: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_strangers_take_nothing_from_those_who_have_logged_in_x_136() {
    for (kind, files) in [("-S", 256), ("", 1_024)] {
        hold_out(kind, files).await;
    }
}

/// The hub within a limit of open files, with strangers at its door, through a restart of its server.
async fn hold_out(kind: &str, files: u32) {
    let servers = Servers::single().await;
    let (folder, status) = (tempfile::tempdir().unwrap(), free_address());
    let more = format!("[status]\naddress = '{status}'\n");
    let uri = servers.uri("maxPoolSize=20");
    let hub = HubProgram::start_within(kind, files, folder.path(), &uri, &["app".into()], &more);
    let uri = format!("mongodb://app:secret@{}/?loadBalanced=true&maxPoolSize={CLIENTS}", hub.address);
    let client = Client::connect(&uri).await.unwrap();
    let mut connections = Vec::new();
    for _ in 0..CLIENTS {
        connections.push(client.check_out().await.unwrap());
    }

    let mut strangers = Vec::new();
    for _ in 0..STRANGERS {
        strangers.push(TcpStream::connect(hub.address).await.unwrap());
    }
    assert_eq!(healthz(status).await, 200, "ulimit {kind} -n {files}");
    servers.cut_connections();
    servers.kill_primary();
    healthz(status).await;
    servers.restart();
    servers.pass(Duration::from_secs(11));

    for connection in &mut connections {
        wait_until_served(connection).await;
    }
    healthz(status).await;
    drop(strangers);
    drop(connections);
    let again = timeout(UNTIL_ELECTED, client.operation(("test", rawdoc! { "count": "c" })).on(Writable).run()).await;
    again.unwrap().unwrap();
}

async fn wait_until_served(connection: &mut Connection) {
    let begun = Instant::now();
    while let Err(error) = connection.run_command("test", rawdoc! { "count": "c" }).await {
        assert!(begun.elapsed() < UNTIL_ELECTED, "{error}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// The status code of `/healthz`, which comes in time.
async fn healthz(status: SocketAddr) -> u16 {
    timeout(AT_ONCE, page(status, "/healthz")).await.expect("the status answers at once").0
}

/// A page of the status: its status code and its text.
pub(crate) async fn page(status: SocketAddr, path: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(status).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
