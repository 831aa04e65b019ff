//! Waiters that give up: many at once, and each at the worst moment, just after a connection was handed to it.

use std::pin::pin;

use super::take_all;
use crate::contender::{Contender, SIZE};
use crate::cpu::worked;
use crate::tasks::{poll_once, yield_now};

/// The number of waiters.
pub const WAITERS: u32 = 100_000;

/// The number of waiters that give up after a connection was handed to them.
const HAND_OFFS: u32 = 20_000;

/// How often others may run before tokio's cooperative scheduling would pretend that nothing is ready.
const BREATH: usize = 32;

/// The results.
#[derive(Clone, Copy, Debug)]
pub struct Cancelled {
    /// Nanoseconds of work to queue, each.
    pub queue: f64,
    /// Nanoseconds of work to be dropped in the order of the queue, each.
    pub drop_in_order: f64,
    /// Nanoseconds of work to be dropped in no order, each.
    pub drop_at_random: f64,
    /// The number of hand-offs lost with the waiter that gave up.
    pub lost: u32,
}

pub(super) async fn drop_all<P: Contender>(pool: P) -> Cancelled {
    let guards = take_all(&pool).await;
    let (queue, drop_in_order) = queue_and_drop(&pool, |_| {}).await;
    let (_, drop_at_random) = queue_and_drop(&pool, shuffle).await;
    drop(guards);
    // None of the waiters that gave up took a connection with it.
    let lost = hand_off(&pool, take_all(&pool).await).await;
    Cancelled { queue, drop_in_order, drop_at_random, lost }
}

/// Nanoseconds of work for each.
async fn queue_and_drop<P: Contender>(pool: &P, arrange: impl FnOnce(&mut [usize])) -> (f64, f64) {
    let each = f64::from(WAITERS);
    let mut order: Vec<usize> = (0..WAITERS as usize).collect();
    arrange(&mut order);
    let mut waiters: Vec<_> = order.iter().map(|_| Some(Box::pin(pool.check_out()))).collect();
    let start = worked();
    for batch in waiters.chunks_mut(BREATH) {
        for waiter in batch.iter_mut().flatten() {
            assert!(poll_once(waiter.as_mut()).is_none(), "there is no connection left");
        }
        yield_now().await;
    }
    let queued = worked();
    for number in order {
        drop(waiters[number].take());
    }
    ((queued - start).as_secs_f64() * 1e9 / each, (worked() - queued).as_secs_f64() * 1e9 / each)
}

/// The number of hand-offs that are lost with the waiter that gives up.
async fn hand_off<P: Contender>(pool: &P, mut guards: Vec<P::Guard>) -> u32 {
    assert_eq!(guards.len(), SIZE);
    for number in 0..HAND_OFFS {
        {
            let mut waiter = pin!(pool.check_out());
            assert!(poll_once(waiter.as_mut()).is_none(), "there is no connection left");
            drop(guards.pop());
        }
        yield_now().await;
        match poll_once(pin!(pool.check_out())) {
            Some(guard) => guards.push(guard.unwrap()),
            // The rest would be the same.
            None => return HAND_OFFS - number,
        }
        yield_now().await;
    }
    0
}

/// By one of Marsaglia's generators, the same numbers every time.
fn shuffle(order: &mut [usize]) {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for last in (1..order.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(last, usize::try_from(state >> 33).unwrap() % (last + 1));
    }
}
