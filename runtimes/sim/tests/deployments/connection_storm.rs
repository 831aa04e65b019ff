//! A storm of connections: 2,000 tasks want a server that takes 20 new connections a second and closes all others, for a
//! minute. The table that this prints stands in `docs/figures.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cmap_sim::bson::rawdoc;
use cmap_sim::cmap_core::options::{ClientOptions, QueueDepth};
use cmap_sim::cmap_core::pool::CheckOutErrorKind;
use cmap_sim::{CheckOutError, Client, Server, Sim, SimRuntime};

const TASKS: u64 = 2000;
/// More than the server takes in the storm.
const MAX_POOL_SIZE: u32 = 1500;
const RATE: u32 = 20;
const STORM: Duration = Duration::from_secs(60);
/// The time after which the throughput has to be full again.
const RECOVERY: Duration = Duration::from_secs(5);
/// How long a task keeps its connection.
const WORK: Duration = Duration::from_secs(1);
/// How long a task stays away whose check-out failed.
const PAUSE: Duration = Duration::from_secs(1);
/// What all connections of a full pool do in a second: a little less, for the round trips.
const FULL: u64 = 1400;

/// What became of the check-outs.
#[derive(Default)]
struct Load {
    done: AtomicU64,
    failed: AtomicU64,
    /// Those of the failed ones that a full wait queue refused.
    refused: AtomicU64,
}

/// What a client did in the storm, and after it.
struct Outcome {
    /// Connections that it tried to establish.
    attempts: u64,
    established: u64,
    clears: u64,
    failed: u64,
    refused: u64,
    /// Operations a second, in the storm and once it was over for [`RECOVERY`].
    throughput: u64,
    afterwards: u64,
}

#[test]
fn a_storm_clears_no_pool_and_is_over_in_seconds() {
    let rows = [
        ("without backoff", storm(|options| options.pool.backoff = Some(false))),
        ("backoff (default)", storm(|_| {})),
        (
            "backoff, 100 connections a second",
            storm(|options| options.pool.max_new_connections_per_second = Some(5 * RATE)),
        ),
        (
            "backoff, a wait queue of 500",
            storm(|options| options.pool.max_wait_queue_depth = Some(QueueDepth::Waiters(500))),
        ),
        ("backoff, 20 connections a second", storm(|options| options.pool.max_new_connections_per_second = Some(RATE))),
    ];
    println!("| | attempts | established | failed check-outs | clears | op/s in the storm | 5 s later |");
    println!("|---|---|---|---|---|---|---|");
    for (name, it) in &rows {
        let Outcome { attempts, established, clears, failed, throughput, afterwards, .. } = it;
        println!("| {name} | {attempts} | {established} | {failed} | {clears} | {throughput} | {afterwards} |");
    }

    let [without, by_default, wide, bounded, narrow] = rows.map(|(_, outcome)| outcome);
    for it in [&by_default, &wide, &bounded, &narrow] {
        assert_eq!(it.clears, 0, "pools were cleared");
        assert!(it.attempts <= 3 * u64::from(RATE) * STORM.as_secs(), "{} attempts", it.attempts);
    }
    assert!(without.attempts > 4 * by_default.attempts, "backoff is of no use");
    for it in [&by_default, &wide, &bounded] {
        assert!(it.afterwards >= FULL, "{} operations a second after the storm", it.afterwards);
    }
    // A wait queue that is full refuses check-outs, and none that waits in it is late.
    assert!(bounded.refused > 0 && bounded.failed == bounded.refused, "{} of {}", bounded.refused, bounded.failed);
    // A client that keeps to the server's rate by itself has next to no connection refused, and goes on so afterwards.
    assert!(narrow.attempts <= narrow.established + u64::from(RATE), "{} attempts", narrow.attempts);
    assert!(narrow.afterwards >= narrow.throughput + 5 * u64::from(RATE), "{} operations a second", narrow.afterwards);
}

fn storm(set: impl FnOnce(&mut ClientOptions)) -> Outcome {
    let sim = Sim::new(1);
    let server = sim.server("a.example");
    let mut options = ClientOptions::parse("mongodb://a.example/?timeoutMS=20000").unwrap().0;
    options.pool.max_pool_size = Some(MAX_POOL_SIZE);
    set(&mut options);
    sim.run(async {
        let client = Client::with_options(options).await.unwrap();
        drop(client.check_out().await.unwrap());
        // The monitor has its connections.
        sim.sleep(Duration::from_secs(1)).await;
        set_limiter(&server, true);
        let before = client.stats();
        let load = Arc::new(Load::default());
        for task in 0..TASKS {
            sim.spawn(work(task, client.clone(), sim.runtime().clone(), Arc::clone(&load)));
        }
        sim.sleep(STORM - Duration::from_secs(5)).await;
        let throughput = done_in_a_second(&sim, &load).await;
        sim.sleep(Duration::from_secs(4)).await;
        let after = client.stats();
        let failed = load.failed.load(Ordering::SeqCst);
        let refused = load.refused.load(Ordering::SeqCst);
        set_limiter(&server, false);
        sim.sleep(RECOVERY).await;
        let afterwards = done_in_a_second(&sim, &load).await;
        Outcome {
            attempts: after.created - before.created,
            established: after.established - before.established,
            clears: client.stats().cleared - before.cleared,
            failed,
            refused,
            throughput,
            afterwards,
        }
    })
}

/// Keeps a connection for a while, again and again.
async fn work(task: u64, client: Client, runtime: SimRuntime, load: Arc<Load>) {
    // Not all at once.
    runtime.sleep(Duration::from_millis(task)).await;
    loop {
        let ended = match client.check_out().await {
            Ok(mut connection) => {
                let answered = connection.run_command("admin", rawdoc! { "ping": 1 }).await.is_ok();
                runtime.sleep(WORK).await;
                answered
            }
            Err(error) => {
                if is_refused(&error) {
                    load.refused.fetch_add(1, Ordering::SeqCst);
                }
                false
            }
        };
        let count = if ended { &load.done } else { &load.failed };
        count.fetch_add(1, Ordering::SeqCst);
        if !ended {
            runtime.sleep(PAUSE).await;
        }
        runtime.sleep(Duration::from_millis(100)).await;
    }
}

/// Whether too many wait already.
fn is_refused(error: &CheckOutError) -> bool {
    let CheckOutError::Pool(error) = error else { return false };
    matches!(error.kind, CheckOutErrorKind::WaitQueueFull { .. }) && error.has_label("SystemOverloadedError")
}

async fn done_in_a_second(sim: &Sim, load: &Load) -> u64 {
    let before = load.done.load(Ordering::SeqCst);
    sim.sleep(Duration::from_secs(1)).await;
    load.done.load(Ordering::SeqCst) - before
}

/// The server takes few new connections, and closes the others before their first message.
fn set_limiter(server: &Server, is_on: bool) {
    let rate = i32::try_from(RATE).unwrap();
    let replies = server.run_command(
        "admin",
        rawdoc! {
            "setParameter": 1,
            "ingressConnectionEstablishmentRateLimiterEnabled": is_on,
            "ingressConnectionEstablishmentRatePerSec": rate,
            "ingressConnectionEstablishmentBurstCapacitySecs": 1.0,
            "ingressConnectionEstablishmentMaxQueueDepth": 0,
        },
    );
    assert!(replies.iter().all(|reply| reply.get_f64("ok").is_ok_and(|ok| ok == 1.0)), "{replies:?}");
}
