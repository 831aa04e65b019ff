//! Operations of a client of a replica set: through failovers no caller sees an error, and every write that was
//! acknowledged is there exactly once. The oracle knows only what callers were told, and what a member says afterwards. An
//! overloaded server is asked a bounded number of times.
//!
//! `CMAP_SIM_SEEDS` says under how many seeds (20 without it) or which, `CMAP_SIM_SEED` names a single one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_sim::bson::{Document, doc, rawdoc};
use cmap_sim::cmap_core::options::{ClientOptions, ReadMode, ReadPreference};
use cmap_sim::cmap_core::random::Random;
use cmap_sim::cmap_core::server::CommandEvent;
use cmap_sim::cmap_core::topology::ServerSelector::Writable;
use cmap_sim::{Client, Event, PoolEvent, Server, Servers, Sim, campaign, for_seeds};

const TASKS: usize = 20;
const FAILOVERS: usize = 6;

/// The longest outage of a member.
const OUTAGE: Duration = Duration::from_secs(2);

/// How long a task rests after each write: every task is in the middle of something soon after each failover, and the server is
/// not most of what is simulated.
const REST: Duration = Duration::from_millis(200);

/// How long the set is left alone after each failover.
pub(super) const PAUSE: Duration = Duration::from_secs(2);

pub(super) const OPTIONS: &str = "heartbeatFrequencyMS=500&connectTimeoutMS=500&timeoutMS=30000&w=majority";

/// What the tasks of a run were told.
#[derive(Default)]
struct Told {
    acknowledged: [AtomicUsize; TASKS],
    errors: Mutex<Vec<String>>,
    is_over: AtomicBool,
    running: AtomicUsize,
}

pub(super) fn set(sim: &Sim) -> Servers {
    sim.replica_set("rs", &["a.example", "b.example", "c.example"])
}

#[test]
fn every_acknowledged_write_is_there_exactly_once_after_failovers() {
    campaign(20, |seed| {
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

/// What a second of load has met.
#[derive(Default)]
struct Load {
    done: AtomicUsize,
    refused: AtomicUsize,
    others: Mutex<Vec<String>>,
}

/// How long the server sheds load.
const OVERLOAD: Duration = Duration::from_secs(60);

/// How soon there is full throughput again.
const RECOVERY: Duration = Duration::from_secs(5);

#[test]
fn an_overloaded_server_is_spared_and_back_at_full_throughput_in_seconds_bp_8() {
    for_seeds(0..4, |seed| {
        let sim = Sim::new(seed);
        let server = sim.server("a.example");
        let (load, commands) = (Arc::new(Load::default()), Arc::new(AtomicUsize::new(0)));
        let clears = Arc::new(AtomicUsize::new(0));
        sim.run(async {
            let (seen, cleared) = (Arc::clone(&commands), Arc::clone(&clears));
            let options = ClientOptions::parse("mongodb://a.example/?timeoutMS=10000").unwrap().0;
            let client = Client::builder(options).observe_commands(true).on_event(move |_, event| match event {
                Event::Command(event) if matches!(**event, CommandEvent::CommandStarted { .. }) => {
                    seen.fetch_add(1, Ordering::SeqCst);
                }
                Event::Pool(PoolEvent::PoolCleared { .. }) => drop(cleared.fetch_add(1, Ordering::SeqCst)),
                Event::Pool(_) | Event::Server(_) | Event::Topology(_) | Event::Command(_) | Event::Lost(_) | _ => {}
            });
            let client = client.build().await.unwrap();
            for _ in 0..TASKS {
                sim.spawn(read(client.clone(), sim.runtime().clone(), Arc::clone(&load)));
            }
            let before = done_in(&sim, &load, Duration::from_secs(5)).await;

            set_fail_point(&server, true);
            commands.store(0, Ordering::SeqCst);
            sim.sleep(OVERLOAD).await;
            let (sent, refused) = (commands.load(Ordering::SeqCst), load.refused.load(Ordering::SeqCst));
            set_fail_point(&server, false);
            sim.sleep(RECOVERY).await;
            let after = done_in(&sim, &load, Duration::from_secs(5)).await;

            assert!(refused > TASKS, "{refused} operations were refused");
            // Those under way at either end of the overload have not been tried, or counted, to the end.
            assert!(sent <= 3 * (refused + TASKS), "{sent} commands for {refused} operations");
            assert!(sent + 3 * TASKS >= 3 * refused, "{sent} commands for {refused} operations");
            assert!(after * 100 >= before * 95, "{before} operations in five seconds before, {after} afterwards");
        });
        assert_eq!(*load.others.lock().unwrap(), [""; 0]);
        assert_eq!(clears.load(Ordering::SeqCst), 0, "pools were cleared");
    });
}

/// Reads again and again.
async fn read(client: Client, runtime: cmap_sim::SimRuntime, load: Arc<Load>) {
    loop {
        match client.operation(("db", rawdoc! { "find": "things" })).on(Writable).run().await {
            Ok(_) => drop(load.done.fetch_add(1, Ordering::SeqCst)),
            Err(error) if error.has_label("SystemOverloadedError") => {
                assert_eq!(error.retries, 2, "{error}");
                load.refused.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => load.others.lock().unwrap().push(error.to_string()),
        }
        runtime.sleep(Duration::from_millis(10)).await;
    }
}

async fn done_in(sim: &Sim, load: &Load, time: Duration) -> usize {
    let before = load.done.load(Ordering::SeqCst);
    sim.sleep(time).await;
    load.done.load(Ordering::SeqCst) - before
}

/// Whether the server refuses what it is asked to find, as one does that sheds load.
fn set_fail_point(server: &Server, is_on: bool) {
    let data = rawdoc! {
        "failCommands": ["find"], "errorCode": 462, "errorLabels": ["SystemOverloadedError", "RetryableError"],
    };
    let mode = if is_on { "alwaysOn" } else { "off" };
    server.run_command("admin", rawdoc! { "configureFailPoint": "failCommand", "mode": mode, "data": data });
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
            if let Err(error) = client.operation(("db", command)).on(Writable).run().await {
                told.errors.lock().unwrap().push(format!("after {:?}: {error}", runtime.elapsed()));
            }
        }
        told.acknowledged[task].fetch_add(1, Ordering::SeqCst);
        runtime.sleep(REST).await;
    }
    told.running.fetch_sub(1, Ordering::SeqCst);
}

/// Something happens to the primary, or to all members one after the other.
pub(super) async fn fail_over(sim: &Sim, set: &Servers, random: &mut Random) {
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

#[test]
fn a_secondary_writes_the_result_of_an_aggregation_that_asks_for_one_sel_38() {
    let sim = Sim::new(1);
    let set = set(&sim);

    sim.run(async {
        let client = Client::connect(&set.uri(OPTIONS)).await.unwrap();
        let secondary = ReadPreference::new(ReadMode::Secondary);
        let out = rawdoc! { "aggregate": "log", "pipeline": [{ "$out": "copy" }], "cursor": {} };

        let error = client.operation(("db", out)).on(secondary).run().await.unwrap_err();

        // The simulated one says that it cannot.
        assert!(error.to_string().contains("an aggregation that writes, on a secondary"), "{error}");
    });
}
