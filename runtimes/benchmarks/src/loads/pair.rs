//! One task, and always a connection for it: the cost of the pool itself.

use std::hint::black_box;
use std::pin::pin;

use super::take_all;
use crate::allocations::{Allocations, Count};
use crate::contender::Contender;
use crate::cpu::worked;
use crate::tasks::{poll_once, yield_now};

/// How often the time is divided.
const PAIRS: u32 = 100_000;

/// The number of pairs whose allocations are counted.
const COUNTED: u32 = 1_000;

/// A check-out, which need not wait, and a check-in.
pub fn pair<P: Contender>(pool: &P) {
    match poll_once(pin!(pool.check_out())) {
        Some(guard) => drop(black_box(guard.unwrap())),
        None => panic!("a connection is available"),
    }
}

/// A check-out, which waits until `guard` goes back, and takes over its connection.
pub fn hand_off<P: Contender>(pool: &P, guard: P::Guard) -> P::Guard {
    let mut waiter = pin!(pool.check_out());
    assert!(poll_once(waiter.as_mut()).is_none(), "there is no connection left");
    drop(guard);
    poll_once(waiter).unwrap().unwrap()
}

/// Nanoseconds of work for each.
pub(super) async fn time<P: Contender>(pool: P) -> f64 {
    drop(take_all(&pool).await);
    let start = worked();
    for _ in 0..PAIRS {
        drop(black_box(pool.check_out().await.unwrap()));
    }
    (worked() - start).as_secs_f64() * 1e9 / f64::from(PAIRS)
}

/// The allocations of each.
pub(super) async fn allocations<P: Contender>(pool: P, count: Count) -> Allocations {
    drop(take_all(&pool).await);
    let mut all = Allocations::default();
    for _ in 0..COUNTED {
        all += count(&mut || pair(&pool));
        // A pool that takes part in tokio's cooperative scheduling would say it is not ready.
        yield_now().await;
    }
    all / COUNTED
}
