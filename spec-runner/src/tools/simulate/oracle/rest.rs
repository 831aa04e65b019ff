//! What a client does by itself while nobody uses it (CMAP-44).

use std::time::Duration;

use cmap_core::options::PoolOptions;

use super::super::ledger::Pool;
use super::{Broken, Oracle, law};

/// What is known of a client's rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    min_pool_size: u32,
    /// The shortest life that an idle connection has.
    shortest_life: Option<Duration>,
    /// Whether nothing keeps a pool from minPoolSize.
    fills_up: bool,
    /// The connections that were begun since it rests.
    begun: u32,
}

impl Rest {
    pub(super) fn of(options: &PoolOptions, is_limited: bool) -> Self {
        let lives = [options.max_idle_time, options.max_lifetime.map(|life| life * 3 / 4)];
        let shortest_life = lives.into_iter().flatten().filter(|life| !life.is_zero()).min();
        let fills_up = shortest_life.is_none() && options.host_timeout.is_none() && !is_limited;
        Self { min_pool_size: options.min_pool_size.unwrap_or_default(), shortest_life, fills_up, begun: 0 }
    }

    pub(super) fn count(&mut self) {
        self.begun += 1;
    }

    /// How many connections a pool may begin in so long a time.
    fn most_begun(self, time: Duration) -> u32 {
        let lives = self.shortest_life.map_or(0, |life| time.as_millis() / life.as_millis().max(1));
        (self.min_pool_size + 1) * (2 + u32::try_from(lives).unwrap_or(u32::MAX / 1024))
    }
}

impl Oracle {
    /// Nobody uses the client from now on.
    pub(in super::super) fn rest_began(&mut self) {
        self.rest.begun = 0;
    }

    /// Judges what a client has done that nobody has used for so long.
    pub(in super::super) fn judge_rest(&self, time: Duration) -> Result<(), Broken> {
        let Rest { begun, min_pool_size, fills_up, .. } = self.rest;
        let pools = u32::try_from(self.pools.iter().count()).unwrap_or(u32::MAX);
        let is_calm = begun <= pools.saturating_mul(self.rest.most_begun(time));
        law("a client that nobody uses makes no storm of connections", is_calm, || {
            format!("{begun} in {time:?}, in {pools} pools")
        })?;
        let max = if self.limits.max_pool_size == 0 { u32::MAX } else { self.limits.max_pool_size };
        // Each run of the maintenance, once in a second, establishes maxConnecting at most.
        let runs = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        let least = min_pool_size.min(max).min(runs.saturating_mul(self.limits.max_connecting));
        let lacks_some = |pool: &&Pool| pool.is_ready && !pool.is_closed && pool.total() < least;
        let lacking = self.pools.iter().find(lacks_some).filter(|_| fills_up && !self.identities.share_limits());
        law("a pool that nobody uses fills up to minPoolSize", lacking.is_none(), || format!("{lacking:?}"))
    }
}
