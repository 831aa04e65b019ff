//! Transactions through failovers: tasks move money between accounts, and whatever happens to the members, none of it is lost or
//! made, and each acknowledged transfer is there exactly once. The oracle knows only what callers were told, and what a member
//! says afterwards.
//!
//! `CMAP_SIM_SEEDS` says under how many seeds (5 without it) or which, `CMAP_SIM_SEED` names a single one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_sim::bson::{Document, doc, rawdoc};
use cmap_sim::cmap_core::random::Random;
use cmap_sim::cmap_core::session::TransactionOptions;
use cmap_sim::cmap_core::topology::ServerSelector::{AnyOf, Writable};
use cmap_sim::{Client, DeploymentConfig, OperationError, Servers, Session, Sim, SimRuntime, for_seeds, seeds_or};

const TASKS: usize = 20;
const ACCOUNTS: u64 = 30;
const FAILOVERS: usize = 5;

/// The balance of each account at first.
const BALANCE: i32 = 100;

/// The longest outage of a member.
const OUTAGE: Duration = Duration::from_secs(2);

/// How long the set is left alone after each failover.
const PAUSE: Duration = Duration::from_secs(2);

/// How long one transfer may take.
const PATIENCE: Duration = Duration::from_secs(60);

const OPTIONS: &str = "heartbeatFrequencyMS=500&connectTimeoutMS=500&w=majority";

/// What the tasks of a run were told.
#[derive(Default)]
struct Told {
    acknowledged: [AtomicUsize; TASKS],
    attempts: AtomicUsize,
    errors: Mutex<Vec<String>>,
    is_over: AtomicBool,
    running: AtomicUsize,
}

#[test]
fn transfers_through_failovers_lose_nothing_and_happen_once() {
    for_seeds(seeds_or(5), |seed| {
        let sim = Sim::new(seed);
        let set = sim.replica_set("rs", &["a.example", "b.example", "c.example"]);
        let told = Arc::new(Told::default());
        sim.run(through_failovers(&sim, &set, Arc::clone(&told), seed));

        assert_eq!(*told.errors.lock().unwrap(), [""; 0]);
        let transfers = found(&set, "transfers");
        for task in 0..TASKS {
            let acknowledged = told.acknowledged[task].load(Ordering::SeqCst);
            let own =
                transfers.iter().filter(|transfer| transfer.get_i32("task").unwrap() == i32::try_from(task).unwrap());
            assert!(acknowledged > 3, "task {task} made {acknowledged} transfers");
            assert_eq!(own.count(), acknowledged, "the transfers of task {task}");
        }
        for account in found(&set, "accounts") {
            let id = account.get_i32("_id").unwrap();
            let count = |field: &str| transfers.iter().filter(|it| it.get_i32(field).unwrap() == id).count();
            let expected =
                i64::from(BALANCE) + i64::try_from(count("to")).unwrap() - i64::try_from(count("from")).unwrap();
            assert_eq!(i64::from(account.get_i32("balance").unwrap()), expected, "account {id}");
        }
        let transferred = transfers.len();
        assert!(told.attempts.load(Ordering::SeqCst) > transferred, "no transaction was repeated");
    });
}

#[test]
fn a_refused_command_is_repeated_at_the_mongos_of_its_transaction_pin_4() {
    for_seeds(0..20, |seed| {
        let sim = Sim::new(seed);
        let hosts = ["a.example:27017", "b.example:27017"].map(String::from);
        let cluster = sim.deployment(|server| DeploymentConfig::sharded(server, hosts));
        sim.run(async {
            let client = Client::connect(&cluster.uri("")).await.unwrap();
            let insert = |id: i32| ("db", doc! { "insert": "c", "documents": [{ "_id": id }] });
            let mut session = client.start_session().unwrap();
            session.start_transaction().unwrap();
            session.run(insert(1)).await.unwrap();
            let mongos = session.pinned_to().unwrap().clone();
            let own = || AnyOf([mongos.clone()].into());
            let labels = vec!["SystemOverloadedError", "RetryableError", "TransientTransactionError"];
            let data = doc! { "failCommands": ["insert"], "errorCode": 462, "errorLabels": labels };
            let refuse = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
            client.operation(("admin", refuse)).on(own()).run().await.unwrap();

            session.run(insert(2)).await.unwrap();

            assert_eq!(session.pinned_to(), Some(&mongos));
            session.commit_transaction().await.unwrap();
            let reply = client.operation(("db", doc! { "count": "c" })).on(own()).run().await.unwrap();
            assert_eq!(reply.get_i32("n").unwrap(), 2);
        });
    });
}

