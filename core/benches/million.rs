//! A million waiters: half of them cancelled at random, the others timed out. Prints how long each part took.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a benchmark fails by panicking")]

use std::time::{Duration, Instant as Clock};

use cmap_core::address::ServerAddress;
use cmap_core::options::PoolOptions;
use cmap_core::pool::{Action, Cancellation, CheckOutRequest, Output, Pool};
use cmap_core::random::Random;
use cmap_core::time::Instant;

const WAITERS: u64 = 1_000_000;

fn main() {
    let mut options = PoolOptions::default();
    options.max_pool_size = Some(1);
    options.wait_queue_timeout = Some(Duration::from_secs(60));
    let mut pool = Pool::<()>::new(ServerAddress::tcp("localhost", 27017), options, Instant::ORIGIN).unwrap();
    pool.observe(false);
    pool.ready(Instant::ORIGIN);

    let start = clock();
    let mut waiting: Vec<_> =
        (0..=WAITERS).map(|number| pool.check_out(Instant::from_nanos(number), CheckOutRequest::default()).0).collect();
    // The first waiter became the origin of a connection that never comes; it has no time limit.
    waiting.swap_remove(0);
    while pool.poll_output().is_some() {}
    let queued = clock();

    let mut random = Random::new(1);
    let now = Instant::from_millis(1000);
    for _ in 0..WAITERS / 2 {
        let chosen = usize::try_from(random.up_to(waiting.len() as u64 - 1)).unwrap();
        assert_eq!(pool.cancel_check_out(now, waiting.swap_remove(chosen)), Cancellation::Cancelled);
    }
    let cancelled = clock();

    let mut failed = 0;
    pool.handle_timeout(Instant::from_millis(61_000));
    while let Some(output) = pool.poll_output() {
        failed += u64::from(matches!(output, Output::Action(Action::Fail { .. })));
    }
    let timed_out = clock();

    assert_eq!(failed, WAITERS / 2);
    println!("queue {WAITERS}: {:?}", queued - start);
    println!("cancel half at random: {:?}", cancelled - queued);
    println!("time out the rest: {:?}", timed_out - cancelled);
    println!("together: {:?}", timed_out - start);
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn clock() -> Clock {
    Clock::now()
}
