//! Cursors, transactions and the end of the client, each given up at a random moment, with and without troubles: nothing is left in use,
//! waiting or running, and the server keeps no cursor, no transaction and no session that the client could still end.
//!
//! `CMAP_SIM_SEEDS` says under how many seeds (100 without it) or which, `CMAP_SIM_SEED` names a single one.

use std::future::Future;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_runtime::internals;
use cmap_sim::bson::{Document, doc, rawdoc};
use cmap_sim::cmap_core::random::Random;
use cmap_sim::cmap_core::session::{TransactionOptions, TransactionState};
use cmap_sim::cmap_core::topology::ServerSelector::Writable;
use cmap_sim::{Client, Cursor, CursorOptions, OperationError, Servers, Session, Sim, SimRuntime, campaign};

use super::cut::{within, within_polls};

const TASKS: usize = 5;
const STEPS: usize = 6;

/// Fewer connections than tasks. The limit is for those that are lost without a word.
const OPTIONS: &str = "maxPoolSize=2&heartbeatFrequencyMS=500&connectTimeoutMS=1000&timeoutMS=120000";

/// What goes over a connection that was lost has ended after this.
const AFTER_LOSSES: Duration = Duration::from_secs(150);

/// The limit of an iteration of a tailable cursor, and how long the server waits in it.
const ITERATION: Duration = Duration::from_secs(2);
const WAIT: Duration = Duration::from_millis(100);

/// What the client does by itself takes no longer than this, while its server is well.
const SOON: Duration = Duration::from_secs(5);

/// What happens while the tasks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    /// Nothing.
    Calm,
    /// The client is closed.
    Closing,
    /// The server has one trouble after the other.
    Stormy,
}

/// What the tasks of a run share.
#[derive(Default)]
struct Shared {
    done: AtomicUsize,
    /// The documents that were acknowledged outside of transactions.
    kept: AtomicI32,
    broken: Mutex<Vec<String>>,
}

/// A task.
struct User {
    client: Client,
    runtime: SimRuntime,
    weather: Weather,
    chance: Random,
    shared: Arc<Shared>,
    /// Cursors whose last step was given up, and that nobody reads for a while.
    parked: Vec<Cursor>,
}

#[test]
fn what_is_given_up_at_any_moment_leaves_nothing_behind() {
    campaign(25, run);
}

fn run(seed: u64) {
    let mut chance = Random::new(!seed);
    let weather = match seed % 4 {
        0 | 1 => Weather::Calm,
        2 => Weather::Closing,
        _ => Weather::Stormy,
    };
    let sim = Sim::new(seed);
    let set = sim.replica_set("rs", &["a.example"]);
    let shared = Arc::new(Shared::default());
    sim.run(async {
        sim.sleep(Duration::from_secs(1)).await;
        let tasks = sim.tasks();
        let client = Client::connect(&set.uri(OPTIONS)).await.unwrap();
        fill(&client).await;
        let parked = Arc::new(Mutex::new(Vec::new()));
        for task in 0..TASKS {
            let (client, runtime, shared) = (client.clone(), sim.runtime().clone(), Arc::clone(&shared));
            let chance = Random::new(seed ^ ((task as u64 + 1) << 32));
            let mut user = User { client, runtime, weather, chance, shared, parked: Vec::new() };
            let left = Arc::clone(&parked);
            sim.spawn(async move {
                user.work().await;
                left.lock().unwrap().append(&mut user.parked);
                user.shared.done.fetch_add(1, Ordering::SeqCst);
            });
        }
        match weather {
            Weather::Calm => {}
            Weather::Closing => {
                sim.sleep(Duration::from_micros(chance.up_to(40_000))).await;
                let _ = give_up(&mut chance, client.close(Duration::from_millis(chance_of_patience(seed)))).await;
            }
            Weather::Stormy => trouble(&sim, &set, &mut chance).await,
        }
        while shared.done.load(Ordering::SeqCst) < TASKS {
            sim.sleep(Duration::from_millis(100)).await;
            assert!(sim.elapsed() < Duration::from_secs(3600), "the tasks do not come to their end");
        }
        let parked = std::mem::take(&mut *parked.lock().unwrap());
        end(&sim, &set, &client, weather, parked, &mut chance, &shared).await;
        drop(client);
        // A task of the client that waits for a server that is well, or for its patience to end, has ended by then.
        for _ in 0..60 {
            sim.sleep(Duration::from_secs(1)).await;
            let member = set.members()[0].0;
            set.end_lost_connections(member);
        }
        assert_eq!(sim.tasks(), tasks, "a task is left");
    });
    assert_eq!(*shared.broken.lock().unwrap(), [""; 0]);
}

