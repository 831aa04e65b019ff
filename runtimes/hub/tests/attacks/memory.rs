//! Clients that begin large messages and do not go on, or do not take large replies.

use std::net::SocketAddr;
use std::time::Duration;

use cmap_core::wire::{Flags, Limits, MessageIds, MessageWriter};
use cmap_tokio::Client;
use cmap_tokio::bson::rawdoc;
use cmap_tokio::cmap_core::topology::ServerSelector::Writable;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use crate::program::HubProgram;
use crate::servers::Servers;
use crate::strangers::{free_address, page};

const BUDGET: u64 = 256 << 20;
const CLIENTS: usize = 200;
/// What their messages announce, and how much of it comes.
const ANNOUNCED: i32 = 47 << 20;
const SENT: usize = 40 << 20;

/// How long a command of a megabyte may take meanwhile.
const PROMPTLY: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_half_sent_hold_no_more_than_the_budget_and_hold_up_nobody_who_sends_promptly_x_141() {
    let servers = Servers::single().await;
    let (folder, status) = (tempfile::tempdir().unwrap(), free_address());
    // Where nobody logs in an address is a user.
    let limits = format!("memory-bytes = {BUDGET}\nmemory-per-user = {}\n", BUDGET / 2);
    let more = format!("[status]\naddress = '{status}'\n[limits]\n{limits}");
    let hub = HubProgram::start(folder.path(), &servers.uri("maxPoolSize=20"), &[], &more);
    let modest = Client::connect(&format!("mongodb://{}/?loadBalanced=true", hub.address)).await.unwrap();
    insert(&modest).await;
    let before = hub.process.resident();

    let mut senders = Vec::new();
    for _ in 0..CLIENTS {
        senders.push(tokio::spawn(send_half(hub.address)));
    }
    let (begun, mut most) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(25) {
        let sent = Instant::now();
        timeout(PROMPTLY, insert(&modest)).await.unwrap_or_else(|_| panic!("not within {PROMPTLY:?}"));
        most = most.max(hub.process.resident());
        sleep(Duration::from_millis(500).saturating_sub(sent.elapsed())).await;
    }
    let (memory, limit) = (most.saturating_sub(before), BUDGET * 12 / 10);
    println!(
        "{CLIENTS} clients that have half sent {ANNOUNCED} bytes: {} MiB at most, of {}",
        memory >> 20,
        limit >> 20
    );
    assert!(memory <= limit, "{memory} bytes");

    senders.iter().for_each(tokio::task::JoinHandle::abort);
    drop(senders);
    let gone = Instant::now();
    while held(status).await != 0 {
        assert!(gone.elapsed() < Duration::from_secs(10), "something is still held");
        sleep(Duration::from_millis(100)).await;
    }
}

async fn insert(client: &Client) {
    let insert = rawdoc! { "insert": "c", "documents": [{ "x": "x".repeat(1 << 20) }] };
    client.operation(("test", insert)).on(Writable).run().await.unwrap();
    client.run(("test", rawdoc! { "drop": "c" })).await.unwrap();
}

/// Greets the hub from another address, and sends the beginning of a message; again when it is hung up on.
async fn send_half(address: SocketAddr) {
    let zeroes = vec![0; 64 * 1024];
    loop {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut socket = socket.connect(address).await.unwrap();
        greet(&mut socket).await;
        let header = [&ANNOUNCED.to_le_bytes()[..], &[0; 8], &2013_i32.to_le_bytes()].concat();
        let mut sent = socket.write_all(&header).await;
        for _ in 0..SENT / zeroes.len() {
            if sent.is_ok() {
                sent = socket.write_all(&zeroes).await;
            }
        }
        if sent.is_ok() {
            // Until it is hung up on.
            let _ = socket.read(&mut [0; 1]).await;
        }
    }
}

async fn greet(socket: &mut TcpStream) {
    let mut out = Vec::new();
    let hello = rawdoc! { "hello": 1, "helloOk": true, "loadBalanced": true, "$db": "admin" };
    let message = MessageWriter::begin(&mut out, MessageIds::request(1), Flags::NONE, &hello, &[], &Limits::DEFAULT);
    message.unwrap().finish();
    socket.write_all(&out).await.unwrap();
    let length = usize::try_from(socket.read_i32_le().await.unwrap()).unwrap();
    socket.read_exact(&mut vec![0; length - 4]).await.unwrap();
}

/// How many bytes the hub holds of its clients.
async fn held(status: SocketAddr) -> u64 {
    let (_, text) = page(status, "/status.json").await;
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    report["memory"]["held"].as_u64().unwrap()
}
