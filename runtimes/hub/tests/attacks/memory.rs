//! Clients that begin large messages and do not go on, or do not take large replies.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use cmap_core::wire::{Flags, Limits, MessageIds, MessageWriter};
use cmap_tokio::Client;
use cmap_tokio::bson::spec::BinarySubtype;
use cmap_tokio::bson::{Binary, RawArrayBuf, RawDocument, cstr, rawdoc};
use cmap_tokio::cmap_core::topology::ServerSelector::Writable;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use crate::program::HubProgram;
use crate::servers::Servers;
use crate::strangers::{free_address, page};

/// What the messages announce, which is less than a message may have, and how much of it comes.
const ANNOUNCED: i32 = 47_000_000;
const SENT: usize = 40_000_000;

/// How long a client is held up at most that sends promptly: less than the ten seconds after which the others have to give way.
const PROMPTLY: Duration = Duration::from_secs(9);

/// In how long the hub has read from one of them, or all of them hold what they can, on a machine that has much else to do.
const READ_WITHIN: Duration = Duration::from_secs(60);

/// Of how many documents of a megabyte the large replies are.
const DOCUMENTS: usize = 10;

/// Clients that have half sent a message each, next to one that sends promptly.
struct Attack {
    clients: u8,
    /// From how many addresses they come. Where nobody logs in an address is a user.
    addresses: u8,
    budget: u64,
    lasts: Duration,
    /// How long two commands of the other client may take meanwhile, one of them of a megabyte.
    promptly: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_half_sent_hold_no_more_than_the_budget_and_hold_up_nobody_who_sends_promptly_x_141() {
    let (lasts, promptly) = (Duration::from_secs(3), PROMPTLY);
    hold_out(Attack { clients: 20, addresses: 1, budget: 64 << 20, lasts, promptly }).await;
}

/// They have the whole budget, so that the other one waits until one of them has made no progress for ten seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "full: takes half a minute, and its sibling has fewer clients"]
async fn two_hundred_clients_that_hold_the_whole_budget_hold_no_more_and_refuse_nobody_x_141() {
    let (lasts, promptly) = (Duration::from_secs(25), Duration::from_secs(20));
    hold_out(Attack { clients: 200, addresses: 4, budget: 256 << 20, lasts, promptly }).await;
}

async fn hold_out(Attack { clients, addresses, budget, lasts, promptly }: Attack) {
    let servers = Servers::single().await;
    let (folder, status) = (tempfile::tempdir().unwrap(), free_address());
    let limits = format!("memory-bytes = {budget}\nmemory-per-user = {}\n", budget / 2);
    let more = format!("[status]\naddress = '{status}'\n[limits]\n{limits}");
    let hub = HubProgram::start(folder.path(), &servers.uri("maxPoolSize=20"), &[], &more);
    let modest = Client::connect(&format!("mongodb://{}/?loadBalanced=true", hub.address)).await.unwrap();
    insert(&modest).await;
    let before = hub.process.resident();

    let mut senders = Vec::new();
    for number in 0..clients {
        // Each fourth does not even greet the hub.
        let (from, is_stranger) = (2 + number % addresses, number % 4 == 3);
        senders.push(tokio::spawn(send_half(hub.address, Ipv4Addr::new(127, 0, 0, from), is_stranger)));
    }
    let (begun, mut most) = (Instant::now(), 0);
    // What one of them has sent, apart from the part that fits into memory that the hub has freed.
    let is_read = |most: u64| most.saturating_sub(before) > SENT as u64 / 2;
    while begun.elapsed() < lasts || (!is_read(most) && begun.elapsed() < READ_WITHIN) {
        let sent = Instant::now();
        timeout(promptly, insert(&modest)).await.unwrap_or_else(|_| panic!("not within {promptly:?}"));
        most = most.max(hub.process.resident());
        sleep(Duration::from_millis(500).saturating_sub(sent.elapsed())).await;
    }
    let (memory, limit) = (most.saturating_sub(before), budget * 12 / 10);
    println!(
        "{clients} clients that have half sent {ANNOUNCED} bytes: {} MiB at most, of {}",
        memory >> 20,
        limit >> 20
    );
    assert!(memory <= limit, "{memory} bytes");
    assert!(is_read(most), "{memory} bytes: nobody was read from");

    senders.iter().for_each(tokio::task::JoinHandle::abort);
    drop(senders);
    modest.close(Duration::from_secs(1)).await.unwrap();
    until_nothing_is_left(status).await;
}

/// Sixty clients of one address, half of them in transactions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_are_not_taken_hold_no_more_than_their_part_of_the_budget_and_hold_up_no_other_user_x_141() {
    const BUDGET: u64 = 64 << 20;
    let servers = Servers::single().await;
    let (folder, status) = (tempfile::tempdir().unwrap(), free_address());
    let limits = format!("memory-bytes = {BUDGET}\nmemory-per-user = {}\n", BUDGET / 2);
    let more = format!("[status]\naddress = '{status}'\n[limits]\n{limits}");
    let hub = HubProgram::start(folder.path(), &servers.uri("maxPoolSize=3"), &[], &more);
    let modest = Client::connect(&format!("mongodb://{}/?loadBalanced=true", hub.address)).await.unwrap();
    let mut documents = RawArrayBuf::new();
    (0..DOCUMENTS).for_each(|_| documents.push(rawdoc! { "x": "x".repeat(1 << 20) }));
    modest.run(("test", rawdoc! { "insert": "large", "documents": documents })).await.unwrap();
    let before = hub.process.resident();

