//! What idle clients cost the hub, as a process of its own: resident memory for each, and processor time while nobody asks anything.
//!
//! Each client has greeted the hub, sent pings and read a reply of 1 MB, one client after the other; nobody logs in. The memory is
//! the difference to a hub that has served one such client. The bar: 16 KiB for each, and no processor time worth mentioning.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark stops where something is not as it should be")]
#![allow(clippy::disallowed_methods, reason = "a benchmark sleeps")]

#[path = "../tests/hub/servers.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod servers;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use cmap_core::wire::{CommandReply, Field, Flags, Limits, Message, MessageIds, MessageWriter};

use crate::servers::Servers;

const CLIENTS: u64 = 2_000;
const PINGS: usize = 3;
const LARGE: usize = 1_000_000;
const BAR: u64 = 16 * 1024;
const IDLE: Duration = Duration::from_secs(5);
/// A hundredth of a core.
const IDLE_BAR: f64 = 0.01;
/// The unit of `/proc/PID/stat` on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// The hub's process, until it is dropped.
struct Hub {
    process: Child,
    address: String,
    _folder: tempfile::TempDir,
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let servers = runtime.block_on(Servers::single());
    let hub = Hub::start(&servers.uri(""));
    let mut first = connect(&hub.address);
    let insert = rawdoc! { "insert": "large", "documents": [{ "_id": 1, "text": "x".repeat(LARGE) }] };
    assert!(CommandReply::read(&ask(&mut first, &insert)).ok);
    use_once(&mut first);
    let before = hub.resident();

    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = connect(&hub.address);
            use_once(&mut client);
            client
        })
        .collect();
    let each = hub.resident().saturating_sub(before) / CLIENTS;
    println!("{each} bytes of resident memory for each of {CLIENTS} idle clients (at most {BAR})");

    let worked = hub.worked();
    thread::sleep(IDLE);
    let share = (hub.worked() - worked) / IDLE.as_secs_f64();
    println!("{share:.4} of a core while {CLIENTS} clients are idle for {IDLE:?} (at most {IDLE_BAR})");
    drop(clients);
    assert!(each <= BAR, "the bar of {BAR} bytes is missed");
    assert!(share <= IDLE_BAR, "the bar of {IDLE_BAR} of a core is missed");
}

fn connect(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let hello = ask(&mut stream, &rawdoc! { "hello": 1, "loadBalanced": true });
    assert!(CommandReply::read(&hello).ok, "{hello:?}");
    stream
}

fn use_once(client: &mut TcpStream) {
    for _ in 0..PINGS {
        assert!(CommandReply::read(&ask(client, &rawdoc! { "ping": 1 })).ok);
    }
    let reply = ask(client, &rawdoc! { "find": "large", "limit": 1, "singleBatch": true });
    assert!(CommandReply::read(&reply).ok && reply.as_bytes().len() > LARGE);
}

fn ask(stream: &mut TcpStream, body: &RawDocument) -> RawDocumentBuf {
    let (mut out, fields) = (Vec::new(), [Field::String("$db", "test")]);
    MessageWriter::begin(&mut out, MessageIds::request(1), Flags::NONE, body, &fields, &Limits::DEFAULT)
        .unwrap()
        .finish();
    stream.write_all(&out).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut bytes = vec![0; usize::try_from(i32::from_le_bytes(length)).unwrap()];
    bytes[..4].copy_from_slice(&length);
    stream.read_exact(&mut bytes[4..]).unwrap();
    Message::decode(&bytes, &Limits::DEFAULT).unwrap().body.to_owned()
}

impl Hub {
    fn start(uri: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub.toml");
        std::fs::write(&path, format!("upstream.uri = '{uri}'\nlisten = [{{ address = '127.0.0.1:0' }}]\n")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cmap-hub"));
        command.arg("--config").arg(&path).arg("--until-stdin-ends").env("RUST_LOG", "warn");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        Self { process, address, _folder: folder }
    }

    /// Resident memory in bytes.
    fn resident(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Seconds of processor time, of the user and of the system.
    fn worked(&self) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        let fields: Vec<_> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / TICKS_PER_SECOND
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