fn chance_of_patience(seed: u64) -> u64 {
    match seed % 3 {
        0 => 0,
        1 => 3,
        _ => 5000,
    }
}

async fn fill(client: &Client) {
    let documents: Vec<Document> = (0..12).map(|n| doc! { "_id": n, "n": 0 }).collect();
    client.run(("db", doc! { "insert": "numbers", "documents": documents })).await.unwrap();
    let create = doc! { "create": "events", "capped": true, "size": 100_000 };
    client.operation(("db", create)).on(Writable).run().await.unwrap();
    client.run(("db", doc! { "insert": "events", "documents": [{ "n": 0 }] })).await.unwrap();
}

/// The tasks have ended, and the server is well. What was given up is looked at, and then the client is closed.
async fn end(
    sim: &Sim,
    set: &Servers,
    client: &Client,
    weather: Weather,
    parked: Vec<Cursor>,
    chance: &mut Random,
    shared: &Shared,
) {
    sim.sleep(if weather == Weather::Stormy { AFTER_LOSSES } else { SOON }).await;
    let counts = client.stats().counts;
    assert_eq!((counts.in_use, counts.waiting), (0, 0), "cursors that nobody reads keep connections: {counts:?}");
    if weather == Weather::Closing {
        drop(parked);
        assert_eq!(client.close(Duration::ZERO).await, Ok(0));
        assert_eq!(internals::entries(client), 0, "a closed client keeps something");
        return;
    }
    let mut is_served = false;
    // One that was lost without a word is found by using it.
    for _ in 0..if weather == Weather::Stormy { 4 } else { 1 } {
        is_served |= client.run_within(("admin", rawdoc! { "ping": 1 }), SOON).await.is_ok();
    }
    assert!(is_served, "cursors that nobody reads keep others from a connection");
    let had_connection = client.stats().counts.available > 0;
    drop(parked);
    match chance.up_to(3) {
        0 => sim.sleep(SOON).await,
        1 => {
            let _ = give_up(chance, client.close(SOON)).await;
            return;
        }
        _ => {
            let closed_at = sim.elapsed();
            let cut_off = client.close(SOON).await.unwrap();
            let took = sim.elapsed() - closed_at;
            if weather == Weather::Calm {
                assert!(cut_off == 0 && took < Duration::from_secs(1), "closing took {took:?} and cut {cut_off} off");
                assert!(!had_connection || internals::free_sessions(client) == 0, "sessions were not ended");
            }
        }
    }
    if weather == Weather::Calm {
        assert_eq!(left_at(set), (0, 0), "cursors and transactions are left at the server");
        assert_eq!(kept_at(set), shared.kept.load(Ordering::SeqCst), "a write that succeeded is gone");
    }
}

/// The cursors and transactions that are open at the server.
fn left_at(set: &Servers) -> (i32, i64) {
    let member = set.primary().unwrap();
    let cursors = set.run_command(member, "db", rawdoc! { "dbStats": 1 }).unwrap();
    let status = set.run_command(member, "admin", rawdoc! { "serverStatus": 1 }).unwrap();
    let transactions = status.get_document("transactions").unwrap();
    (cursors.get_i32("openCursors").unwrap(), transactions.get_i64("currentOpen").unwrap())
}

