//! A mixed load with restarts, partitions and resets, under many seeds: whatever happens, nothing is lost.
//!
//! `CMAP_SIM_SEEDS` says under how many (200 without it), `CMAP_SIM_SEED` names a single one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_sim::bson::rawdoc;
use cmap_sim::cmap_core::options::ClientOptions;
use cmap_sim::cmap_core::pool::Event as PoolEvent;
use cmap_sim::cmap_core::random::Random;
use cmap_sim::{Client, CommandErrorKind, Data, Event, Server, Sim, campaign};

use super::cut::{within, within_polls};

const TASKS: u64 = 8;
const OPERATIONS: u64 = 12;
const MOST_CONNECTIONS: usize = 4;

/// What the events say, checked as each comes.
#[derive(Default)]
struct Ledger {
    created: BTreeSet<u64>,
    in_use: BTreeSet<u64>,
    check_outs: u64,
    newest: u64,
    /// The newest connection at the last clear: this one and all older ones are stale.
    newest_stale: u64,
    broken: Vec<String>,
}

impl Ledger {
    fn note(&mut self, event: &PoolEvent) {
        match event {
            PoolEvent::ConnectionCreated { connection_id } => {
                self.newest = connection_id.get();
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
            PoolEvent::PoolCleared { .. } => self.newest_stale = self.newest,
            PoolEvent::PoolCreated { .. }
            | PoolEvent::PoolReady
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

/// What happens while the load runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weather {
    /// Nothing: no operation fails.
    Calm,
    /// The client is closed in the middle.
    Closing,
    /// The server has one trouble after the other.
    Stormy,
}

/// One task of the load.
struct User {
    client: Client,
    ledger: Arc<Mutex<Ledger>>,
    weather: Weather,
    chance: Random,
}

/// Eight tasks use a pool of four connections.
fn run(seed: u64) {
    let weather = match seed % 4 {
        0 => Weather::Calm,
        1 => Weather::Closing,
        _ => Weather::Stormy,
    };
    let sim = Sim::new(seed);
    let server = sim.server("db.example");
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let done = Arc::new(Mutex::new(0));
    let mut chance = Random::new(!seed);
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
            let chance = Random::new(seed ^ (task << 32));
            let mut user = User { client: client.clone(), ledger: Arc::clone(&ledger), weather, chance };
            let (done, runtime) = (Arc::clone(&done), sim.runtime().clone());
            sim.spawn(async move {
                let most_idle = if user.weather == Weather::Stormy { 200 } else { 2 };
                for _ in 0..OPERATIONS {
                    runtime.sleep(Duration::from_millis(user.chance.up_to(most_idle))).await;
                    user.operate().await;
                }
                *done.lock().unwrap() += 1;
            });
        }
        client
    });
    sim.run(async {
        match weather {
            Weather::Calm => {}
            Weather::Closing => {
                sim.sleep(Duration::from_micros(chance.up_to(8_000))).await;
                let closed_at = sim.elapsed();
                client.close(Duration::from_millis(chance.up_to(2))).await.unwrap();
                assert!(sim.elapsed() - closed_at < Duration::from_millis(100), "closing took too long");
            }
            Weather::Stormy => trouble(&sim, &server, &mut chance).await,
        }
        while *done.lock().unwrap() < TASKS {
            sim.sleep(Duration::from_secs(1)).await;
            assert!(sim.elapsed() < Duration::from_secs(600), "the load does not come to its end");
        }
        if weather != Weather::Closing {
            come_to_rest(&sim, &client).await;
        }
        sim.sleep(Duration::from_secs(2)).await;
    });
    let ledger = ledger.lock().unwrap();
    assert_eq!(ledger.broken, Vec::<String>::new());
    assert!(ledger.created.is_empty() && ledger.in_use.is_empty() && ledger.check_outs == 0, "something is left over");
}

/// The server is well: so is the client, soon. Then it is closed.
async fn come_to_rest(sim: &Sim, client: &Client) {
    sim.sleep(Duration::from_secs(2)).await;
    let mut answered = false;
    for _ in 0..=MOST_CONNECTIONS {
        // One that was lost without a word is found by using it.
        let mut connection = client.check_out().await.unwrap();
        answered |= connection.run_command("admin", rawdoc! { "ping": 1 }).await.is_ok();
    }
    assert!(answered, "no command is answered, though the server is well");
    sim.sleep(Duration::from_secs(2)).await;

    let stats = client.stats();
    assert_eq!((stats.counts.in_use, stats.counts.waiting, stats.counts.pending), (0, 0, 0), "{stats:?}");
    assert_eq!(client.close(Duration::from_secs(1)).await.unwrap(), 0);
}

impl User {
    /// A command; or a check-out or a command that is given up, after a while or when it is woken.
    async fn operate(&mut self) {
        let (kind, patience) = (self.chance.up_to(9), Duration::from_micros(self.chance.up_to(3000)));
        let polls = self.chance.up_to(4);
        let command = command(&self.client, &self.ledger);
        match kind {
            0 => drop(within(patience, command).await),
            1 | 2 => drop(within_polls(polls, command).await),
            _ => {
                let outcome = command.await;
                if self.weather == Weather::Calm {
                    assert_eq!(outcome, Ok(()), "nothing is wrong, and an operation fails");
                }
            }
        }
    }
}

async fn command(client: &Client, ledger: &Mutex<Ledger>) -> Result<(), String> {
    let mut connection = client.check_out().await.map_err(|error| error.to_string())?;
    let insert = rawdoc! { "insert": "orders", "documents": [{ "text": "x".repeat(500) }] };
    let Err(error) = connection.run_command("shop", insert).await else { return Ok(()) };
    if matches!(error.kind, CommandErrorKind::Network(_)) {
        // SDAM-10: the pool was cleared, by this error or before.
        let is_stale = connection.id().get() <= ledger.lock().unwrap().newest_stale;
        assert!(is_stale, "a network error has not cleared the pool: {error}");
    }
    Err(error.to_string())
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
    campaign(200, run);
}
