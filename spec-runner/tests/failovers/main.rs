//! Clients of a replica set through failovers, on each runtime and over real sockets: no check-out ends in an error while its
//! time lasts (`check_outs.rs`), and no write; those that were acknowledged are there exactly once (`writes.rs`). The same goes on
//! in virtual time in `runtimes/sim/tests/deployments/failover.rs` and `operations.rs`.
//!
//! `CMAP_FAILOVERS` says how many there are on each runtime; without it, 9.

#![allow(clippy::unwrap_used, reason = "a test stops where something is not as it should be")]

mod check_outs;
mod links;
#[path = "../../../runtimes/cli/tests/members/mod.rs"]
mod members;
mod writes;

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cmap_runtime::bson::rawdoc;
use cmap_runtime::{Client, Runtime};

use self::links::Linked;
use self::members::{Members, order, tell};

const TASKS: usize = 200;

/// How long a member that was killed is away.
const OUTAGE: Duration = Duration::from_secs(1);

/// How long the client's link to the primary is cut.
const CUT: Duration = Duration::from_secs(2);

/// The longest time until every task is served again, from the moment at which nothing hinders that any more: the link or the members
/// are back, or the primary has stepped down.
const RECOVERY: Duration = Duration::from_secs(30);

/// What the tasks of a client have met.
#[derive(Default)]
struct Tally {
    /// How often a task got what it wanted.
    served: AtomicUsize,
    /// Errors that no task may meet.
    errors: Mutex<Vec<String>>,
    is_over: AtomicBool,
    running: AtomicUsize,
}

/// Lets every task do its `work` again and again while the set fails over.
async fn through_failovers<R, F>(
    members: &Members,
    client: &Client<Linked<R>>,
    tally: &Arc<Tally>,
    work: impl Fn(Client<Linked<R>>, usize, Arc<Tally>) -> F,
) where
    R: Runtime,
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = R::current().unwrap();
    for task in 0..TASKS {
        tally.running.fetch_add(1, Ordering::SeqCst);
        runtime.spawn(work(client.clone(), task, Arc::clone(tally)));
    }
    served_again(&runtime, tally).await;

    let mut recoveries = Vec::new();
    let failovers = std::env::var("CMAP_FAILOVERS").map_or(9, |failovers| failovers.parse().unwrap());
    for round in 0..failovers {
        fail_over::<R>(members, &runtime, round).await;
        let start = runtime.now();
        served_again(&runtime, tally).await;
        recoveries.push(runtime.now() - start);
        runtime.sleep_until(runtime.now() + Duration::from_secs(1)).await;
    }
    tally.is_over.store(true, Ordering::SeqCst);
    while tally.running.load(Ordering::SeqCst) > 0 {
        runtime.sleep_until(runtime.now() + Duration::from_millis(5)).await;
    }

    let served = tally.served.load(Ordering::SeqCst);
    println!("{}: {served} times served; recoveries: {recoveries:?}", R::NAME);
    assert_eq!(*tally.errors.lock().unwrap(), [""; 0]);
    assert!(recoveries.iter().all(|recovery| *recovery <= RECOVERY), "{recoveries:?}");
}

/// The primary steps down, or is killed and started again, or the client's link to it is cut, or all members are killed and
/// started again, one after the other.
async fn fail_over<R: Runtime>(members: &Members, runtime: &R, round: usize) {
    let (primary, other) = members.primary::<R>().await;
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

/// Waits until the tasks were served as often as there are tasks.
async fn served_again<R: Runtime>(runtime: &R, tally: &Tally) {
    let served = tally.served.load(Ordering::SeqCst);
    while tally.served.load(Ordering::SeqCst) < served + TASKS {
        runtime.sleep_until(runtime.now() + Duration::from_millis(5)).await;
    }
}

/// A pause of a task.
async fn pause<R: Runtime>(runtime: &R, pause: Duration) {
    runtime.sleep_until(runtime.now() + pause).await;
}

/// Runs `future` with tokio's multi-thread runtime around it.
fn on_tokio(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(future);
}