fn kept_at(set: &Servers) -> i32 {
    let count = set.run_command(set.primary().unwrap(), "db", rawdoc! { "count": "kept" }).unwrap();
    count.get_i32("n").unwrap()
}

/// `work`, given up after a while, or when it is to be polled once more, or not at all.
async fn give_up<T>(chance: &mut Random, work: impl Future<Output = T>) -> Option<T> {
    match chance.up_to(3) {
        0 => Some(work.await),
        1 => within_polls(chance.up_to(12), work).await,
        _ => within(Duration::from_micros(chance.up_to(6000)), work).await,
    }
}

impl User {
    async fn work(&mut self) {
        for _ in 0..STEPS {
            self.runtime.sleep(Duration::from_micros(self.chance.up_to(3000))).await;
            match self.chance.up_to(6) {
                0 => self.read().await,
                1 => self.park(false).await,
                2 => self.park(true).await,
                3 => self.read_in_session().await,
                4 => self.transact_by_hand().await,
                5 => self.transact().await,
                _ => self.go_on_reading().await,
            }
        }
    }

    /// Notes the error of an operation that was not given up: in calm weather there is none.
    fn note<T>(&self, what: &str, ended: Option<Result<T, OperationError>>) -> Option<T> {
        match ended? {
            Ok(output) => Some(output),
            Err(error) => {
                if self.weather == Weather::Calm && !error.has_label("TransientTransactionError") {
                    self.shared.broken.lock().unwrap().push(format!("{what}: {error}"));
                }
                None
            }
        }
    }

    async fn read(&mut self) {
        let steps = self.chance.up_to(14);
        let closes = self.chance.up_to(1) == 0;
        let client = self.client.clone();
        let read = async {
            let mut cursor = client.operation(("db", find())).on(Writable).cursor().await?;
            for _ in 0..steps {
                cursor.try_next().await?;
            }
            if closes {
                cursor.close().await;
            }
            Ok(())
        };
        let ended = give_up(&mut self.chance, read).await;
        self.note("read", ended);
    }

    /// A cursor whose step is given up, and that stays as it is.
    async fn park(&mut self, is_tailable: bool) {
        let client = self.client.clone();
        let operation = if is_tailable {
            let mut options = CursorOptions::default();
            options.max_await_time = Some(WAIT);
            let tail = doc! { "find": "events", "tailable": true, "awaitData": true };
            client.operation(("db", tail)).on(Writable).within(ITERATION).cursor_with(options).await
        } else {
            client.operation(("db", find())).on(Writable).cursor().await
        };
        let Some(mut cursor) = self.note("open", Some(operation)) else { return };
        for _ in 0..if is_tailable { 1 } else { 2 } {
            let read = cursor.try_next().await.map(drop);
            self.note("read what is there", Some(read));
        }
        let polls = 1 + self.chance.up_to(3);
        let begun_at = self.runtime.elapsed();
        let step = within_polls(polls, async { cursor.try_next().await.map(drop) }).await;
        self.note_step(begun_at, step);
        self.parked.push(cursor);
    }

    /// Goes on with a cursor that was left for longer than an iteration may take.
    async fn go_on_reading(&mut self) {
        let Some(mut cursor) = self.parked.pop() else { return };
        self.runtime.sleep(2 * ITERATION).await;
        let begun_at = self.runtime.elapsed();
        let ended = cursor.try_next().await.map(drop);
        self.note_step(begun_at, Some(ended));
    }

    /// Notes the error of a step. One of a tailable cursor may find nothing, but waits for a document first; and where others keep the
    /// connections, its time may be up in the server's own wait.
    fn note_step(&self, begun_at: Duration, ended: Option<Result<(), OperationError>>) {
        if let Some(Err(error)) = &ended
            && error.is_timeout()
            && self.runtime.elapsed() - begun_at >= WAIT
        {
            return;
        }
        self.note("step of a cursor", ended);
    }

