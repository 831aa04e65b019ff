//! Operations of a client of a replica set: through failovers no caller sees an error, and every write that was
//! acknowledged is there exactly once. The oracle knows only what callers were told, and what a member says afterwards.
//!
//! `CMAP_SIM_SEEDS` says under how many seeds (20 without it), `CMAP_SIM_SEED` names a single one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a test is told by its name and fails by panicking"
)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_sim::bson::{Document, doc, rawdoc};
use cmap_sim::core::random::Random;
use cmap_sim::core::topology::ServerSelector::Writable;
use cmap_sim::{Client, Servers, Sim, for_seeds};

const TASKS: usize = 20;
const FAILOVERS: usize = 6;

/// The longest outage of a member.
const OUTAGE: Duration = Duration::from_secs(2);

/// How long the set is left alone after each failover.
const PAUSE: Duration = Duration::from_secs(2);

const OPTIONS: &str = "heartbeatFrequencyMS=500&connectTimeoutMS=500&timeoutMS=30000&w=majority";

/// What the tasks of a run were told.
#[derive(Default)]
struct Told {
    acknowledged: [AtomicUsize; TASKS],
    errors: Mutex<Vec<String>>,
    is_over: AtomicBool,
    running: AtomicUsize,
}

fn set(sim: &Sim) -> Servers {
    sim.replica_set("rs", &["a.example", "b.example", "c.example"])
}

fn seeds() -> u64 {
    std::env::var("CMAP_SIM_SEEDS").map_or(20, |seeds| seeds.parse().unwrap())
}

#[test]
fn every_acknowledged_write_is_there_exactly_once_after_failovers() {
    for_seeds(0..seeds(), |seed| {
        let sim = Sim::new(seed);
        let set = set(&sim);
        let told = Arc::new(Told::default());
        let mut random = Random::new(seed);
        sim.run(async {
            let client = Client::connect(&set.uri(OPTIONS)).await.unwrap();
            for task in 0..TASKS {
                told.running.fetch_add(1, Ordering::SeqCst);
                sim.spawn(write(client.clone(), task, sim.runtime().clone(), Arc::clone(&told)));
            }
            for _ in 0..FAILOVERS {
                fail_over(&sim, &set, &mut random).await;
                sim.sleep(PAUSE).await;
            }
            told.is_over.store(true, Ordering::SeqCst);
            while told.running.load(Ordering::SeqCst) > 0 {
                sim.sleep(Duration::from_millis(10)).await;
            }
            client.close(Duration::from_secs(20)).await.unwrap();
        });

        assert_eq!(*told.errors.lock().unwrap(), [""; 0]);
        for task in 0..TASKS {
            let acknowledged = told.acknowledged[task].load(Ordering::SeqCst);
            assert!(acknowledged > 10, "task {task} wrote {acknowledged} times");
            assert_eq!(counted(&set, task), i64::try_from(acknowledged).unwrap(), "the counter of task {task}");
            assert_eq!(inserted(&set, task), acknowledged, "the documents of task {task}");
        }
    });
}

/// Counts up, and inserts a document that nothing but the transaction number keeps from being inserted twice.
async fn write(client: Client, task: usize, runtime: cmap_sim::SimRuntime, told: Arc<Told>) {
    let task_number = i64::try_from(task).unwrap();
    while !told.is_over.load(Ordering::SeqCst) {
        let count = rawdoc! {
            "update": "counters",
            "updates": [{ "q": { "_id": task_number }, "u": { "$inc": { "n": 1_i64 } }, "upsert": true }],
        };
        let insert = rawdoc! { "insert": "log", "documents": [{ "task": task_number }] };
        for command in [count, insert] {
            if let Err(error) = client.run(Writable, ("db", command)).await {
                told.errors.lock().unwrap().push(format!("after {:?}: {error}", runtime.elapsed()));
            }
        }
        told.acknowledged[task].fetch_add(1, Ordering::SeqCst);
        runtime.sleep(Duration::from_millis(50)).await;
    }
    told.running.fetch_sub(1, Ordering::SeqCst);
}

/// Something happens to the primary, or to all members one after the other.
async fn fail_over(sim: &Sim, set: &Servers, random: &mut Random) {
    let Some(primary) = set.primary() else { return };
    match random.up_to(3) {
        0 => set.step_down(Duration::from_secs(10)),
        1 => {
            set.kill(primary);
            sim.sleep(OUTAGE).await;
            set.restart(primary);
        }
        2 => {
            set.partition(primary);
            sim.sleep(OUTAGE).await;
            set.heal(primary);
        }
        _ => {
            for (member, _) in set.members() {
                set.kill(member);
                sim.sleep(Duration::from_millis(300)).await;
                set.restart(member);
                sim.sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

fn counted(set: &Servers, task: usize) -> i64 {
    let task = i64::try_from(task).unwrap();
    let found = ask(set, &doc! { "find": "counters", "filter": { "_id": task } });
    found.first().map_or(0, |counter| counter.get_i64("n").unwrap())
}

fn inserted(set: &Servers, task: usize) -> usize {
    let task = i64::try_from(task).unwrap();
    ask(set, &doc! { "find": "log", "filter": { "task": task }, "batchSize": 100_000 }).len()
}

/// What the primary has.
fn ask(set: &Servers, find: &Document) -> Vec<Document> {
    let command = cmap_sim::bson::serialize_to_raw_document_buf(find).unwrap();
    let reply = set.run_command(set.primary().unwrap(), "db", command).unwrap();
    let reply = Document::try_from(&*reply).unwrap();
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|document| document.as_document().unwrap().clone()).collect()
}