async fn through_failovers(sim: &Sim, set: &Servers, told: Arc<Told>, seed: u64) {
    let client = Client::connect(&set.uri(OPTIONS)).await.unwrap();
    let accounts = (0..i32::try_from(ACCOUNTS).unwrap()).map(|id| doc! { "_id": id, "balance": BALANCE });
    let insert = doc! { "insert": "accounts", "documents": accounts.collect::<Vec<_>>() };
    client.operation(("bank", insert)).on(Writable).run().await.unwrap();
    for task in 0..TASKS {
        told.running.fetch_add(1, Ordering::SeqCst);
        let random = Random::new(seed.wrapping_mul(1000).wrapping_add(task as u64));
        sim.spawn(transfer(client.clone(), task, sim.runtime().clone(), random, Arc::clone(&told)));
    }
    let mut random = Random::new(seed);
    for _ in 0..FAILOVERS {
        fail_over(sim, set, &mut random).await;
        sim.sleep(PAUSE).await;
    }
    told.is_over.store(true, Ordering::SeqCst);
    while told.running.load(Ordering::SeqCst) > 0 {
        sim.sleep(Duration::from_millis(10)).await;
    }
    client.close(Duration::from_secs(20)).await.unwrap();
}

/// Moves money from one account to another, again and again.
async fn transfer(client: Client, task: usize, runtime: SimRuntime, mut random: Random, told: Arc<Told>) {
    let mut session = client.start_session().unwrap();
    let mut account = || i32::try_from(random.up_to(ACCOUNTS - 1)).unwrap();
    while !told.is_over.load(Ordering::SeqCst) {
        let transfer =
            Transfer { task: i32::try_from(task).unwrap(), from: account(), to: account(), told: Arc::clone(&told) };
        let options = TransactionOptions::default();
        let carry_out = async |session: &mut Session, transfer: &mut Transfer| transfer.carry_out(session).await;
        match session.with_transaction_on(transfer, options, PATIENCE, carry_out).await {
            Ok(()) => drop(told.acknowledged[task].fetch_add(1, Ordering::SeqCst)),
            Err(error) => told.errors.lock().unwrap().push(format!("{error:?}")),
        }
        runtime.sleep(Duration::from_millis(200)).await;
    }
    told.running.fetch_sub(1, Ordering::SeqCst);
}

/// One transfer.
struct Transfer {
    task: i32,
    from: i32,
    to: i32,
    told: Arc<Told>,
}

impl Transfer {
    async fn carry_out(&self, session: &mut Session) -> Result<(), OperationError> {
        let Self { task, from, to, told } = self;
        told.attempts.fetch_add(1, Ordering::SeqCst);
        for (account, change) in [(*from, -1), (*to, 1)] {
            let update = doc! { "q": { "_id": account }, "u": { "$inc": { "balance": change } } };
            session.run(("bank", doc! { "update": "accounts", "updates": [update] })).await?;
        }
        let record = doc! { "task": *task, "from": *from, "to": *to };
        session.run(("bank", doc! { "insert": "transfers", "documents": [record] })).await?;
        Ok(())
    }
}

/// Something happens to the primary.
async fn fail_over(sim: &Sim, set: &Servers, random: &mut Random) {
    let Some(primary) = set.primary() else { return };
    match random.up_to(2) {
        0 => set.step_down(Duration::from_secs(10)),
        1 => {
            set.kill(primary);
            sim.sleep(OUTAGE).await;
            set.restart(primary);
        }
        _ => {
            set.partition(primary);
            sim.sleep(OUTAGE).await;
            set.heal(primary);
        }
    }
}

/// The documents of a collection at the primary.
fn found(set: &Servers, collection: &str) -> Vec<Document> {
    let find = rawdoc! { "find": collection, "batchSize": 1_000_000 };
    let reply = set.run_command(set.primary().unwrap(), "bank", find).unwrap();
    let reply = Document::try_from(&*reply).unwrap();
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|document| document.as_document().unwrap().clone()).collect()
}