    async fn read_in_session(&mut self) {
        let steps = self.chance.up_to(6);
        let closes = self.chance.up_to(1) == 0;
        let client = self.client.clone();
        let Ok(mut session) = client.start_session() else { return };
        let read = async {
            let mut cursor = session.operation(("db", find())).on(Writable).cursor().await?;
            for _ in 0..steps {
                cursor.try_next(&mut session).await?;
            }
            if closes {
                cursor.close(&mut session).await;
            }
            Ok(())
        };
        let ended = give_up(&mut self.chance, read).await;
        self.note("read in a session", ended);
    }

    async fn transact_by_hand(&mut self) {
        let (id, commits) = (self.id(), self.chance.up_to(1) == 0);
        let Ok(mut session) = self.client.start_session() else { return };
        if session.start_transaction().is_err() {
            return;
        }
        let begun = give_up(&mut self.chance, increment(&mut session, id)).await;
        if self.note("begin", begun).is_none() && self.chance.up_to(1) == 0 {
            return;
        }
        if commits {
            // The server has aborted what conflicts with another transaction.
            let _ = give_up(&mut self.chance, session.commit_transaction()).await;
        } else {
            let ended = give_up(&mut self.chance, session.abort_transaction()).await;
            self.note("abort", ended);
        }
        // It may have been given up before it began.
        if matches!(session.transaction_state(), TransactionState::Starting | TransactionState::InProgress) {
            return;
        }
        self.keep(&mut session).await;
    }

    async fn transact(&mut self) {
        let ids = [self.id(), self.id()];
        let Ok(mut session) = self.client.start_session() else { return };
        let change = async |session: &mut Session, ids: &mut [i32; 2]| {
            for id in *ids {
                increment(session, id).await?;
            }
            Ok::<(), OperationError>(())
        };
        let options = TransactionOptions::default();
        let transaction = session.with_transaction_on(ids, options, Duration::from_secs(20), change);
        let ended = give_up(&mut self.chance, transaction).await;
        self.note("transaction", ended);
        self.keep(&mut session).await;
    }

    /// Writes a document in the session, outside of a transaction.
    async fn keep(&mut self, session: &mut Session) {
        // A later number in the session would end the transaction at its server.
        if self.weather != Weather::Calm || self.chance.up_to(1) == 0 {
            return;
        }
        let written = session.run(("db", doc! { "insert": "kept", "documents": [{}] })).await;
        if self.note("write behind a transaction", Some(written)).is_some() {
            self.shared.kept.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn id(&mut self) -> i32 {
        i32::try_from(self.chance.up_to(11)).unwrap()
    }
}

fn find() -> Document {
    doc! { "find": "numbers", "batchSize": 2 }
}

async fn increment(session: &mut Session, id: i32) -> Result<(), OperationError> {
    let update = doc! { "q": { "_id": id }, "u": { "$inc": { "n": 1 } } };
    session.run(("db", doc! { "update": "numbers", "updates": [update] })).await.map(drop)
}

async fn trouble(sim: &Sim, set: &Servers, chance: &mut Random) {
    let member = set.members()[0].0;
    for _ in 0..4 {
        sim.sleep(Duration::from_micros(chance.up_to(20_000))).await;
        let pause = Duration::from_millis(chance.up_to(1500));
        match chance.up_to(4) {
            0 => set.reset_connections(member),
            1 => {
                set.hang(member, true);
                sim.sleep(pause).await;
                set.hang(member, false);
            }
            2 => {
                set.kill(member);
                sim.sleep(pause).await;
                set.restart(member);
            }
            3 => {
                set.partition(member);
                sim.sleep(pause).await;
                set.heal(member);
            }
            _ => drop(set.lose_connection(member)),
        }
    }
}
