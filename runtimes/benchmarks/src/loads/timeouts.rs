//! No connection comes back: the time of all waiters is up at almost the same moment.

use std::time::Duration;

use cmap_runtime::Runtime;

use super::take_all;
use crate::contender::Contender;
use crate::figures::Quantiles;
use crate::tasks::{clock, join};

/// The number of waiters.
pub const WAITERS: usize = 10_000;

/// Their time limit.
pub const LIMIT: Duration = Duration::from_millis(50);

/// How long after its time each waiter is told.
pub(super) async fn lateness<R: Runtime, P: Contender>(runtime: &R, pool: &P) -> Quantiles {
    let guards = take_all(pool).await;
    let wait = |pool: P| async move {
        let asked = clock();
        assert!(pool.check_out().await.is_none(), "there is no connection left");
        asked.elapsed().saturating_sub(LIMIT)
    };
    let late = join(runtime, (0..WAITERS).map(|_| wait(pool.clone()))).await;
    drop(guards);
    Quantiles::of(late)
}
