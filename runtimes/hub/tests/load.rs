//! 2,000 client connections of 8 processes on 20 connections upstream, each with up to 5 commands a second, cursors and transactions
//! among them, while the primary steps down and is killed, and one of the processes is killed, too. Every client knows what its replies
//! have to say (`load/worker.rs`), so that nothing can be lost, doubled or mixed up unseen; and at the end nothing is left over.
//!
//! `CMAP_HUB_LOAD_SECONDS` says for how long (15), `CMAP_HUB_LOAD_CLIENTS` how many clients each process has (250), `CMAP_HUB_LOAD_SEED`
//! what they choose, and `CMAP_HUB_LOAD_WAITING` how many commands may wait at the hub (as many as there are clients).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "it goes on in the clock's time, in processes")]

#[path = "hub/program.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod program;
#[path = "load/report.rs"]
mod report;
#[path = "hub/servers.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod servers;
#[path = "load/worker.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod worker;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use cmap_tokio::Client;
use cmap_tokio::ServerSelector::Writable;
use cmap_tokio::bson::rawdoc;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::program::{HubProgram, Program, own_work};
use crate::report::{Costs, get, print, read_line, write_line};
use crate::servers::Servers;
use crate::worker::{Tally, Worker, wait_until_unlocked};

const PROCESSES: usize = 8;
const CLIENTS: u64 = 250;
const UPSTREAM: usize = 20;
const SECONDS: u64 = 15;
const PACE: Duration = Duration::from_millis(200);

/// How soon what a client leaves behind has to be ended, on a machine that has much else to do: upstream would end it after a minute.
const SOON: Duration = Duration::from_secs(45);

/// What a client process is told: the number of its first client.
const FIRST: &str = "CMAP_HUB_LOAD_FIRST";
/// The connection string.
const URI: &str = "CMAP_HUB_LOAD_URI";

fn main() {
    match env::var(FIRST) {
        Ok(first) => one_runtime().block_on(work(&env::var(URI).unwrap(), first.parse().unwrap())),
        Err(_) => play(),
    }
}

/// A client process. Its other end.
struct Clients {
    process: Program,
    out: BufReader<std::process::ChildStdout>,
    first: i64,
}

fn play() {
    let (seconds, clients) = (setting("SECONDS", SECONDS), setting("CLIENTS", CLIENTS));
    let folder = tempfile::tempdir().unwrap();
    let (tell, told) = channel();
    // The servers' time goes on in a thread of theirs.
    thread::spawn(move || {
        one_runtime().block_on(async {
            tell.send(Servers::replica_set().await).unwrap();
            core::future::pending::<()>().await;
        });
    });
    let servers = told.recv().unwrap();
    let users: Vec<_> = (0..PROCESSES).map(|number| format!("user-{number}")).collect();
    let status = report::free_address();
    // Every client has room to wait, unless it is to be seen what happens beyond the depth.
    let waiting = setting("WAITING", clients * PROCESSES as u64);
    let more =
        format!("status.address = '{status}'\nlimits.waiting = {waiting}\nlimits.waiting-per-user = {clients}\n");
    let hub = HubProgram::start(folder.path(), &servers.uri(&format!("maxPoolSize={UPSTREAM}")), &users, &more);
    let mut processes: Vec<_> = users.iter().zip(0..).map(|(user, index)| Clients::start(&hub, user, index)).collect();
    processes.iter_mut().for_each(|clients| clients.wait_for("ready"));
    let costs = || Costs {
        hub: hub.process.work(),
        servers: own_work(),
        commands: get(status, "/status.json")["counts"]["commands"].as_u64().unwrap(),
    };
    let (begun, before) = (Instant::now(), costs());
    let until = |part: f64| {
        let at = Duration::from_secs(seconds).mul_f64(part);
        thread::sleep(at.saturating_sub(begun.elapsed()));
    };

    // In the first half the upstream set changes again and again.
    let changes = (seconds / 60).max(1);
    for change in 0..changes {
        let from = |part: f64| {
            0.5 * (f64::from(u32::try_from(change).unwrap()) + part) / f64::from(u32::try_from(changes).unwrap())
        };
        until(from(0.3));
        servers.step_down();
        until(from(0.6));
        servers.kill_primary();
        until(from(0.9));
        servers.restart();
    }
    until(0.6);
    let victim = processes.pop().unwrap();
    let first = victim.first;
    drop(victim);
    let killed = Instant::now();
    let witness = one_runtime();
    let directly = witness.block_on(Client::connect(&servers.uri("timeoutMS=10000"))).unwrap();
    let aborted =
        witness.block_on(wait_until_unlocked(&directly, first..first + i64::try_from(clients).unwrap(), SOON));
    let freed = killed.elapsed();

    until(1.0);
    let (costs, most_resident) = (costs().since(&before), hub.process.resident());
    let mut tally = Tally::default();
    processes.into_iter().for_each(|clients| tally.add(clients.end()));
    print(&tally, begun.elapsed(), &costs, most_resident, servers.accepted());
    println!("{aborted} collections of a process that was killed were free of its transactions after {freed:?}");

    assert_eq!(tally.wrong, [""; 0], "what was not as it has to be");
    assert!(tally.cursors > 0 && tally.transactions > 0 && tally.commands > 0, "{tally:?}");
    report::eventually("no client is left at the hub", || {
        let status = get(status, "/status.json");
        let queue = &status["queue"];
        let in_use = status["upstream"]["in_use"].as_array().unwrap().len();
        (status["connections"] == 0 && queue["running"] == 0 && queue["waiting"] == 0 && in_use == 0)
            .then_some(())
            .ok_or_else(|| format!("{status}"))
    });
    report::eventually("no cursor is left upstream", || {
        let stats =
            witness.block_on(directly.operation(("load", rawdoc! { "dbStats": 1 })).on(Writable).run()).unwrap();
        let open = stats.get_i64("openCursors").or_else(|_| stats.get_i32("openCursors").map(i64::from)).unwrap();
        (open == 0).then_some(()).ok_or_else(|| format!("{open} cursors"))
    });
    let all = 0..i64::try_from(clients * u64::try_from(PROCESSES).unwrap()).unwrap();
    witness.block_on(wait_until_unlocked(&directly, all, SOON));
}

