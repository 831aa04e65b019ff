//! Clients of a replica set through failovers, on each runtime and over real sockets: no check-out ends in an error while its
//! time lasts. The same goes on in virtual time, with partitions, in `runtimes/sim/tests/failover.rs`.
//!
//! `CMAP_FAILOVERS` says how many there are on each runtime; without it, 9.

#![allow(clippy::unwrap_used, reason = "a test stops where something is not as it should be")]

mod links;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command as Program, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_runtime::bson::{RawDocumentBuf, rawdoc};
use cmap_runtime::{Client, Runtime};

use self::links::Linked;

const TASKS: usize = 200;

/// How long a member that was killed is away.
const OUTAGE: Duration = Duration::from_secs(1);

/// How long the client's link to the primary is cut.
const CUT: Duration = Duration::from_secs(2);

/// The longest time from the beginning of a failover until every task was served again.
const RECOVERY: Duration = Duration::from_secs(5);

const OPTIONS: &str = "heartbeatFrequencyMS=500&connectTimeoutMS=500&timeoutMS=10000";

/// The members of a set, served by a process that ends with its standard input.
struct Members {
    _process: Child,
    addresses: Vec<String>,
}

impl Members {
    fn start() -> Self {
        let mut process = Program::new(env!("CARGO_BIN_EXE_spec-runner"))
            .args(["serve", "--port", "0", "--until-stdin-ends", "--replica-set", "rs0", "--members", "3"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().take(3).map(Result::unwrap);
        let addresses = lines.map(|line| line.strip_prefix("listening on ").unwrap().to_owned()).collect();
        Self { _process: process, addresses }
    }

    fn uri(&self, options: &str) -> String {
        format!("mongodb://{}/?replicaSet=rs0&{options}", self.addresses.join(","))
    }
}

/// What the tasks have met.
#[derive(Default)]
struct Tally {
    served: AtomicUsize,
    failed_commands: AtomicUsize,
    check_out_errors: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

#[test]
fn no_check_out_ends_in_an_error_on_tokio() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(through_failovers::<cmap_tokio::Tokio>());
}

#[test]
fn no_check_out_ends_in_an_error_on_smol() {
    smol::block_on(through_failovers::<cmap_smol::Smol>());
}

#[test]
fn no_check_out_ends_in_an_error_on_async_std() {
    // async-std has threads of its own.
    smol::block_on(through_failovers::<cmap_async_std::AsyncStd>());
}

async fn through_failovers<R: Runtime>() {
    let members = Members::start();
    let client = Client::<Linked<R>>::connect(&members.uri(OPTIONS)).await.unwrap();
    let runtime = R::current().unwrap();
    let tally = Arc::new(Tally::default());
    for _ in 0..TASKS {
        runtime.spawn(ping(client.clone(), Arc::clone(&tally)));
    }
    served_again(&runtime, &tally).await;

    let mut recoveries = Vec::new();
    let failovers = std::env::var("CMAP_FAILOVERS").map_or(9, |failovers| failovers.parse().unwrap());
    for round in 0..failovers {
        let start = runtime.now();
        fail_over::<R>(&members, &runtime, round).await;
        served_again(&runtime, &tally).await;
        recoveries.push(runtime.now() - start);
        runtime.sleep_until(runtime.now() + Duration::from_secs(1)).await;
    }
    tally.is_over.store(true, Ordering::SeqCst);
    client.close(Duration::from_secs(20)).await.unwrap();

    println!(
        "{}: {} pings, {} commands lost their connection; recoveries: {recoveries:?}",
        R::NAME,
        tally.served.load(Ordering::SeqCst),
        tally.failed_commands.load(Ordering::SeqCst)
    );
    assert_eq!(*tally.check_out_errors.lock().unwrap(), [""; 0]);
    assert!(recoveries.iter().all(|recovery| *recovery <= RECOVERY), "{recoveries:?}");
}

/// The primary steps down, or is killed and started again, or the client's link to it is cut, or all members are killed and
/// started again, one after the other.
async fn fail_over<R: Runtime>(members: &Members, runtime: &R, round: usize) {
    let order = |what: &str, member: &str| rawdoc! { "testDeployment": what, "member": member };
    let (primary, other) = primary::<R>(members).await;
    match round % 4 {
        0 => tell::<R>(&primary, rawdoc! { "replSetStepDown": 10 }).await,
        1 => {
            tell::<R>(&other, order("kill", &primary)).await;
            runtime.sleep_until(runtime.now() + OUTAGE).await;
            tell::<R>(&other, order("restart", &primary)).await;
        }
        2 => {
            let primary = primary.parse().unwrap();
            links::cut(primary);
            runtime.sleep_until(runtime.now() + CUT).await;
            links::mend(primary);
        }
        _ => {
            for (index, member) in members.addresses.iter().enumerate() {
                let other = &members.addresses[(index + 1) % members.addresses.len()];
                tell::<R>(other, order("kill", member)).await;
                runtime.sleep_until(runtime.now() + Duration::from_millis(200)).await;
                tell::<R>(other, order("restart", member)).await;
                runtime.sleep_until(runtime.now() + Duration::from_millis(800)).await;
            }
        }
    }
}

/// The address of the primary, and that of another member.
async fn primary<R: Runtime>(members: &Members) -> (String, String) {
    let client = Client::<R>::connect(&members.uri("timeoutMS=10000")).await.unwrap();
    let primary = client.check_out().await.unwrap().address().to_string();
    let other = members.addresses.iter().find(|address| **address != primary).unwrap().clone();
    (primary, other)
}

/// Runs a command at one member.
async fn tell<R: Runtime>(member: &str, command: RawDocumentBuf) {
    let uri = format!("mongodb://{member}/?directConnection=true&timeoutMS=10000");
    let client = Client::<R>::connect(&uri).await.unwrap();
    client.check_out().await.unwrap().run_command("admin", command).await.unwrap();
}

/// Waits until as many pings were answered as there are tasks.
async fn served_again<R: Runtime>(runtime: &R, tally: &Tally) {
    let served = tally.served.load(Ordering::SeqCst);
    while tally.served.load(Ordering::SeqCst) < served + TASKS {
        runtime.sleep_until(runtime.now() + Duration::from_millis(5)).await;
    }
}

/// Uses the primary again and again. Commands may fail, because their connections are lost; check-outs may not.
async fn ping<R: Runtime>(client: Client<R>, tally: Arc<Tally>) {
    let runtime = R::current().unwrap();
    while !tally.is_over.load(Ordering::SeqCst) {
        match client.check_out().await {
            Ok(mut connection) => match connection.run_command("admin", rawdoc! { "ping": 1 }).await {
                Ok(_) => drop(tally.served.fetch_add(1, Ordering::SeqCst)),
                Err(_) => drop(tally.failed_commands.fetch_add(1, Ordering::SeqCst)),
            },
            Err(_) if tally.is_over.load(Ordering::SeqCst) => return,
            Err(error) => tally.check_out_errors.lock().unwrap().push(error.to_string()),
        }
        runtime.sleep_until(runtime.now() + Duration::from_millis(10)).await;
    }
}
