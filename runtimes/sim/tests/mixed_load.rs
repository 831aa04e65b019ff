//! A mixed load with restarts, partitions and resets, under many seeds: whatever happens, nothing is lost.
//!
//! `CMAP_SIM_SEEDS` says under how many (1,000 without it), `CMAP_SIM_SEED` names a single one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a test is told by its name and fails by panicking"
)]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_sim::bson::rawdoc;
use cmap_sim::core::options::ClientOptions;
use cmap_sim::core::pool::Event as PoolEvent;
use cmap_sim::core::random::Random;
use cmap_sim::{Client, Data, Event, Server, Sim, for_seeds};

const TASKS: u64 = 8;
const OPERATIONS: u64 = 12;
const MOST_CONNECTIONS: usize = 4;

/// What the events say, checked as each comes.
#[derive(Default)]
struct Ledger {
    created: BTreeSet<u64>,
    in_use: BTreeSet<u64>,
    check_outs: u64,
    broken: Vec<String>,
}

impl Ledger {
    fn note(&mut self, event: &PoolEvent) {
        match event {
            PoolEvent::ConnectionCreated { connection_id } => {
                let is_new = self.created.insert(connection_id.get());
                self.require(is_new, event, "is new");
            }
            PoolEvent::ConnectionCheckOutStarted { .. } => self.check_outs += 1,
            PoolEvent::ConnectionCheckedOut { connection_id, .. } => {
                let was_free = self.created.contains(&connection_id.get()) && self.in_use.insert(connection_id.get());
                self.check_outs -= 1;
                self.require(was_free, event, "exists, and is nobody else's");
            }
            PoolEvent::ConnectionCheckOutFailed { .. } => self.check_outs -= 1,
            PoolEvent::ConnectionCheckedIn { connection_id } => {
                let was_in_use = self.in_use.remove(&connection_id.get());
                self.require(was_in_use, event, "was checked out");
            }
            PoolEvent::ConnectionClosed { connection_id, .. } => {
                let was_idle = self.created.remove(&connection_id.get()) && !self.in_use.contains(&connection_id.get());
                self.require(was_idle, event, "exists, and is in nobody's hands");
            }
            PoolEvent::PoolCreated { .. }
            | PoolEvent::PoolReady
            | PoolEvent::PoolCleared { .. }
            | PoolEvent::PoolClosed
            | PoolEvent::ConnectionReady { .. }
            | _ => {}
        }
        self.require(self.created.len() <= MOST_CONNECTIONS, event, "maxPoolSize holds");
    }

    fn require(&mut self, holds: bool, event: &PoolEvent, law: &str) {
        if !holds {
            self.broken.push(format!("{law}: {event:?}"));
        }
    }
}

/// Eight tasks use a pool of four connections, while the server has one trouble after the other.
fn run(seed: u64) {
    let sim = Sim::new(seed);
    let server = sim.server("db.example");
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let done = Arc::new(Mutex::new(0));
    let client = sim.run(async {
        let uri = "mongodb://db.example/?maxPoolSize=4&heartbeatFrequencyMS=500&timeoutMS=5000&connectTimeoutMS=1000";
        let (options, _) = ClientOptions::parse(uri).unwrap();
        let noted = Arc::clone(&ledger);
        let builder = Client::builder(options).on_event(move |_, event| {
            if let Event::Pool(event) = event {
                noted.lock().unwrap().note(event);
            }
        });
        let client = builder.build().await.unwrap();
        for task in 0..TASKS {
            let (client, done, runtime) = (client.clone(), Arc::clone(&done), sim.runtime().clone());
            let mut chance = Random::new(seed ^ (task << 32));
            sim.spawn(async move {
                for _ in 0..OPERATIONS {
                    runtime.sleep(Duration::from_millis(chance.up_to(200))).await;
                    operate(&client, &mut chance).await;
                }
                *done.lock().unwrap() += 1;
            });
        }
        trouble(&sim, &server, &mut Random::new(!seed)).await;
        client
    });
    sim.run(async {
        while *done.lock().unwrap() < TASKS {
            sim.sleep(Duration::from_secs(1)).await;
            assert!(sim.elapsed() < Duration::from_secs(3600), "the load does not come to its end");
        }
        // The server is well again: so is the client, soon.
        sim.sleep(Duration::from_secs(2)).await;
        let mut answered = false;
        for _ in 0..=MOST_CONNECTIONS {
            // One that was lost without a word is found by using it.
            let mut connection = client.check_out().await.unwrap();
            answered |= connection.run_command("admin", rawdoc! { "ping": 1 }).await.is_ok();
        }
        assert!(answered);
        sim.sleep(Duration::from_secs(2)).await;

        let stats = client.stats();
        assert_eq!((stats.counts.in_use, stats.counts.waiting, stats.counts.pending), (0, 0, 0), "{stats:?}");
        assert_eq!(client.close(Duration::from_secs(1)).await.unwrap(), 0);
        sim.sleep(Duration::from_secs(2)).await;
    });
    let ledger = ledger.lock().unwrap();
    assert_eq!(ledger.broken, Vec::<String>::new());
    assert!(ledger.created.is_empty() && ledger.in_use.is_empty() && ledger.check_outs == 0);
}

/// A command, a check-out that is given up, or a command that is given up.
async fn operate(client: &Client, chance: &mut Random) {
    let patience = Duration::from_micros(chance.up_to(3000));
    let kind = chance.up_to(9);
    let command = async {
        let Ok(mut connection) = client.check_out().await else { return };
        let insert = rawdoc! { "insert": "orders", "documents": [{ "text": "x".repeat(500) }] };
        let _ = connection.run_command("shop", insert).await;
    };
    if kind < 7 {
        command.await;
    } else {
        within(patience, command).await;
    }
}

/// `work`, dropped after `patience`.
async fn within(patience: Duration, work: impl Future<Output = ()>) {
    let runtime = <cmap_sim::SimRuntime as cmap_runtime::Runtime>::current().unwrap();
    let (mut work, mut timer) = (std::pin::pin!(work), std::pin::pin!(runtime.sleep(patience)));
    std::future::poll_fn(|cx| {
        if work.as_mut().poll(cx).is_ready() || timer.as_mut().poll(cx).is_ready() {
            return std::task::Poll::Ready(());
        }
        std::task::Poll::Pending
    })
    .await;
}

async fn trouble(sim: &Sim, server: &Server, chance: &mut Random) {
    for _ in 0..6 {
        sim.sleep(Duration::from_millis(chance.up_to(400))).await;
        let pause = Duration::from_millis(chance.up_to(1500));
        match chance.up_to(6) {
            0 => server.restart(Data::Kept),
            1 => {
                server.crash();
                sim.sleep(pause).await;
                server.restart(Data::Lost);
            }
            2 => {
                server.partition();
                sim.sleep(pause).await;
                server.heal();
            }
            3 => server.reset_connections(),
            4 => drop(server.lose_connection()),
            5 => {
                server.hang(true);
                sim.sleep(pause).await;
                server.hang(false);
            }
            _ => {
                server.switch_off();
                sim.sleep(pause).await;
                server.restart(Data::Kept);
            }
        }
    }
}

#[test]
fn a_mixed_load_loses_nothing_under_any_seed() {
    let count = std::env::var("CMAP_SIM_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(1000);

    for_seeds(0..count, run);
}