    let takers: Vec<_> = (0..60).map(|number| tokio::spawn(take_nothing(hub.address, number))).collect();
    let (begun, mut most, mut report) = (Instant::now(), 0, Value::Null);
    let is_full = |report: &Value| {
        let [held, waiting] = ["most_held", "waiting"].map(|key| report["memory"][key].as_u64());
        held >= Some(BUDGET / 2) && waiting > Some(40)
    };
    while begun.elapsed() < Duration::from_secs(3) || (!is_full(&report) && begun.elapsed() < READ_WITHIN) {
        timeout(PROMPTLY, insert(&modest)).await.expect("its part is free");
        most = most.max(hub.process.resident());
        report = report_at(status).await;
        sleep(Duration::from_millis(100)).await;
    }

    let held = report["memory"]["most_held"].as_u64().unwrap();
    // What is beyond its part are the replies to what ran.
    assert!((BUDGET / 2..BUDGET).contains(&held), "{held} bytes, {report:#}");
    assert!(report["memory"]["waiting"].as_u64() > Some(40), "{report:#}");
    let memory = most.saturating_sub(before);
    println!("60 clients that do not take {DOCUMENTS} MiB each: {} MiB at most", memory >> 20);
    assert!(memory <= 4 * BUDGET, "{memory} bytes");
    takers.iter().for_each(tokio::task::JoinHandle::abort);
    drop(takers);
    modest.close(Duration::from_secs(1)).await.unwrap();
    until_nothing_is_left(status).await;
}

/// Waits until the hub counts nothing of clients that have gone.
async fn until_nothing_is_left(status: SocketAddr) {
    let gone = Instant::now();
    loop {
        let left = left_over(status).await;
        if left.iter().all(|(_, count)| *count == 0) {
            return;
        }
        assert!(gone.elapsed() < Duration::from_secs(60), "something is left over: {left:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

async fn insert(client: &Client) {
    let insert = rawdoc! { "insert": "c", "documents": [{ "x": "x".repeat(1 << 20) }] };
    client.operation(("test", insert)).on(Writable).run().await.unwrap();
    client.run(("test", rawdoc! { "drop": "c" })).await.unwrap();
}

/// Greets the hub, unless it is to be a stranger, and sends the beginning of a message; again when it is hung up on.
async fn send_half(address: SocketAddr, from: Ipv4Addr, is_stranger: bool) {
    let zeroes = vec![0; 64 * 1024];
    loop {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let mut socket = socket.connect(address).await.unwrap();
        if is_stranger {
            // It is hung up on at once.
            sleep(Duration::from_millis(100)).await;
        } else {
            greet(&mut socket).await;
        }
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

/// Asks for a large reply, each other one in a transaction, and reads nothing of it.
async fn take_nothing(address: SocketAddr, number: u8) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 0, 2), 0).into()).unwrap();
    let mut socket = socket.connect(address).await.unwrap();
    greet(&mut socket).await;
    let mut find = rawdoc! { "find": "large", "$db": "test" };
    if number.is_multiple_of(2) {
        let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![number; 16] };
        find.append(cstr!("lsid"), rawdoc! { "id": id });
        find.append(cstr!("txnNumber"), 1_i64);
        find.append(cstr!("autocommit"), false);
        let mut first = find.clone();
        first.append(cstr!("startTransaction"), true);
        first.append(cstr!("limit"), 1);
        first.append(cstr!("projection"), rawdoc! { "_id": 1 });
        say(&mut socket, &first).await;
        hear(&mut socket).await;
    }
    say(&mut socket, &find).await;
    std::future::pending::<()>().await;
}

async fn greet(socket: &mut TcpStream) {
    let hello = rawdoc! { "hello": 1, "helloOk": true, "loadBalanced": true, "$db": "admin" };
    say(socket, &hello).await;
    hear(socket).await;
}

async fn say(socket: &mut TcpStream, body: &RawDocument) {
    let mut out = Vec::new();
    let message = MessageWriter::begin(&mut out, MessageIds::request(1), Flags::NONE, body, &[], &Limits::DEFAULT);
    message.unwrap().finish();
    socket.write_all(&out).await.unwrap();
}

async fn hear(socket: &mut TcpStream) {
    let length = usize::try_from(socket.read_i32_le().await.unwrap()).unwrap();
    socket.read_exact(&mut vec![0; length - 4]).await.unwrap();
}

async fn report_at(status: SocketAddr) -> Value {
    serde_json::from_str(&page(status, "/status.json").await.1).unwrap()
}

/// What the hub counts of clients that are there.
async fn left_over(status: SocketAddr) -> [(&'static str, u64); 7] {
    let report = report_at(status).await;
    let paths = [
        "/memory/held",
        "/memory/waiting",
        "/queue/running",
        "/queue/waiting",
        "/queue/waiting_bytes",
        "/connections",
        "/strangers",
    ];
    paths.map(|path| (path, report.pointer(path).and_then(Value::as_u64).unwrap_or_default()))
}
