//! The pools beside ours that belong to no runtime. Their connections are numbers, and always good; ours are sockets.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use asyncband::pool::{ManageObject, ObjectStatus, bounded};
use cmap_runtime::Runtime;
use deadpool::managed::{self, Metrics, RecycleResult};

use crate::contender::{Contender, SIZE};
use crate::tasks::within;

/// deadpool's pool.
pub type Deadpool = managed::Pool<Numbers>;

/// asyncband's pool.
pub type Asyncband = Arc<bounded::Pool<Numbers>>;

/// asyncband's pool with the runtime's timer, because it has no time-outs of its own.
#[derive(Clone)]
pub struct TimedAsyncband<R> {
    pub pool: Asyncband,
    pub runtime: R,
    pub limit: Duration,
}

/// Makes connections that are numbers.
#[derive(Clone, Copy, Debug)]
pub struct Numbers;

/// deadpool's pool, without a time-out.
pub fn deadpool() -> Deadpool {
    Deadpool::builder(Numbers).max_size(SIZE).build().unwrap()
}

/// deadpool's pool, with a time-out on the timer of `runtime`.
pub fn deadpool_within(limit: Duration, runtime: deadpool::Runtime) -> Deadpool {
    Deadpool::builder(Numbers).max_size(SIZE).wait_timeout(Some(limit)).runtime(runtime).build().unwrap()
}

/// asyncband's pool, which has no time-outs.
pub fn asyncband() -> Asyncband {
    bounded::Pool::new(bounded::PoolConfig::new(SIZE), Numbers)
}

impl managed::Manager for Numbers {
    type Type = u64;
    type Error = Infallible;

    async fn create(&self) -> Result<u64, Infallible> {
        Ok(7)
    }

    async fn recycle(&self, _: &mut u64, _: &Metrics) -> RecycleResult<Infallible> {
        Ok(())
    }
}

impl ManageObject for Numbers {
    type Object = u64;
    type Error = Infallible;

    async fn create(&self) -> Result<u64, Infallible> {
        Ok(7)
    }

    async fn is_recyclable(&self, _: &mut u64, _: &ObjectStatus) -> Result<(), Infallible> {
        Ok(())
    }
}

impl Contender for Deadpool {
    type Guard = managed::Object<Numbers>;

    async fn check_out(&self) -> Option<Self::Guard> {
        self.get().await.ok()
    }
}

impl Contender for Asyncband {
    type Guard = bounded::Object<Numbers>;

    async fn check_out(&self) -> Option<Self::Guard> {
        self.get().await.ok()
    }
}

impl<R: Runtime> Contender for TimedAsyncband<R> {
    type Guard = bounded::Object<Numbers>;

    async fn check_out(&self) -> Option<Self::Guard> {
        within(&self.runtime, self.limit, self.pool.get()).await?.ok()
    }
}
