//! What the hub costs, beside HAProxy in TCP mode, in one run: how much longer a `ping` takes than without anything between, and for
//! how long the process works for it. HAProxy copies bytes and knows nothing of them; the hub reads each command, asks its rules, waits
//! for its turn, and has the connection upstream for this command alone.
//!
//! The bar: at most 2.5 times HAProxy's. And a hub with a thousand idle clients does next to nothing.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark stops where something is not as it should be")]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

#[path = "../tests/hub/servers.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod servers;

#[path = "../tests/hub/program.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod program;

use std::fmt;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use bson::{RawDocument, cstr, rawdoc};
use cmap_core::wire::{Flags, Limits, MessageIds, MessageWriter};

use crate::program::{HubProgram, Program};
use crate::servers::Servers;

const ROUNDS: usize = 15;
const PINGS: u32 = 4_000;
const BAR: f64 = 2.5;

const IDLE_CLIENTS: usize = 1_000;
const IDLE_TIME: Duration = Duration::from_secs(10);
/// Of one CPU: the monitors of upstream's members wake up now and then.
const IDLE_BAR: f64 = 0.005;

/// A way to the server.
struct Way {
    name: &'static str,
    client: TcpStream,
    /// The process between.
    process: Option<Program>,
    costs: Vec<Cost>,
}

/// What a ping costs.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    round_trip: Duration,
    work: Duration,
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let uri = serve();
    let server: SocketAddr = uri.split(['/', '?']).nth(2).unwrap().parse().unwrap();
    let HubProgram { process: hub, address: hub_address } = HubProgram::start(folder.path(), &uri, &[], "");
    let mut ways = vec![Way::new("direct", server, None)];
    match start_haproxy(folder.path(), server) {
        Some((haproxy, address)) => ways.push(Way::new("HAProxy", address, Some(haproxy))),
        None => println!("HAProxy is not installed (Debian's package haproxy): its row and the ratios are left out"),
    }
    ways.push(Way::new("hub", hub_address, Some(hub)));
    let watched = tempfile::tempdir().unwrap();
    let more = "[status]\naddress = '127.0.0.1:0'\n";
    let HubProgram { process, address } = HubProgram::start(watched.path(), &uri, &[], more);
    ways.push(Way::new("hub with histograms", address, Some(process)));

    ways.iter_mut().for_each(|way| _ = way.ping(PINGS));
    for _ in 0..ROUNDS {
        for way in &mut ways {
            let cost = way.ping(PINGS);
            way.costs.push(cost);
        }
    }
    println!("a ping of one client; medians of {ROUNDS} rounds of {PINGS}");
    let direct = Cost::median(&ways[0].costs).round_trip;
    let mut added = Vec::new();
    for way in &ways {
        let cost = Cost::median(&way.costs);
        let longer = cost.round_trip.saturating_sub(direct);
        println!("  {}: {cost}; added {longer:?}", way.name);
        added.push(Cost { round_trip: longer, ..cost });
    }
    let mut ratios = Vec::new();
    if let [_, haproxy, hubs @ ..] = &added[..]
        && hubs.len() == 2
    {
        for (hub, way) in hubs.iter().zip(&ways[2..]) {
            let latency = hub.round_trip.as_secs_f64() / haproxy.round_trip.as_secs_f64();
            let work = hub.work.as_secs_f64() / haproxy.work.as_secs_f64();
            for (what, ratio) in [("added latency", latency), ("work", work)] {
                println!("{}: {what} is {ratio:.2} times HAProxy's (at most {BAR}, the aim is 1.5)", way.name);
                ratios.push(ratio);
            }
        }
    }
    let load = ways.iter().find(|way| way.name == "hub").unwrap().idle_load(hub_address);
    println!("a hub with {IDLE_CLIENTS} idle clients works for {:.3} % of one CPU", load * 100.0);
    assert!(load <= IDLE_BAR, "an idle hub works for more than {:.1} % of a CPU", IDLE_BAR * 100.0);
    assert!(ratios.iter().all(|ratio| *ratio <= BAR), "the bar of {BAR} is missed");
}

