//! Many tasks on few connections; each lets others run while it holds one.

use cmap_runtime::Runtime;

use super::take_all;
use crate::Threads;
use crate::contender::Contender;
use crate::cpu::worked;
use crate::figures::Quantiles;
use crate::tasks::{clock, join, yield_now};

/// Check-outs by all tasks together.
pub const OPERATIONS: usize = 200_000;

/// Check-outs a second.
pub(super) async fn throughput<R: Runtime, P: Contender>(runtime: &R, pool: &P, tasks: usize, threads: Threads) -> f64 {
    drop(take_all(pool).await);
    let (start, worked_before) = (clock(), worked());
    let each = OPERATIONS / tasks;
    let work = |pool: P| async move {
        for _ in 0..each {
            let guard = pool.check_out().await.unwrap();
            yield_now().await;
            drop(guard);
        }
    };
    join(runtime, (0..tasks).map(|_| work(pool.clone()))).await;
    let time = match threads {
        Threads::One => worked() - worked_before,
        Threads::Many => start.elapsed(),
    };
    (each * tasks) as f64 / time.as_secs_f64()
}

/// How long the check-outs wait.
pub(super) async fn waits<R: Runtime, P: Contender>(runtime: &R, pool: &P, tasks: usize) -> Quantiles {
    drop(take_all(pool).await);
    let each = OPERATIONS / tasks;
    let work = |pool: P| async move {
        let mut waits = Vec::with_capacity(each);
        for _ in 0..each {
            let asked = clock();
            let guard = pool.check_out().await.unwrap();
            waits.push(asked.elapsed());
            yield_now().await;
            drop(guard);
        }
        waits
    };
    let waits = join(runtime, (0..tasks).map(|_| work(pool.clone()))).await;
    Quantiles::of(waits.into_iter().flatten().collect())
}
