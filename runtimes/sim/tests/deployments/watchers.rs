//! Watchers of a replica set through failovers: each sees every change exactly once and in one order, or is told that the history is gone.
//!
//! `CMAP_SIM_SEEDS` says under how many seeds or which, `CMAP_SIM_SEED` names a single one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_sim::bson::{RawDocument, RawDocumentBuf, rawdoc};
use cmap_sim::cmap_core::address::ServerAddress;
use cmap_sim::cmap_core::options::{ClientOptions, ReadMode, ReadPreference};
use cmap_sim::cmap_core::random::Random;
use cmap_sim::cmap_core::server::{CommandEvent, ServerType};
use cmap_sim::{
    Client, CommandErrorKind, Cursor, Event, Notice, OperationError, OperationErrorKind, Servers, Sim, SimRuntime,
    Subscription, campaign, for_seeds,
};

use super::cut::{within, within_polls};
use super::operations::{OPTIONS, PAUSE, fail_over, set};

const WRITERS: i32 = 3;

/// How long a writer rests after each write.
const REST: Duration = Duration::from_millis(150);

/// The longest time from the last write until all watchers have seen it.
const CATCHING_UP: Duration = Duration::from_secs(60);

/// The last change.
const LAST: (i32, i32) = (-1, 0);

/// How a watcher reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    /// Change by change.
    Patient,
    /// Dropping steps half-way.
    Hasty,
    /// Asking for what is there.
    Asking,
}

/// What a watcher has seen: who wrote, and which of the writer's documents.
#[derive(Default)]
struct Seen {
    changes: Mutex<Vec<(i32, i32)>>,
    error: Mutex<Option<OperationError>>,
    is_done: AtomicBool,
}

#[derive(Default)]
struct Writing {
    is_over: AtomicBool,
    running: AtomicUsize,
    errors: Mutex<Vec<String>>,
}

#[test]
fn watchers_see_every_change_once_and_in_order_through_three_failovers() {
    campaign(10, |seed| through_failovers(seed, 3));
}

#[test]
#[ignore = "full: 200 failovers under each seed"]
fn watchers_see_every_change_once_and_in_order_through_two_hundred_failovers() {
    campaign(20, |seed| through_failovers(seed, 200));
}

fn through_failovers(seed: u64, failovers: usize) {
    let sim = Sim::new(seed);
    let set = set(&sim);
    let mut random = Random::new(!seed);
    let writing = Arc::new(Writing::default());
    let seen = sim.run(async {
        let client = Client::connect(&set.uri(OPTIONS)).await.unwrap();
        let seen = start_watchers(&sim, &client, seed).await;
        for writer in 0..WRITERS {
            writing.running.fetch_add(1, Ordering::SeqCst);
            sim.spawn(write(client.clone(), writer, sim.runtime().clone(), Arc::clone(&writing)));
        }
        for _ in 0..failovers {
            fail_over(&sim, &set, &mut random).await;
            sim.sleep(PAUSE).await;
        }
        writing.is_over.store(true, Ordering::SeqCst);
        while writing.running.load(Ordering::SeqCst) > 0 {
            sim.sleep(Duration::from_millis(10)).await;
        }
        insert(&client, LAST).await.unwrap();
        let end = sim.elapsed() + CATCHING_UP;
        while sim.elapsed() < end && seen.iter().any(|seen| !seen.is_done.load(Ordering::SeqCst)) {
            sim.sleep(Duration::from_millis(100)).await;
        }
        client.close(Duration::from_secs(20)).await.unwrap();
        seen
    });

    assert_eq!(*writing.errors.lock().unwrap(), [""; 0]);
    let content = written(&set);
    for (watcher, seen) in seen.iter().enumerate() {
        let changes = seen.changes.lock().unwrap();
        if let Some(error) = &*seen.error.lock().unwrap() {
            assert!(is_history_lost(error), "watcher {watcher}: {error}");
        } else {
            assert_eq!(changes.len(), content, "watcher {watcher} has not seen everything: {:?}", changes.last());
        }
        for writer in 0..WRITERS {
            let of_writer: Vec<_> = changes.iter().filter(|(by, _)| *by == writer).map(|(_, number)| *number).collect();
            assert!(of_writer.iter().copied().eq((0..).take(of_writer.len())), "watcher {watcher}: {of_writer:?}");
        }
    }
    let orders: Vec<_> = seen.iter().map(|seen| seen.changes.lock().unwrap().clone()).collect();
    for pair in orders.windows(2) {
        let common = pair[0].len().min(pair[1].len());
        assert_eq!(pair[0][..common], pair[1][..common], "two watchers have seen two orders");
    }
}

async fn start_watchers(sim: &Sim, client: &Client, seed: u64) -> Vec<Arc<Seen>> {
    let mut all = Vec::new();
    for (number, habit) in (0..).zip([Habit::Patient, Habit::Hasty, Habit::Asking]) {
        let operation = client.operation(("db", watch()));
        let mode = if (seed + number).is_multiple_of(2) { ReadMode::Primary } else { ReadMode::SecondaryPreferred };
        let stream = operation.on(ReadPreference::new(mode)).watch().await.unwrap();
        let seen = Arc::new(Seen::default());
        sim.spawn(read(stream, habit, Random::new(seed ^ (number << 32)), Arc::clone(&seen)));
        all.push(seen);
    }
    all
}

fn watch() -> RawDocumentBuf {
    rawdoc! { "aggregate": "log", "pipeline": [{ "$changeStream": {} }] }
}

