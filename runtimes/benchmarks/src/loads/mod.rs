//! The loads, a file each, and a contender under all of them as one of a list.

mod cancellation;
mod contention;
mod pair;
mod timeouts;

use std::marker::PhantomData;

use cmap_runtime::Runtime as _;

pub use self::cancellation::{Cancelled, WAITERS as CANCELLED};
pub use self::contention::OPERATIONS;
pub use self::pair::{hand_off, pair};
pub use self::timeouts::{LIMIT, WAITERS as TIMED};
use crate::allocations::{Allocations, Count};
use crate::contender::Contender;
use crate::figures::Quantiles;
use crate::tasks::in_a_task;
use crate::{Harness, Threads};

/// A contender under all loads, each in tasks of the runtime.
pub trait Loads {
    /// Nanoseconds of work for a check-out and check-in by a single task.
    fn pair(&self) -> f64;

    /// The average allocations of a check-out and check-in.
    fn allocations(&self, count: Count) -> Allocations;

    /// Check-outs by this many tasks, which let others run while they hold a connection: how many in a second, which
    /// for a single thread is a second of work.
    fn throughput(&self, tasks: usize, threads: Threads) -> f64;

    /// How long each of them waits.
    fn waits(&self, tasks: usize) -> Quantiles;

    /// Many are queued and dropped.
    fn cancellation(&self) -> Cancelled;

    /// How late the waiters that wait too long are told. Their pool's time-out is [`LIMIT`].
    fn lateness(&self) -> Quantiles;
}

/// A contender on the runtime of a harness, which has to last from one load to the next.
pub(crate) struct On<H, P> {
    pool: P,
    harness: PhantomData<H>,
}

impl<H: Harness, P: Contender> On<H, P> {
    pub(crate) fn new(pool: P) -> Self {
        const { assert!(!H::ENDS) }
        Self { pool, harness: PhantomData }
    }

    /// Runs `load` as a task.
    fn run<T: Send + 'static>(load: impl Future<Output = T> + Send + 'static) -> T {
        H::block_on(async { in_a_task(&H::Runtime::current().unwrap(), load).await })
    }
}

impl<H: Harness, P: Contender> Loads for On<H, P> {
    fn pair(&self) -> f64 {
        Self::run(pair::time(self.pool.clone()))
    }

    fn allocations(&self, count: Count) -> Allocations {
        Self::run(pair::allocations(self.pool.clone(), count))
    }

    fn throughput(&self, tasks: usize, threads: Threads) -> f64 {
        H::block_on(async { contention::throughput(&H::Runtime::current().unwrap(), &self.pool, tasks, threads).await })
    }

    fn waits(&self, tasks: usize) -> Quantiles {
        H::block_on(async { contention::waits(&H::Runtime::current().unwrap(), &self.pool, tasks).await })
    }

    fn cancellation(&self) -> Cancelled {
        Self::run(cancellation::drop_all(self.pool.clone()))
    }

    fn lateness(&self) -> Quantiles {
        H::block_on(async { timeouts::lateness(&H::Runtime::current().unwrap(), &self.pool).await })
    }
}

/// All connections of `pool`.
pub async fn take_all<P: Contender>(pool: &P) -> Vec<P::Guard> {
    let mut guards = Vec::new();
    for _ in 0..crate::contender::SIZE {
        guards.push(pool.check_out().await.unwrap());
    }
    guards
}