impl Clients {
    fn start(hub: &HubProgram, user: &str, index: i64) -> Self {
        let clients = setting("CLIENTS", CLIENTS);
        let first = index * i64::try_from(clients).unwrap();
        let uri = format!("mongodb://{user}:secret@{}/?loadBalanced=true&maxPoolSize={clients}", hub.address);
        let mut command = Command::new(env::current_exe().unwrap());
        command.env(FIRST, first.to_string()).env(URI, uri).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Program(command.spawn().unwrap());
        let out = BufReader::new(process.0.stdout.take().unwrap());
        Self { process, out, first }
    }

    fn wait_for(&mut self, word: &str) {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), word, "from the clients from {} on", self.first);
        self.process.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    /// Tells it to end; what it has done.
    fn end(mut self) -> Tally {
        drop(self.process.0.stdin.take());
        read_line(&mut self.out).unwrap_or_else(|| panic!("the clients from {} on have ended badly", self.first))
    }
}

/// A client process: works until its standard input ends.
async fn work(uri: &str, first: i64) {
    let (clients, seed) = (setting("CLIENTS", CLIENTS), setting("SEED", 1));
    let client = Client::connect(uri).await.unwrap();
    let mut workers = Vec::new();
    for number in (first..).take(usize::try_from(clients).unwrap()) {
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(u64::try_from(number).unwrap());
        workers.push(Worker::new(&client, number, seed, Duration::ZERO).await);
    }
    println!("ready");
    let is_over = std::sync::Arc::new(AtomicBool::new(false));
    let ended = std::sync::Arc::clone(&is_over);
    let (go, gone) = tokio::sync::oneshot::channel();
    thread::spawn(move || {
        let mut lines = std::io::stdin().lines();
        let _ = lines.next();
        let _ = go.send(());
        let _ = lines.next();
        ended.store(true, Ordering::SeqCst);
    });
    gone.await.unwrap();
    let worked = own_work();
    let mut tasks = JoinSet::new();
    for mut worker in workers {
        let is_over = std::sync::Arc::clone(&is_over);
        tasks.spawn(async move {
            worker.set_pace(PACE);
            while !is_over.load(Ordering::SeqCst) && worker.tally.wrong.is_empty() {
                worker.turn(false).await;
            }
            worker.tally
        });
    }
    let mut all = Tally::default();
    while let Some(tally) = tasks.join_next().await {
        all.add(tally.unwrap());
    }
    all.work = own_work() - worked;
    write_line(&all);
}

fn one_runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn setting(name: &str, otherwise: u64) -> u64 {
    env::var(format!("CMAP_HUB_LOAD_{name}")).map_or(otherwise, |text| text.parse().expect("a whole number"))
}