/// Reads up to the last change, or the end of the stream.
async fn read(mut stream: Cursor, habit: Habit, mut chance: Random, seen: Arc<Seen>) {
    loop {
        let next = match habit {
            Habit::Patient => Some(step(&mut stream).await),
            Habit::Asking => Some(stream.next_if_any().await.map(|change| change.map(by))),
            Habit::Hasty if chance.up_to(1) == 0 => within_polls(chance.up_to(3), step(&mut stream)).await,
            Habit::Hasty => within(Duration::from_millis(chance.up_to(300)), step(&mut stream)).await,
        };
        match next {
            Some(Ok(Some(LAST))) => {
                seen.changes.lock().unwrap().push(LAST);
                break;
            }
            Some(Ok(Some(change))) => seen.changes.lock().unwrap().push(change),
            Some(Err(error)) if stream.is_exhausted() => {
                *seen.error.lock().unwrap() = Some(error);
                break;
            }
            Some(Err(_) | Ok(None)) | None => {}
        }
    }
    seen.is_done.store(true, Ordering::SeqCst);
}

async fn step(stream: &mut Cursor) -> Result<Option<(i32, i32)>, OperationError> {
    Ok(stream.try_next().await?.map(by))
}

/// Who wrote the document of a change, and which it is.
fn by(change: &RawDocument) -> (i32, i32) {
    let id = change.get_document("documentKey").unwrap().get_document("_id").unwrap();
    (id.get_i32("writer").unwrap(), id.get_i32("number").unwrap())
}

/// Inserts one document after the other.
async fn write(client: Client, writer: i32, runtime: SimRuntime, writing: Arc<Writing>) {
    let mut number = 0;
    while !writing.is_over.load(Ordering::SeqCst) {
        match insert(&client, (writer, number)).await {
            Ok(()) => number += 1,
            Err(error) => writing.errors.lock().unwrap().push(format!("after {:?}: {error}", runtime.elapsed())),
        }
        runtime.sleep(REST).await;
    }
    writing.running.fetch_sub(1, Ordering::SeqCst);
}

async fn insert(client: &Client, (writer, number): (i32, i32)) -> Result<(), OperationError> {
    let document = rawdoc! { "_id": { "writer": writer, "number": number } };
    client.operation(("db", rawdoc! { "insert": "log", "documents": [document] })).run().await.map(drop)
}

/// How many documents the primary has.
fn written(set: &Servers) -> usize {
    let reply = set.run_command(set.primary().unwrap(), "db", rawdoc! { "count": "log" }).unwrap();
    usize::try_from(reply.get_i32("n").unwrap()).unwrap()
}

fn is_history_lost(error: &OperationError) -> bool {
    let OperationErrorKind::Command(error) = &error.kind else { return false };
    matches!(&error.kind, CommandErrorKind::Server(refusal) if refusal.code == Some(286))
}

#[test]
fn prose_6_a_stream_resumes_where_its_read_preference_allows() {
    for_seeds(0..20, |seed| {
        let sim = Sim::new(seed);
        let set = set(&sim);
        sim.run(async {
            let uri = set.uri("heartbeatFrequencyMS=500&connectTimeoutMS=500");
            let options = ClientOptions::parse(&uri).unwrap().0;
            let client = Client::builder(options).observe_commands(true).build().await.unwrap();
            let mut events = client.subscribe(10_000);
            let secondary = ReadPreference::new(ReadMode::Secondary);
            let mut stream = client.operation(("db", watch())).on(secondary).watch().await.unwrap();
            let first = aggregate_at(&mut events).unwrap();

            let member = set.members().into_iter().find(|(_, address)| *address == first.to_string()).unwrap().0;
            set.kill(member);
            insert(&client, (0, 0)).await.unwrap();

            assert_eq!(step(&mut stream).await.unwrap(), Some((0, 0)));
            let second = aggregate_at(&mut events).unwrap();
            assert_ne!(second, first);
            let description = client.description();
            assert_eq!(description.server(&second).unwrap().server_type, ServerType::RsSecondary);
        });
    });
}

#[test]
fn a_stream_does_not_wait_for_a_server_that_is_gone_x_160() {
    for_seeds(0..20, |seed| {
        let sim = Sim::new(seed);
        let set = set(&sim);
        sim.run(async {
            let uri = set.uri("timeoutMS=60000&heartbeatFrequencyMS=500&connectTimeoutMS=500");
            let client = Client::connect(&uri).await.unwrap();
            let mut stream = client.operation(("db", watch())).watch().await.unwrap();
            let primary = set.primary().unwrap();

            set.kill(primary);
            insert(&client, (0, 0)).await.unwrap();
            let begun = sim.elapsed();

            assert_eq!(step(&mut stream).await.unwrap(), Some((0, 0)));
            assert!(sim.elapsed() - begun < Duration::from_secs(2), "{:?}", sim.elapsed() - begun);
        });
    });
}

/// Where the last aggregate was sent since the events were last read.
fn aggregate_at(events: &mut Subscription) -> Option<ServerAddress> {
    let mut last = None;
    while let Some(notice) = events.try_next() {
        let Notice::Event { event: Event::Command(event), server } = notice else { continue };
        if let CommandEvent::CommandStarted { document, .. } = &*event
            && document.get("aggregate").is_ok_and(|field| field.is_some())
        {
            last = Some((*server).clone());
        }
    }
    last
}