impl Way {
    fn new(name: &'static str, address: SocketAddr, process: Option<Program>) -> Self {
        Self { name, client: connect(address), process, costs: Vec::new() }
    }

    fn ping(&mut self, count: u32) -> Cost {
        let session = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] };
        let ping = message(&rawdoc! { "ping": 1, "lsid": { "id": session }, "$db": "admin" });
        let work = || self.process.as_ref().map_or(Duration::ZERO, Program::work);
        let (before, start) = (work(), Instant::now());
        for _ in 0..count {
            ask(&mut self.client, &ping);
        }
        Cost { round_trip: start.elapsed() / count, work: (work() - before) / count }
    }

    /// How much of a CPU the process takes while clients are connected and say nothing.
    fn idle_load(&self, address: SocketAddr) -> f64 {
        let process = self.process.as_ref().unwrap();
        let clients: Vec<_> = (0..IDLE_CLIENTS).map(|_| connect(address)).collect();
        thread::sleep(Duration::from_secs(1));
        let before = process.work();
        thread::sleep(IDLE_TIME);
        let load = (process.work() - before).as_secs_f64() / IDLE_TIME.as_secs_f64();
        drop(clients);
        load
    }
}

/// A test server, in a thread of this process; returns its connection string.
fn serve() -> String {
    let (tell, told) = channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let servers = Servers::single().await;
            tell.send(servers.uri("maxPoolSize=20")).unwrap();
            core::future::pending::<()>().await;
        });
    });
    told.recv().unwrap()
}

/// `None` if it is not installed.
fn start_haproxy(folder: &Path, server: SocketAddr) -> Option<(Program, SocketAddr)> {
    // It cannot say which port it was given.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = folder.join("haproxy.cfg");
    let text = format!(
        "defaults\n mode tcp\n timeout connect 5s\n timeout client 1h\n timeout server 1h\n\
         listen mongodb\n bind {address}\n server only {server}\n"
    );
    fs::write(&config, text).unwrap();
    let started = Command::new("haproxy").arg("-db").arg("-f").arg(config).stderr(Stdio::null()).spawn();
    let process = match started {
        Ok(child) => Program(child),
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => panic!("HAProxy does not start: {error}"),
    };
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "HAProxy does not listen");
        thread::sleep(Duration::from_millis(20));
    }
    Some((process, address))
}

/// Connects as a driver does before a load balancer.
fn connect(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let client = rawdoc! {
        "driver": { "name": "bench", "version": "1.0" }, "os": { "type": "Linux", "architecture": "x86_64" },
        "platform": "Rust", "application": { "name": "cost" },
    };
    let hello = rawdoc! { "hello": 1, "helloOk": true, "loadBalanced": true, "client": client, "$db": "admin" };
    ask(&mut stream, &message(&hello));
    stream
}

fn message(body: &RawDocument) -> Vec<u8> {
    let mut out = Vec::new();
    MessageWriter::begin(&mut out, MessageIds::request(1), Flags::NONE, body, &[], &Limits::DEFAULT).unwrap().finish();
    out
}

fn ask(stream: &mut TcpStream, message: &[u8]) {
    let mut reply = [0; 4096];
    stream.write_all(message).unwrap();
    let mut length = stream.read(&mut reply).unwrap();
    assert!(length >= 21, "a reply ends after {length} bytes");
    let announced = usize::try_from(i32::from_le_bytes(reply[..4].try_into().unwrap())).unwrap();
    while length < announced {
        let read = stream.read(&mut reply[length..]).unwrap();
        assert!(read > 0, "a reply ends after {length} bytes");
        length += read;
    }
    let body = RawDocument::from_bytes(&reply[21..announced]).unwrap();
    assert_eq!(body.get(cstr!("ok")).unwrap().unwrap().as_f64(), Some(1.0), "{body:?}");
}

impl Cost {
    fn median(costs: &[Self]) -> Self {
        let median = |of: fn(&Self) -> Duration| {
            let mut all: Vec<_> = costs.iter().map(of).collect();
            all.sort_unstable();
            all[all.len() / 2]
        };
        Self { round_trip: median(|cost| cost.round_trip), work: median(|cost| cost.work) }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} a round trip, {:?} of work", self.round_trip, self.work)
    }
}
